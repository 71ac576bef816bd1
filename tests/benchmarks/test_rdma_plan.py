"""Ports, GIDs, points and counters of the RDMA benchmarks, without a device."""

from __future__ import annotations

import ipaddress

import pytest
from msgspec.structs import replace
from tests.benchmarks.jobs import job_of

from railwright.benchmarks.rdma import counters, surroundings
from railwright.benchmarks.rdma.gids import choose_gids
from railwright.benchmarks.rdma.options import list_points, list_setups, parse_nics, parse_ports
from railwright.benchmarks.registry import find
from railwright.errors import CannotJudge, UsageError
from railwright.native.verbs import Gid
from railwright.topology.changes import add_rdma_names
from railwright.topology.devices import Topology
from railwright.topology.expand import expand
from railwright.topology.sources.root import DirectoryRoot

WRITE = find("rdma_write")


def gid(index: int, version: str, address: str) -> Gid:
    return Gid(index, ipaddress.IPv6Address(address).packed, version)


def machine(**down: str) -> Topology:
    """An H100 server whose RDMA devices have names, as on a real machine."""
    shape = expand("hgx-h100", {})
    names = {nic.id: f"mlx5_{number}" for number, nic in enumerate(shape.of_kind("nic"))}
    devices = [
        replace(one, facts=one.facts | {"rdma_device": names[one.id], "rdma_port": 1, "state": down.get(one.id, "up")})
        if one.id in names
        else one
        for one in shape.devices
    ]
    return replace(shape, devices=tuple(devices))


LINK_LOCAL, IPV4, IPV6 = "fe80::1", "::ffff:10.0.0.1", "fd00::1"


@pytest.mark.parametrize(
    ("first", "second", "wanted", "chosen"),
    [
        ([(0, "v1", LINK_LOCAL), (1, "v2", LINK_LOCAL), (3, "v2", IPV4)], None, None, (3, 3)),
        ([(1, "v2", LINK_LOCAL), (3, "v2", IPV4)], [(1, "v2", LINK_LOCAL), (5, "v2", IPV6)], None, (1, 1)),
        ([(3, "v2", IPV4), (5, "v2", IPV6)], [(4, "v2", "fd00::2")], None, (5, 4)),
        ([(3, "v2", IPV4), (4, "v2", "::ffff:10.0.9.1")], [(7, "v2", "::ffff:10.0.9.2")], None, (4, 7)),
        ([(2, "v1", IPV4), (1, "v2", LINK_LOCAL)], None, 2, (2, 2)),
        ([(3, "v2", IPV4)], [(3, "v1", IPV4)], None, "no GIDs of one kind: 3:v2/IPv4 and 3:v1/IPv4"),
        ([(3, "v2", IPV4)], None, 5, "no GIDs of one kind at index 5"),
        ([], None, None, "none and none"),
    ],
)
def test_the_best_gids_of_one_kind_are_chosen(first, second, wanted, chosen):
    ours, theirs = ([gid(*one) for one in table] for table in (first, first if second is None else second))
    if isinstance(chosen, str):
        with pytest.raises(CannotJudge, match=chosen):
            choose_gids(ours, theirs, wanted)
        return
    pair = choose_gids(ours, theirs, wanted)
    assert (pair.first.place, pair.second.place) == chosen


def test_near_ports_alone_and_together_are_those_of_the_topology():
    def setups(given: dict[str, str], **down: str) -> list[tuple[str, int]]:
        return [(one.nics, one.queue_pairs) for one in list_setups(job_of(WRITE, machine(**down), given=given))]

    each = setups({"nics": "each,together"})
    names = [nics for nics, _ in each]
    assert len(names) > 2
    assert names[-1] == "+".join(names[:-1])
    assert setups({}) == [each[0]]
    assert setups({"nics": "mlx5_3", "queue-pairs": "1,64"}) == [("mlx5_3:1", 1), ("mlx5_3:1", 64)]
    assert names[0] not in [nics for nics, _ in setups({"nics": "each"}, nic0="down")], "a port is down"
    job = job_of(WRITE, machine(), given={"sizes": "8,1M", "directions": "one,both"})
    points = list_points(job, list_setups(job)[0])
    assert [(one.size_bytes, one.direction) for one in points] == [
        (8, "one"), (1 << 20, "one"), (8, "both"), (1 << 20, "both")
    ]  # fmt: skip


def test_a_machine_without_rdma_is_told():
    assert WRITE.plan(job_of(WRITE, expand("laptop", {}))).waived == "no RDMA port is up: check with `rdma link`"
    assert not WRITE.plan(job_of(WRITE, machine())).waived
    shape = expand("hgx-h100", {})
    assert WRITE.plan(job_of(WRITE, shape)).waived, "its devices have no names"
    assert not WRITE.plan(job_of(WRITE, add_rdma_names(shape))).waived


@pytest.mark.parametrize("text", ["mlx5_0:0", "mlx5 0", "a+", "", "near+each", "mlx5_0:1:2"])
def test_a_wrong_port_is_refused(text):
    with pytest.raises(UsageError, match="not an RDMA port"):
        parse_nics(text)


