"""A GID index in the environment that points at no RoCE v2 GID, or at one of an address that is not routed.

Indices depend on the order in which addresses came and go. NCCL takes the GID by itself from 2.21 on
(NCCL User Guide, NCCL_IB_GID_INDEX), UCX does (`UCX_IB_GID_INDEX=auto`).
"""

from __future__ import annotations

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.roce_gids import GIDS, Gid, gids, roce_nics
from railwright.checks.settings import whole_number
from railwright.topology.gpus import runs

_NAMES = ("NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "NVSHMEM_IB_GID_INDEX")


def _signs(facts: Facts) -> Findings:
    for name in _NAMES:
        index = whole_number(facts.environment.get(name, ""))
        if index is None:
            continue
        wrong: dict[str, list[str]] = {}
        for nic in roce_nics(facts.topology):
            table = gids(nic)
            if table is not None and (why := _wrong(table, index)):
                wrong.setdefault(why, []).append(nic.id)
        for why, names in wrong.items():
            yield CHECK.finding(
                names,
                f"{name}={index}, and that of {runs(names)} is {why}",
                ("GID index", str(index), f"environment; {GIDS}"),
                remedy=f"unset {name}: the library then looks for a GID of RoCE v2; show_gids lists them",
            )


def _wrong(table: tuple[Gid, ...], index: int) -> str:
    """What is wrong with it; empty where nothing is."""
    found = next((one for one in table if one.number == index), None)
    if found is None:
        return "empty"
    if found.version == "v1":
        return "of RoCE v1, which is not routed"
    routable = any(one.is_routable for one in table)
    return "link-local, while another has an address" if routable and not found.is_routable else ""


CHECK = Check(
    name="roce_gid_index_wrong",
    summary="a GID index that is set points at the wrong GID",
    certainty="likely",
    costs="connections fail, or do not leave the subnet",
    signs=_signs,
    needs_results=True,
)
