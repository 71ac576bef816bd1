"""A run of a small virtual machine with a row for every verdict, and with names that try to break a report."""

from __future__ import annotations

import math
import random

from railwright.checks.finding import Finding, PartPlace
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath, Verdict
from railwright.diagnosis.verdicts.verdict import WORST_FIRST, fraction_of_limit, judge
from railwright.errors import EXIT_SLOW
from railwright.limits.limit import Expected, Limit, NoLimit, Quantity, Source, Step
from railwright.results.records import Context, End, Evidence, Noise, Result, Run, Verification
from railwright.results.statistics import summarise
from railwright.topology.devices import Device, InternalLink, Link, MemoryLink, Scalar, Topology, Unknown

SCRIPT_NAME = "<script>alert(1)</script>"
MARKUP_NAME = "[red]x[/red]"
CLOSING_NAME = "</script><!--"
CONTROL_NAME = "disk\x1b[31m\u202ered\n"
HOSTILE_NAMES = (SCRIPT_NAME, MARKUP_NAME, CLOSING_NAME, CONTROL_NAME)

SIZES = tuple(8 * 4**step for step in range(10))
DDR = Source(title="JEDEC JESD79-5, DDR5 SDRAM", section="table of speed bins")
COPY = Source(title="this run", section="memory_copy, one thread")
FIELD = Source(title="railwright docs/measured", section="virtual machines, 2 cores")

Band = tuple[float, float | None]


class Curve:
    """The recipe for a curve: its value by size, its limit, and its band as fractions of that limit."""

    def __init__(self, benchmark: str, quantity: Quantity, path: str, parameters: dict[str, Scalar],
                 limit: float | None, reached: float, band: Band | None = (0.7, None), *,
                 half_bytes: float = 16384.0, launches: int = 3, sizes: tuple[int, ...] = SIZES) -> None:  # fmt: skip
        self.benchmark, self.quantity, self.path, self.parameters = benchmark, quantity, path, parameters
        self.limit, self.reached, self.band = limit, reached, band
        self.half_bytes, self.launches, self.sizes = half_bytes, launches, sizes

    def value(self, size: int) -> float:
        """Return the true median at a size."""
        if self.quantity == "latency_s":
            return self.reached * (1 + size / self.half_bytes)
        return self.reached * size / (size + self.half_bytes) if self.half_bytes else self.reached

    def limit_at(self, size: int) -> Limit | NoLimit:
        """Return the limit at a size."""
        if self.limit is None:
            return NoLimit(
                quantity=self.quantity, why="this link is inside the hypervisor", missing=("nic0: line rate",)
            )
        value = self.limit * (1 + size / self.half_bytes) if self.quantity == "latency_s" else self.limit
        if self.benchmark == "memory_copy":
            return Limit(
                quantity=self.quantity, value=value, kind="derived", bottleneck="cpu0--memory0", sources=(DDR,),
                because="DDR5-4800, 1 channel, one read and one write for each byte copied",
                derivation=(
                    Step(text="4800 MT/s x 8 B x 1 channel", value="38.4 GB/s"),
                    Step(text="one read and one write for each byte", value="19.2 GB/s"),
                ),
            )  # fmt: skip
        return Limit(
            quantity=self.quantity, value=value, kind="measured_ceiling", sources=(COPY,),
            because="memory_copy with one thread reached this in the same run, and the bytes are copied once",
        )  # fmt: skip

    def expected_at(self, size: int) -> Expected | None:
        """Return the band at a size; a bandwidth has one only at sizes where it is saturated."""
        limit = self.limit_at(size)
        if self.band is None or isinstance(limit, NoLimit):
            return None
        if self.quantity != "latency_s" and size < 16 * self.half_bytes:
            return None
        low, high = self.band
        return Expected(
            quantity=self.quantity, low=low * limit.value, high=high and high * limit.value,
            because="healthy machines of this class", sources=(FIELD,),
        )  # fmt: skip


CURVES = (
    Curve("memory_copy", "bandwidth_bytes_per_s", "memory0>memory0", {"threads": 1}, 19.2e9, 15.1e9, (0.5, None)),
    Curve("memory_copy", "bandwidth_bytes_per_s", "memory0>memory0", {"threads": 2}, 19.2e9, 17.9e9, (0.6, None)),
    Curve("mpi_latency", "latency_s", "cpu0>cpu0", {"transport": "shm"}, 180e-9, 270e-9, (1.0, 2.0)),
    Curve("mpi_latency", "latency_s", "cpu0>cpu0", {"transport": "tcp"}, 2e-6, 21e-6, (1.0, 6.0)),
    Curve("mpi_bandwidth", "bandwidth_bytes_per_s", "memory0>memory0", {"transport": "shm"}, 15.1e9, 17.4e9),
    Curve("mpi_bandwidth", "bandwidth_bytes_per_s", "memory0>memory0", {"transport": "tcp"}, 15.1e9, 3.2e9,
          (0.15, None)),
    Curve("kv_transfer", "bandwidth_bytes_per_s", "memory0>memory0", {"operation": "WRITE"}, 15.1e9, 12.8e9),
    Curve("kv_transfer", "bandwidth_bytes_per_s", "memory0>memory0", {"operation": "READ"}, 15.1e9, 12.1e9),
    Curve("file_read", "bandwidth_bytes_per_s", f"vda>{MARKUP_NAME}", {"engine": "io_uring", "depth": 32}, None, 2.1e9),
    Curve("file_read", "operations_per_s", f"vda>{SCRIPT_NAME}", {"engine": CLOSING_NAME, "depth": 32}, None, 81e3,
          half_bytes=0, sizes=(4096,)),
)  # fmt: skip


