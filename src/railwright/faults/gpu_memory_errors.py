"""A GPU whose memory returned wrong data, or whose bad rows could not be replaced, or wait to be.

Rates stay what they are: such a GPU is found when a job ends with an error, or by asking before.
"""

from __future__ import annotations

from collections.abc import Callable

from railwright.faults.model import Certainty, Facts, Fault, Finding
from railwright.faults.parts import unlooked
from railwright.results.model import Evidence
from railwright.topology.gpus import runs
from railwright.topology.model import Device

_GUIDE = "NVIDIA GPU Memory Error Management"


def _look(facts: Facts) -> tuple[Finding, ...]:
    gpus = facts.topology.of_kind("gpu")
    says, remedy = "the memory errors of {gpus} cannot be read", "nvidia-smi -q -d ECC,ROW_REMAPPER"
    blind = unlooked(facts.topology, fault=FAULT.name, says=says, remedy=remedy)
    return (*_uncorrected(gpus), *_failed(gpus), *_pending(gpus), *blind)


def _uncorrected(gpus: tuple[Device, ...]) -> list[Finding]:
    counts = {gpu.id: count for gpu in gpus if (count := _count(gpu)) > 0}
    if not counts:
        return []
    each = ", ".join(f"{name} {count}" for name, count in counts.items())
    return [
        _finding(
            list(counts),
            "seen",
            f"uncorrected memory errors since the driver was loaded: {each}",
            costs=f"what read that memory was ended or got wrong data ({_GUIDE}, Error Containment)",
            remedy="dmesg | grep Xid (48, 63, 64, 94, 95); nvidia-smi -q -d ECC,ROW_REMAPPER; drain the host and reset"
            " the GPU (nvidia-smi -r), then run NVIDIA's field diagnostic if errors come back",
            evidence=Evidence(claim="uncorrected memory errors", value=each, seen="NVML, volatile ECC count"),
        )
    ]


def _count(gpu: Device) -> int:
    count = gpu.facts.get("ecc_uncorrected")
    return count if isinstance(count, int) and not isinstance(count, bool) else 0


def _failed(gpus: tuple[Device, ...]) -> list[Finding]:
    names = _with(gpus, lambda gpu: gpu.facts.get("row_remap_failed") is True)
    if not names:
        return []
    return [
        _finding(
            names,
            "seen",
            f"bad memory rows of {runs(names)} could not be replaced by spare ones",
            remedy="take the GPU out of service and run NVIDIA's field diagnostic: a failed remap counts for RMA"
            f" ({_GUIDE}, RMA Policy Thresholds for Row-Remapping)",
            evidence=Evidence(claim="row remapping", value="failed", seen="NVML"),
        )
    ]


def _pending(gpus: tuple[Device, ...]) -> list[Finding]:
    """Only possible: new work goes on unharmed, as NVIDIA's guide says of that flag."""
    names = _with(gpus, lambda gpu: gpu.facts.get("row_remap_pending") is True)
    if not names:
        return []
    return [
        _finding(
            names,
            "possible",
            f"memory rows of {runs(names)} wait for a reset to be replaced by spare ones",
            costs=f"none until then: the bad pages are kept out of use ({_GUIDE}, Error Recovery and Response Flags)",
            remedy="drain the host when it suits, then reset the GPU: nvidia-smi -r",
            evidence=Evidence(claim="row remapping", value="pending", seen="NVML"),
        )
    ]


def _with(gpus: tuple[Device, ...], has: Callable[[Device], bool]) -> list[str]:
    return [gpu.id for gpu in gpus if has(gpu)]


def _finding(
    names: list[str], certainty: Certainty, says: str, *, costs: str = "", remedy: str, evidence: Evidence
) -> Finding:
    return Finding(
        fault=FAULT.name,
        where=tuple(names),
        certainty=certainty,
        says=says,
        costs=costs,
        remedy=remedy,
        evidence=(evidence,),
    )


FAULT = Fault(name="gpu_memory_errors", summary="a GPU's memory has errors that were not corrected", signs=_look)
"""It changes no rate, so that it cannot be laid into a topology."""
