"""Sends of a search between GPUs, over stand-ins for libcuda and libnccl: real ranks, real data, no GPU."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os

import pytest
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture

from railwright.benchmarks.benchmark import Plan
from railwright.benchmarks.job import Job, Launch, Machine
from railwright.benchmarks.nccl.flows import BENCHMARK, NcclFlows, _count_transfers
from railwright.benchmarks.options import Options
from railwright.benchmarks.wanted_flow import FlowRequest
from railwright.launch.mpi import MpiLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.topology.devices import Topology

GPUS = ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0")


def flow(number, source, destination):
    return FlowRequest(number=number, source=source, destination=destination, source_address=f"gpu{source}",
                  destination_address=f"gpu{destination}")  # fmt: skip


RING = tuple(flow(number, number, (number + 1) % 3) for number in range(3))
ROUNDS = (RING, (flow(0, 2, 0), flow(1, 2, 1)), RING[::-1])
"""A ring of all, two flows from one GPU, and a ring in another order."""


@pytest.fixture
def run(stand_ins, mpiruns, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def results(*, gpus=GPUS, **faults):
        machine = Machine(topology=Topology(name="", source="live", devices=(), links=()), ranks_per_host=3,
                          cpus=tuple(sorted(os.sched_getaffinity(0))))  # fmt: skip
        case = NcclFlows(rounds=ROUNDS, stream_s=0.05, buffer_bytes=1 << 18)
        job = Job(benchmark=BENCHMARK.name, options=Options(), launch=Launch(case=case, ranks=3), machine=machine)
        planned = PlannedLaunch(BENCHMARK, job, Plan(path="fabric"))
        variables = os.environ | environment(stand_ins, *gpus) | faults
        return list(Session(planned, MpiLauncher(mpiruns["openmpi"]), variables, 120.0).results())

    return results


def test_every_flow_of_every_round_is_timed_and_compared(run):
    found = run()
    assert not [one.reason for one in found if one.outcome == "failed"]
    came = [one.settings for one in found if one.settings["end"] == "received"]
    told = [(one["round"], one["source_address"], one["destination_address"]) for one in came]
    wanted = [
        (number, one.source_address, one.destination_address) for number, each in enumerate(ROUNDS) for one in each
    ]
    assert sorted(told) == sorted(wanted)
    sent = [(one.settings["round"], one.settings["flow"]) for one in found if one.settings["end"] == "sent"]
    assert sorted(sent) == sorted((number, one.number) for number, each in enumerate(ROUNDS) for one in each)
    for one in found:
        if one.settings["end"] == "received":
            assert one.samples[0] > 0
            assert (one.verification.bytes_checked, one.verification.bytes_wrong) == (1 << 18, 0)


def test_damaged_data_is_detected(run):
    received = [one for one in run(STANDIN_NCCL_DAMAGE="1") if one.settings["end"] == "received"]
    assert received
    assert all(one.verification.bytes_wrong for one in received)


def test_a_host_with_fewer_gpus_than_asked_is_named(run):
    failed = [one.reason for one in run(gpus=GPUS[:2]) if one.outcome == "failed"]
    assert len(failed) == 1
    assert "3 GPUs are needed, found 2" in failed[0]


def test_a_stream_is_as_long_as_one_transfer_allows():
    assert [_count_transfers(1.5, seconds) for seconds in (0.1, 3.0, 1e-9)] == [15, 1, 5000]