def results(curves: tuple[Curve, ...] = CURVES, *, seed: int = 1, spread: float = 0.02) -> tuple[Result, ...]:
    """Make results with 20 samples per point; `spread` is the deviation of the launches."""
    chance = random.Random(seed)
    made = []
    for curve in curves:
        for launch in range(curve.launches):
            error = math.exp(chance.gauss(0, spread))
            made += [_result(curve, launch, size, error, chance) for size in curve.sizes]
    return (*made, *_unmeasured())


def _result(curve: Curve, launch: int, size: int, error: float, chance: random.Random) -> Result:
    samples = tuple(curve.value(size) * error * math.exp(abs(chance.gauss(0, 0.01))) for _ in range(20))
    return Result(
        benchmark=curve.benchmark, quantity=curve.quantity, path=curve.path,
        method="OSU 7.4" if curve.benchmark.startswith("mpi") else "railwright",
        parameters={**curve.parameters, "size_bytes": size}, launch=launch,
        ranks=1 if curve.benchmark == "memory_copy" else 2,
        settings={"iterations": 1000, "warmup": 100, "binding": "core 0, core 1", "thread_level": "single"},
        samples=samples, summary=summarise(samples),
        verification=Verification(method="pattern of the byte's place", bytes_checked=size * 20, bytes_wrong=0),
        evidence=(Evidence(claim="transport", value=str(curve.parameters.get("transport", "memory")),
                           seen="UCX_LOG_LEVEL=info, ucp_worker.c"),),
    )  # fmt: skip


def _unmeasured() -> tuple[Result, ...]:
    failed = tuple(
        Result(benchmark="kv_transfer", quantity="bandwidth_bytes_per_s", path="memory0>nic0", outcome="failed",
               reason=f"rank 1 on vm-{CONTROL_NAME} was killed by SIGSEGV in nixl_post_xfer_req",
               parameters={"operation": "WRITE", "size_bytes": size})
        for size in SIZES
    )  # fmt: skip
    waived = Result(benchmark="gpu_copy", quantity="bandwidth_bytes_per_s", path="gpu0>memory0", outcome="waived",
                    reason="there is no GPU on this machine")  # fmt: skip
    return (*failed, waived)


def run() -> Run:
    """Make the run of the machine."""
    topology = Topology(
        name="vm-1", source="live",
        devices=(
            Device(id="host0", kind="host", name=f"vm-1 {SCRIPT_NAME}"),
            Device(id="cpu0", kind="cpu", name="Intel(R) Xeon(R) Processor @ 2.90GHz", numa=0, facts={"cores": 2}),
            Device(id="memory0", kind="memory", numa=0, facts={"memory_bytes": 25_000_000_000}),
            Device(id="root0", kind="root_port", address="0000:00:01.0", numa=0),
            Device(id="nic0", kind="nic", name=f"virtio {CLOSING_NAME}", address="0000:00:03.0", numa=0),
            Device(id="vda", kind="drive", name=CONTROL_NAME, address="0000:00:04.0", numa=0),
        ),
        links=(
            Link(a="cpu0", b="memory0", protocol=MemoryLink(channels=1, transfers_per_s=4.8e9, bus_bytes=8)),
            Link(a="cpu0", b="root0", protocol=InternalLink(name="virtual")),
            Link(a="root0", b="nic0", protocol=InternalLink(name="virtio")),
            Link(a="cpu0", b="vda", protocol=InternalLink(name=MARKUP_NAME)),
        ),
        unknown=(Unknown(what="memory0: speed", why="/sys/firmware/dmi/tables/DMI: Permission denied"),),
    )  # fmt: skip
    context = Context(
        host=f"vm-1{MARKUP_NAME}", kernel="6.1.0-28-amd64", operating_system="Debian GNU/Linux 12 (bookworm)",
        cpu="Intel(R) Xeon(R) Processor @ 2.90GHz", cores=2, memory_bytes=25_000_000_000,
        software={"openmpi": "5.0.11", "nixl": "1.5.1", "ucx": "1.20.0", "python": "3.11.7"},
        environment={"UCX_TLS": "tcp,self", "OMPI_MCA_btl": SCRIPT_NAME}, load_average=0.31, busy_fraction=0.042,
        noise=Noise(quantum_s=1.02e-3, lost_fraction=0.013, worst_s=4.1e-3, quanta=500),
    )  # fmt: skip
    return Run(railwright="0.1.0", started_at="2026-11-21T22:10:00Z", command=("railwright", "prove", "--out", "out"),
               context=context, topology=topology)  # fmt: skip


