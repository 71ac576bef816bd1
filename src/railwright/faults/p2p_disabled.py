"""GPUs of one host may not reach each other's memory, so that data between them goes over PCIe and host memory.

NCCL_P2P_DISABLE, GPUs of different containers, and virtual machines without NVLink partitions do that.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from railwright.faults.model import Certainty, Facts, Fault, Finding, Supposed, with_host
from railwright.faults.parts import can_run, has_gpu_links
from railwright.faults.settings import Cause, is_one_of, look_at_settings
from railwright.limits.case import Case
from railwright.limits.model import Constant
from railwright.limits.sources import NO_P2P_MEASURED
from railwright.results.model import Evidence
from railwright.topology.gpus import runs
from railwright.topology.model import GPU_LINKS, Device, Topology

_SHARED_MEMORY = Constant(value=28e9, unit="bytes/s of a GPU through host memory", source=NO_P2P_MEASURED)
_SOCKETS = Constant(value=3.5e9, unit="bytes/s of a GPU over loopback sockets", source=NO_P2P_MEASURED)
_ACROSS_HOSTS = "nvlink_domain_hosts"
_SETTINGS = {
    "NCCL_P2P_DISABLE": Cause(is_one_of("1"), "takes NVLink and PCIe peer-to-peer away from NCCL"),
    # 0 is the old number of LOC (NCCL src/graph/paths.cc, ncclGetLevel).
    "NCCL_P2P_LEVEL": Cause(is_one_of("LOC", "0"), "takes NVLink and PCIe peer-to-peer away from NCCL"),
    "NCCL_SHM_DISABLE": Cause(is_one_of("1"), "sends over the network what shared memory could carry"),
}


_COSTS = (
    "NVLink's rate: GPUs of a host share PCIe and, across sockets, the 6 to 40 GB/s that NCCL plans there"
    " (src/graph/topo.h)"
)


def _look(facts: Facts) -> tuple[Finding, ...]:
    remedy = "unset it; give containers of one job all GPUs and the host's IPC namespace (NCCL User Guide)"
    settings = look_at_settings(facts, FAULT.name, _SETTINGS, costs=_COSTS, remedy=remedy)
    return (*settings, *_refused(facts.topology), *_not_in_fabric(facts.topology), *_could_not_look(facts.topology))


def _refused(topology: Topology) -> tuple[Finding, ...]:
    """GPUs whose driver says that they may not reach each other: a fault where NVLink joins them. All pairs in one."""
    linked = {end for link in topology.links if isinstance(link.protocol, GPU_LINKS) for end in (link.a, link.b)}
    refusing: dict[Certainty, list[Device]] = {}
    for gpu in topology.of_kind("gpu"):
        if gpu.facts.get("peers_refused"):
            refusing.setdefault("seen" if gpu.id in linked else "possible", []).append(gpu)
    return tuple(
        Finding(
            fault=FAULT.name,
            where=tuple(gpu.id for gpu in gpus),
            certainty=certainty,
            says="; ".join(_who_reaches_whom(gpus)),
            costs=_COSTS,
            remedy="nvidia-smi topo -p2p r shows all pairs; look for NVreg_RegistryDwords in"
            " /proc/driver/nvidia/params, for MIG, and for GPUs of different partitions",
            evidence=(
                Evidence(
                    claim="peer access",
                    value=f"refused by {runs(gpu.id for gpu in gpus)}",
                    seen="CUDA and NVML",
                ),
            ),
        )
        for certainty, gpus in refusing.items()
    )


def _who_reaches_whom(gpus: list[Device]) -> Iterator[str]:
    """One clause for each reason where all of its GPUs refuse each other, else for each set of GPUs refused."""
    refused: dict[str, dict[str, tuple[str, ...]]] = {}  # reason -> GPU -> those that it may not reach
    for gpu in gpus:
        for part in str(gpu.facts["peers_refused"]).split("; "):
            names, _, why = part.partition(" (")
            refused.setdefault(why.removesuffix(")"), {})[gpu.id] = tuple(names.split(","))
    for why, of_gpu in refused.items():
        reason = f" ({why})" if why else ""
        if len(of_gpu) > 1 and all({*others} == {*of_gpu} - {name} for name, others in of_gpu.items()):
            yield f"{runs(of_gpu)} may not reach each other's memory{reason}"
            continue
        for others in dict.fromkeys(of_gpu.values()):
            alike = runs(name for name, theirs in of_gpu.items() if theirs == others)
            yield f"{alike} may not reach the memory of {runs(others)}{reason}"


def _not_in_fabric(topology: Topology) -> tuple[Finding, ...]:
    """GPUs behind NVSwitches that the fabric manager has not let in yet; `completed` with a problem is a refusal."""
    out = {
        gpu.id: str(gpu.facts.get("nvlink_fabric_problem") or gpu.facts["nvlink_fabric"])
        for gpu in topology.of_kind("gpu")
        if gpu.facts.get("nvlink_fabric") in ("not started", "in progress") or gpu.facts.get("nvlink_fabric_problem")
    }
    if not out:
        return ()
    states = ", ".join(dict.fromkeys(out.values()))
    return (
        Finding(
            fault=FAULT.name,
            where=tuple(out),
            certainty="seen",
            says=f"{', '.join(out)} did not join the NVLink fabric: {states}",
            costs=_COSTS,
            remedy="systemctl status nvidia-fabricmanager: it must run in the driver's own version, in a VM on the"
            " host; then nvidia-smi -q | grep -A3 Fabric",
            evidence=(Evidence(claim="NVLink fabric", value=states, seen="NVML"),),
        ),
    )


def _could_not_look(topology: Topology) -> tuple[Finding, ...]:
    gpus = topology.of_kind("gpu")
    blind = any(one.what.startswith("NVLink of") for one in topology.unknown)
    if len(gpus) < 2 or not blind or any({"peers", "peers_refused"} & set(gpu.facts) for gpu in gpus):
        return ()
    return (
        Finding(
            fault=FAULT.name,
            where=tuple(gpu.id for gpu in gpus),
            certainty="could not look",
            says="which GPUs may reach each other's memory cannot be read",
            remedy="nvidia-smi topo -p2p r: every pair should say OK",
        ),
    )


def _degrade(topology: Topology, _: str) -> Topology:
    """The machine without NVLink or Infinity Fabric between its GPUs; where is its host."""
    switches = {device.id for device in topology.of_kind("nvswitch")}
    devices = tuple(
        replace(device, facts={key: value for key, value in device.facts.items() if key != _ACROSS_HOSTS})
        for device in topology.devices
        if device.id not in switches
    )
    links = tuple(link for link in topology.links if not isinstance(link.protocol, GPU_LINKS))
    return replace(topology, devices=devices, links=links)


def _suppose(case: Case) -> tuple[Supposed, ...]:
    """Only where GPUs of a host have NVLink: what they lose without it is not in the topology."""
    cluster = case.cluster
    without = with_host(case, _degrade(cluster.host, "host0"))
    if not has_gpu_links(cluster.host) or not can_run(without):
        return ()
    return (
        Supposed(
            fault=FAULT.name,
            says="GPUs of a host have neither peer-to-peer nor shared memory, so that sockets are used inside the host",
            case=replace(without, gpu_cap_bytes_per_s=_SOCKETS.value),
            tell_apart="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET, then railwright explain LOG: connections in a"
            " host say NET/Socket; df /dev/shm in the container; env | grep NCCL_SHM",
        ),
        Supposed(
            fault=FAULT.name,
            says="GPUs of a host do not reach each other directly, so that no NVLink is used",
            case=replace(without, gpu_cap_bytes_per_s=_SHARED_MEMORY.value),
            tell_apart="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET, then railwright explain LOG: connections in a"
            " host say SHM and not P2P; nvidia-smi topo -p2p r; env | grep NCCL_P2P",
        ),
    )


FAULT = Fault(
    name="p2p_disabled",
    summary="GPUs of one host do not reach each other directly",
    look=_look,
    degrade=_degrade,
    suppose=_suppose,
)