def test_ports_of_a_search_have_no_colon_which_separates_them_from_the_host():
    assert parse_ports("mlx5_0,mlx5_1:2,mlx5_0:1") == ("mlx5_0", "mlx5_1/2")
    with pytest.raises(UsageError, match="not an RDMA port: 'near'"):
        parse_ports("mlx5_0,near")
    with pytest.raises(UsageError, match="there must be at most 16 RDMA ports, got 17"):
        parse_ports(",".join(f"mlx5_{number}" for number in range(17)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sizes": "2G"}, "sizes must be at most 1 GiB, got 2 GiB"),
        ({"mtu": "9000"}, "must be auto or one of 256, 512, 1024, 2048, 4096, got '9000'"),
        ({"queue-pairs": "65"}, "must be a whole number from 1 to 64, got '65'"),
    ],
)
def test_wrong_options_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        WRITE.parse(given)


def test_counters_of_loss_are_told_and_those_of_traffic_are_not(tmp_path):
    port = tmp_path / "sys/devices/pci/infiniband/mlx5_0/ports/1"
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband/mlx5_0").symlink_to("../../devices/pci/infiniband/mlx5_0")
    files = {"counters/port_xmit_data": 7, "hw_counters/out_of_sequence": 3, "hw_counters/lifespan": 1}
    for name, value in files.items():
        (port / name).parent.mkdir(parents=True, exist_ok=True)
        (port / name).write_text(f"{value}\n")
    meter = counters.PortMeter(["mlx5_0:1"], DirectoryRoot(tmp_path, "a"))
    (port / "counters/port_xmit_data").write_text("1024007\n")
    moved = meter.moved()
    assert moved == {"mlx5_0:1.port_xmit_data": 1024000}
    assert counters.judge({"a": moved, "b": {}}).value == "clean"
    assert "port_xmit_data counted 3.9 MiB" in counters.transport_evidence("mlx5_0:1", 4096000, moved).seen
    (port / "hw_counters/out_of_sequence").write_text("12\n")
    told = counters.judge({"a": meter.moved(), "b": None})
    assert (told.value, told.seen) == ("moved", "a mlx5_0:1 out_of_sequence +9")
    assert counters.judge({"a": {}, "b": None}).value == "unknown"


def test_pauses_of_the_interfaces_of_a_bond_are_told(tmp_path):
    files = {
        "sys/class/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/0": "bond0",
        "sys/devices/virtual/net/bond0/bonding/mode": "802.3ad 4",
        "sys/devices/virtual/net/bond0/bonding/slaves": "eth0 eth1",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    counts = {"eth0": {"rx_prio3_pause": 1, "rx_packets": 5}, "eth1": {"rx_prio3_pause": 0}}
    meter = counters.PortMeter(["mlx5_bond_0:1"], DirectoryRoot(tmp_path, "a"), counts.__getitem__)
    counts["eth1"] = {"rx_prio3_pause": 7, "rx_packets": 9}
    counts["eth0"] = {"rx_prio3_pause": 1, "rx_packets": 90}
    told = counters.judge({"a": meter.moved()})
    assert (told.value, told.seen) == ("moved", "a mlx5_bond_0:1 eth1 rx_prio3_pause +7")


def test_bonds_vfs_trust_and_cnps_are_told_from_sysfs(tmp_path):
    bond = "sys/devices/virtual/net/bond0"
    files = {
        "sys/class/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/3": "bond0",
        "sys/devices/0000:01:00.0/vendor": "0x15b3",
        "sys/devices/0000:01:00.0/sriov/4/config": "VF : 4\nMaxTxRate  : 50000",
        "sys/devices/0000:01:00.6/vendor": "0x15b3",
        f"{bond}/bonding/mode": "802.3ad 4",
        f"{bond}/bonding/slaves": "eth0 eth1",
        f"{bond}/qos/trust": "dscp",
        f"{bond}/ecn/roce_np/cnp_dscp": "48",
        "sys/module/ib_core/parameters/netns_mode": "N",
        "sys/fs/cgroup/job/rdma.max": "mlx5_bond_0 hca_handle=2 hca_object=max",
        "proc/self/cgroup": "0::/job/step",
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    (tmp_path / "sys/class/infiniband/mlx5_bond_0/device").symlink_to("../../../devices/0000:01:00.6")
    (tmp_path / "sys/devices/0000:01:00.6/physfn").symlink_to("../0000:01:00.0")
    (tmp_path / "sys/devices/0000:01:00.0/virtfn4").symlink_to("../0000:01:00.6")
    (tmp_path / "sys/class/net").mkdir()
    (tmp_path / "sys/class/net/bond0").symlink_to("../../devices/virtual/net/bond0")
    root = DirectoryRoot(tmp_path, "a")
    assert surroundings.describe_port("mlx5_bond_0:1", 3, root) == {
        "function": "VF", "physical_function": "0000:01:00.0", "vf": 4, "vf_rate_limit_bits_per_s": 50e9,
        "netdev": "bond0", "bond": "bond0", "bond_mode": "802.3ad", "bond_ports": "eth0 eth1",
        "trust_mode": "dscp", "cnp_dscp": "48",
    }  # fmt: skip
    assert surroundings.describe_port("mlx5_9:1", None, root) == {}
    assert surroundings.describe_process(root) == {
        "rdma_netns": "exclusive",
        "rdma_cgroup": "mlx5_bond_0 hca_handle=2",
    }
