"""Copies between NUMA nodes: the pairs, the placement of their pages, and the reasons if pages are misplaced."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.benchmarks.jobs import job_of
from tests.expected.finders import Finder
from tests.topology.machines import topology

from railwright.benchmarks.benchmark import AnyJob
from railwright.benchmarks.memory import copy as memory_copy
from railwright.benchmarks.memory.copy import BENCHMARK
from railwright.limits.limit import Limit, NoLimit
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.run.measure import Measurement
from railwright.run.plan import plan_launches
from railwright.topology.devices import MemoryLink, SmpLink, Topology
from railwright.topology.sources.load import load

CPUS = sorted(os.sched_getaffinity(0))
GIB = 2**30
PLACING = {"x86_64": {"mbind": 237, "move_pages": 279}, "aarch64": {"mbind": 235, "move_pages": 239}}
"""The numbers of the system calls that a container's default filter refuses without CAP_SYS_NICE."""
IN_A_FILTER = """
import ctypes, json, struct, sys
from railwright.benchmarks.memory import copy as memory_copy
from railwright.benchmarks.memory.copy import _Crossing

# Classic BPF, as Docker's filter does it: load the number of the call, refuse that one with EPERM, allow all else.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (0x06, 0, 0, 0x00050000 | 1), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
given = struct.pack("HxxxxxxP", len(code), ctypes.addressof(program))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(given), 0, 0) == 0, ctypes.get_errno()
result = memory_copy._measure_crossing(_Crossing(0, 0, "source", 0), 8192)
print(json.dumps([result.outcome, result.reason, result.path]))
"""


def nodes(*cpu_lists: str, memories: int | None = None) -> Topology:
    """Return a machine with these NUMA nodes, whatever this one has; the last nodes may lack memory."""
    count = len(cpu_lists) if memories is None else memories
    kinds = {f"cpu{node}": "cpu" for node in range(len(cpu_lists))} | {
        f"memory{node}": "memory" for node in range(count)
    }
    links = [(f"cpu{node}", f"memory{node}", MemoryLink()) for node in range(count)]
    links += [("cpu0", f"cpu{node}", SmpLink()) for node in range(1, len(cpu_lists))]
    made = topology(kinds, links)
    placed = []
    for device in made.devices:
        node = int(device.id[-1])
        facts = {"cpu_list": cpu_lists[node]} if device.kind == "cpu" else {}
        placed.append(msgspec.structs.replace(device, numa=node, facts=facts))
    return msgspec.structs.replace(made, devices=tuple(placed))


def measured(machine: Topology, **options: str) -> list[Result]:
    """Run a real launch in its own process, and return all results."""
    options = BENCHMARK.parse({"sizes": "4K", "node-sizes": "4K,1M", **options})
    (planned,) = plan_launches(machine, [(BENCHMARK, options)])
    return list(Measurement().results(planned))


def job(machine: Topology, cpus: tuple[int, ...], **options: str) -> AnyJob:
    return job_of(BENCHMARK, machine, cpus, options)


@pytest.mark.machine
def test_one_node_has_the_same_results_as_before() -> None:
    found = measured(nodes(",".join(map(str, CPUS))))
    assert {one.path for one in found} == {"memory0>memory0"}
    assert [one.parameters for one in found[:1]] == [{"size_bytes": 4096, "threads": 1}]
    assert {seen.claim for one in found for seen in one.evidence} <= {"pages"}
    named = {one.parameters.get("pages") for one in found}
    assert named <= {None, "small"}, "what lies on huge pages is named as it always was"


def test_every_ordered_pair_of_nodes_with_memory_and_cpus_is_copied_with_a_thread_on_either_side() -> None:
    pairs = memory_copy._list_crossings(job(nodes("0", "1", "2"), (0, 1, 2)))
    assert len({(one.path, one.thread_on) for one in pairs}) == len(pairs) == 3 * 2 * 2
    assert {one.path for one in pairs} == {f"memory{a}>memory{b}" for a in range(3) for b in range(3) if a != b}
    assert {one.cpu for one in pairs if one.path == "memory1>memory2"} == {1, 2}
    assert {(one.thread_on, one.cpu) for one in pairs if one.path == "memory0>memory2"} == {
        ("source", 0),
        ("target", 2),
    }
    without_memory = memory_copy._list_crossings(job(nodes("0", "1", "2", memories=2), (0, 1, 2)))
    assert {one.path for one in without_memory} == {"memory0>memory1", "memory1>memory0"}
    without_cpus = memory_copy._list_crossings(job(nodes("0", "1", ""), (0, 1)))
    assert all(one.cpu is None for one in without_cpus if one.node == 2)


def test_all_threads_alone_leave_the_copies_between_nodes_out() -> None:
    assert memory_copy._list_crossings(job(nodes("0", "1"), (0, 1), threads="all")) == []


def test_the_plan_counts_the_copies_between_nodes() -> None:
    alone, pair = (BENCHMARK.plan(job(machine, (0, 1))) for machine in (nodes("0-1"), nodes("0", "1")))
    assert pair.moved_bytes > alone.moved_bytes
    assert pair.seconds > alone.seconds
    large = BENCHMARK.plan(job(nodes("0", "1"), (0, 1), **{"node-sizes": "1G"}))
    assert large.memory_bytes == 2 * GIB
    assert BENCHMARK.plan(job(nodes("0-1"), (0, 1), **{"node-sizes": "1G"})).memory_bytes == alone.memory_bytes


