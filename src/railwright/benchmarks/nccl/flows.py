"""Rounds of NCCL sends between GPUs of many hosts, for `railwright locate --probe nccl`.

Each flow has its own communicator, so that a GPU's receives never wait for its sends. One timed transfer determines
how often each flow sends its buffer, so that all flows of a round last equally long. The receiver has the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from railwright.benchmarks.benchmark import Plan, Rank
from railwright.benchmarks.job import Job
from railwright.benchmarks.nccl import gpus
from railwright.benchmarks.options import Options
from railwright.benchmarks.wanted_flow import FlowRequest, FlowRounds, probe, record_received, record_sent
from railwright.errors import CannotJudge
from railwright.native import cuda
from railwright.native.nccl_library import Library
from railwright.native.nccl_one_way import OneWay, connect
from railwright.results.records import Result
from railwright.topology.devices import Scalar
from railwright.units import MIB

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Told = TypeVar("Told")
_MOST_TRANSFERS = 5000
_POISON = 0xBF
_PART_BYTES = MIB
_SLOW_PART_S = 0.05
"""From this time of 1 MiB, as at 168 Mb/s, a whole buffer would take longer than a stream."""
_TRANSFERS = 4
"""The transfers of a stream over a slow link."""


class NcclFlows(FlowRounds, frozen=True, kw_only=True):
    """The rounds of a launch, and the size of each buffer."""

    buffer_bytes: int = 32 * MIB


FlowsJob = Job[Options, NcclFlows]
FlowsRank = Rank[Options, NcclFlows]


def _plan(job: FlowsJob) -> Plan:
    return Plan(path="fabric", seconds=5 + len(job.case.rounds) * (job.case.stream_s + 2))


def _run(rank: FlowsRank) -> Iterator[Result]:
    comm = rank.comm
    rank.step("CUDA")
    device = cuda.Device(_find_address(rank))
    rank.step("load NCCL")
    gpus.tell_hosts_apart(rank.job, rank.index)
    library = Library()

    for number, flows in enumerate(rank.job.case.rounds):
        mine = [flow for flow in flows if rank.index in (flow.source, flow.destination)]
        ends = [OneWay(library, device, rank.job.case.buffer_bytes, sends=flow.source == rank.index) for flow in mine]
        ours = list(zip(mine, ends, strict=True))
        rank.step(f"round {number + 1}: connect")
        ids = _share_by_flow(comm, {flow.number: library.unique_id() for flow, end in ours if end.sends})
        connect(ends, [ids[flow.number] for flow in mine])
        _fill(number, ours)
        rank.step(f"round {number + 1}: streams")
        yield from _run_round(rank, number, ours)
        for end in ends:
            end.close()


def _find_address(rank: FlowsRank) -> str:
    """Return the address of this rank's GPU. Hosts that are namespaces of one machine share its GPUs out."""
    machine, addresses = rank.job.machine, cuda.device_addresses()
    if machine.hosts_share_gpus and addresses:
        return addresses[rank.index % len(addresses)]
    place = rank.index % machine.ranks_per_host
    if place >= len(addresses):
        raise CannotJudge(f"{machine.ranks_per_host} GPUs are needed, found {len(addresses)}")
    return addresses[place]


def _share_by_flow(comm: Intracomm, said: dict[int, Told]) -> dict[int, Told]:
    """Return all ranks' values by flow number. Collective."""
    return {flow: value for one in comm.allgather(said) for flow, value in one.items()}


def _fill(number: int, ours: list[tuple[FlowRequest, OneWay]]) -> None:
    """Fill the send buffers with patterns and the receive buffers with poison."""
    for flow, end in ours:
        if end.sends:
            end.buffer.fill(_seed(number, flow))
        else:
            end.buffer.set_bytes(_POISON)


def _run_round(rank: FlowsRank, number: int, ours: list[tuple[FlowRequest, OneWay]]) -> Iterator[Result]:
    stream_s, whole = rank.job.case.stream_s, rank.job.case.buffer_bytes

    def transfer(threads: ThreadPoolExecutor, wanted: dict[int, tuple[int, int]]) -> list[float]:
        """Run each flow's transfers, by number and size, and return the seconds until each of this rank's ended."""
        rank.meet()
        begun = time.monotonic()

        def time_flow(flow: FlowRequest, end: OneWay) -> float:
            end.transfer(*wanted[flow.number])
            return time.monotonic() - begun

        return list(threads.map(time_flow, *zip(*ours, strict=True))) if ours else []

    def agree(wanted: Callable[[int, float], tuple[int, int]], lasted_s: list[float]) -> dict[int, tuple[int, int]]:
        """Return each flow's next transfers, which its receiver derives from the seconds of the last. Collective."""
        received = {
            flow.number: wanted(flow.number, seconds)
            for (flow, end), seconds in zip(ours, lasted_s, strict=True)
            if not end.sends
        }
        return _share_by_flow(rank.comm, received)

    small = dict.fromkeys((flow.number for flow, _ in ours), (1, min(_PART_BYTES, whole)))
    with ThreadPoolExecutor(max(1, len(ours))) as threads:
        transfer(threads, small)  # connections that NCCL makes on first use exist afterwards
        once = agree(lambda _, seconds: (1, _choose_size(stream_s, seconds, whole)), transfer(threads, small))
        took_s = transfer(threads, once)
        times = agree(lambda flow, seconds: (_count_transfers(stream_s, seconds), once[flow][1]), took_s)
        lasted_s = transfer(threads, times)
    rank.meet()
    for (flow, end), seconds in zip(ours, lasted_s, strict=True):
        if end.sends:
            yield record_sent(BENCHMARK, number, flow)
            continue
        count, size = times[flow.number]
        rate = count * size / seconds
        check = end.buffer.verify(_seed(number, flow), size)
        settings: dict[str, Scalar] = {"nccl": end.library.version, "gpu": end.device.name}
        yield record_received(BENCHMARK, number, flow, (rate,), check, settings)


def _choose_size(stream_s: float, seconds: float, whole_bytes: int) -> int:
    """Return the bytes of a transfer from the seconds of its first part: the whole buffer, less over slow links."""
    part = min(_PART_BYTES, whole_bytes)
    if seconds < _SLOW_PART_S:
        return whole_bytes
    return min(whole_bytes, part * max(1, int(stream_s / _TRANSFERS / seconds)))


def _count_transfers(stream_s: float, seconds: float) -> int:
    """Return the number of transfers that last `stream_s` from the seconds of one."""
    return min(max(int(stream_s / max(seconds, 1e-9)), 1), _MOST_TRANSFERS)


def _seed(number: int, flow: FlowRequest) -> int:
    return 4096 * number + flow.number


BENCHMARK = probe(
    "nccl_flows",
    "NCCL sends between GPUs of many hosts at the same time, on the routes that NCCL chooses",
    "a communicator for each flow; one buffer sent again and again, timed by the receiver's host",
    words="railwright locate --probe nccl --hosts host0,host1",
    case=NcclFlows,
    plan=_plan,
    run=_run,
)
