"""What a machine must have for a fault to be there at all. Each gives what is lacking in words, empty where nothing is.

A description of a machine has no settings, so that nobody can have set them wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from railwright.checks.parts import efas, links_below_switches, nvlink_not_read, pcie_links, rdma_ports, silent_gpus
from railwright.topology.cluster import ports
from railwright.topology.devices import NvlinkLink, Topology
from railwright.topology.gpus import nvidia_gpus, runs
from railwright.topology.settings import NONE

Need = Callable[[Topology], str]


def some(found: Callable[[Topology], object], lacking: str) -> Need:
    """A machine in which that finds something; else it lacks it in those words."""
    return lambda topology: "" if found(topology) else lacking


nvidia_gpu = some(nvidia_gpus, "no NVIDIA GPU")
gpu = some(lambda topology: topology.of_kind("gpu"), "no GPU")
efa = some(efas, "no EFA")
nic = some(ports, "no NIC")
rdma_nic = some(rdma_ports, "no NIC with RDMA")
pcie_link = some(pcie_links, "no PCIe link")
pcie_switch = some(links_below_switches, "no GPU and no NIC below a PCIe switch")
numa_nodes = some(lambda topology: topology.of_kind("cpu")[1:], "one NUMA node alone")


def settings(topology: Topology) -> str:
    """A machine that was looked at."""
    return f"{topology.name} is a description, in which nothing is set" if topology.is_described else ""


def told_by_nvml(topology: Topology) -> str:
    """For `Check.asks`, where NVIDIA's library alone says so: where it is silent nobody has looked."""
    silent = silent_gpus(topology)
    return f"NVIDIA's library NVML says nothing of {runs(silent)}" if silent else ""


def two_gpus(topology: Topology) -> str:
    """GPUs that could reach each other."""
    return gpu(topology) or ("" if len(topology.of_kind("gpu")) > 1 else "one GPU alone")


def unless_none(fact: str, lacking: str) -> Need:
    """A host that has it, or a machine of which nobody said whether it does."""
    return lambda topology: lacking if any(host.facts.get(fact) == NONE for host in topology.of_kind("host")) else ""


mpi = unless_none("mpi", "no MPI is found on the path")
ucx = unless_none("ucx", "no ucx_info is found on the path")


def nvlink(topology: Topology) -> str:
    """A GPU that has NVLinks, or of which nobody could say so."""
    gpus = topology.of_kind("gpu")
    known = any(isinstance(link.protocol, NvlinkLink) for link in topology.links)
    told = known or any(gpu.facts.get("nvlinks") for gpu in gpus) or (len(gpus) > 1 and nvlink_not_read(topology))
    return gpu(topology) or ("" if told else "no GPU with NVLinks")
