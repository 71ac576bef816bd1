"""NCCL's path kinds, each on the smallest machine that has it."""

import pytest

from railwright.errors import UsageError
from railwright.topology.devices import (
    C2cLink,
    EthernetLink,
    InternalLink,
    MemoryLink,
    NvlinkLink,
    PcieLink,
    SmpLink,
)
from railwright.topology.paths import Affinity, Graph, physical_path

from .machines import topology

PCIE, NVLINK, ROOT = PcieLink(gt_per_s=32.0, width=16), NvlinkLink(generation=4, links=18), InternalLink()


def kind_of(graph, source, target):
    path = Graph(graph).find(source, target)
    return path.kind if path else None


def two_sockets(*more_links, **more_devices):
    """Two sockets; below each a root port and a switch with a GPU and a NIC."""
    kinds = {f"{kind}{n}": name for n in (0, 1) for kind, name in
             (("cpu", "cpu"), ("memory", "memory"), ("port", "root_port"), ("switch", "pcie_switch"), ("gpu", "gpu"),
              ("nic", "nic"))}  # fmt: skip
    links = [("cpu0", "cpu1", SmpLink())]
    for n in (0, 1):
        links += [(f"cpu{n}", f"memory{n}", MemoryLink()), (f"cpu{n}", f"port{n}", ROOT),
                  (f"port{n}", f"switch{n}", PCIE), (f"switch{n}", f"gpu{n}", PCIE),
                  (f"switch{n}", f"nic{n}", PCIE)]  # fmt: skip
    return topology({**kinds, **more_devices}, [*links, *more_links])


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        ("gpu0", "gpu0", "LOC"),
        ("cpu0", "memory0", "LOC"),
        ("gpu0", "nic0", "PIX"),
        ("gpu0", "memory0", "PHB"),
        ("gpu0", "nic1", "SYS"),
        ("gpu0", "memory1", "SYS"),
    ],
)
def test_kinds_in_a_server_with_two_sockets(source, target, kind):
    assert kind_of(two_sockets(), source, target) == kind


def test_cascaded_switches_are_pxb():
    machine = two_sockets(("switch0", "switch2", PCIE), ("switch2", "nic2", PCIE), switch2="pcie_switch", nic2="nic")
    assert kind_of(machine, "gpu0", "nic2") == "PXB"


def test_ports_of_one_card_are_as_near_as_one_nic():
    machine = two_sockets(("switch0", "card0", PCIE), ("card0", "nic2", ROOT), card0="card", nic2="nic")
    assert kind_of(machine, "gpu0", "nic2") == "PIX"


def test_other_root_port_of_the_socket_is_phb():
    machine = two_sockets(("cpu0", "port2", ROOT), ("port2", "nic2", PCIE), port2="root_port", nic2="nic")
    assert kind_of(machine, "gpu0", "nic2") == "PHB"


def test_nvlink_over_a_switch_is_nvl_and_beats_the_cpu():
    machine = two_sockets(("nvs", "gpu0", NVLINK), ("nvs", "gpu1", NVLINK), nvs="nvswitch")
    assert kind_of(machine, "gpu0", "gpu1") == "NVL"


def test_nvlink_through_a_gpu_is_nvb():
    machine = two_sockets(("gpu0", "gpu2", NVLINK), ("gpu2", "gpu1", NVLINK), gpu2="gpu")
    assert kind_of(machine, "gpu0", "gpu1") == "NVB"


def test_sending_to_a_far_nic_is_pxn_and_its_dma_is_not():
    machine = two_sockets(("gpu0", "gpu1", NVLINK))
    assert kind_of(machine, "gpu0", "nic1") == "PXN"
    assert physical_path(Graph(machine), "gpu0", "nic1").kind == "SYS"
    assert Affinity(machine).nearest("gpu0") == ("nic0",)


def test_grace_hopper_has_c2c_and_p2c():
    machine = topology(
        {"cpu0": "cpu", "gpu0": "gpu", "port0": "root_port", "nic0": "nic"},
        [("cpu0", "gpu0", C2cLink()), ("cpu0", "port0", ROOT), ("port0", "nic0", PCIE)],
    )
    assert kind_of(machine, "gpu0", "cpu0") == "C2C"
    assert kind_of(machine, "gpu0", "nic0") == "P2C"


def test_over_the_fabric_is_net():
    port = EthernetLink(line_rate_bits_per_s=400e9)
    machine = topology(
        {"gpu0": "gpu", "s0": "pcie_switch", "nic0": "nic", "fabric0": "fabric",
         "gpu1": "gpu", "s1": "pcie_switch", "nic1": "nic"},
        [("s0", "gpu0", PCIE), ("s0", "nic0", PCIE), ("nic0", "fabric0", port), ("nic1", "fabric0", port),
         ("s1", "nic1", PCIE), ("s1", "gpu1", PCIE)],
    )  # fmt: skip
    assert kind_of(machine, "gpu0", "gpu1") == "NET"


def test_one_way_links_are_one_way():
    machine = topology({"gpu0": "gpu", "nic0": "nic"}, [("gpu0", "nic0", PCIE, True)])
    assert kind_of(machine, "gpu0", "nic0") == "PIX"
    assert kind_of(machine, "nic0", "gpu0") is None


def test_a_link_to_nothing_is_refused():
    with pytest.raises(UsageError, match="nic7"):
        Graph(topology({"gpu0": "gpu"}, [("gpu0", "nic7", PCIE)]))
