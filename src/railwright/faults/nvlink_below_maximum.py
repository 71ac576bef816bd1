"""A GPU with fewer active NVLinks than it could have: a bad board or cable, or a link that was switched off."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.faults.model import Facts, Fault, Finding, Supposed, with_host
from railwright.faults.parts import can_run, with_links
from railwright.limits.case import Case
from railwright.results.model import Evidence
from railwright.topology.model import Link, NvlinkLink, Topology

_REMEDY = "nvidia-smi nvlink -s and -e, dmesg | grep Xid; reset the GPUs and the fabric manager, then the board"


def _look(facts: Facts) -> tuple[Finding, ...]:
    topology = facts.topology
    found = [_seen(link, link.protocol) for link in topology.links if _is_below(link)]
    found += _without_any(topology)
    unknown = any(one.what.startswith("NVLink of") for one in topology.unknown)
    gpus = topology.of_kind("gpu")
    if unknown and len(gpus) > 1 and not any(isinstance(link.protocol, NvlinkLink) for link in topology.links):
        found.append(
            Finding(
                fault=FAULT.name,
                where=tuple(gpu.id for gpu in gpus),
                certainty="could not look",
                says="the active NVLinks of the GPUs cannot be read",
                remedy="nvidia-smi nvlink -s lists the active links of each GPU; all GPUs should have as many",
            )
        )
    return tuple(found)


def _without_any(topology: Topology) -> list[Finding]:
    """GPUs without a single active NVLink, where others have some: such a GPU has no link in the topology."""
    active = {gpu.id: gpu.facts.get("nvlinks_active") for gpu in topology.of_kind("gpu") if gpu.facts.get("nvlinks")}
    if not any(active.values()):
        return []  # cards without bridges
    return [
        Finding(
            fault=FAULT.name,
            where=(name,),
            certainty="seen",
            says=f"none of the NVLinks of {name} is active, those of other GPUs are",
            costs="all of its NVLink rate: its data goes over PCIe",
            remedy=_REMEDY,
            evidence=(Evidence(claim="nvlinks", value="0 active", seen="NVLink state"),),
        )
        for name, links in active.items()
        if links == 0
    ]


def _is_below(link: Link) -> bool:
    protocol = link.protocol
    return isinstance(protocol, NvlinkLink) and protocol.max_links is not None and protocol.links < protocol.max_links


def _seen(link: Link, protocol: object) -> Finding:
    assert isinstance(protocol, NvlinkLink)
    most = protocol.max_links or protocol.links
    return Finding(
        fault=FAULT.name,
        where=(link.id,),
        certainty="seen",
        says=f"{protocol.links} of {most} NVLinks of {link.id} are active",
        costs=f"{1 - protocol.links / most:.0%} of the GPU's NVLink rate; a ring goes at the rate of its slowest GPU"
        " (NCCL plans links x the rate of one, src/graph/topo.h)",
        remedy=_REMEDY,
        evidence=(Evidence(claim="nvlinks", value=f"{protocol.links} of {most}", seen="NVLink state"),),
    )


def _degrade(topology: Topology, where: str) -> Topology:
    """Half of the NVLinks of the GPU or link `where`."""
    return with_links(topology, lambda link: _halved(link) if where in (link.id, link.a, link.b) else link)


def _halved(link: Link) -> Link:
    protocol = link.protocol
    if not isinstance(protocol, NvlinkLink) or protocol.links < 2:
        return link
    most = protocol.max_links or protocol.links
    return replace(link, protocol=replace(protocol, links=protocol.links // 2, max_links=most))


def _suppose(case: Case) -> tuple[Supposed, ...]:
    host = case.cluster.host
    gpus = host.of_kind("gpu")
    changed = _degrade(host, gpus[0].id) if gpus else host
    if changed == host or not can_run(case):
        return ()
    return (
        Supposed(
            fault=FAULT.name,
            says="one GPU of a host has half of its NVLinks",
            case=with_host(case, changed),
            tell_apart="nvidia-smi nvlink -s on every host (GPUs with fewer active links), nvidia-smi topo -m (NV9 for"
            " NV18), dmesg | grep -i nvlink",
        ),
    )


FAULT = Fault(
    name="nvlink_below_maximum",
    summary="a GPU has fewer active NVLinks than it could have",
    signs=_look,
    degrade=_degrade,
    ways=_suppose,
)
