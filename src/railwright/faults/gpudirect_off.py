"""GPUDirect RDMA is not in use: data between NIC and GPU goes through host memory.

NCCL uses GPUDirect RDMA if nvidia-peermem is loaded or the kernel can export GPU memory to the NIC as a dma-buf, and
if NIC and GPU are close enough (NCCL src/graph/paths.cc, ncclTopoCheckGdr). NCCL issue 412: 16 GB/s is normal if
the paths of NIC and GPU meet at the CPU.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Facts, Findings
from railwright.checks.finding import Certainty, Finding
from railwright.checks.gpudirect_ways import LINUX, PEERMEM, gpudirect_ways
from railwright.checks.parts import rdma_ports
from railwright.checks.settings import Cause, Settings, is_one_of
from railwright.checks.ways import is_older_version
from railwright.faults.cases import crosses_network, replace_host
from railwright.faults.fault import NOT_VERBS, Fault, Hypotheses
from railwright.limits.case import Case
from railwright.results.evidence import GPU_REGISTRATION
from railwright.results.records import Evidence
from railwright.topology.changes import add_host_facts
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import is_nvidia

FACT = "gpudirect_rdma"
"""A fact of a host: False if its NICs and GPUs are known not to use GPUDirect RDMA."""
_COSTS = (
    "data crosses PCIe and host memory twice: 79.7 GB/s instead of 96.1 on GH200 (NCCL issues), 16 GB/s per NIC through"
    " the CPU of older machines (NCCL issue 412)"
)
_REMEDY = "load nvidia-peermem, or use the open kernel modules with Linux 5.12 or later (dma-buf)"
_SETTINGS = Settings(
    {
        # A NIC and a GPU are never closer than PIX; 0 is the old number for LOC (ncclGetLevel).
        "NCCL_NET_GDR_LEVEL": Cause(is_one_of("LOC", "NVL", "NVB", "C2C", "0"), "turns GPUDirect RDMA off"),
        "NCCL_NET_GDR_READ": Cause(is_one_of("0"), "sends all data through host memory"),
        "NCCL_IB_CUDA_SUPPORT": Cause(is_one_of("0"), "turns GPUDirect RDMA off in old releases"),
        "UCX_IB_GPU_DIRECT_RDMA": Cause(is_one_of("0", "n", "no", "off"), "turns GPUDirect RDMA of UCX off"),
    },
    costs=_COSTS,
    remedy="unset it: NCCL and UCX use GPUDirect RDMA if NIC and GPU are close enough (NCCL User Guide; UCX, FAQ)",
)
_NO_PEERMEM = Evidence(claim="modules", value="no nvidia_peermem", seen="/proc/modules")


def _signs(facts: Facts) -> Findings:
    hosts = facts.topology.of_kind("host")
    known_off = [host for host in hosts if host.facts.get(FACT) is False]
    for host in known_off:
        if host.facts.get("gpudirect_offered") is not False:
            says = "NICs and GPUs do not use GPUDirect RDMA: data goes through host memory"
            yield _build_finding(host, says, Evidence(claim=FACT, value="off", seen="topology"))
    yield from FAULT.setting_findings(_SETTINGS, facts)
    tried = {item for result in facts.results for item in result.evidence if item.claim == GPU_REGISTRATION}
    for item in sorted(tried, key=lambda item: item.seen):
        if item.value == "none" and hosts:
            yield _build_finding(hosts[0], f"a NIC could not register GPU memory: {item.seen}", item)
    if any(item.value not in ("none", "unknown") for item in tried):
        return  # a registration proves more than modules and versions
    if not known_off and hosts and not facts.topology.is_described and hosts[0].facts.get(FACT) is not True:
        yield from _check_modules(facts.topology, hosts[0])


def _check_modules(topology: Topology, host: Device) -> Findings:
    """Check the loaded modules for peermem, and the CUDA driver's support for dma-buf as the alternative."""
    gpus = [gpu for gpu in topology.of_kind("gpu") if is_nvidia(gpu)]
    modules = set(str(host.facts.get("modules", "")).split())
    shared = {gpu.facts.get("dma_buf") for gpu in gpus}
    if not gpus or not rdma_ports(topology) or modules & PEERMEM or shared == {True}:
        return
    if modules and shared == {False}:
        seen = Evidence(claim="dma-buf", value=f"not supported by {gpus[0].id}", seen="CUDA device attribute")
        says = "nvidia-peermem is not loaded, and the driver does not export GPU memory as a dma-buf"
        yield _build_finding(host, says, _NO_PEERMEM, seen)
    elif modules and is_older_version(str(host.facts.get("kernel", "")), LINUX):
        kernel = str(host.facts["kernel"])[:80]
        says = f"nvidia-peermem is not loaded, and Linux {kernel} is older than 5.12, which dma-buf needs"
        yield _build_finding(host, says, _NO_PEERMEM, certainty="likely")
    else:
        lack = "nvidia-peermem is not loaded" if modules else "the loaded kernel modules cannot be read"
        yield FAULT.blind(
            (host.id,),
            f"{lack}, and the driver's support for dma-buf is unknown",
            remedy="check for /GDRDMA in NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET; `modinfo -F license"
            " nvidia` prints Dual MIT/GPL for the open modules that dma-buf needs",
        )


def _build_finding(host: Device, says: str, *evidence: Evidence, certainty: Certainty = "seen") -> Finding:
    return FAULT.finding((host.id,), says, *evidence, certainty=certainty)


def _degrade(topology: Topology, _: str) -> Topology:
    """Return the machine without GPUDirect RDMA."""
    return add_host_facts(topology, **{FACT: False})


def _build_with_and_without(topology: Topology) -> tuple[Topology, Topology]:
    return add_host_facts(topology, **{FACT: False}), add_host_facts(topology, **{FACT: True})


def _hypotheses(case: Case) -> Hypotheses:
    host = case.cluster.host
    known_off = any(device.facts.get(FACT) is False for device in host.of_kind("host"))
    if crosses_network(case) and rdma_ports(host) and not known_off:
        yield FAULT.supposed(
            "NICs and GPUs do not use GPUDirect RDMA",
            replace_host(case, _degrade(host, "host0")),
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET, then railwright explain LOG: without it the"
            " connections are NET/IB/N and not NET/IB/N/GDRDMA; `lsmod | grep peermem`",
        )


FAULT = Fault(
    name="gpudirect_off",
    summary="data between NIC and GPU goes through host memory",
    right="NICs reach GPU memory directly (GPUDirect RDMA)",
    costs=_COSTS,
    remedy=_REMEDY,
    signs=_signs,
    needs=(needs.gpu, needs.rdma_nic),
    checklist=gpudirect_ways,
    mend=_build_with_and_without,
    transports=NOT_VERBS,
    degrade=_degrade,
    only_gpu_memory=True,
    ways=_hypotheses,
)
