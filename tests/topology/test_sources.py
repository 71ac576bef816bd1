"""Sysfs of machines that are not in testdata/hosts: VFs, representors, clouds, controllers, old kernels."""

import pytest

from railwright.limits.limit import Limit
from railwright.limits.memory import limit_memory_copy
from railwright.topology.paths import Graph
from railwright.topology.sources.capture import capture
from railwright.topology.sources.load import load
from railwright.topology.sources.look import open_capture
from railwright.topology.sources.pci_config import (
    CAPABILITY_PCIE,
    ConfigSpace,
    capabilities,
    extended_capabilities,
    read_config,
)
from railwright.topology.sources.text import id_list

from .machines import files_of, write_archive

BUS = "sys/devices/pci0000:00"


class Machine:
    """A machine of one or two NUMA nodes, extended by each test."""

    def __init__(self, nodes=1):
        self.files = {"sys/devices/system/node/online": f"0-{nodes - 1}" if nodes > 1 else "0",
                      "proc/cpuinfo": "processor : 0\nvendor_id : GenuineIntel\nmodel name : Xeon\n",
                      "proc/meminfo": "MemTotal:   1048576 kB\n"}  # fmt: skip
        for node in range(nodes):
            self.put(f"sys/devices/system/node/node{node}", cpulist=str(node), distance="10 21" if nodes > 1 else "10",
                     meminfo=f"Node {node} MemTotal:   1048576 kB")  # fmt: skip
            self.put(f"sys/devices/system/cpu/cpu{node}/topology", physical_package_id=str(node),
                     thread_siblings_list=str(node))  # fmt: skip

    def put(self, path, **files):
        for name, content in files.items():
            self.files[f"{path}/{name}"] = content

    def function(self, path, vendor, device, kind, numa="-1", **files):
        self.put(path, vendor=vendor, device=device, numa_node=numa, **{"class": kind}, **files)
        return path

    def load(self, tmp_path):
        files = {path: content.encode() for path, content in self.files.items()}
        return load(str(write_archive(tmp_path / "machine.jsonl", files)))


def bridge(machine, path, **files):
    return machine.function(path, "0x8086", "0x1", "0x060400", **files)


def nic(machine, path, netdev, **files):
    machine.function(path, "0x15b3", "0x1021", "0x020000", **files)
    machine.put(f"{path}/net/{netdev}", mtu="9000", speed="100000", operstate="up", type="1", dev_port="0")
    return path


def test_virtual_functions_and_representors_are_not_nics(tmp_path):
    machine = Machine()
    port = bridge(machine, f"{BUS}/0000:00:01.0")
    physical = nic(machine, f"{port}/0000:01:00.0", "ens1f0np0")
    machine.put(f"{physical}/net/ens1f0np0", phys_port_name="p0")
    machine.put(f"{physical}/net/ens1f0npf0vf0", mtu="1500", phys_port_name="pf0vf0")
    machine.put(nic(machine, f"{port}/0000:01:00.1", "ens1f0v0"), physfn="")
    nics = machine.load(tmp_path).of_kind("nic")
    assert [(device.facts["netdev"], device.facts.get("representors")) for device in nics] == [("ens1f0np0", 1)]


def test_two_ports_of_one_function_are_two_nics_on_a_card(tmp_path):
    machine = Machine()
    port = bridge(machine, f"{BUS}/0000:00:01.0")
    path = nic(machine, f"{port}/0000:01:00.0", "a")
    machine.put(f"{path}/net/b", mtu="1500", dev_port="1", speed="100000", operstate="up")
    topology = machine.load(tmp_path)
    assert [device.facts["netdev"] for device in topology.of_kind("nic")] == ["a", "b"]
    assert [(link.a, link.b) for link in topology.links if link.a == "card0"] == [("card0", "nic0"), ("card0", "nic1")]


def test_a_port_that_is_down_has_no_rate(tmp_path):
    machine = Machine()
    path = nic(machine, f"{BUS}/0000:00:02.0", "eth0")
    machine.put(f"{path}/net/eth0", operstate="down", speed="10000")
    topology = machine.load(tmp_path)
    assert next(link.protocol for link in topology.links if link.a == "nic0").line_rate_bits_per_s is None
    assert {"line rate of nic0": "the port is down"}.items() <= {
        item.what: item.why for item in topology.unknown
    }.items()


