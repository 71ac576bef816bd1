"""Contradictions are found in logs that contain them, and not in sound logs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from railwright.checks.finding import Finding
from railwright.diagnosis.nccl.contradictions import contradictions
from railwright.diagnosis.nccl.paths import pci_address
from railwright.results.readers.nccl_log import log as nccl_log
from railwright.topology.expand import expand

LOGS = Path(__file__).parents[3] / "testdata" / "external" / "nccl-log"
TWO_NICS = expand("hgx-h100", {"nics": "2"})
EIGHT_NICS = expand("hgx-h100", {})
BLIND = "could not look"


def recorded(name: str) -> nccl_log.NcclLog:
    return nccl_log.read((LOGS / name).read_text(encoding="utf-8"))


def said(rank: int, text: str) -> str:
    return f"node{rank // 8}:{100 + rank}:{200 + rank} [{rank % 8}] NCCL INFO {text}\n"


def ready(size: int) -> str:
    return "".join(
        said(
            rank,
            f"comm 0x1 rank {rank} nranks {size} cudaDev {rank % 8} nvmlDev {rank % 8} busId {rank % 8 + 1}0 commId 0xa"
            f" - Init {what}",
        )
        for what in ("START", "COMPLETE")
        for rank in range(size)
    )


def find(text: str, topology=None) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for one in contradictions(nccl_log.read(text), topology):
        found.setdefault(one.fault, []).append(one)
    return found


def certain(text: str, fault: str, topology=None) -> Finding:
    found = [one for one in find(text, topology)[fault] if one.certainty != BLIND]
    assert len(found) == 1, found
    assert found[0].remedy
    assert found[0].evidence
    return found[0]


def net(rank: int, source: int, target: int, what: str, via: str, channel: int = 0) -> str:
    return said(rank, f"Channel {channel:02d}/0 : {source}[0] -> {target}[0] [{what}] via NET/{via}")


def test_a_receive_logged_as_gpudirect_that_crosses_the_cpu_is_found_although_pxn_hides_it_from_nccl():
    text = ready(16) + net(8, 3, 8, "receive", "IB/0/GDRDMA") + net(15, 3, 15, "receive", "IB/0/GDRDMA", 1)
    finding = certain(text, "nccl_gdr_over_cpu", TWO_NICS)
    assert "receives" in finding.says
    assert finding.certainty == "likely"
    assert any(one.claim == "path" for one in finding.evidence)


def test_a_send_through_a_proxy_near_the_nic_is_not_blamed():
    near = net(0, 0, 8, "send", "IB/0/GDRDMA")
    far = near + net(3, 3, 8, "send", "IB/0(0)/GDRDMA", 1)
    assert "nccl_gdr_over_cpu" not in find(ready(16) + far, TWO_NICS)


def test_nccls_own_table_of_paths_is_enough_to_see_dma_cross_the_cpu():
    found = contradictions(recorded("2.16.5-ib-gdr-over-cpu.log"), None)
    over = [one for one in found if one.fault == "nccl_gdr_over_cpu"]
    assert {one.certainty for one in over} == {"seen"}
    assert {one.says.split()[1] for one in over} == {"receives", "sends"}
    assert any("NIC 1 to GPU 0000:81:00.0 is PHB" in one.value for finding in over for one in finding.evidence)


def test_nics_that_a_plugin_numbers_in_an_order_of_its_own_are_not_blamed():
    found = contradictions(recorded("efa-p4d-2x8a100.log"), expand("aws-p4d", {}))
    assert [one.fault for one in found if one.certainty != BLIND] == []


def test_a_nic_known_by_name_makes_the_finding_sure():
    first = TWO_NICS.of_kind("nic")[0]
    named = msgspec.structs.replace(first, facts={**first.facts, "rdma_device": "mlx5_7"})
    gpus = {gpu.id: f"0000:00:0{place + 1}.0" for place, gpu in enumerate(TWO_NICS.of_kind("gpu"))}
    devices = tuple(
        named if one.id == first.id else msgspec.structs.replace(one, address=gpus.get(one.id, one.address))
        for one in TWO_NICS.devices
    )
    topology = msgspec.structs.replace(TWO_NICS, devices=devices)
    text = ready(16) + said(15, "NET/IB : Using [0]mlx5_7:1/IB [RO]; OOB eth0:192.0.2.1<0>")
    text += net(15, 3, 15, "receive", "IB/0/GDRDMA")
    assert certain(text, "nccl_gdr_over_cpu", topology).certainty == "seen"


def test_without_a_machine_or_a_table_the_path_could_not_be_looked_at():
    (finding,) = find(ready(16) + net(8, 3, 8, "receive", "IB/0/GDRDMA"))["nccl_gdr_over_cpu"]
    assert finding.certainty == BLIND
    assert "GRAPH" in finding.remedy


def test_rdma_without_gpudirect_is_found_where_the_nic_is_near():
    finding = certain(ready(16) + net(8, 3, 8, "receive", "IB/0"), "nccl_no_gdr", EIGHT_NICS)
    assert finding.certainty == "likely"
    assert "nccl_no_gdr" not in find(ready(16) + net(8, 3, 8, "receive", "IB/0/GDRDMA"), EIGHT_NICS)


def test_a_refusal_of_gpudirect_is_possible_evidence_without_a_machine():
    text = ready(16) + said(8, "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'") + net(8, 3, 8, "receive", "IB/0")
    assert certain(text, "nccl_no_gdr").certainty == "possible"


def test_shared_memory_between_gpus_with_nvlink_is_found():
    text = ready(8) + said(0, "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct")
    assert "P2P" in certain(text, "nccl_no_peer_to_peer", EIGHT_NICS).says
    assert find(text)["nccl_no_peer_to_peer"][0].certainty == BLIND
    without = expand("hgx-h100", {"nvlink": "0"})
    assert "nccl_no_peer_to_peer" not in find(text, without)


def test_an_idle_nic_is_named():
    using = "".join(
        said(rank, "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:192.0.2.1<0>") for rank in (0, 8)
    )
    used = net(0, 0, 8, "send", "IB/0/GDRDMA") + net(8, 0, 8, "receive", "IB/0/GDRDMA")
    finding = certain(ready(16) + using + used, "nccl_nic_unused")
    assert finding.where == ("node0:mlx5_1", "node1:mlx5_1")
    assert finding.certainty == "seen"
    both = used + net(0, 0, 8, "send", "IB/1/GDRDMA", 1) + net(8, 0, 8, "receive", "IB/1/GDRDMA", 1)
    assert "nccl_nic_unused" not in find(ready(16) + using + both)


def test_a_ring_that_comes_back_to_a_host_is_found():
    order = "0 8 1 9 2 10 3 11 4 12 5 13 6 14 7 15"
    finding = certain(ready(16) + said(0, f"Channel 00/01 : {order}"), "nccl_ring_reenters_host")
    assert "16 times, with 2 hosts" in finding.says
    straight = " ".join(str(rank) for rank in range(16))
    assert "nccl_ring_reenters_host" not in find(ready(16) + said(0, f"Channel 00/01 : {straight}"))


def test_a_ring_without_a_rank_is_found():
    finding = certain(ready(4) + said(0, "Channel 00/01 : 0 1 2"), "nccl_ring_incomplete")
    assert "without [3]" in finding.says


def test_sockets_between_hosts_are_found_with_the_rdma_devices_that_could_be_used():
    text = ready(16) + net(8, 3, 8, "receive", "Socket/0")
    assert "no RDMA device" in certain(text, "nccl_sockets").says
    assert "given machine" in certain(text, "nccl_sockets", EIGHT_NICS).says
    listed = text + said(0, "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.1<0>")
    assert "mlx5_0" in certain(listed, "nccl_sockets").says
    assert "nccl_sockets" not in find(ready(8) + said(0, "Using network Socket"))


def test_different_versions_and_environments_are_found():
    text = ready(16) + said(0, "NCCL version 2.27.3+cuda12.9") + said(8, "NCCL version 2.26.2+cuda12.9")
    assert "2.26.2" in certain(text, "nccl_versions_differ").says
    text += said(0, "NCCL_IB_TC set by environment to 106.") + said(8, "NCCL_IB_TC set by environment to 0.")
    assert "106 on node0" in certain(text, "nccl_settings_differ").says
    one_sided = said(0, "NCCL_IB_TC set by environment to 1.") + said(8, "NCCL_DEBUG set by environment to INFO")
    assert {one.certainty for one in find(ready(16) + one_sided)["nccl_settings_differ"]} == {"possible"}


def test_fewer_channels_than_the_search_found_are_found():
    search = "Pattern 4, crossNic 0, nChannels {}, bw 40.0/40.0, type NVL/PIX, sameChannels 1"
    text = (
        ready(16) + said(0, search.format(8)) + said(8, search.format(4)) + said(0, "4 coll channels, 4 p2p channels")
    )
    finding = certain(text, "nccl_channels")
    assert "node1 found only 4" in finding.says
    enough = text.replace("4 coll channels", "16 coll channels")
    assert "nccl_channels" not in find(enough)


@pytest.mark.parametrize(
    ("setting", "costs"),
    [
        ("NCCL_P2P_DISABLE set by environment to 1.", True),
        ("NCCL_P2P_DISABLE set by environment to 0.", False),
        ("NCCL_ALGO set by environment to Ring", True),
        ("NCCL_BUFFSIZE set by environment to 1048576.", True),
        ("NCCL_BUFFSIZE set by environment to 8388608.", False),
        ("NCCL_NET_GDR_LEVEL set by environment to SYS", True),
        ("NCCL_NET_GDR_LEVEL set by environment to PXB", False),
        ("NCCL_SOCKET_IFNAME set by environment to eth0", False),
    ],
)
def test_a_setting_is_a_finding_only_with_a_value_that_costs(setting, costs):
    found = find(ready(2) + said(0, setting)).get("nccl_setting", [])
    assert [one.certainty for one in found] == (["seen"] if costs else [])


def test_a_rank_that_never_was_ready_is_named():
    text = ready(4).replace("rank 3 nranks 4 cudaDev 3 nvmlDev 3 busId 40 commId 0xa - Init COMPLETE", "")
    assert certain(text, "nccl_init_incomplete").where == ("rank 3",)


def test_a_sound_log_has_only_its_setting_as_a_finding():
    found = contradictions(recorded("2.28.3-nvlink-2xh200.log"), None)
    assert [(one.fault, one.certainty) for one in found] == [("nccl_setting", "seen")]


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [
        ("60", "0000:00:06.0"),
        ("901c0", "0000:90:1c.0"),
        ("1B000", "0000:1b:00.0"),
        ("100018000", "1000:18:00.0"),
        ("", ""),
    ],
)
def test_a_bus_id_becomes_a_pci_address(bus_id, address):
    assert pci_address(bus_id) == address
