"""Each setting that keeps a path from its limit gives exactly one finding, at its own place."""

import re

import pytest
from tests.checks.machines import GIDS, tuned, tuned_roce, with_facts, with_links, with_port

from railwright.checks import needs
from railwright.checks.check import Facts
from railwright.checks.outcome import look_for
from railwright.faults.every_check import EVERY_CHECK
from railwright.faults.registry import FAULTS

CHECKS = [check for check in EVERY_CHECK if not check.needs_results]
EPYC = {"vendor": "AuthenticAMD", "family": 0x19}
DEGRADED = {fault.name: fault.degrade for fault in FAULTS if fault.degrade is not None}


def host(**facts):
    return with_facts(tuned(), "host", **facts)


def guest(machine):
    return with_facts(machine, "host", is_virtual=True)


AT_FAULT = {
    "payload": (
        "max_payload_small", "seen", r"PCIe packets of gpu3 carry 128 bytes, but all ports on the path support 256$",
        with_links(tuned(), "gpu3", max_payload_bytes=128),
    ),
    "payload of a guest": (
        "max_payload_small", "possible", r"PCIe packets of gpu3 carry 128 bytes",
        with_facts(with_links(guest(tuned()), "gpu3", max_payload_bytes=128), "nic", ats_enabled=True),
    ),
    "payload below 512": (
        "max_payload_small", "possible", r"PCIe packets of gpu0-7, nic0-7, nvme0n1, .* carry 256 bytes, .* 512$",
        with_links(tuned(), "", max_payload_supported_bytes=512),
    ),
    "read request": (
        "read_request_small", "possible", r"PCIe read requests of nic2 are 512 bytes, but 4096 is possible",
        with_links(tuned(), "nic2", max_read_request_bytes=512),
    ),
    "read request far too small": (
        "read_request_small", "likely", r"PCIe read requests of nic2 are 128 bytes",
        with_links(tuned(), "nic2", max_read_request_bytes=128),
    ),
    "order of writes": (
        "relaxed_ordering_off", "likely", r"nic5 may not mark writes as relaxed-ordered$",
        with_facts(tuned(), "nic", 5, relaxed_ordering=False),
    ),
    "ATS": (
        "ats_off", "likely", r"ATS is off in nic1-7: in a guest",
        with_facts(guest(tuned()), "nic", 0, ats_enabled=True),
    ),
    "IOMMU": (
        "iommu_translates", "likely", r"the IOMMU translates the addresses of gpu4$",
        with_facts(tuned(), "gpu", 4, iommu_domain="DMA-FQ"),
    ),
    "IOMMU of a guest": (
        "iommu_translates", "possible", r"the IOMMU translates the addresses of gpu4$",
        with_facts(with_facts(guest(tuned()), "nic", ats_enabled=True), "gpu", 4, iommu_domain="DMA"),
    ),
    "BAR1": (
        "bar1_small", "seen", r"BAR1 of gpu6 maps 256 MiB of 80 GiB$",
        with_facts(tuned(), "gpu", 6, bar1_bytes=2**28),
    ),
    "no BAR1": ("bar1_small", "seen", r"BAR1 of gpu6 maps 0 MiB", with_facts(tuned(), "gpu", 6, bar1_bytes=0)),
    "NPS1": ("numa_nodes_one", "possible", r"each socket is one NUMA node", with_facts(tuned(), "cpu", **EPYC)),
    "NUMA balancing": ("numa_balancing_on", "possible", r"automatic NUMA balancing is on", host(numa_balancing=1)),
    "governor": (
        "governor_saves_power", "possible", r"the CPUs' frequency governor is schedutil \(190\), performance \(2\)$",
        host(cpu_governor="schedutil (190), performance (2)", cpu_frequency_driver="acpi-cpufreq",
             cpu_energy_preference="none"),
    ),
    "energy preference": (
        "governor_saves_power", "possible", r"the CPUs' energy preference is balance_power, with the governor ",
        host(cpu_governor="powersave", cpu_energy_preference="balance_power"),
    ),
    "idle states": (
        "idle_states_deep", "possible", r"idle cores may enter C6, which takes 290 us to leave",
        host(idle_state="C6", idle_exit_s=290e-6),
    ),
    "no huge pages": ("huge_pages_off", "possible", r"transparent huge pages are switched off", host(thp="never")),
    "locked memory": (
        "memlock_low", "seen", r"locked memory is limited to 8 MiB: RDMA cannot register more",
        host(memlock_bytes=8 * 2**20),
    ),
    "locked memory of root": (
        "memlock_low", "possible", r".*\(CAP_IPC_LOCK\)", host(memlock_bytes=8 * 2**20, may_lock_memory=True),
    ),
    "no RDMA devices": (
        "rdma_devices_missing", "seen", r"/dev/infiniband has 0 of 8 RDMA devices$", host(verbs_devices="none"),
    ),
    "some RDMA devices": (
        "rdma_devices_missing", "likely", r"/dev/infiniband has 2 of 8 RDMA devices$", host(verbs_devices=2),
    ),
    "shared memory": (
        "shared_memory_small", "likely", r"the file system /dev/shm holds 64 MiB", host(dev_shm_bytes=64 * 2**20),
    ),
    "no shared memory": ("shared_memory_small", "likely", r".* does not exist", host(dev_shm_bytes="none")),
    "half of the lanes": (
        "pcie_below_maximum", "seen", r".*gpu3 runs at 32 GT/s x8, but both ends support 32 GT/s x16",
        with_links(tuned(), "gpu3", gt_per_s=32.0, width=8, max_gt_per_s=32.0, max_width=16),
    ),
    "ACS": (
        "acs_redirect", "seen", r"ACS redirects peer-to-peer requests of \d+ ports",
        with_links(tuned(), "", acs_redirect=True),
    ),
    "no GPUDirect": (
        "gpudirect_off", "seen", r"nvidia-peermem is not loaded, and the driver does not export GPU memory",
        with_facts(host(modules="nvidia mlx5_core"), "gpu", dma_buf=False),
    ),
    "no GPUDirect Storage": (
        "gpudirect_storage_off", "possible", r"GPUDirect Storage is not available",
        host(static_bar1=False),
    ),
    "a lost GPU": (
        "gpu_lost", "seen", r"gpu5 is on the PCI bus, but NVML does not list it",
        with_facts(tuned(), "gpu", 5, nvml_lists=False),
    ),
    "memory errors": (
        "gpu_memory_errors", "seen", r".*gpu5", with_facts(tuned(), "gpu", 5, row_remap_failed=True),
    ),
    "compute mode": (
        "compute_mode_prohibited", "seen", r".*gpu5", with_facts(tuned(), "gpu", 5, compute_mode="prohibited"),
    ),
    "MIG": ("mig_enabled", "seen", r"MIG mode is on in gpu5", with_facts(tuned(), "gpu", 5, mig=True)),
    "throttled": (
        "gpu_throttled", "seen", r"gpu5 is throttled",
        with_facts(tuned(), "gpu", 5, throttled="hardware slowdown"),
    ),
    "power": (
        "power_limited", "seen", r"the power limit of gpu5 is 500 W",
        with_facts(tuned(), "gpu", 5, power_limit_w=500.0),
    ),
    "persistence": (
        "persistence_off", "possible", r"persistence mode is off in gpu5",
        with_facts(tuned(), "gpu", 5, persistence=False),
    ),
    "a port that is down": (
        "nic_unused", "likely", r"the port of nic5 is down, while others",
        with_facts(with_facts(tuned(), "nic", state="up", rdma_device="mlx5_0"), "nic", 5, state="down"),
    ),
    "no NVLink fabric": (
        "p2p_disabled", "seen", r"gpu5 did not join the NVLink fabric",
        with_facts(tuned(), "gpu", 5, nvlink_fabric="not started"),
    ),
    "MTU": (
        "mtu_small", "seen", r"MTU 1024 of nic5, but 4096 is possible", DEGRADED["mtu_small"](tuned(), "nic5"),
    ),
    "NVLinks": (
        "nvlink_below_maximum", "seen", r"9 of 18 NVLinks", DEGRADED["nvlink_below_maximum"](tuned(), "gpu5"),
    ),
    "NICs of the other socket": (
        "nic_across_sockets", "likely", r"8 GPUs reach every NIC only across sockets",
        DEGRADED["nic_across_sockets"](tuned(), "host0"),
    ),
    "Open vSwitch": (
        "ovs_offload_off", "likely", r"nic0, nic1 have representors, but Open vSwitch does not offload flows",
        with_facts(with_facts(host(ovs_hw_offload="false"), "nic", 0, representors=4), "nic", 1, representors=4),
    ),
    "a NIC that takes no flow": (
        "ovs_offload_off", "likely", r"nic0 accept no flows, although Open vSwitch offloads them",
        with_facts(host(ovs_hw_offload="true"), "nic", 0, representors=4, tc_offload=False),
    ),
    "no address": (
        "roce_gid_missing", "likely", r"nic3 have no RoCE v2 GID",
        with_facts(tuned_roce(), "nic", 3, roce_gids="0:v1/link-local/eth2 1:v2/link-local/eth2")),
    "no GID": ("roce_gid_missing", "possible", r"nic0-7 have no", with_facts(tuned_roce(), "nic", roce_gids="none")),
    "IPv6 only": (
        "fabric_ipv6_only", "possible", r"nic0-7 have only IPv6 addresses, and NCCL_IB_ADDR_FAMILY is not known",
        with_facts(tuned_roce(), "nic", roce_gids="1:v2/link-local/eth2 3:v2/IPv6/eth2"),
    ),
    "two addresses": (
        "addresses_several", "possible", r"an interface of nic1 has 2 addresses of one kind",
        with_facts(tuned_roce(), "nic", 1, roce_gids=f"{GIDS} 5:v2/IPv4/eth2 6:v2/IPv4/eth2.7 7:v2/IPv6/eth2"),
    ),
    "no ECN": (
        "roce_ecn_off", "possible", r"ECN of RoCE is off in every priority of nic0-7$",
        with_facts(tuned_roce(), "nic", roce_ecn="off"),
    ),
    **{
        f"lossless priority {value}": (
            "roce_pfc_unlike", "likely", rf"nic4 has {words}, most others lossless priority 3$",
            with_facts(tuned_roce(), "nic", 4, lossless_priorities=value),
        )
        for value, words in {"4": "lossless priority 4", "none": "no lossless priority"}.items()
    },
    "another table of DSCP": (
        "roce_dscp_unlike", "likely", r"nic2, nic3 map no DSCP to a priority, most others DSCP to .* as 26:3$",
        with_facts(with_facts(tuned_roce(), "nic", 2, dscp_priorities="none"), "nic", 3, dscp_priorities="none"),
    ),
    "pauses": ("roce_pause_unlike", "likely", r"nic5: pause on both ways; most other ports: pause off",
               with_facts(tuned_roce(), "nic", 5, pause="rx tx")),
    "another trust mode": ("roce_trust_unlike", "likely", r"nic6 trusts PCP, most others DSCP$",
                           with_facts(tuned_roce(), "nic", 6, trust_mode="pcp")),
    "other CNPs": ("roce_cnp_unlike", "likely", r"nic1 sends congestion notifications with DSCP 0, most others with 48",
                   with_facts(tuned_roce(), "nic", 1, cnp_dscp="0")),
    "few RDMA objects": ("rdma_limit_set", "possible", r"the control group .* limits RDMA: mlx5_0 hca_object=2000$",
                         host(rdma_limit="mlx5_0 hca_object=2000")),
    "a monitor": (
        "driver_polled", "possible", r"programs poll the GPU driver every 1.00 s: nvidia-smi every 1 s, nvtop$",
        host(driver_polled_s=1.0, driver_pollers="nvidia-smi every 1 s, nvtop"),
    ),
    "an MPI without CUDA": (
        "mpi_without_cuda", "possible", r"Open MPI 5.0.8 was built without CUDA", host(mpi_cuda=False),
    ),
    "a UCX without CUDA": (
        "ucx_without_cuda", "likely", r"UCX 1.18.0 lists no cuda_copy and no cuda_ipc$",
        host(ucx_transports="self tcp rc_verbs rc_mlx5"),
    ),
    "a UCX without ways between GPUs": (
        "ucx_without_cuda", "likely", r"UCX 1.18.0 lists no cuda_ipc$", host(ucx_transports="rc_mlx5 cuda_copy"),
    ),
    "a UCX without RDMA": (
        "ucx_without_rdma", "likely", r"UCX 1.18.0 lists no RDMA transport$",
        with_facts(tuned_roce(), "host", ucx_transports="tcp cuda_copy cuda_ipc"),
    ),
    "a UCX that misses a NIC": (
        "ucx_without_rdma", "likely", r"UCX 1.18.0 does not list nic3$",
        with_facts(tuned_roce(), "host", ucx_devices="mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_4:1 mlx5_5:1 mlx5_6:1 mlx5_7:1"),
    ),
    "EFA without its library": (
        "ofi_nccl_missing", "possible", r"no libnccl-net\*\.so is in .*/opt/aws-ofi-nccl",
        with_facts(tuned(), "nic", driver="efa"),
    ),
    "errors of a port": (
        "port_errors", "possible", r"nic2 counted symbol_error 12, link_downed 3$",
        with_facts(tuned(), "nic", 2, port_errors="symbol_error 12, link_downed 3"),
    ),
    "a slower port": (
        "nic_rate_differs", "possible", r"the port of nic6 runs at 100 Gb/s, others of its model at 400 Gb/s$",
        with_port(tuned(), "nic6", line_rate_bits_per_s=100e9),
    ),
    "isolated CPUs": (
        "cpus_isolated", "possible", r"220 of the 224 CPUs of this process are isolated \(4-223\)$",
        host(isolated_cpus="4-223"),
    ),
    "CPUs of one node": (
        "cpus_withheld", "possible", r"this process may run only on CPUs 0-3, none of which is near gpu4-7, nic4-7$",
        host(cpus_allowed="0-3"),
    ),
    "CPU quota": ("cpu_quota_set", "possible", r".* is limited to the time of 16\.5 CPUs$", host(cpu_quota=16.5)),
    "ptrace": ("ptrace_refused", "likely", r".*ptrace_scope is 3$", host(ptrace_scope=3)),
    "io_uring": ("io_uring_off", "possible", r"io_uring is disabled", host(io_uring_disabled=2)),
    "seccomp": ("io_uring_off", "possible", r"a seccomp filter is active", host(seccomp="filter")),
    "ECC": ("ecc_off", "likely", r"error correction \(ECC\) is off in gpu7$", with_facts(tuned(), "gpu", 7, ecc=False)),
    "clocks": (
        "gpu_clocks_differ", "likely", r"the highest SM clock of gpu2 is 1755 MHz, but most others have 1980 MHz$",
        with_facts(tuned(), "gpu", 2, sm_clock_max_hz=1.755e9),
    ),
    "a faster clock": (
        "gpu_clocks_differ", "possible", r"the highest memory clock of gpu2 is 3000 MHz",
        with_facts(tuned(), "gpu", 2, memory_clock_max_hz=3e9),
    ),
}  # fmt: skip


