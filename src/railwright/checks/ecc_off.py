"""A GPU without error correction: its memory may be faster and larger, but errors go unnoticed.

nvidia-smi manual, `-e`. GPUs without ECC support (GeForce) report nothing and are skipped.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.topology.gpus import format_runs, nvidia_gpus


def _signs(facts: Facts) -> Findings:
    off = [gpu.id for gpu in nvidia_gpus(facts.topology) if gpu.facts.get("ecc") is False]
    if off:
        yield CHECK.finding(off, f"error correction (ECC) is off in {format_runs(off)}", ("ECC mode", "off", "NVML"))


CHECK = Check(
    name="ecc_off",
    summary="a GPU's memory errors are not corrected",
    right="ECC corrects the memory errors of every GPU",
    certainty="likely",
    costs="no loss of speed; results are not comparable with those of GPUs with ECC, and memory errors go unnoticed",
    remedy="nvidia-smi -e 1 as root, then reset the GPUs",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.nvml_reports_gpus,),
)
