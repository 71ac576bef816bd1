"""NCCL collectives over the same sizes and GPUs, in the order nccl-tests, ours, ours, nccl-tests and so on."""

from __future__ import annotations

from collections.abc import Sequence

from measure_gpu.points import Way
from measure_gpu.session import Session, first_gpus

from railwright.units import MIB, parse_sizes

PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "send_recv": "sendrecv_perf",
    "broadcast": "broadcast_perf",
}
LOG_SUBSYSTEMS = "INIT,ENV,GRAPH,TUNING,NET,P2P"
_REGISTERED = {"registered": "1", "symmetric": "2"}  # nccl-tests' -R
_LOG_SIZES = "8:1G:x8"
_WARM_SIZES = "256M:256M:x2"


def measure(session: Session, operations: Sequence[str], ways: Sequence[Way]) -> None:
    """Measure round by round over all collectives, so that an exhausted time budget affects them equally.

    Small and large sizes are separate sweeps in both programs, because the largest size of a sweep decides how much
    memory its operations pass through, and so what the caches hold.
    """
    small, large = _parts(session.sizes)
    parts = {"small": (small, session.rounds_small), "large": (large, session.rounds)}
    every = [(way, count, operation) for way in ways for count in session.counts for operation in operations]
    plan = []
    for part, (sizes, rounds) in parts.items():
        for way, count, operation in every if sizes else ():
            name = f"{operation}-{way.name}-{count}gpus-{part}"
            first = session.free_number(name)
            plan += [(number, f"{name}-{first + number}", operation, way, count, sizes) for number in range(rounds)]
    for count in session.counts if plan else ():
        name = f"warm-{count}gpus"  # so that the first pair of all finds the GPUs at their clocks, as the others do
        theirs(session, name, operations[0], Way("processes", "plain"), count, _WARM_SIZES)
    for number, name, *one in sorted(plan, key=lambda entry: entry[0]):
        if session.left_s() > 0:
            _pair(session, number, name, *one)
        else:
            session.not_run(name)


def _pair(session: Session, number: int, name: str, operation: str, way: Way, count: int, sizes: str) -> None:
    """Run both programs once; they alternate in going first."""
    for turn in [ours, theirs] if number % 2 else [theirs, ours]:
        turn(session, f"{name}-nccl-tests" if turn is theirs else name, operation, way, count, sizes)


def _parts(sizes: str) -> tuple[str, str]:
    """Split a sweep first:last:xSTEP into sizes below 1 MiB and the rest; a part without sizes is left out."""
    step = sizes.split(":")[2]
    every = parse_sizes(sizes)
    halves = [[size for size in every if size < MIB], [size for size in every if size >= MIB]]
    told = [f"{half[0]}:{half[-1]}:{step}" if half else "" for half in halves]
    return told[0], told[1]


def theirs(
    session: Session, name: str, operation: str, way: Way, count: int, sizes: str, *, checks: bool = True
) -> None:
    """Run nccl-tests' program over the sizes. Without its check it moves memory that nothing wrote, see `written`."""
    if session.nccl_tests is None:
        return
    first, last, step = sizes.split(":")
    sweep = ["-b", first, "-e", last, "-f", step.removeprefix("x"), "-c", str(int(checks)), "-w", "1", "-n", "20"]
    sweep += ["-G", "1"] if way.launched == "graph" else []
    sweep += ["-R", _REGISTERED[way.buffers]] if way.buffers != "plain" else []
    session.run(name, _program(session, operation, way, count, sweep), **first_gpus(count))


def _program(session: Session, operation: str, way: Way, count: int, sweep: list[str]) -> list[str]:
    assert session.nccl_tests is not None
    program = str(session.nccl_tests / ("m" if way.ranks_in == "processes" else "t") / PROGRAMS[operation])
    if way.ranks_in == "threads":
        return [program, *sweep, "-g", "1", "-t", str(count)]
    return ["mpirun", "-n", str(count), "--bind-to", "none", "--allow-run-as-root", program, *sweep, "-g", "1"]


def ours(session: Session, name: str, operation: str, way: Way, count: int, sizes: str) -> None:
    """Run our benchmark over the sizes, in place and out of place."""
    benchmark = f"nccl_{operation}"
    options = {"sizes": sizes, "placements": "out of place,in place", "ranks_in": way.ranks_in}
    options |= {"launched": way.launched, "evidence": "no", "gpus": str(count)}
    options |= {"buffers": way.buffers} if way.buffers != "plain" else {}
    chosen = [f"{benchmark}.{key}={value}" for key, value in options.items()]
    session.railwright(name, [benchmark], chosen, **first_gpus(count))


def logs(session: Session) -> None:
    """Keep NCCL's log of a short, untimed run of each collective on each number of GPUs."""
    debug = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": LOG_SUBSYSTEMS}
    for count in session.counts:
        for operation in PROGRAMS:
            name = f"{operation}-{count}gpus.nccl-log"
            if session.nccl_tests is not None:
                first, last, step = _LOG_SIZES.split(":")
                sweep = ["-b", first, "-e", last, "-f", step.removeprefix("x"), "-c", "0", "-w", "0", "-n", "1"]
                argv = _program(session, operation, Way("processes", "plain"), count, sweep)
                session.run(name, argv, **first_gpus(count), **debug)
                continue
            _log_of_ours(session, name, operation, count, debug)


def _log_of_ours(session: Session, name: str, operation: str, count: int, debug: dict[str, str]) -> None:
    """Keep the log of our benchmark: each rank writes a file, and these are concatenated."""
    benchmark = f"nccl_{operation}"
    options = [f"{benchmark}.sizes={_LOG_SIZES}", f"{benchmark}.evidence=no", f"{benchmark}.gpus={count}"]
    file = {"NCCL_DEBUG_FILE": str((session.raw / f"{name}.rank-%p").resolve())}
    session.railwright(f"{operation}-{count}gpus-logged", [benchmark], options, **first_gpus(count), **debug, **file)
    parts = sorted(session.raw.glob(f"{name}.rank-*"))
    (session.raw / f"{name}.txt").write_text("".join(part.read_text(errors="replace") for part in parts))
    for part in parts:
        part.unlink()
