"""A GPU whose memory returned wrong data, or whose bad rows could not be replaced or still wait for it.

Such a GPU is not slower: the errors show when a job fails, or in this check beforehand.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import nonnegative_integer
from railwright.checks.parts import silent_gpus
from railwright.topology.gpus import format_runs

_GUIDE = "NVIDIA GPU Memory Error Management"


def _signs(facts: Facts) -> Findings:
    gpus = facts.topology.of_kind("gpu")
    counts = {gpu.id: count for gpu in gpus if (count := nonnegative_integer(gpu.facts.get("ecc_uncorrected")))}
    if counts:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield CHECK.finding(
            counts,
            f"uncorrected memory errors since the driver was loaded: {listed}",
            ("uncorrected memory errors", listed, "NVML, volatile ECC count"),
            costs=f"programs that read that memory were stopped or got wrong data ({_GUIDE}, Error Containment)",
            remedy="dmesg | grep Xid (48, 63, 64, 94, 95); nvidia-smi -q -d ECC,ROW_REMAPPER; drain the host and reset"
            " the GPU (nvidia-smi -r), then run NVIDIA's field diagnostic if errors come back",
        )
    failed = [gpu.id for gpu in gpus if gpu.facts.get("row_remap_failed") is True]
    if failed:
        yield CHECK.finding(
            failed,
            f"bad memory rows of {format_runs(failed)} could not be remapped to spare rows",
            ("row remapping", "failed", "NVML"),
            remedy="take the GPU out of service and run NVIDIA's field diagnostic: a failed remap justifies an RMA"
            f" ({_GUIDE}, RMA Policy Thresholds for Row-Remapping)",
        )
    pending = [gpu.id for gpu in gpus if gpu.facts.get("row_remap_pending") is True]
    if pending:
        yield CHECK.finding(
            pending,
            f"memory rows of {format_runs(pending)} will be remapped to spare rows at the next reset",
            ("row remapping", "pending", "NVML"),
            certainty="possible",  # new work runs unharmed, according to NVIDIA's guide
            costs=f"none until then: the bad pages are kept out of use ({_GUIDE}, Error Recovery and Response Flags)",
            remedy="drain the host when convenient, then reset the GPU: nvidia-smi -r",
        )
    if silent := silent_gpus(facts.topology):
        yield CHECK.blind(
            silent,
            f"the memory errors of {format_runs(silent)} cannot be read",
            remedy="nvidia-smi -q -d ECC,ROW_REMAPPER",
        )


CHECK = Check(
    name="gpu_memory_errors",
    summary="a GPU's memory has uncorrected errors",
    right="no GPU has uncorrected memory errors",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu),
    asks=(needs.nvml_reports_gpus,),
)
