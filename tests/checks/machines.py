"""A machine with every setting as recommended, and changes to it."""

from msgspec.structs import replace
from tests.checks.test_gpu_settings import machine as gpu_machine

from railwright.topology.devices import EthernetLink, InfinibandLink, PcieLink

HOST = {
    "modules": "nvidia nvidia_peermem mlx5_core",
    "kernel": "6.8.0-41-generic",
    "cuda": "12.8",
    "nvidia_module": "open",
    "ofed": "24.10-0.7.0",
    "numa_nodes_per_socket": 1,
    "thp": "madvise",
    "hugepages_bytes": 0,
    "numa_balancing": 0,
    "cpu_governor": "performance",
    "cpu_frequency_driver": "intel_pstate",
    "cpu_energy_preference": "performance",
    "idle_state": "C1E",
    "idle_exit_s": 2e-6,
    "isolated_cpus": "no CPU",
    "memlock_bytes": "unlimited",
    "may_lock_memory": False,
    "dev_shm_bytes": 2**40,
    "verbs_devices": 8,
    "rdma_netns": "shared",
    "rdma_limit": "unlimited",
    "ovs_hw_offload": "none",
    "nvme_multipath": "N",
    "static_bar1": True,
    "cpus_allowed": "0-223",
    "cpu_quota": "unlimited",
    "ptrace_scope": 1,
    "may_trace": False,
    "seccomp": "off",
    "io_uring_disabled": 0,
    "driver_pollers": "dcgm-exporter every 30 s",
    "driver_polled_s": 30.0,
    "mpi": "Open MPI 5.0.8",
    "mpi_cuda": True,
    "ucx": "1.18.0",
    "ucx_transports": "self tcp rc_verbs rc_mlx5 dc_mlx5 cuda_copy cuda_ipc cma",
    "ucx_devices": " ".join(f"mlx5_{number}:1" for number in range(8)),
    "ofi_nccl": "none",
}
GPU = {"ecc": True, "bar1_bytes": 2**37, "memory_bytes": 80 * 2**30, "iommu_domain": "identity", "dma_buf": True,
       "sm_clock_max_hz": 1.98e9, "memory_clock_max_hz": 2.619e9}  # fmt: skip
NIC = {"relaxed_ordering": True, "ats_capable": True, "ats_enabled": False, "iommu_domain": "identity",
       "port_errors": "none"}  # fmt: skip
CPU = {"vendor": "GenuineIntel", "family": 6, "architecture": "x86_64"}
LINK = {"max_payload_bytes": 256, "max_payload_supported_bytes": 256, "max_read_request_bytes": 4096,
        "acs_redirect": False}  # fmt: skip
DRIVE = {"iommu_domain": "identity"}
OF_KIND = {"host": HOST, "drive": DRIVE, "gpu": GPU, "nic": NIC, "cpu": CPU}


def tuned():
    """An HGX H100 without a fault."""
    host = gpu_machine()
    devices = tuple(replace(one, facts={**one.facts, **OF_KIND.get(one.kind, {})}) for one in host.devices)
    devices = tuple(
        replace(one, address=f"0000:e{number % 16:x}:00.0") if one.kind == "drive" else one
        for number, one in enumerate(devices)
    )
    machine = with_links(replace(host, devices=devices), "", **LINK)
    for number, cpus in enumerate(("0-111", "112-223")):
        machine = with_facts(machine, "cpu", number, cpu_list=cpus)
    return machine


GIDS = "0:v1/link-local/eth2 1:v2/link-local/eth2 2:v1/IPv4/eth2 3:v2/IPv4/eth2"


def tuned_roce():
    """The same machine with RoCE NICs."""
    ethernet = EthernetLink(line_rate_bits_per_s=400e9, mtu_bytes=9000, rdma=True)
    machine = tuned()
    links = tuple(
        replace(one, protocol=ethernet) if isinstance(one.protocol, InfinibandLink) else one for one in machine.links
    )
    machine = with_facts(
        replace(machine, links=links),
        "nic",
        roce_gids=GIDS,
        roce_ecn="on",
        state="up",
        lossless_priorities="3",
        dscp_priorities="26:3",
        pause="none",
        trust_mode="dscp",
        cnp_dscp="48",
        cnp_priority="6",
    )
    for number, _ in enumerate(machine.of_kind("nic")):
        machine = with_facts(machine, "nic", number, rdma_device=f"mlx5_{number}")
    return machine


def with_facts(topology, kind, number=None, **facts):
    """Change facts of all devices of a kind, or of one device; None removes a fact."""
    wanted = {f"{kind}{number}"} if number is not None else {one.id for one in topology.of_kind(kind)}
    assert wanted <= {one.id for one in topology.devices}
    return replace(
        topology,
        devices=tuple(
            replace(one, facts={name: value for name, value in {**one.facts, **facts}.items() if value is not None})
            if one.id in wanted
            else one
            for one in topology.devices
        ),
    )


def with_links(topology, below, **changed):
    """Change the PCIe links below a device; an empty id changes all PCIe links."""
    return replace(
        topology,
        links=tuple(
            replace(link, protocol=replace(link.protocol, **changed))
            if isinstance(link.protocol, PcieLink) and below in ("", link.b)
            else link
            for link in topology.links
        ),
    )


def with_port(topology, nic, **changed):
    """Change the port of a NIC."""
    return replace(
        topology,
        links=tuple(
            replace(link, protocol=replace(link.protocol, **changed))
            if link.a == nic and isinstance(link.protocol, EthernetLink | InfinibandLink)
            else link
            for link in topology.links
        ),
    )