def test_a_nic_whose_driver_was_taken_away_is_still_there(tmp_path):
    machine = Machine()
    machine.function(f"{BUS}/0000:00:02.0", "0x15b3", "0x1021", "0x020700", uevent="DRIVER=vfio-pci")
    topology = machine.load(tmp_path)
    assert topology.device("nic0").facts["driver"] == "vfio-pci"
    assert any("vfio-pci" in item.why for item in topology.unknown)


def test_loopback_and_bridges_are_not_nics(tmp_path):
    machine = Machine()
    for name in ("lo", "br0", "veth1"):
        machine.put(f"sys/devices/virtual/net/{name}", mtu="1500", operstate="up")
    for name in ("loop0", "ram0", "dm-0", "zram0"):
        machine.put(f"sys/devices/virtual/block/{name}", size="1000")
    assert machine.load(tmp_path).of_kind("nic", "drive", "fabric") == ()


def test_bridge_roles_are_guessed_from_nesting_where_only_root_could_read_them(tmp_path):
    machine = Machine()
    path = BUS
    for address in ("00:01.0", "01:00.0", "02:00.0"):
        path = bridge(machine, f"{path}/0000:{address}")
    machine.function(f"{path}/0000:03:00.0", "0x10de", "0x2330", "0x030200", config="x" * 64)
    nic(machine, f"{BUS}/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", "eth0")
    bridge(machine, f"{BUS}/0000:00:01.0/0000:01:00.0/0000:02:01.0")
    topology = machine.load(tmp_path)
    assert [device.kind for device in topology.of_kind("root_port", "pcie_switch")] == ["root_port", "pcie_switch"]
    assert Graph(topology).find("gpu0", "nic0").kind == "PIX"
    assert any("only root" in item.why for item in topology.unknown)


def test_the_display_of_a_virtual_machine_is_not_a_gpu(tmp_path):
    machine = Machine()
    machine.function(f"{BUS}/0000:00:02.0", "0x1234", "0x1111", "0x030000")
    machine.function(f"{BUS}/0000:00:03.0", "0x1002", "0x515e", "0x030000")  # ES1000 of an old BMC
    assert machine.load(tmp_path).of_kind("gpu") == ()


def test_amd_accelerators_are_gpus(tmp_path):
    machine = Machine()
    machine.function(f"{BUS}/0000:00:03.0", "0x1002", "0x74a1", "0x120000")
    assert machine.load(tmp_path).of_kind("gpu")[0].name == "AMD Instinct MI300X"


def test_a_device_without_a_numa_node_is_reported(tmp_path):
    machine = Machine(nodes=2)
    nic(machine, f"{BUS}/0000:00:02.0", "eth0")
    topology = machine.load(tmp_path)
    assert not [link for link in topology.links if link.b == "nic0"]
    assert any(item.what == "NUMA node of nic0" for item in topology.unknown)


def test_sata_drives_hang_from_their_controller(tmp_path):
    machine = Machine()
    path = machine.function(f"{BUS}/0000:00:17.0", "0x8086", "0xa282", "0x010601")
    machine.put(f"{path}/ata1/host0/target0:0:0/0:0:0:0/block/sda", size="2048")
    machine.put(f"{path}/ata1/host0/target0:0:0/0:0:0:0/block/sda/queue", rotational="1")
    machine.put(f"{path}/ata1/host0/target0:0:0/0:0:0:0", model="Disk")
    topology = machine.load(tmp_path)
    assert topology.device("sda").facts == {"pci_id": "8086:a282", "pci_class": "0x010601", "size_bytes": 2**20,
                                            "rotational": True}  # fmt: skip
    assert topology.device("sda").name == "Disk"
    assert [(link.a, link.b) for link in topology.links if link.b in ("card0", "sda")] == [
        ("cpu0", "card0"),
        ("card0", "sda"),
    ]