def found(machine):
    """Map each fault that was found to its findings."""
    checks = [look_for(check, Facts(topology=machine)) for check in CHECKS]
    assert {one.state for one in checks} <= {"found", "fine", "does not apply"}
    return {one.fault: one.findings for one in checks if one.findings}


def test_a_tuned_machine_has_no_fault():
    assert found(tuned()) == {}


@pytest.mark.parametrize("name", AT_FAULT)
def test_each_fault_is_found_alone_where_it_is(name):
    check, certainty, says, machine = AT_FAULT[name]
    findings = found(machine)
    assert findings.keys() == {check}
    assert [one.certainty for one in findings[check]] == [certainty]
    assert re.match(says, findings[check][0].says)
    assert findings[check][0].remedy
    assert findings[check][0].evidence


def test_each_check_is_in_the_table():
    told = {check for check, *_ in AT_FAULT.values()}
    assert {check.name for check in CHECKS} == told


@pytest.mark.parametrize(
    "machine",
    [
        host(cpu_governor="powersave", cpu_energy_preference="performance"),
        host(cpu_governor="none", cpu_frequency_driver="none", cpu_energy_preference="none"),
        host(idle_state="none", idle_exit_s="none"),
        host(thp="never", hugepages_bytes=2**34),
        host(thp="always"),
        host(verbs_devices=9),
        with_facts(host(numa_nodes_per_socket=4), "cpu", **EPYC),
        with_facts(with_facts(guest(tuned()), "nic", ats_enabled=True), "cpu", **EPYC),
        with_facts(tuned(), "gpu", iommu_domain="off"),
        with_links(tuned(), "gpu0", max_read_request_bytes=512),
        tuned_roce(),
        with_facts(
            tuned_roce(),
            "nic",
            roce_gids="3:v2/IPv4/eth2 4:v2/IPv6/eth2 5:v2/IPv4/eth2.7",
            roce_ecn="on for priority 3",
        ),
        with_facts(with_facts(tuned_roce(), "nic", 2, state="up"), "nic", port_errors="none"),
        host(ptrace_scope=3, may_trace=True),
        with_facts(host(ovs_hw_offload="true"), "nic", 0, representors=4),
        host(ovs_hw_offload="false"),
        host(static_bar1=False, modules="nvidia nvidia_fs nvidia_peermem mlx5_core"),
        host(ptrace_scope="none", io_uring_disabled="none", cpu_quota="none"),
        host(cpus_allowed="0,150"),
        host(driver_pollers="none", driver_polled_s="none"),
        host(driver_pollers="nvitop", driver_polled_s="none"),
        host(mpi="none", mpi_cuda=None, ucx="none", ucx_transports="none", ucx_devices="none"),
        with_facts(host(ofi_nccl="/opt/amazon/aws-ofi-nccl/lib/libnccl-net.so"), "nic", driver="efa"),
        with_facts(tuned_roce(), "nic", lossless_priorities="none"),
        with_facts(tuned_roce(), "nic", pause="rx tx"),
        with_facts(tuned_roce(), "nic", trust_mode=None, cnp_dscp=None),
        host(rdma_limit="none"),
        with_facts(host(ovs_hw_offload="true"), "nic", 0, tc_offload=False),
    ],
)
def test_what_is_as_it_should_be_is_no_fault(machine):
    assert found(machine) == {}


