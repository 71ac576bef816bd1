"""Compute mode `prohibited`: CUDA lists the GPU, and no program may use it."""

from __future__ import annotations

from railwright.faults.model import Facts, Fault, Finding
from railwright.results.model import Evidence
from railwright.topology.gpus import runs, usable_gpus


def _look(facts: Facts) -> tuple[Finding, ...]:
    """Only of GPUs that CUDA shows and that are not in slices: the others are not to be used here anyway."""
    closed = [gpu.id for gpu in usable_gpus(facts.topology) if gpu.facts.get("compute_mode") == "prohibited"]
    if not closed:
        return ()
    return (
        Finding(
            fault=FAULT.name,
            where=tuple(closed),
            certainty="seen",
            says=f"the compute mode of {runs(closed)} is prohibited",
            costs="no program can create a CUDA context there (nvidia-smi manual, -c)",
            remedy="nvidia-smi -i GPU -c DEFAULT as root, or ask who set it; CUDA_VISIBLE_DEVICES can leave it out",
            evidence=(Evidence(claim="compute mode", value="prohibited", seen="NVML"),),
        ),
    )


FAULT = Fault(name="compute_mode_prohibited", summary="a GPU may not be used by any program", signs=_look)
"""It changes no rate, so that it cannot be laid into a topology."""
