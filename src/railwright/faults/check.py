"""One fault looked for in one machine, and how that went: what has nothing to look at is not fine."""

from __future__ import annotations

from typing import Literal

import msgspec

from railwright.faults.fault import Facts, Fault, Finding, Way
from railwright.faults.parts import silent_gpus
from railwright.topology.gpus import runs

State = Literal["found", "fine", "does not apply", "could not look"]


class Slowed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path or a collective that the fault slows down, by the limits of the machine with and without it."""

    what: tuple[str, ...]
    """Paths that lose the same, like `gpu0>nic0`, or one collective with its hosts."""
    with_fault_bytes_per_s: float
    without_bytes_per_s: float


class Check(msgspec.Struct, frozen=True, kw_only=True, tag="check", tag_field="record", omit_defaults=True,
            forbid_unknown_fields=True):  # fmt: skip
    """What came of looking for a fault."""

    fault: str
    summary: str
    state: State
    because: str = ""
    """Why it does not apply or could not be looked for; a finding says so itself."""
    findings: tuple[Finding, ...] = ()
    checklist: tuple[Way, ...] = ()
    slows: tuple[Slowed, ...] = ()


def check(fault: Fault, facts: Facts) -> Check:
    """Look for a fault. A finding counts wherever it was found; without one the machine must have what it needs."""
    findings = fault.look(facts)
    state: State = "fine"
    because = ""
    if findings:
        blind = all(finding.certainty == "could not look" for finding in findings)
        state = "could not look" if blind else "found"
    elif because := fault.lacks(facts.topology):
        state = "does not apply"
    elif fault.asks_nvml and (silent := silent_gpus(facts.topology)):
        state, because = "could not look", f"NVIDIA's library NVML says nothing of {runs(silent)}"
    elif because := next((why for ask in fault.asks if (why := ask(facts.topology))), ""):
        state = "could not look"
    ways = fault.checklist(facts.topology) if fault.checklist is not None and state != "does not apply" else ()
    return Check(
        fault=fault.name, summary=fault.summary, state=state, because=because, findings=findings, checklist=ways
    )
