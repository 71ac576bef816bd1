"""The next command after a table is that of the tool that printed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.explain.next_commands import suggest_command, word_for_tool
from railwright.faults.fault import EVERY_TRANSPORT
from railwright.faults.registry import FAULTS
from railwright.limits.case import Case
from railwright.results.readers import registry
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

EXTERNAL = Path(__file__).parents[2] / "testdata/external"
TOOLS = {
    "osu/5.3-bw-tagged.txt": "UCX_PROTO_INFO=y",
    "osu/5.3-allreduce-full.txt": "UCX_PROTO_INFO=y",
    "threads/158-ucx_perftest-tag_bw-cuda-2-hosts.txt": "UCX_PROTO_INFO=y ucx_perftest",
    "ucc_perftest/2021-alltoall-8-gpus-first-bandwidths.txt": "UCC_LOG_LEVEL=info ucc_perftest",
    "nixlbench/ucx-vram-h200-slow.txt": "UCX_PROTO_INFO=y nixlbench",
    "perftest/ib_write_bw-gbit-4qp.txt": "ib_write_bw",
    "iperf3/vm-to-host-cut.txt": "iperf3 -c HOST -P 8",
    "threads/036-nvbandwidth-8xa100.txt": "nvidia-smi topo",
}


@pytest.mark.parametrize(("name", "own"), TOOLS.items(), ids=TOOLS)
@pytest.mark.parametrize("shape", ["hgx-h100", "mi300x"])
def test_every_fault_is_told_apart_by_the_tool_itself(name: str, own: str, shape: str) -> None:
    file = registry.read((EXTERNAL / name).read_text(encoding="utf-8"))[0]
    host = load(shape)
    supposed = [
        word_for_tool(hypothesis, file, host)
        for fault in FAULTS
        if fault.transports == EVERY_TRANSPORT or file.workload.transport in fault.transports
        for hypothesis in fault.suppose(Case(cluster=build_cluster(host, 2)))
    ]
    said = [text for one in supposed for text in (one.says, one.tell_apart)] + [suggest_command(file, host)]
    assert len(said) > 10
    assert [text for text in said if "NCCL" in text or "{" in text] == []
    if shape == "hgx-h100":
        assert any(own in text for text in said), said
    else:
        assert not any("nvidia-smi" in text or "cuda" in text for text in said), said


def test_nccl_keeps_its_own_command() -> None:
    file = registry.read((EXTERNAL / "nccl_tests/2.19.6-all_reduce-2xh200.txt").read_text(encoding="utf-8"))[0]
    assert suggest_command(file, load("hgx-h200")).startswith("NCCL_DEBUG=INFO")
