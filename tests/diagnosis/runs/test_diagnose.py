"""The verdicts on a whole run: limits measured in the same run, curves, causes and the exit status."""

from __future__ import annotations

import itertools
import json

import pytest
from msgspec.structs import replace

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.diagnosis.verdicts.judged import Diagnosis, JudgedPath
from railwright.limits.limit import Limit, Quantity
from railwright.report.formats.records import json_lines
from railwright.report.view import build_view
from railwright.results.records import Context, Disturbed, End, Evidence, Result, ResultFile, Run, Verification
from railwright.results.statistics import summarise
from railwright.topology.devices import Scalar, Topology
from railwright.topology.expand import expand
from railwright.units import MIB

CLEAN = Verification(method="a test", bytes_checked=100, bytes_wrong=0)


def measured(
    benchmark: str,
    value: float,
    *,
    quantity: Quantity = "bandwidth_bytes_per_s",
    path: str = "memory0>memory0",
    launch: int = 0,
    verification: Verification | None = CLEAN,
    **parameters: Scalar,
) -> Result:
    return Result(
        benchmark=benchmark,
        quantity=quantity,
        path=path,
        parameters=parameters,
        launch=launch,
        samples=(value,) * 3,
        summary=summarise([value] * 3),
        verification=verification,
    )


def copies(*values: float, size: int = 2 * MIB) -> list[Result]:
    return [
        measured("memory_copy", value, launch=launch, size_bytes=size, threads=1) for launch, value in enumerate(values)
    ]


def judged(results: list[Result], topology: Topology | None = None, disturbed: tuple[Disturbed, ...] = ()) -> Diagnosis:
    return diagnose(file_of(results, topology, disturbed), DECLARATIONS)


def file_of(
    results: list[Result], topology: Topology | None = None, disturbed: tuple[Disturbed, ...] = ()
) -> ResultFile:
    run = Run(
        railwright="0",
        started_at="2026-01-01T00:00:00+00:00",
        command=("railwright",),
        context=Context(host="h", kernel="k"),
        topology=topology or expand("laptop", {}),
    )
    return ResultFile(run=run, results=tuple(results), disturbed=disturbed)


def path_of(diagnosis: Diagnosis, benchmark: str) -> JudgedPath:
    (found,) = [path for path in diagnosis.paths if path.benchmark == benchmark]
    return found


@pytest.mark.parametrize(
    ("value", "state"), [(9e9, "ok"), (5e9, "ok"), (4.9e9, "slow"), (10.9e9, "ok"), (11.1e9, "suspicious")]
)
def test_a_transfer_within_a_host_is_held_against_the_memory_copy_of_the_same_run(value: float, state: str) -> None:
    transfer = measured("mpi_bandwidth", value, transport="shm", size_bytes=2 * MIB)
    path = path_of(judged([*copies(10e9, 10e9), transfer]), "mpi_bandwidth")
    assert path.verdict.state == state
    assert path.headline is not None
    assert path.headline.limit.kind == "measured_ceiling"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (6.20e9, "ok"),
        (5.55e9, "unknown"),  # measured on a healthy machine with 2 H200; others of its kind reach 5.46 and 6.09
        (2.9e9, "slow"),
    ],
)
def test_a_single_launch_does_not_show_how_slow_the_next_copy_is(value: float, state: str) -> None:
    transfer = measured("kv_transfer", value, size_bytes=64 * MIB)
    assert path_of(judged([*copies(12.0e9, size=64 * MIB), transfer]), "kv_transfer").verdict.state == state


def test_ok_is_against_the_fastest_copy_slow_against_the_slowest_and_nothing_between() -> None:
    for value, state in ((10e9, "ok"), (9e9, "unknown"), (4e9, "unknown"), (3.9e9, "slow"), (40.1e9, "suspicious")):
        transfer = measured("mpi_bandwidth", value, transport="shm", size_bytes=2 * MIB)
        assert path_of(judged([*copies(8e9, 20e9), transfer]), "mpi_bandwidth").verdict.state == state


