"""A GPU in MIG mode: it is divided into instances, none of which reaches another GPU directly."""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings


def _signs(facts: Facts) -> Findings:
    divided = [gpu.id for gpu in facts.topology.of_kind("gpu") if gpu.facts.get("mig") is True]
    if divided:
        yield CHECK.finding(divided, f"MIG mode is on in {', '.join(divided)}", ("MIG mode", "on", "NVML"))


CHECK = Check(
    name="mig_enabled",
    summary="a GPU is divided into MIG instances",
    right="every GPU is whole (MIG is off)",
    costs="a program gets a slice of the GPU, without NVLink and PCIe peer-to-peer (NVIDIA MIG User Guide,"
    " Application Considerations)",
    remedy="nvidia-smi -i GPU -mig 0 as root, if the instances are not needed",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.nvml_reports_gpus,),
)
