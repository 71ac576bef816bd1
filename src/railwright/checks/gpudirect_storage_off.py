"""No direct way from NVMe drives to GPU memory: cuFile then copies through host memory, and says nothing.

cuFile's compatibility mode reads into host memory and copies (NVIDIA, cuFile API Reference, compatibility mode). Who
reads no files into GPUs needs none of it.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.storage_ways import nvme_drives, storage_ways
from railwright.topology.devices import Topology


def _signs(facts: Facts) -> Findings:
    ways = storage_ways(facts.topology)
    if ways and all(one.verdict == "missing" for one in ways):
        lacking = "; ".join(f"{one.way}: {one.because}" for one in ways)
        yield CHECK.of_host(
            facts,
            f"no way of GPUDirect Storage is complete, missing for {lacking}",
            ("ways", "none", "modules, kernel, IOMMU and parameters of drivers"),
        )


def _unread(topology: Topology) -> str:
    """Only where no way is known to be possible."""
    ways = storage_ways(topology)
    if any(one.verdict in ("possible", "in use") for one in ways):
        return ""
    return "; ".join(f"{one.way} cannot be told: {one.because}" for one in ways if one.verdict == "cannot be told")


CHECK = Check(
    name="gpudirect_storage_off",
    summary="drives do not reach GPU memory directly",
    certainty="possible",
    costs="reads into GPU memory cross host memory, and take its bandwidth and CPU time",
    remedy="install nvidia-fs (nvidia-gds), or set up P2PDMA; then gdscheck -p, and gdsio -x 0 against -x 2",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu, needs.some(nvme_drives, "no NVMe drive")),
    asks=(_unread,),
    checklist=storage_ways,
)
