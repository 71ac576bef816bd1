"""A GPU in MIG mode: it is cut into instances, and none of them reaches another GPU directly."""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import OfPart
from railwright.results.records import Evidence


def _signs(facts: Facts) -> Findings:
    cut = [gpu.id for gpu in facts.topology.of_kind("gpu") if gpu.facts.get("mig") is True]
    if cut:
        yield CHECK.finding(
            map(OfPart, cut),
            f"MIG mode is on in {', '.join(cut)}",
            Evidence(claim="MIG mode", value="on", seen="NVML"),
            costs="a program has a slice of the GPU, and neither NVLink nor PCIe peer-to-peer (NVIDIA MIG User Guide,"
            " Application Considerations)",
            remedy="nvidia-smi -i GPU -mig 0 as root, where nobody needs the slices",
        )


CHECK = Check(
    name="mig_enabled",
    summary="a GPU is cut into MIG instances",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks_nvml=True,
)
