"""NIC and GPU do not talk directly: data bounces through host memory.

NCCL uses GPUDirect RDMA where nvidia-peermem is loaded or the kernel can hand GPU memory to the NIC as a dma-buf, and
where NIC and GPU are near enough (NCCL src/graph/paths.cc, ncclTopoCheckGdr). NCCL issue 412: 16 GB/s is normal where
the two meet at the CPU.
"""

from __future__ import annotations

import re

from railwright.faults.model import Facts, Fault, Finding, Supposed, with_host
from railwright.faults.parts import over_network, rdma_ports, with_host_facts
from railwright.faults.settings import Cause, is_one_of, look_at_settings
from railwright.limits.case import Case
from railwright.limits.model import Constant, Source
from railwright.results.model import Evidence
from railwright.topology.gpus import is_nvidia
from railwright.topology.model import Device, Topology

FACT = "gpudirect_rdma"
"""Fact of a host: False where its NICs and GPUs are known not to talk directly."""
_DMA_BUF_SOURCE = Source(
    "NVIDIA GPU Operator, GPUDirect RDMA and GPUDirect Storage",
    "DMA-BUF needs Linux 5.12 or later, the open kernel modules and a GPU of Turing or later",
)
_DMA_BUF_LINUX = (
    Constant(value=5, unit="Linux version, major", source=_DMA_BUF_SOURCE),
    Constant(value=12, unit="Linux version, minor", source=_DMA_BUF_SOURCE),
)
_PEERMEM = frozenset({"nvidia_peermem", "nv_peer_mem"})
_SETTINGS = {
    # Levels below PIX are never reached between a NIC and a GPU; 0 is the old number of LOC (ncclGetLevel).
    "NCCL_NET_GDR_LEVEL": Cause(is_one_of("LOC", "NVL", "NVB", "C2C", "0"), "turns GPUDirect RDMA off"),
    "NCCL_NET_GDR_READ": Cause(is_one_of("0"), "makes every send go through host memory"),
    "NCCL_IB_CUDA_SUPPORT": Cause(is_one_of("0"), "turned GPUDirect RDMA off in old releases"),
}
_COSTS = (
    "data crosses PCIe and host memory twice: 79.7 GB/s instead of 96.1 on GH200 (NCCL issues), 16 GB/s a NIC through"
    " the CPU of older machines (NCCL issue 412)"
)
_REMEDY = (
    "load nvidia-peermem, or use the open kernel modules with Linux 5.12 or later (dma-buf); then look for"
    " /GDRDMA in NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET"
)


def _look(facts: Facts) -> tuple[Finding, ...]:
    remedy = "unset it: NCCL then uses GPUDirect RDMA where NIC and GPU are near enough (NCCL User Guide)"
    hosts = facts.topology.of_kind("host")
    told = [host for host in hosts if host.facts.get(FACT) is False]
    found = tuple(_seen(host) for host in told)
    found += look_at_settings(facts, FAULT.name, _SETTINGS, costs=_COSTS, remedy=remedy)
    if not told and hosts and facts.topology.source != "shape" and hosts[0].facts.get(FACT) is not True:
        found += _look_at_modules(facts.topology, hosts[0])
    return found


def _seen(host: Device) -> Finding:
    return Finding(
        fault=FAULT.name,
        where=(host.id,),
        certainty="seen",
        says="NICs and GPUs do not talk directly: data bounces through host memory",
        costs=_COSTS,
        remedy=_REMEDY,
        evidence=(Evidence(claim=FACT, value="off", seen="topology"),),
    )


def _look_at_modules(topology: Topology, host: Device) -> tuple[Finding, ...]:
    """Peermem is seen in the list of modules; whether a dma-buf would do instead the CUDA driver says."""
    gpus = [gpu for gpu in topology.of_kind("gpu") if is_nvidia(gpu)]
    modules = set(str(host.facts.get("modules", "")).split())
    if not gpus or not rdma_ports(topology) or modules & _PEERMEM:
        return ()
    shared = {gpu.facts.get("dma_buf") for gpu in gpus}
    if shared == {True}:
        return ()
    if modules and shared == {False}:
        return (_without_dma_buf(host, gpus),)
    if modules and _is_before_dma_buf(str(host.facts.get("kernel", ""))):
        kernel = str(host.facts["kernel"])[:80]
        return (
            Finding(
                fault=FAULT.name,
                where=(host.id,),
                certainty="likely",
                says=f"nvidia-peermem is not loaded, and Linux {kernel} is older than 5.12, from which on dma-buf can"
                " do without it",
                costs=_COSTS,
                remedy=_REMEDY,
                evidence=(Evidence(claim="modules", value="no nvidia_peermem", seen="/proc/modules"),),
            ),
        )
    lack = "nvidia-peermem is not loaded" if modules else "the loaded kernel modules cannot be read"
    return (
        Finding(
            fault=FAULT.name,
            where=(host.id,),
            certainty="could not look",
            says=f"{lack}, and whether the driver can share GPU memory as a dma-buf is not shown",
            remedy="look for /GDRDMA in NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET; `modinfo -F license nvidia`"
            " says Dual MIT/GPL for the open modules that dma-buf needs",
        ),
    )


def _without_dma_buf(host: Device, gpus: list[Device]) -> Finding:
    return Finding(
        fault=FAULT.name,
        where=(host.id,),
        certainty="seen",
        says="nvidia-peermem is not loaded, and the driver does not share GPU memory as a dma-buf",
        costs=_COSTS,
        remedy=_REMEDY,
        evidence=(
            Evidence(claim="modules", value="no nvidia_peermem", seen="/proc/modules"),
            Evidence(claim="dma-buf", value=f"not supported by {gpus[0].id}", seen="CUDA device attribute"),
        ),
    )


def _is_before_dma_buf(kernel: str) -> bool:
    match = re.match(r"(\d{1,3})\.(\d{1,4})", kernel)
    return match is not None and (int(match[1]), int(match[2])) < tuple(part.value for part in _DMA_BUF_LINUX)


def _degrade(topology: Topology, _: str) -> Topology:
    """The machine without GPUDirect RDMA; where is its host."""
    return with_host_facts(topology, **{FACT: False})


def _suppose(case: Case) -> tuple[Supposed, ...]:
    host = case.cluster.host
    known_off = any(device.facts.get(FACT) is False for device in host.of_kind("host"))
    if not over_network(case) or not rdma_ports(host) or known_off:
        return ()
    return (
        Supposed(
            fault=FAULT.name,
            says="NICs and GPUs do not talk directly (no GPUDirect RDMA)",
            case=with_host(case, _degrade(host, "host0")),
            tell_apart="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET, then railwright explain LOG: without it the"
            " connections say NET/IB/N and not NET/IB/N/GDRDMA; `lsmod | grep peermem`",
        ),
    )


FAULT = Fault(
    name="gpudirect_off",
    summary="data between NIC and GPU bounces through host memory",
    look=_look,
    degrade=_degrade,
    suppose=_suppose,
)
