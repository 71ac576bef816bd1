"""A traffic class in the environment whose packets get a priority without PFC, on ports that have one with it.

The upper six bits of the traffic class are the DSCP, which the port's table maps to a priority (NCCL User Guide,
NCCL_IB_TC; UCX, UCX_IB_TRAFFIC_CLASS; iproute2, dcb-app(8)). Only DSCPs in the table are judged.
"""

from __future__ import annotations

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.roce_gids import roce_nics
from railwright.checks.settings import parse_integer
from railwright.topology.devices import Device
from railwright.topology.gpus import format_runs
from railwright.topology.settings import NONE

_NAMES = ("NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS", "NVSHMEM_IB_TRAFFIC_CLASS")
_MAX_CLASS = 255


def _signs(facts: Facts) -> Findings:
    for name in _NAMES:
        value = parse_integer(facts.environment.get(name, ""))
        if value is None or value > _MAX_CLASS:
            continue
        wrong: dict[tuple[int, str], list[str]] = {}
        for nic in roce_nics(facts.topology):
            if (priority := _find_priority(nic, value >> 2)) is None:
                continue
            lossless = str(nic.facts.get("lossless_priorities", NONE))
            if lossless != NONE and str(priority) not in lossless.split(","):
                wrong.setdefault((priority, lossless), []).append(nic.id)
        for (priority, lossless), names in wrong.items():
            yield CHECK.finding(
                names,
                f"{name}={value} is DSCP {value >> 2}, to which {format_runs(names)} give priority {priority}, but"
                f" priority {lossless} is lossless",
                ("traffic class", str(value), "environment; dcb app show, dcb pfc show"),
                remedy=f"set {name} to four times a DSCP that `dcb app show` maps to priority {lossless}",
            )


def _find_priority(nic: Device, dscp: int) -> int | None:
    """Return the priority that the table of a port gives to a DSCP; None if the table does not decide."""
    if nic.facts.get("trust_mode", "dscp") != "dscp":
        return None
    entries = (word.partition(":") for word in str(nic.facts.get("dscp_priorities", NONE)).split())
    return next((parse_integer(priority) for given, _, priority in entries if given == str(dscp)), None)


CHECK = Check(
    name="traffic_class_lossy",
    summary="a configured traffic class selects a priority that is not lossless",
    right="configured traffic classes select a lossless priority",
    certainty="likely",
    costs="under congestion packets are lost and sent again; no cost on an idle fabric",
    signs=_signs,
    needs_results=True,
)
