"""No direct way from NVMe drives to GPU memory: cuFile silently copies through host memory.

cuFile's compatibility mode reads into host memory and copies (NVIDIA, cuFile API Reference, compatibility mode).
Jobs that read no files into GPUs are not affected.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.storage_ways import nvme_drives, storage_ways
from railwright.topology.devices import Topology


def _signs(facts: Facts) -> Findings:
    ways = storage_ways(facts.topology)
    if ways and all(way.verdict == "missing" for way in ways):
        lacking = "; ".join(f"{way.way}: {way.because}" for way in ways)
        yield CHECK.host_finding(
            facts,
            f"GPUDirect Storage is not available; missing for {lacking}",
            ("ways", "none", "modules, kernel, IOMMU and parameters of drivers"),
        )


def _explain_unread(topology: Topology) -> str:
    """Return the unknown prerequisites if no way is known to be possible."""
    ways = storage_ways(topology)
    if any(way.verdict in ("possible", "in use") for way in ways):
        return ""
    return "; ".join(f"{way.way} is unknown: {way.because}" for way in ways if way.verdict == "cannot be told")


CHECK = Check(
    name="gpudirect_storage_off",
    summary="drives do not reach GPU memory directly",
    right="drives can reach GPU memory directly (GPUDirect Storage)",
    certainty="possible",
    costs="reads into GPU memory cross host memory and use its bandwidth and CPU time",
    remedy="install nvidia-fs (nvidia-gds), or set up P2PDMA; then run gdscheck -p, and compare gdsio -x 0 with -x 2",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu, needs.some(nvme_drives, "no NVMe drive")),
    asks=(_explain_unread,),
    checklist=storage_ways,
)
