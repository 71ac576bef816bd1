"""Persistence mode is off: the driver lets go of a GPU when its last program ends, and starts it anew for the next."""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import OfPart
from railwright.results.records import Evidence


def _signs(facts: Facts) -> Findings:
    off = [gpu.id for gpu in facts.topology.of_kind("gpu") if gpu.facts.get("persistence") is False]
    if off:
        yield CHECK.finding(
            map(OfPart, off),
            f"persistence mode is off in {', '.join(off)}",
            Evidence(claim="persistence mode", value="off", seen="NVML"),
            certainty="possible",
            costs="each first program waits 1 to 3 s for each GPU (NVIDIA Driver Persistence), and clocks and limits"
            " that were set are lost",
            remedy="start nvidia-persistenced, or nvidia-smi -pm 1 as root",
        )


CHECK = Check(
    name="persistence_off",
    summary="the driver lets go of idle GPUs",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks_nvml=True,
)