def test_multipath_nvme_has_the_name_that_people_mount(tmp_path):
    machine = Machine()
    path = machine.function(f"{BUS}/0000:00:04.0", "0x144d", "0xa824", "0x010802")
    machine.put(f"{path}/nvme/nvme3", model="SSD")
    machine.put(f"{path}/nvme/nvme3/nvme3c3n1", size="2048")
    assert [device.id for device in machine.load(tmp_path).of_kind("drive")] == ["nvme3n1"]


def test_an_nvme_drive_without_a_block_device_is_still_there(tmp_path):
    machine = Machine()
    machine.function(f"{BUS}/0000:00:04.0", "0x144d", "0xa824", "0x010802")
    assert [device.id for device in machine.load(tmp_path).of_kind("drive")] == ["nvme-0000:00:04.0"]


def test_hyper_v_and_xen_devices_are_found(tmp_path):
    machine = Machine()
    vmbus = "sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00"
    netvsc = f"{vmbus}/000d3a5c-1234-000d-3a5c-1234000d3a5c"
    machine.put(f"{netvsc}/net/eth0", mtu="1500", speed="50000", operstate="up")
    pci = f"{vmbus}/47505500-0001-0000-3130-444531334132/pci0001:00/0001:00:00.0"
    machine.function(pci, "0x10de", "0x2330", "0x030200")
    machine.put("sys/devices/vbd-768/block/xvda", size="4096")
    topology = machine.load(tmp_path)
    assert [device.id for device in topology.of_kind("nic", "gpu", "drive")] == ["gpu0", "nic0", "xvda"]
    assert {link.b: link.protocol.name for link in topology.links if link.b in ("nic0", "xvda")} == {
        "nic0": "VMBus",
        "xvda": "Xen",
    }


def test_infiniband_rate_comes_from_the_rdma_port(tmp_path):
    machine = Machine()
    path = machine.function(f"{BUS}/0000:00:05.0", "0x15b3", "0x1021", "0x020700")
    machine.put(
        f"{path}/infiniband/mlx5_0/ports/1", rate="400 Gb/sec (4X NDR)", link_layer="InfiniBand", state="4: ACTIVE"
    )
    topology = machine.load(tmp_path)
    port = next(link.protocol for link in topology.links if link.a == "nic0")
    assert (port.__struct_config__.tag, port.line_rate_bits_per_s) == ("infiniband", 400e9)
    assert topology.device("nic0").facts["state"] == "up"


@pytest.mark.parametrize(
    ("vendor", "product", "hypervisor", "cloud"),
    [
        ("Amazon EC2", "p5.48xlarge", "kvm", "aws"),
        ("Microsoft Corporation", "Virtual Machine", "hyperv", None),
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "kvm", None),
        ("Google", "Google Compute Engine", "kvm", "gcp"),
        ("Unheard", "Of", "unknown", None),
    ],
)
def test_firmware_identifies_clouds(tmp_path, vendor, product, hypervisor, cloud):
    machine = Machine()
    machine.put("sys/devices/virtual/dmi/id", sys_vendor=vendor, product_name=product)
    machine.files["proc/cpuinfo"] += "flags : fpu hypervisor sse\n"
    facts = machine.load(tmp_path).device("host0").facts
    assert (facts["hypervisor"], facts.get("cloud")) == (hypervisor, cloud)


def test_a_cloud_machine_without_a_hypervisor_is_not_virtual(tmp_path):
    machine = Machine()
    machine.put("sys/devices/virtual/dmi/id", sys_vendor="Amazon EC2", product_name="c7i.metal-24xl")
    facts = machine.load(tmp_path).device("host0").facts
    assert facts["cloud"] == "aws"
    assert "is_virtual" not in facts


def test_memory_without_cores_hangs_from_the_nearest_cpu(tmp_path):
    machine = Machine(nodes=2)
    machine.files["sys/devices/system/node/node1/cpulist"] = ""
    topology = machine.load(tmp_path)
    assert [device.id for device in topology.of_kind("cpu", "memory")] == ["cpu0", "memory0", "memory1"]
    assert [link.a for link in topology.links if link.b == "memory1"] == ["cpu0"]


