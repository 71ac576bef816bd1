"""Persistence mode is off: the driver lets go of a GPU when its last program ends, and starts it anew for the next."""

from __future__ import annotations

from railwright.faults.model import Facts, Fault, Finding
from railwright.results.model import Evidence


def _look(facts: Facts) -> tuple[Finding, ...]:
    off = tuple(gpu.id for gpu in facts.topology.of_kind("gpu") if gpu.facts.get("persistence") is False)
    if not off:
        return ()
    return (
        Finding(
            fault=FAULT.name,
            where=off,
            certainty="possible",
            says=f"persistence mode is off in {', '.join(off)}",
            costs="each first program waits 1 to 3 s for each GPU (NVIDIA Driver Persistence), and clocks and limits"
            " that were set are lost",
            remedy="start nvidia-persistenced, or nvidia-smi -pm 1 as root",
            evidence=(Evidence(claim="persistence mode", value="off", seen="NVML"),),
        ),
    )


FAULT = Fault(name="persistence_off", summary="the driver lets go of idle GPUs", signs=_look)
"""It changes no rate, so that it cannot be laid into a topology."""