def end() -> End:
    """Make the last record of the run."""
    return End(finished_at="2026-11-21T22:11:35Z", counters_moved={"TcpRetransSegs": 12, f"nic0 {MARKUP_NAME}": 3})


FINDING = Finding(
    fault="loopback_mtu", where=(PartPlace("nic0"), PartPlace(CLOSING_NAME)), certainty="likely",
    says="The loopback device has an MTU of 1500 B, so that a 64 KiB message becomes 45 packets.",
    costs="about a third of the TCP bandwidth inside one host",
    remedy="ip link set lo mtu 65536",
    evidence=(Evidence(claim="MTU", value="1500", seen="/sys/class/net/lo/mtu"),),
)  # fmt: skip

MACHINE_FINDING = Finding(
    fault="transparent_huge_pages", where=(PartPlace(f"host0 {SCRIPT_NAME}"),), certainty="could not look",
    says="Whether huge pages are used could not be read.", remedy="run as root",
)  # fmt: skip


def diagnosis(curves: tuple[Curve, ...] = CURVES, measured: tuple[Result, ...] | None = None) -> Diagnosis:
    """Judge the run by the product's own rule."""
    found = results(curves) if measured is None else measured
    points: list[Judged] = []
    paths: list[JudgedPath] = []
    for curve in curves:
        judged = [_judged(curve, size, found) for size in curve.sizes]
        points += judged
        paths.append(_path(judged))
    for result in _unmeasured():
        points.append(_missing(result))
    paths += [_path([point for point in points if point.path == path]) for path in ("memory0>nic0", "gpu0>memory0")]
    return Diagnosis(points=tuple(points), paths=tuple(paths), findings=(MACHINE_FINDING,), exit_status=EXIT_SLOW)


def _judged(curve: Curve, size: int, found: tuple[Result, ...]) -> Judged:
    parameters = {**curve.parameters, "size_bytes": size}
    same = [result for result in found if result.parameters == parameters and result.benchmark == curve.benchmark
            and result.quantity == curve.quantity and result.path == curve.path]  # fmt: skip
    launches = tuple(result.summary for result in same if result.summary)
    medians = [result.median for result in launches]
    middle = summarise(medians)
    limit, expected = curve.limit_at(size), curve.expected_at(size)
    return Judged(
        benchmark=curve.benchmark, quantity=curve.quantity, path=curve.path, parameters=parameters, outcome="measured",
        value=middle.median, launches=launches, launch_spread=(middle.maximum - middle.minimum) / middle.median,
        limit=limit, expected=expected, method=same[0].method, ranks=same[0].ranks,
        fraction_of_limit=fraction_of_limit(middle.median, limit) if isinstance(limit, Limit) else None,
        verdict=judge("measured", "", middle.median, limit, expected, same[0].verification),
        verification=same[0].verification, evidence=same[0].evidence,
    )  # fmt: skip


def _missing(result: Result) -> Judged:
    return Judged(
        benchmark=result.benchmark, quantity=result.quantity, path=result.path, parameters=result.parameters,
        outcome=result.outcome, reason=result.reason, limit=NoLimit(quantity=result.quantity, why="not measured"),
        verdict=judge(result.outcome, result.reason, None, NoLimit(quantity=result.quantity, why=""), None, None),
    )  # fmt: skip


def _path(points: list[Judged]) -> JudgedPath:
    first = points[0]
    measured = [point for point in points if point.value is not None]
    banded = [point for point in points if point.expected is not None or point.verdict.state == "suspicious"]
    worst = min(banded or points, key=lambda point: WORST_FIRST.index(point.verdict.state))
    by_value = sorted(measured, key=lambda point: point.value or 0)
    headline = by_value[0 if first.quantity == "latency_s" else -1] if by_value else None
    verdict = worst.verdict if headline is None or banded else Verdict(state="unknown", why=worst.verdict.why)
    return JudgedPath(
        benchmark=first.benchmark, quantity=first.quantity, path=first.path, verdict=verdict, headline=headline,
        parameters={key: value for key, value in first.parameters.items() if key != "size_bytes"},
        path_kind="LOC" if first.path == "memory0>memory0" else None, points=len(points), measured_points=len(measured),
        causes=(FINDING,) if verdict.state == "slow" else (),
    )  # fmt: skip
