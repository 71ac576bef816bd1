"""A GID index in the environment that selects no RoCE v2 GID, or one whose address is not routable.

Indices depend on the order in which addresses were added and removed. NCCL since 2.21 (NCCL User Guide,
NCCL_IB_GID_INDEX) and UCX (`UCX_IB_GID_INDEX=auto`) select the GID themselves.
"""

from __future__ import annotations

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.roce_gids import GIDS, Gid, gids, roce_nics
from railwright.checks.settings import parse_integer
from railwright.topology.gpus import format_runs

_NAMES = ("NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "NVSHMEM_IB_GID_INDEX")


def _signs(facts: Facts) -> Findings:
    for name in _NAMES:
        index = parse_integer(facts.environment.get(name, ""))
        if index is None:
            continue
        wrong: dict[str, list[str]] = {}
        for nic in roce_nics(facts.topology):
            table = gids(nic)
            if table is not None and (why := _find_problem(table, index)):
                wrong.setdefault(why, []).append(nic.id)
        for why, names in wrong.items():
            yield CHECK.finding(
                names,
                f"{name}={index}, but that GID of {format_runs(names)} is {why}",
                ("GID index", str(index), f"environment; {GIDS}"),
                remedy=f"unset {name}: the library then selects a RoCE v2 GID; show_gids lists them",
            )


def _find_problem(table: tuple[Gid, ...], index: int) -> str:
    """Return the problem of the GID at the index; empty if there is none."""
    selected = next((gid for gid in table if gid.number == index), None)
    if selected is None:
        return "empty"
    if selected.version == "v1":
        return "a RoCE v1 GID, which is not routable"
    routable = any(gid.is_routable for gid in table)
    return "link-local, although another GID has an address" if routable and not selected.is_routable else ""


CHECK = Check(
    name="roce_gid_index_wrong",
    summary="a configured GID index selects the wrong GID",
    right="configured GID indices select the right GIDs",
    certainty="likely",
    costs="connections fail, or do not leave the subnet",
    signs=_signs,
    needs_results=True,
)
