"""Compute mode `prohibited`: CUDA lists the GPU, but no program may use it."""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.topology.gpus import format_runs, usable_gpus


def _signs(facts: Facts) -> Findings:
    """Check only GPUs that CUDA lists and that are not in MIG mode; the others cannot be used anyway."""
    closed = [gpu.id for gpu in usable_gpus(facts.topology) if gpu.facts.get("compute_mode") == "prohibited"]
    if closed:
        yield CHECK.finding(
            closed, f"the compute mode of {format_runs(closed)} is prohibited", ("compute mode", "prohibited", "NVML")
        )


CHECK = Check(
    name="compute_mode_prohibited",
    summary="no program may use a GPU",
    right="programs may use every GPU",
    costs="no program can create a CUDA context there (nvidia-smi manual, -c)",
    remedy="nvidia-smi -i GPU -c DEFAULT as root, or ask who set it; CUDA_VISIBLE_DEVICES can exclude the GPU",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.nvml_reports_gpus,),
)
