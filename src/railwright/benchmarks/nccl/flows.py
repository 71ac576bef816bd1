"""Rounds of NCCL sends between GPUs of many hosts, for `railwright locate --probe nccl`.

Each flow has its own communicator, so that a GPU's receives never wait for its sends. One timed transfer determines
how often each flow sends its buffer, so that all flows of a round last equally long. The receiver has the clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from railwright.benchmarks.benchmark import Plan, Rank
from railwright.benchmarks.job import Case, Job
from railwright.benchmarks.nccl import gpus
from railwright.benchmarks.options import Options
from railwright.benchmarks.wanted_flow import FlowRequest, probe, record_received, record_sent
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


class NcclFlows(Case, frozen=True, kw_only=True):
    """The rounds of a launch."""

    rounds: tuple[tuple[FlowRequest, ...], ...]
    stream_s: float = 1.5
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
    def transfer(threads: ThreadPoolExecutor, times: dict[int, int]) -> list[float]:
        """Run the transfers and return the seconds until each of this rank's flows ended."""
        rank.meet()
        begun = time.monotonic()

        def time_flow(flow: FlowRequest, end: OneWay) -> float:
            end.transfer(times[flow.number])
            return time.monotonic() - begun

        return list(threads.map(time_flow, *zip(*ours, strict=True))) if ours else []

    once = dict.fromkeys((flow.number for flow, _ in ours), 1)
    with ThreadPoolExecutor(max(1, len(ours))) as threads:
        transfer(threads, once)  # connections that NCCL makes on first use exist afterwards
        took_s = transfer(threads, once)
        said = {flow.number: _count_transfers(rank.job.case.stream_s, seconds)
                for (flow, end), seconds in zip(ours, took_s, strict=True) if not end.sends}  # fmt: skip
        times = _share_by_flow(rank.comm, said)
        lasted_s = transfer(threads, times)
    rank.meet()
    for (flow, end), seconds in zip(ours, lasted_s, strict=True):
        if end.sends:
            yield record_sent(BENCHMARK, number, flow)
            continue
        rate = times[flow.number] * end.buffer.size_bytes / seconds
        check = end.buffer.verify(_seed(number, flow), end.buffer.size_bytes)
        settings: dict[str, Scalar] = {"nccl": end.library.version, "gpu": end.device.name}
        yield record_received(BENCHMARK, number, flow, (rate,), check, settings)


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
