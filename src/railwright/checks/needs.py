"""Prerequisites of checks. Each returns a text that names the missing part, or an empty string if the machine has it.

A machine description has no settings, so checks of settings do not apply to it.
"""

from __future__ import annotations

from collections.abc import Callable

from railwright.checks.parts import efas, links_below_switches, nvlink_not_read, pcie_links, rdma_ports, silent_gpus
from railwright.topology.cluster import ports
from railwright.topology.devices import NvlinkLink, Topology
from railwright.topology.gpus import format_runs, nvidia_gpus
from railwright.topology.settings import NONE

Need = Callable[[Topology], str]


def some(found: Callable[[Topology], object], lacking: str) -> Need:
    """Return a need that is met if `found` finds anything; otherwise it reports `lacking`."""
    return lambda topology: "" if found(topology) else lacking


nvidia_gpu = some(nvidia_gpus, "no NVIDIA GPU")
gpu = some(lambda topology: topology.of_kind("gpu"), "no GPU")
efa = some(efas, "no EFA")
nic = some(ports, "no NIC")
rdma_nic = some(rdma_ports, "no NIC with RDMA")
pcie_link = some(pcie_links, "no PCIe link")
pcie_switch = some(links_below_switches, "no GPU and no NIC below a PCIe switch")
numa_nodes = some(lambda topology: topology.of_kind("cpu")[1:], "only one NUMA node")


def settings(topology: Topology) -> str:
    """Require a discovered machine."""
    return f"{topology.name} is a description and has no settings" if topology.is_described else ""


def nvml_reports_gpus(topology: Topology) -> str:
    """Name the GPUs that NVML does not report, for `Check.asks` of facts that only NVML provides."""
    silent = silent_gpus(topology)
    return f"NVML does not report {format_runs(silent)}" if silent else ""


def two_gpus(topology: Topology) -> str:
    """Require at least two GPUs."""
    return gpu(topology) or ("" if len(topology.of_kind("gpu")) > 1 else "only one GPU")


def unless_none(fact: str, lacking: str) -> Need:
    """Return a need that fails only if a host is known not to have the fact."""
    return lambda topology: lacking if any(host.facts.get(fact) == NONE for host in topology.of_kind("host")) else ""


mpi = unless_none("mpi", "no MPI on the path")
ucx = unless_none("ucx", "no ucx_info on the path")


def nvlink(topology: Topology) -> str:
    """Require a GPU that has NVLinks or whose NVLinks are unknown."""
    gpus = topology.of_kind("gpu")
    known = any(isinstance(link.protocol, NvlinkLink) for link in topology.links)
    may_have_links = (
        known or any(gpu.facts.get("nvlinks") for gpu in gpus) or (len(gpus) > 1 and nvlink_not_read(topology))
    )
    return gpu(topology) or ("" if may_have_links else "no GPU with NVLinks")