def test_looping_capability_lists_end():
    space = bytearray(512)
    space[0x06], space[0x34] = 0x10, 0x40
    space[0x40], space[0x41] = 0x05, 0x40
    assert list(capabilities(bytes(space))) == [(5, 0x40)]
    space[0x100:0x104] = (0x000D | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    assert list(extended_capabilities(bytes(space))) == [(0x0D, 0x100)]
    space[0x100:0x104] = (0x0003 | 1 << 16 | 0xFFC << 20).to_bytes(4, "little")
    assert list(extended_capabilities(bytes(space))) == [(0x03, 0x100)]


def test_facts_that_need_root_are_none_and_not_false():
    files = files_of("8gpu-pcie")
    config = next(raw for path, raw in files.items() if path.endswith("0000:39:00.0/config"))
    assert read_config(config).port_type == "downstream"
    assert read_config(config).acs_redirect is True
    assert read_config(config[:64]) == ConfigSpace(size_bytes=64, acs_redirect=None, ats_enabled=None)
    assert read_config(config[:256]).acs_redirect is None
    assert read_config(config[:256] + bytes(256)).acs_redirect is False
    assert next(identifier for identifier, _ in capabilities(config)) == CAPABILITY_PCIE


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,8", (0, 1, 2, 3, 8)), ("", ()), ("\n", ()), ("3-1", ()), ("0-9999999", None), ("a", None), ("1,,2", None)],
)
def test_kernel_lists(text, numbers):
    assert id_list(text) == numbers


