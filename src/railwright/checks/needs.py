"""What a machine must have for a fault to be there at all. Each gives what is lacking in words, empty where nothing is.

A description of a machine has no settings, so that nobody can have set them wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from railwright.checks.parts import links_below_switches, nvlink_not_read, rdma_ports
from railwright.topology.cluster import ports
from railwright.topology.devices import NvlinkLink, PcieLink, Scalar, Topology
from railwright.topology.gpus import nvidia_gpus
from railwright.topology.settings import NONE

Need = Callable[[Topology], str]


def settings(topology: Topology) -> str:
    """A machine that was looked at."""
    return f"{topology.name} is a description, in which nothing is set" if topology.is_described else ""


def nvidia_gpu(topology: Topology) -> str:
    """An NVIDIA GPU."""
    return "" if nvidia_gpus(topology) else "no NVIDIA GPU"


def gpu(topology: Topology) -> str:
    """A GPU of any vendor."""
    return "" if topology.of_kind("gpu") else "no GPU"


def two_gpus(topology: Topology) -> str:
    """GPUs that could reach each other."""
    return gpu(topology) or ("" if len(topology.of_kind("gpu")) > 1 else "one GPU alone")


def mpi(topology: Topology) -> str:
    """An MPI, or a machine of which nobody said whether it has one."""
    return "no MPI is found on the path" if _has(topology, "mpi", NONE) else ""


def ucx(topology: Topology) -> str:
    """A UCX whose `ucx_info` is installed, or a machine of which nobody said so."""
    return "no ucx_info is found on the path" if _has(topology, "ucx", NONE) else ""


def efa(topology: Topology) -> str:
    """A NIC of AWS."""
    return "" if any(nic.facts.get("driver") == "efa" for nic in topology.of_kind("nic")) else "no EFA"


def _has(topology: Topology, fact: str, value: Scalar) -> bool:
    return any(host.facts.get(fact) == value for host in topology.of_kind("host"))


def nvlink(topology: Topology) -> str:
    """A GPU that has NVLinks, or of which nobody could say so."""
    gpus = topology.of_kind("gpu")
    known = any(isinstance(link.protocol, NvlinkLink) for link in topology.links)
    told = known or any(gpu.facts.get("nvlinks") for gpu in gpus) or (len(gpus) > 1 and nvlink_not_read(topology))
    return gpu(topology) or ("" if told else "no GPU with NVLinks")


def nic(topology: Topology) -> str:
    """A NIC with a port."""
    return "" if ports(topology) else "no NIC"


def rdma_nic(topology: Topology) -> str:
    """A NIC that can do RDMA."""
    return "" if rdma_ports(topology) else "no NIC with RDMA"


def pcie_link(topology: Topology) -> str:
    """A PCIe link."""
    return "" if any(isinstance(link.protocol, PcieLink) for link in topology.links) else "no PCIe link"


def pcie_switch(topology: Topology) -> str:
    """A GPU or NIC below a PCIe switch."""
    return "" if links_below_switches(topology) else "no GPU and no NIC below a PCIe switch"