def test_a_transfer_may_reach_what_a_copy_of_half_its_size_reaches() -> None:
    """Two processes keep the data in the caches of two cores, one thread in those of one core."""
    transfer = measured("kv_transfer", 26e9, size_bytes=MIB)
    both = [*copies(17e9, size=MIB), *copies(29e9, size=MIB // 2)]
    path = path_of(judged([*both, transfer]), "kv_transfer")
    assert path.headline is not None
    assert path.headline.limit.value == 29e9  # type: ignore[union-attr]
    assert "copy of 512 KiB" in path.headline.limit.because  # type: ignore[union-attr]
    assert path.headline.expected is not None
    assert path.headline.expected.low == 0.5 * 17e9, "what is expected is of its own size"


@pytest.mark.parametrize(
    ("value", "of_memory", "state"),
    [
        (20.9e9, 11.5e9, "ok"),  # measured on a VM with 2 cores, whose thread copies 1 MiB in its caches
        (16.4e9, 11.5e9, "ok"),
        (16.2e9, 11.5e9, "slow"),
        (20.9e9, 44e9, "slow"),  # memory could reach half of 44
        (22.1e9, 44e9, "ok"),
        (24.4e9, 60e9, "slow"),  # a faster larger copy proves only that it is a copy of memory
    ],
)
def test_within_caches_a_third_of_a_copy_is_expected_and_half_of_one_of_memory(
    value: float, of_memory: float, state: str
) -> None:
    transfer = measured("kv_transfer", value, size_bytes=MIB)
    copied = [*copies(49e9, 49e9, size=MIB), *copies(of_memory, of_memory, size=64 * MIB)]
    assert path_of(judged([*copied, transfer]), "kv_transfer").verdict.state == state


def test_the_ceiling_is_the_best_sample_of_a_copy() -> None:
    unsteady = replace(copies(10e9)[0], samples=(9e9, 10e9, 14e9), summary=summarise([9e9, 10e9, 14e9]))
    transfer = measured("kv_transfer", 13e9, size_bytes=2 * MIB)
    assert path_of(judged([unsteady, transfer]), "kv_transfer").verdict.state == "ok"


def test_a_verdict_of_another_size_than_the_headline_s_names_it() -> None:
    points = [measured("kv_transfer", value, size_bytes=size) for value, size in ((30e9, MIB), (9e9, 4 * MIB))]
    path = path_of(judged([*copies(10e9, size=MIB), *copies(10e9, size=4 * MIB), *points]), "kv_transfer")
    assert path.verdict.state == "suspicious"
    assert path.verdict.why == "at 1 MiB: 3.00 of the limit: above the limit of 10.0 GB/s"


def test_small_sizes_do_not_vouch_for_a_headline_without_a_limit() -> None:
    transfers = [measured("mpi_bandwidth", 9e9, transport="shm", size_bytes=size) for size in (2 * MIB, 256 * MIB)]
    path = path_of(judged([*copies(10e9), *transfers]), "mpi_bandwidth")
    assert path.verdict.state == "unknown"


def test_a_point_without_a_verdict_counts_in_the_path_the_answer_the_counters_and_the_exit_status() -> None:
    sizes = (MIB, 2 * MIB)
    copy = [result for size in sizes for result in copies(10e9, 10e9, size=size)]
    transfers = [measured("mpi_bandwidth", 9e9, transport="shm", size_bytes=size) for size in sizes]
    end = End(finished_at="2026-01-01T00:01:00+00:00")
    assert diagnose(replace(file_of([*copy, *transfers]), end=end), DECLARATIONS).exit_status == 0
    file = file_of([*copy, replace(transfers[0], verification=None), transfers[1]])
    found = diagnose(replace(file, end=end), DECLARATIONS)
    assert path_of(found, "mpi_bandwidth").verdict.state == "unknown"
    assert found.exit_status == 3
    view = build_view(file.run, found, end)
    assert view.answer == "1 of 1 path could not be judged (1 of 2 points), and nothing is slow"
    assert "1 unknown" in view.closing
    assert "1 of 2 points could not be judged" in view.closing
    records = [json.loads(line) for line in json_lines(view)]
    assert [record["verdict"]["state"] for record in records if record["record"] == "path"] == ["reference", "unknown"]


def test_what_nobody_verified_is_neither_ok_nor_a_ceiling() -> None:
    transfer = measured("mpi_bandwidth", 9e9, transport="shm", size_bytes=2 * MIB)
    unchecked = replace(transfer, verification=None)
    assert path_of(judged([*copies(10e9), unchecked]), "mpi_bandwidth").verdict.state == "unknown"
    ceiling = [replace(copy, verification=None) for copy in copies(10e9)]
    assert path_of(judged([*ceiling, transfer]), "mpi_bandwidth").verdict.state == "unknown"


def test_a_copy_that_caches_may_hold_is_not_held_against_the_memory() -> None:
    for size, limited in ((MIB, False), (1024 * MIB, True)):
        path = path_of(judged(copies(10e9, size=size)), "memory_copy")
        assert path.headline is not None
        assert isinstance(path.headline.limit, Limit) == limited


@pytest.mark.parametrize(
    ("nanoseconds", "size", "transport", "state"),
    [
        (300, 8, "shm", "ok"),
        (1199, 8, "shm", "ok"),
        (1201, 8, "shm", "slow"),
        (54, 8, "shm", "suspicious"),
        (300, 4096, "shm", "unknown"),
        (4700, 8, "tcp", "unknown"),
    ],
)
def test_a_small_message_is_held_against_one_cache_line(
    nanoseconds: int, size: int, transport: str, state: str
) -> None:
    line = measured("core_latency", 60e-9, quantity="latency_s")
    message = measured("mpi_latency", nanoseconds * 1e-9, quantity="latency_s", size_bytes=size, transport=transport)
    assert path_of(judged([line, message]), "mpi_latency").verdict.state == state


def test_without_the_ceiling_the_verdict_is_unknown() -> None:
    transfer = measured("mpi_bandwidth", 9e9, transport="shm", size_bytes=2 * MIB)
    diagnosis = judged([transfer])
    assert path_of(diagnosis, "mpi_bandwidth").verdict.state == "unknown"
    assert diagnosis.exit_status == 3


def test_a_ceiling_with_wrong_bytes_is_none() -> None:
    wrong = Verification(method="a test", bytes_checked=100, bytes_wrong=1)
    ceiling = measured("memory_copy", 10e9, verification=wrong, size_bytes=2 * MIB, threads=1)
    transfer = measured("mpi_bandwidth", 9e9, transport="shm", size_bytes=2 * MIB)
    diagnosis = judged([ceiling, transfer])
    assert path_of(diagnosis, "mpi_bandwidth").verdict.state == "unknown"
    assert path_of(diagnosis, "memory_copy").verdict.state == "failed"


def test_a_ceiling_of_another_size_does_not_count() -> None:
    transfer = measured("mpi_bandwidth", 9e9, transport="shm", size_bytes=64 * MIB)
    assert path_of(judged([*copies(10e9), transfer]), "mpi_bandwidth").verdict.state == "unknown"


def test_a_file_is_held_against_its_raw_device() -> None:
    for value, state in ((1.9e9, "ok"), (1.5e9, "slow"), (2.3e9, "suspicious")):
        results = [
            measured("device_read", 2e9, path="nvme0n1>memory0", size_bytes=MIB, depth=4),
            measured("file_read", value, path="nvme0n1>memory0", size_bytes=MIB, depth=4),
        ]
        assert path_of(judged(results), "file_read").verdict.state == state


def test_a_file_read_latency_has_a_floor_and_a_band_above_it() -> None:
    for value, state in ((100e-6, "ok"), (130e-6, "slow"), (90e-6, "suspicious")):
        results = [
            measured(name, seconds, quantity="latency_s", path="nvme0n1>memory0", size_bytes=4096, depth=32)
            for name, seconds in (("device_read", 100e-6), ("file_read", value))
        ]
        assert path_of(judged(results), "file_read").verdict.state == state


def test_a_drive_is_held_against_its_pcie_link() -> None:
    reading = measured("device_read", 3e9, path="nvme0n1>memory0", size_bytes=MIB, depth=4)
    path = path_of(judged([reading]), "device_read")
    assert path.path_kind == "PHB"
    assert path.headline is not None
    assert "PCIe" in path.headline.limit.because  # type: ignore[union-attr]


def test_a_launch_that_failed_makes_its_curve_fail_and_keeps_the_rest() -> None:
    dead = Result(
        benchmark="mpi_bandwidth",
        quantity="bandwidth_bytes_per_s",
        path="memory0>memory0",
        outcome="failed",
        reason="rank 1 (host h, pid 7) ended",
        parameters={"transport": "shm"},
        launch=1,
    )
    transfer = measured("mpi_bandwidth", 9e9, transport="shm", size_bytes=2 * MIB)
    diagnosis = judged([*copies(10e9), transfer, dead])
    path = path_of(diagnosis, "mpi_bandwidth")
    assert path.verdict.state == "failed"
    assert "rank 1" in path.verdict.why
    assert path.headline is not None
    assert path.headline.value == 9e9
    assert diagnosis.exit_status == 3


def test_the_fallback_to_tcp_is_the_cause_of_a_slow_transfer() -> None:
    seen = Evidence(claim="ucx_protocol", value="tcp/lo", seen="UCX_PROTO_INFO")
    slow = replace(measured("kv_transfer", 1e9, operation="WRITE", size_bytes=2 * MIB), evidence=(seen,), ranks=2)
    diagnosis = judged([*copies(10e9), slow])
    path = path_of(diagnosis, "kv_transfer")
    assert path.verdict.state == "slow"
    assert [cause.fault for cause in path.causes] == ["tcp_fallback"]
    assert "SYS_PTRACE" in path.causes[0].remedy
    assert diagnosis.exit_status == 1


def test_a_slow_size_has_the_cause_that_was_seen_of_it_though_the_largest_is_not_slow() -> None:
    def transfer(rate: float, size: int, protocol: str) -> Result:
        seen = (Evidence(claim="ucx_protocol", value=protocol, seen="UCX_PROTO_INFO"),)
        return replace(measured("kv_transfer", rate, operation="WRITE", size_bytes=size), evidence=seen, ranks=2)

    mixed = transfer(1e9, 4 * MIB, "52% on tcp/lo and 48% on tcp/eth0")
    points = [transfer(1e9, 2 * MIB, "tcp/lo"), mixed, transfer(9e9, 64 * MIB, "cma/memory")]
    path = path_of(judged([*copies(10e9), *points]), "kv_transfer")
    assert path.headline is not None
    assert path.headline.verdict.state != "slow"
    assert path.verdict.state == "slow"
    (cause,) = path.causes
    assert cause.fault == "tcp_fallback"
    assert [one.value for one in cause.evidence] == ["tcp/lo", "52% on tcp/lo and 48% on tcp/eth0"]


def test_a_degraded_link_is_the_cause_of_a_slow_drive() -> None:
    from railwright.faults import pcie_below_maximum

    healthy = expand("laptop", {})
    link = next(link.id for link in healthy.links if "nvme0n1" in (link.a, link.b))
    assert pcie_below_maximum.FAULT.degrade is not None
    reading = measured("device_read", 3e9, path="nvme0n1>memory0", size_bytes=MIB, depth=4)
    findings = judged([reading], pcie_below_maximum.FAULT.degrade(healthy, link)).findings
    assert [finding.fault for finding in findings if link in finding.where] == ["pcie_below_maximum"]


def test_the_exit_status_is_the_worst_that_was_found() -> None:
    """0 if all are ok, 1 if any is slow, otherwise 3, also for an empty run."""
    ok = measured("mpi_bandwidth", 9e9, transport="shm", size_bytes=2 * MIB)
    slow = measured("kv_transfer", 1e9, operation="READ", size_bytes=2 * MIB)
    assert judged([]).exit_status == 3
    for with_slow, order in itertools.product((True, False), (1, -1)):
        results = [*copies(10e9), ok, *([slow] if with_slow else [])][::order]
        # memory_copy is unknown or compared with the memory channels: only `slow` outranks that
        assert judged(results).exit_status == (1 if with_slow else judged(copies(10e9)).exit_status)


@pytest.mark.parametrize(
    ("launches", "disturbed", "state"),
    [
        ((3e9, 3e9, 3e9), {}, "slow"),
        ((3e9, 3e9, 3e9), {1: 0.5}, "slow"),
        ((3e9, 3e9, 3e9), {0: 0.5, 1: 0.4, 2: 0.3}, "unknown"),
        ((3e9, 3e9, 6e9), {0: 0.5, 1: 0.3}, "unknown"),
        ((6e9, 6e9, 6e9), {0: 0.9}, "ok"),
    ],
)
def test_what_other_work_may_have_slowed_is_not_slow(
    launches: tuple[float, ...], disturbed: dict[int, float], state: str
) -> None:
    case: dict[str, Scalar] = {"transport": "shm"}
    transfers = [
        measured("mpi_bandwidth", value, launch=number, **case, size_bytes=2 * MIB)
        for number, value in enumerate(launches)
    ]
    others = tuple(
        Disturbed(benchmark="mpi_bandwidth", parameters=case, launch=number, others_fraction=share)
        for number, share in disturbed.items()
    )
    found = path_of(judged([*copies(10e9, 10e9), *transfers], disturbed=others), "mpi_bandwidth")
    assert found.verdict.state == state
    if state == "unknown":
        assert "other work took 50% of this host's CPU time" in found.verdict.why
        assert found.verdict.needs