def test_a_vf_in_a_pod_stands_for_its_pf_and_is_judged_by_its_link(tmp_path):
    def machine(pf_netdev="", **of_vf):
        found = Machine()
        port = bridge(found, f"{BUS}/0000:00:01.0")
        link = {"current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}
        pf = found.function(f"{port}/0000:01:00.0", "0x15b3", "0x1021", "0x020000", sriov_numvfs="2",
                            sriov_offset="2", sriov_stride="1", **link)  # fmt: skip
        if pf_netdev:
            found.put(f"{pf}/net/{pf_netdev}", mtu="9000", speed="400000", operstate="up", type="1", dev_port="0")
        for number in range(2):  # 01:00.2 and 01:00.3
            vf = found.function(f"{port}/0000:01:00.{2 + number}", "0x15b3", "0x101e", "0x020000", physfn="",
                                current_link_speed="Unknown", current_link_width="0")  # fmt: skip
            if number == 1:
                found.put(f"{vf}/net/net1", mtu="9000", speed="400000", operstate="up", type="1", dev_port="0")
                found.put(
                    f"{vf}/infiniband/mlx5_3/ports/1", link_layer="Ethernet", state="4: ACTIVE", rate="400 Gb/sec"
                )
        for name, content in of_vf.items():
            found.put(f"{pf}/sriov/1", **{name: content})
        return found.load(tmp_path)

    def port(topology, nic):
        return next(link.protocol for found, link in topology.ports_out if found.id == nic.id)

    pod = machine()
    (nic_found,) = pod.of_kind("nic")
    told = {"function": "VF", "physical_function": "0000:01:00.0", "vf": 1, "netdev": "net1", "rdma_device": "mlx5_3"}
    assert nic_found.address == "0000:01:00.3"
    assert nic_found.facts.items() >= told.items()
    (above,) = [link for link in pod.links if nic_found.id in (link.a, link.b) and hasattr(link.protocol, "gt_per_s")]
    assert (above.protocol.gt_per_s, above.protocol.width) == (32.0, 16)
    assert port(pod, nic_found).line_rate_bits_per_s == 400e9
    for files in ({"config": "VF : 1\nMinTxRate  : 0\nMaxTxRate  : 25000\n"}, {"max_tx_rate": "25000"}):
        limited = machine(**files)
        (nic_found,) = limited.of_kind("nic")
        assert nic_found.facts["vf_rate_limit_bits_per_s"] == 25e9
        assert port(limited, nic_found).line_rate_bits_per_s == 25e9
    held = tmp_path / "held.jsonl"
    machine(config="VF : 1\nMAC : 0c:42:a1:00:11:22\nMaxTxRate  : 25000\n")
    capture(open_capture(tmp_path / "machine.jsonl"), held, redact=True)
    assert load(str(held)).of_kind("nic")[0].facts["vf_rate_limit_bits_per_s"] == 25e9
    assert "0c:42:a1" not in held.read_text()
    for files in ({"config": "MaxTxRate : 0\n"}, {"max_tx_rate": "usage: write"}, {"max_tx_rate": "99999999999"}):
        (nic_found,) = machine(**files).of_kind("nic")
        assert "vf_rate_limit_bits_per_s" not in nic_found.facts
    (nic_found,) = machine(pf_netdev="ens1f0np0").of_kind("nic")
    assert nic_found.facts["netdev"] == "ens1f0np0", "the host itself uses the PF"
    assert "function" not in nic_found.facts


@pytest.mark.parametrize("wrong", ["0", "-1", "x", "99999999"])
def test_a_pf_with_wrong_numbers_claims_no_function(tmp_path, wrong):
    machine = Machine()
    port = bridge(machine, f"{BUS}/0000:00:01.0")
    machine.function(f"{port}/0000:01:00.0", "0x15b3", "0x1021", "0x020000", sriov_numvfs=wrong,
                     sriov_offset="2", sriov_stride="1")  # fmt: skip
    machine.put(nic(machine, f"{port}/0000:01:00.2", "net1"))
    assert [one.facts.get("function") for one in machine.load(tmp_path).of_kind("nic")] == [None, None]


def test_a_vf_whose_pf_is_out_of_sight_is_told_by_its_name(tmp_path):
    machine = Machine()
    path = machine.function(f"{BUS}/0000:00:05.0", "0x15b3", "0x101e", "0x020000")
    machine.put(f"{path}/net/ens5", mtu="1500", speed="100000", operstate="up", type="1", dev_port="0")
    (found,) = machine.load(tmp_path).of_kind("nic")
    assert (found.facts["function"], "physical_function" in found.facts) == ("VF", False)


class Grace(Machine):
    """A machine with Grace CPUs that shows neither DMI nor SMBIOS, with the memory of a GPU as a node without cores."""

    def __init__(self, sockets, gib):
        super().__init__(nodes=sockets)
        total = gib * 2**20
        self.files["proc/cpuinfo"] = "processor : 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n"
        self.files["proc/meminfo"] = f"MemTotal:   {total * sockets} kB\n"
        self.files["sys/devices/soc0/soc_id"] = "jep106:036b:0241\n"
        for node in range(sockets):
            self.put(f"sys/devices/system/node/node{node}", meminfo=f"Node {node} MemTotal:   {total} kB")


def grace_limits(topology):
    return [limit_memory_copy(topology, memory.id) for memory in topology.of_kind("memory")]


@pytest.mark.parametrize(
    ("sockets", "gib", "gigabytes_per_s"), [(1, 117, 512), (1, 470, 384), (2, 236, 512), (2, 476, 384), (4, 120, 512)]
)
def test_grace_without_firmware_tables_has_the_memory_rate_of_its_capacity(tmp_path, sockets, gib, gigabytes_per_s):
    topology = Grace(sockets, gib).load(tmp_path)
    assert [memory.facts["size_bytes"] for memory in topology.of_kind("memory")] == [gib * 2**30] * sockets
    assert [limit.value for limit in grace_limits(topology)] == [gigabytes_per_s * 1e9 / 2] * sockets
    assert all("(assumed)" in limit.because for limit in grace_limits(topology))
    assert "memory channels and speed" not in {unknown.what for unknown in topology.unknown}


def test_the_memory_of_a_gpu_has_no_channels_of_grace(tmp_path):
    machine = Grace(1, 470)
    machine.files["sys/devices/system/node/online"] = "0-1"
    machine.put("sys/devices/system/node/node0", distance="10 80")
    machine.put("sys/devices/system/node/node1", cpulist="", distance="80 10", meminfo="Node 1 MemTotal:   99614720 kB")
    assert [isinstance(limit, Limit) for limit in grace_limits(machine.load(tmp_path))] == [True, False]


def test_another_processor_of_the_same_cores_has_no_memory_rate(tmp_path):
    machine = Grace(1, 117)
    machine.files["sys/devices/soc0/soc_id"] = "jep106:0368:0001\n"  # Graviton4 has Neoverse V2 as well
    topology = machine.load(tmp_path)
    assert not isinstance(grace_limits(topology)[0], Limit)
    assert "memory channels and speed" in {unknown.what for unknown in topology.unknown}