def test_ucx_need_not_list_a_port_that_is_down():
    listed = " ".join(f"mlx5_{number}:1" for number in range(8) if number != 3)
    machine = with_facts(with_facts(tuned_roce(), "nic", 3, state="down"), "host", ucx_devices=listed)
    assert found(machine).keys() == {"nic_unused"}


UNREAD = {
    "ovs_offload_off": with_facts(host(ovs_hw_offload=None), "nic", 0, representors=4),
    "gpudirect_storage_off": host(nvme_multipath=None),
    "roce_gid_missing": with_facts(tuned_roce(), "nic", 1, roce_gids=None),
    "fabric_ipv6_only": with_facts(tuned_roce(), "nic", 1, roce_gids="what is this"),
    "addresses_several": with_facts(tuned_roce(), "nic", 1, roce_gids=None),
    "roce_ecn_off": with_facts(tuned_roce(), "nic", 1, roce_ecn=None),
    "port_errors": with_facts(tuned(), "nic", 1, port_errors=None),
    "roce_pfc_unlike": with_facts(tuned_roce(), "nic", 1, lossless_priorities=None),
    "roce_dscp_unlike": with_facts(tuned_roce(), "nic", 1, dscp_priorities=None),
    "roce_pause_unlike": with_facts(tuned_roce(), "nic", 1, pause=None),
    "roce_trust_unlike": with_facts(tuned_roce(), "nic", 1, trust_mode=None),
    "roce_cnp_unlike": with_facts(tuned_roce(), "nic", 1, cnp_dscp=None),
    "rdma_limit_set": host(rdma_limit=None),
    "driver_polled": host(driver_pollers=None),
    "mpi_without_cuda": host(mpi_cuda=None),
    "ucx_without_cuda": host(ucx_transports=None),
    "ucx_without_rdma": with_facts(tuned_roce(), "host", ucx_devices=None),
    "ofi_nccl_missing": with_facts(host(ofi_nccl=None), "nic", driver="efa"),
    "cpus_withheld": host(cpus_allowed=None),
    "cpus_isolated": host(isolated_cpus=None),
    "cpu_quota_set": host(cpu_quota=None),
    "ptrace_refused": host(may_trace=None),
    "io_uring_off": host(io_uring_disabled=None),
    "max_payload_small": with_links(tuned(), "gpu1", max_payload_supported_bytes=None),
    "read_request_small": with_links(tuned(), "nic1", max_read_request_bytes=None),
    "relaxed_ordering_off": with_facts(tuned(), "nic", 1, relaxed_ordering=None),
    "ats_off": with_facts(with_facts(guest(tuned()), "nic", ats_enabled=True), "nic", 1, ats_capable=None),
    "iommu_translates": with_facts(tuned(), "gpu", 1, iommu_domain=None),
    "bar1_small": with_facts(tuned(), "gpu", 1, bar1_bytes=None),
    "numa_nodes_one": with_facts(host(numa_nodes_per_socket=None), "cpu", **EPYC),
    "numa_balancing_on": host(numa_balancing=None),
    "governor_saves_power": host(cpu_governor=None),
    "idle_states_deep": host(idle_exit_s=None),
    "huge_pages_off": host(thp=None),
    "memlock_low": host(memlock_bytes=None),
    "rdma_devices_missing": host(verbs_devices=None),
    "shared_memory_small": host(dev_shm_bytes=None),
}


