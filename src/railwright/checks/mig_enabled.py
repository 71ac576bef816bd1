"""A GPU in MIG mode: it is cut into instances, and none of them reaches another GPU directly."""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings


def _signs(facts: Facts) -> Findings:
    cut = [gpu.id for gpu in facts.topology.of_kind("gpu") if gpu.facts.get("mig") is True]
    if cut:
        yield CHECK.finding(cut, f"MIG mode is on in {', '.join(cut)}", ("MIG mode", "on", "NVML"))


CHECK = Check(
    name="mig_enabled",
    summary="a GPU is cut into MIG instances",
    costs="a program has a slice of the GPU, and neither NVLink nor PCIe peer-to-peer (NVIDIA MIG User Guide,"
    " Application Considerations)",
    remedy="nvidia-smi -i GPU -mig 0 as root, where nobody needs the slices",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.told_by_nvml,),
)
