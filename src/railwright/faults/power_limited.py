"""A GPU whose power limit was set below its default: under load it lowers its clocks to stay below."""

from __future__ import annotations

from collections import defaultdict

from railwright.faults.model import Facts, Fault, Finding
from railwright.results.model import Evidence

_MEANT_ABOVE = 0.995
"""Limits are set in whole watts; less than this share of the default was asked for by somebody."""


def _look(facts: Facts) -> tuple[Finding, ...]:
    limited: dict[tuple[float, float], list[str]] = defaultdict(list)
    for gpu in facts.topology.of_kind("gpu"):
        limit, default = gpu.facts.get("power_limit_w"), gpu.facts.get("power_default_w")
        if isinstance(limit, int | float) and isinstance(default, int | float) and 0 < limit < _MEANT_ABOVE * default:
            limited[(limit, default)].append(gpu.id)
    return tuple(
        Finding(
            fault=FAULT.name,
            where=tuple(names),
            certainty="seen",
            says=f"the power limit of {_those(names)} is {limit:.0f} W, the default is {default:.0f} W",
            costs="compute under load runs at lower clocks; copies and collectives seldom need that power",
            remedy=f"nvidia-smi -pl {default:.0f} as root, or ask who set it: the rack may not carry more",
            evidence=(Evidence(claim="power limit", value=f"{limit:.0f} of {default:.0f} W", seen="NVML"),),
        )
        for (limit, default), names in limited.items()
    )


def _those(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} GPUs"


FAULT = Fault(name="power_limited", summary="a GPU's power limit is below its default", signs=_look)
"""A topology says nothing of power, so that it cannot be laid into one."""