_TOGETHER = ({"roce_gid_missing", "fabric_ipv6_only", "addresses_several"}, {"ucx_without_cuda", "ucx_without_rdma"})


@pytest.mark.parametrize("name", UNREAD)
def test_what_could_not_be_read_is_never_fine(name):
    checks = {one.fault: one for one in (look_for(check, Facts(topology=UNREAD[name])) for check in CHECKS)}
    assert checks[name].state == "could not look"
    assert checks[name].because
    together = next((group for group in _TOGETHER if name in group), {name})
    others = {one.state for check, one in checks.items() if check not in together}
    assert others <= {"fine", "does not apply"}


def test_every_check_that_asks_is_asked_here():
    assert {check.name for check in CHECKS if {*check.asks} - {needs.nvml_reports_gpus}} == UNREAD.keys()


def test_in_a_guest_nobody_is_told_to_disable_acs():
    machine = with_links(guest(tuned()), "", acs_redirect=True)
    machine = with_facts(machine, "gpu", iommu_domain="DMA")
    remedies = [one.remedy for findings in found(machine).values() for one in findings]
    assert len(remedies) == 3
    assert not any("ACS off" in remedy or "ACS control bits" in remedy for remedy in remedies)
    assert all("ATS" in remedy and "NCCL_TOPO_FILE" in remedy for remedy in remedies)
    (on_metal,) = found(with_links(tuned(), "", acs_redirect=True))["acs_redirect"]
    assert "switch ACS off" in on_metal.remedy


@pytest.mark.parametrize(
    ("name", "odd"),
    [("bar1_bytes", "much"), ("bar1_bytes", -1), ("memory_bytes", True), ("sm_clock_max_hz", "fast"), ("ecc", "off")],
)
def test_facts_of_gpus_that_are_no_such_thing_are_no_fault(name, odd):
    machine = with_facts(tuned(), "gpu", 1, **{name: odd})
    assert not {check.name for check in CHECKS if any(one.certainty != "could not look" for one in
                check.look(Facts(topology=machine)))}  # fmt: skip
