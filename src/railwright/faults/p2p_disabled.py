"""GPUs of one host cannot access each other's memory, so their data crosses PCIe and host memory.

Causes are NCCL_P2P_DISABLE, GPUs in different containers, and virtual machines without NVLink partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from railwright.checks import needs
from railwright.checks.check import Facts, Findings
from railwright.checks.parts import nvlink_not_read
from railwright.checks.settings import Cause, Settings, is_one_of
from railwright.faults.cases import can_run, replace_host
from railwright.faults.fault import Fault, Hypotheses
from railwright.groups import group_by_key
from railwright.limits.case import Case
from railwright.limits.limit import Constant
from railwright.limits.sources import NO_P2P_MEASURED
from railwright.topology.changes import add_host_facts, remove_devices
from railwright.topology.devices import GPU_LINKS, Device, Topology
from railwright.topology.gpus import format_runs

_SHARED_MEMORY = Constant(28e9, "bytes/s of a GPU through host memory", NO_P2P_MEASURED)
_SOCKETS = Constant(3.5e9, "bytes/s of a GPU over loopback sockets", NO_P2P_MEASURED)
_DOMAIN_HOSTS = "nvlink_domain_hosts"
_PEERS = "peer_to_peer"
_COSTS = (
    "direct copies between GPUs, and NVLink if the GPUs have it: they share PCIe and, across sockets, the 6 to 40 GB/s"
    " that NCCL plans there (src/graph/topo.h)"
)
_LOG = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET, then railwright explain LOG: connections in a host are"


def _signs(facts: Facts) -> Findings:
    yield from _find_refused_access(facts.topology)
    yield from _find_gpus_outside_fabric(facts.topology)
    gpus = facts.topology.of_kind("gpu")
    known = any({"peers", "peers_refused"} & set(gpu.facts) for gpu in gpus)
    if len(gpus) > 1 and nvlink_not_read(facts.topology) and not known:
        yield FAULT.blind(
            (gpu.id for gpu in gpus),
            "peer access between GPUs cannot be read",
            remedy="nvidia-smi topo -p2p r: every pair should be OK",
        )


def _find_refused_access(topology: Topology) -> Findings:
    """Find GPUs to which the driver refuses peer access, which is certainly a fault if NVLink joins them."""
    linked = {end for link in topology.links if isinstance(link.protocol, GPU_LINKS) for end in (link.a, link.b)}
    refusing = [gpu for gpu in topology.of_kind("gpu") if gpu.facts.get("peers_refused")]
    for is_linked, gpus in group_by_key(refusing, lambda gpu: gpu.id in linked):
        names = [gpu.id for gpu in gpus]
        yield FAULT.finding(
            names,
            "; ".join(_format_refusals(gpus)),
            ("peer access", f"refused by {format_runs(names)}", "CUDA and NVML"),
            certainty="seen" if is_linked else "possible",
            costs=_COSTS,
            remedy="nvidia-smi topo -p2p r shows all pairs; check for NVreg_RegistryDwords in"
            " /proc/driver/nvidia/params, for MIG, and for different partitions",
        )


def _format_refusals(gpus: list[Device]) -> Iterator[str]:
    """Yield a clause per reason if all GPUs with it refuse each other, otherwise a clause per set of refused GPUs."""
    refused: dict[str, dict[str, tuple[str, ...]]] = {}  # reason -> GPU -> GPUs that it may not access
    for gpu in gpus:
        for part in str(gpu.facts["peers_refused"]).split("; "):
            names, _, why = part.partition(" (")
            refused.setdefault(why.removesuffix(")"), {})[gpu.id] = tuple(names.split(","))
    for why, refused_by in refused.items():
        reason = f" ({why})" if why else ""
        if len(refused_by) > 1 and all({*others} == {*refused_by} - {name} for name, others in refused_by.items()):
            yield f"{format_runs(refused_by)} may not access each other's memory{reason}"
            continue
        for others in dict.fromkeys(refused_by.values()):
            alike = format_runs(name for name, theirs in refused_by.items() if theirs == others)
            yield f"{alike} may not access the memory of {format_runs(others)}{reason}"


def _find_gpus_outside_fabric(topology: Topology) -> Findings:
    """Find GPUs that have not joined the NVLink fabric; `completed` with a problem means refused."""
    out = {
        gpu.id: str(gpu.facts.get("nvlink_fabric_problem") or gpu.facts["nvlink_fabric"])
        for gpu in topology.of_kind("gpu")
        if gpu.facts.get("nvlink_fabric") in ("not started", "in progress") or gpu.facts.get("nvlink_fabric_problem")
    }
    if out:
        states = ", ".join(dict.fromkeys(out.values()))
        yield FAULT.finding(
            out,
            f"{', '.join(out)} did not join the NVLink fabric: {states}",
            ("NVLink fabric", states, "NVML"),
            costs=_COSTS,
            remedy="systemctl status nvidia-fabricmanager: it must have the driver's version and, for a VM, run on"
            " the host; then nvidia-smi -q | grep -A3 Fabric",
        )


def _degrade(topology: Topology, _: str) -> Topology:
    """Return the machine without NVLink or Infinity Fabric between its GPUs."""
    lone = remove_devices(topology, {switch.id for switch in topology.of_kind("nvswitch")})
    devices = tuple(
        replace(device, facts={key: value for key, value in device.facts.items() if key != _DOMAIN_HOSTS})
        for device in lone.devices
    )
    links = tuple(link for link in lone.links if not isinstance(link.protocol, GPU_LINKS))
    return replace(lone, devices=devices, links=links)


def _hypotheses(case: Case) -> Hypotheses:
    """Yield the ways in which GPUs without peer access may communicate: over sockets, and through host memory.

    The rate over sockets is measured; the rate through host memory is measured only if NVLink joins the GPUs.
    """
    without = replace_host(case, _degrade(case.cluster.host, "host0"))
    joined = case.cluster.host.joins_gpus
    # Between hosts the network limits GPUs that have only PCIe.
    if case.cluster.gpus_per_host < 2 or not can_run(without) or not (joined or case.cluster.hosts == 1):
        return
    yield FAULT.supposed(
        "GPUs of a host have neither peer-to-peer nor shared memory and use sockets inside the host",
        replace(without, gpu_cap_bytes_per_s=_SOCKETS.value, through_memory=True),
        f"{_LOG} NET/Socket; df /dev/shm in the container; env | grep -E 'NCCL_(P2P|SHM)'",
    )
    tell_apart = f"{_LOG} SHM and not P2P; nvidia-smi topo -p2p r; env | grep NCCL_P2P"
    if joined:
        yield FAULT.supposed(
            "GPUs of a host have no peer-to-peer access and do not use NVLink",
            replace(without, gpu_cap_bytes_per_s=_SHARED_MEMORY.value, through_memory=True),
            tell_apart,
        )
    elif not any(host.facts.get(_PEERS) is False for host in case.cluster.host.of_kind("host")):
        yield FAULT.supposed(
            "GPUs of a host have no peer-to-peer access and copy through host memory",
            replace_host(replace(case, through_memory=True), add_host_facts(case.cluster.host, **{_PEERS: False})),
            tell_apart,
        )


FAULT = Fault(
    name="p2p_disabled",
    summary="GPUs of one host have no peer-to-peer access",
    right="GPUs of this host have peer-to-peer access",
    settings=Settings(
        {
            "NCCL_P2P_DISABLE": Cause(is_one_of("1"), "keeps NCCL from using NVLink and PCIe peer-to-peer"),
            # 0 is the old number for LOC (NCCL src/graph/paths.cc, ncclGetLevel).
            "NCCL_P2P_LEVEL": Cause(is_one_of("LOC", "0"), "keeps NCCL from using NVLink and PCIe peer-to-peer"),
            "NCCL_SHM_DISABLE": Cause(is_one_of("1"), "replaces shared memory with the network"),
        },
        costs=_COSTS,
        remedy="unset it; give containers of one job all GPUs and the host's IPC namespace (NCCL User Guide)",
    ),
    signs=_signs,
    needs=(needs.two_gpus,),
    degrade=_degrade,
    only_gpu_memory=True,
    ways=_hypotheses,
)