@pytest.mark.machine
def test_a_node_that_the_kernel_does_not_have_fails_by_name_and_the_rest_is_measured() -> None:
    if Path("/sys/devices/system/node/node1").exists():
        pytest.skip("this machine has a second NUMA node")
    found = measured(nodes(",".join(map(str, CPUS)), "900-901"))
    assert {one.outcome for one in found if one.path == "memory0>memory0"} == {"measured"}
    across = [
        (one.path, one.parameters["thread_on"], one.outcome, one.reason.partition(" (")[0])
        for one in found
        if one.path != "memory0>memory0" and one.parameters["size_bytes"] == 4096
    ]
    not_placed = ("failed", "cannot place memory on NUMA node 1: Invalid argument")
    no_cpu = ("waived", "no CPU of NUMA node 1 may be used")
    assert across == [
        ("memory0>memory1", "source", *not_placed),
        ("memory0>memory1", "target", *no_cpu),
        ("memory1>memory0", "source", *no_cpu),
        ("memory1>memory0", "target", *not_placed),
    ]


@pytest.mark.machine
@pytest.mark.parametrize("call", ["mbind", "move_pages"])
def test_a_container_that_may_not_place_memory_waives_the_copies_with_the_missing_capability(call: str) -> None:
    if platform.machine() not in PLACING:
        pytest.skip(f"the numbers of {platform.machine()}'s system calls are not here")
    argv = [sys.executable, "-c", IN_A_FILTER, str(PLACING[platform.machine()][call])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    outcome, reason, path = json.loads(done.stdout)
    assert (outcome, path) == ("waived", "memory0>memory0")
    what = "place memory on NUMA node 0" if call == "mbind" else "determine the NUMA node of memory"
    assert reason.startswith(f"cannot {what}: Operation not permitted (a container needs CAP_SYS_NICE")
    assert reason.endswith("as with `docker run --cap-add SYS_NICE`)")


def test_misplaced_pages_after_the_copies_fail_the_result(monkeypatch) -> None:
    class Unbound(memory_copy.Buffer):
        def __init__(self, size_bytes: int, *, node: int) -> None:
            super().__init__(size_bytes)

    monkeypatch.setattr(memory_copy, "Buffer", Unbound)
    crossing = memory_copy._Crossing(0, 1, "source", CPUS[0])
    result = memory_copy._measure_crossing(crossing, 8192)
    assert result.outcome == "failed"
    assert result.reason.startswith("the pages moved: ")
    assert "of 2 pages of the target on node 1" in result.reason
    assert result.samples, "what was measured is kept all the same"
    (evidence,) = result.evidence
    assert (evidence.claim, evidence.value) == ("placement", "elsewhere")


def test_pages_that_are_where_they_should_be_are_the_evidence() -> None:
    result = memory_copy._measure_crossing(memory_copy._Crossing(0, 0, "target", CPUS[-1]), 3 << 20)
    assert (result.outcome, result.reason, result.settings["cpus"]) == ("measured", "", str(CPUS[-1]))
    (evidence,) = result.evidence
    assert evidence.value == "memory0>memory0"
    assert evidence.seen.count("768 of 768 pages of the ") == 2
    assert result.verification is not None
    assert (result.verification.bytes_checked, result.verification.bytes_wrong) == (3 << 20, 0)


def test_a_copy_between_nodes_has_no_limit_but_the_memories_own() -> None:
    point = ("memory_copy", "bandwidth_bytes_per_s")
    size = {"size_bytes": 4 * GIB, "threads": 1}
    for machine, parameters in ((nodes("0", "1"), size), (load("hgx-h100"), {"size_bytes": 64 << 20, "threads": 1})):
        limit, band = Finder(machine).find(*point, "memory0>memory1", parameters)
        assert isinstance(limit, NoLimit)
        assert limit.why == "no document gives the rate between NUMA nodes"
        assert band is None
    finder = Finder(channels())
    across, band = finder.find(*point, "memory0>memory1", size)
    within, _ = finder.find(*point, "memory0>memory0", size)
    assert isinstance(across, Limit)
    assert isinstance(within, Limit)
    assert across.value == pytest.approx(8 * 4.8e9 * 8) == pytest.approx(2 * within.value)
    assert band is None


def channels() -> Topology:
    """Return a machine of two nodes with eight channels of DDR5-4800 each."""
    plain = nodes("0", "1")
    ddr5 = MemoryLink(channels=8, transfers_per_s=4.8e9, bus_bytes=8)
    links = (
        msgspec.structs.replace(link, protocol=ddr5) if isinstance(link.protocol, MemoryLink) else link
        for link in plain.links
    )
    return msgspec.structs.replace(plain, links=tuple(links))


def test_copies_between_nodes_are_the_ceiling_of_messages_between_them_alone() -> None:
    def copy(path: str, rate: float, **more: str) -> Result:
        return Result(
            benchmark="memory_copy", quantity="bandwidth_bytes_per_s", path=path, samples=(rate,),
            parameters={"size_bytes": 1 << 20, "threads": 1, **more}, summary=summarise([rate]),
            verification=Verification(method="", bytes_checked=1, bytes_wrong=0),
        )  # fmt: skip

    found = [
        copy("memory0>memory0", 20e9),
        copy("memory0>memory1", 8e9, thread_on="source"),
        copy("memory0>memory1", 10e9, thread_on="target"),
    ]
    message = ("mpi_bandwidth", "bandwidth_bytes_per_s")
    finder = Finder(nodes("0", "1"), found)
    limit, band = finder.find(*message, "memory0>memory1", {"size_bytes": 1 << 20, "transport": "shm"})
    assert isinstance(limit, Limit)
    assert band is not None
    assert (limit.value, band.low, band.doubtful_to) == (10e9, 5e9, 4e9)
    local, _ = finder.find(*message, "memory0>memory0", {"size_bytes": 1 << 20, "transport": "shm"})
    assert isinstance(local, Limit)
    assert local.value == 20e9
