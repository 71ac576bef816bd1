"""A GPU with fewer active NVLinks than its maximum: a bad board or cable, or a disabled link."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks import needs
from railwright.checks.check import Facts, Findings
from railwright.checks.parts import nvlink_not_read
from railwright.faults.cases import can_run, replace_host
from railwright.faults.fault import Fault, Hypotheses
from railwright.limits.case import Case
from railwright.topology.changes import change_links
from railwright.topology.devices import Link, NvlinkLink, Topology

_REMEDY = "nvidia-smi nvlink -s and -e, dmesg | grep Xid; reset the GPUs and the fabric manager, then replace the board"


def _signs(facts: Facts) -> Findings:
    topology = facts.topology
    links = [(link, link.protocol) for link in topology.links if isinstance(link.protocol, NvlinkLink)]
    for link, nvlink in links:
        if nvlink.max_links is not None and nvlink.links < nvlink.max_links:
            active = f"{nvlink.links} of {nvlink.max_links}"
            yield FAULT.finding(
                (link.id,),
                f"{active} NVLinks of {link.id} are active",
                ("nvlinks", active, "NVLink state"),
                costs=f"{1 - nvlink.links / nvlink.max_links:.0%} of the GPU's NVLink rate; a ring runs at the rate of"
                " its slowest GPU (NCCL plans links x the rate of one, src/graph/topo.h)",
                remedy=_REMEDY,
            )
    gpus = topology.of_kind("gpu")
    # A GPU without any active NVLink has no link in the topology; if no GPU has one, the cards have no bridges.
    active_links = {gpu.id: gpu.facts.get("nvlinks_active") for gpu in gpus if gpu.facts.get("nvlinks")}
    for name, number in active_links.items():
        if number == 0 and any(active_links.values()):
            yield FAULT.finding(
                (name,),
                f"none of the NVLinks of {name} is active, unlike those of other GPUs",
                ("nvlinks", "0 active", "NVLink state"),
                costs="all of its NVLink rate: its data goes over PCIe",
                remedy=_REMEDY,
            )
    if len(gpus) > 1 and not links and nvlink_not_read(topology):
        yield FAULT.blind(
            (gpu.id for gpu in gpus),
            "the active NVLinks of the GPUs cannot be read",
            remedy="nvidia-smi nvlink -s lists the active links of each GPU; all GPUs should have the same number",
        )


def _degrade(topology: Topology, where: str) -> Topology:
    """Halve the NVLinks of the GPU or link `where`."""
    return change_links(topology, lambda link: _halve_links(link) if where in (link.id, link.a, link.b) else link)


def _halve_links(link: Link) -> Link:
    protocol = link.protocol
    if not isinstance(protocol, NvlinkLink) or protocol.links < 2:
        return link
    maximum = protocol.max_links or protocol.links
    return replace(link, protocol=replace(protocol, links=protocol.links // 2, max_links=maximum))


def _build_with_and_without(topology: Topology) -> tuple[Topology, Topology]:
    return topology, change_links(topology, _restore_links)


def _restore_links(link: Link) -> Link:
    protocol = link.protocol
    if not isinstance(protocol, NvlinkLink) or protocol.max_links is None:
        return link
    return replace(link, protocol=replace(protocol, links=max(protocol.links, protocol.max_links)))


def _hypotheses(case: Case) -> Hypotheses:
    host = case.cluster.host
    gpus = host.of_kind("gpu")
    all_halved = change_links(host, _halve_links)
    for says, changed in (
        ("one GPU of a host has half of its NVLinks", _degrade(host, gpus[0].id) if gpus else host),
        ("the GPUs of a host have half of their NVLinks", all_halved),
    ):
        if changed == host or not can_run(case):
            continue
        yield FAULT.supposed(
            says,
            replace_host(case, changed),
            "nvidia-smi nvlink -s on every host (GPUs with fewer active links), nvidia-smi topo -m (NV9 for NV18),"
            " dmesg | grep -i nvlink",
        )


FAULT = Fault(
    name="nvlink_below_maximum",
    summary="a GPU has fewer active NVLinks than its maximum",
    right="every GPU has all of its NVLinks",
    signs=_signs,
    needs=(needs.nvlink,),
    mend=_build_with_and_without,
    degrade=_degrade,
    only_gpu_memory=True,
    ways=_hypotheses,
)
