"""The evidence of NCCL's connections between hosts, from the words of its log."""

from __future__ import annotations

import pytest

from railwright.benchmarks.nccl.network import keep_connections, read_network
from railwright.checks.check import Facts
from railwright.checks.nccl_over_sockets import CHECK, explain_sockets
from railwright.results.records import Result
from railwright.topology.devices import Topology
from railwright.topology.sources.load import load

BARE = Topology(name="bare", source="live", devices=(), links=())


def log_of(*, via: str, nics: str = "", gdr: str = "", more: tuple[str, ...] = ()) -> str:
    """Return the logs of two hosts with two ranks each, whose ranks 1 and 2 meet over the network."""
    lines = []
    for rank in range(4):
        prefix = f"node{rank // 2}:1{rank}:1{rank} [{rank % 2}] NCCL INFO "
        comm = f"ncclCommInitRankConfig comm 0xa{rank} rank {rank} nranks 4 cudaDev {rank % 2} nvmlDev {rank % 2}"
        lines += [f"{prefix}{comm} busId {rank % 2 + 1}000 commId 0x77 - Init START"]
        lines += [prefix + text for text in (nics, gdr, *more) if text]
        lines += [prefix + "16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels"]
        if rank % 2 == 0:
            lines.append(f"{prefix}Channel 00/0 : {rank}[0] -> {rank + 1}[1] via P2P/CUMEM/read")
        else:
            other = (rank + 1) % 4
            lines.append(f"{prefix}Channel 00/0 : {rank}[1] -> {other}[0] [send] via {via}")
        if rank % 2 == 0:
            lines.append(f"{prefix}Channel 00/0 : {(rank - 1) % 4}[1] -> {rank}[0] [receive] via {via}")
        lines += [f"{prefix}{comm} busId {rank % 2 + 1}000 commId 0x77 - Init COMPLETE"]
    return keep_connections("\n".join(["a line of the program", *lines]))


def claims(text: str) -> dict[str, str]:
    return {item.claim: item.value for item in read_network(text).evidence}


def test_rdma_with_gpudirect_is_told_with_its_nics_channels_and_pairs():
    nics = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.1<0>"
    found = claims(log_of(via="NET/IB/0/GDRDMA", nics=nics))
    assert found["network"] == "NET/IB"
    assert found["connections"] == "NET/IB: 1>2, 3>0; P2P: 0>1, 2>3"
    assert found["nics"] == "node0:mlx5_0, node1:mlx5_0"
    assert (found["gpudirect_rdma"], found["pxn"], found["channels"], found["sharp"]) == ("all", "no", "16", "no")


def test_the_reason_why_gpudirect_is_off_and_another_rank_s_nic_are_told():
    off = "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"
    seen = {item.claim: item for item in read_network(log_of(via="NET/IB/1(0)", gdr=off)).evidence}
    assert (seen["gpudirect_rdma"].value, seen["pxn"].value) == ("none", "yes")
    assert "Disabled for HCA 0 'mlx5_0'" in seen["gpudirect_rdma"].seen


@pytest.mark.parametrize(
    ("line", "claim", "value"),
    [
        (
            "ncclIbConnect: NCCL Dev 0 IbDev 1 Port 1 qp_num 71 mtu 5 GID 3 (80FE/12) ctsFifo",
            "gid_index",
            "3",
        ),
        ("NCCL Dev 0 IbDev 1 Port 1 qpn 71 mtu 5 query_ece={supported=0, comp_mask=0x0} GID 3 (0/1)", "gid_index", "3"),
        ("Dev 1 Port 1 qpn 71 mtu 5 GID 3 (0/1)", "gid_index", "3"),
        ("NCCL MergedDev 0 IbDev 1 Port 1 qpn 71 mtu 5 LID 12 subnet-prefix 33022  FLID 0", "lid", "12"),
    ],
)
def test_the_address_and_traffic_class_are_told_without_a_setting(line, claim, value):
    nics = "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:192.0.2.1<0>"
    text = log_of(via="NET/IB/1", nics=nics, more=(f"NET/IB: {line}",))
    seen = {item.claim: item for item in read_network(text).evidence}
    assert seen[claim].value == value
    assert f"node0:mlx5_1 {value} (MTU 4096), node1:mlx5_1" in seen[claim].seen
    assert (seen["traffic_class"].value, "not set" in seen["traffic_class"].seen) == ("0", True)
    given = log_of(via="NET/IB/1", more=(f"NET/IB: {line}", "NCCL_IB_TC set by environment to 106."))
    assert claims(given)["traffic_class"] == "106"


def test_sockets_beside_rdma_devices_are_a_finding_and_never_ok():
    text = log_of(via="NET/Socket/0", nics="NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:192.0.2.1<0>")
    evidence = read_network(text).evidence
    why = "NCCL used TCP sockets between hosts, although it found the RDMA devices mlx5_0"
    assert explain_sockets(evidence, BARE) == why
    result = Result(benchmark="nccl_all_reduce", quantity="latency_s", path="gpu0@0>gpu1@1", evidence=evidence)
    (finding,) = CHECK.look(Facts(topology=BARE, results=(result,)))
    assert finding.says == why
    assert finding.where == ("nccl_all_reduce", "gpu0@0>gpu1@1")


def test_sockets_are_wrong_where_the_machine_has_rdma_ports_and_right_where_it_has_none():
    evidence = read_network(log_of(via="NET/Socket/0")).evidence
    assert explain_sockets(evidence, BARE) == ""
    assert "a host has" in explain_sockets(evidence, load("hgx-h100"))


def test_the_settings_that_nccl_read_are_kept_with_all_their_values():
    found = read_network(log_of(via="NET/IB/0", more=("NCCL_IB_GID_INDEX set by environment to 3.",))).settings
    assert found == {"nccl_settings": "NCCL_IB_GID_INDEX=3"}


@pytest.mark.parametrize("text", ["", "no log\x00" * 100, "node0:1:1 [0] NCCL INFO nothing that is known"])
def test_a_log_that_tells_nothing_is_unknown_with_the_reason(text):
    (only,) = read_network(keep_connections(text)).evidence
    assert (only.claim, only.value) == ("network", "unknown")
    assert only.seen
    (only,) = read_network("", problem="NCCL 2.18.5 cannot enable its log while it runs").evidence
    assert only.seen == "NCCL 2.18.5 cannot enable its log while it runs"
