"""A process with two GPUs that did not enable peer access between them, although it is possible.

A CUDA context reaches another GPU's memory only after cuCtxEnablePeerAccess; before that, copies between the two are
staged through host memory (CUDA C++ Programming Guide, Peer-to-Peer Memory Copy). UCX's cuda_copy copies in existing
contexts and does not enable it. Between two processes cuda_ipc maps the memory with peer access, without loss.
"""

from __future__ import annotations

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import BenchmarkPlace, ParameterPlace, PathPlace
from railwright.results.records import Result

CLAIM = "peer_access"
NONE = "no peer access"
"""The value that benchmarks record for a process with memory of two GPUs."""
_PROTOCOL = "ucx_protocol"
_COPIES = "cuda_copy/"


def _signs(facts: Facts) -> Findings:
    found: dict[str, list[Result]] = {}
    for result in facts.results:
        seen = {item.claim: item.value for item in result.evidence}
        if seen.get(CLAIM) == NONE and seen.get(_PROTOCOL, "").startswith(_COPIES):
            found.setdefault(result.benchmark, []).append(result)
    for benchmark, points in found.items():
        paths = dict.fromkeys(PathPlace(point.path) for point in points)
        yield CHECK.finding(
            (BenchmarkPlace(benchmark), *paths, ParameterPlace("processes", 1)),
            "a process with two GPUs did not enable peer access between them, so UCX copies between them"
            f" go through host memory ({len(points)} points)",
            *dict.fromkeys(item for point in points for item in point.evidence if item.claim in (CLAIM, _PROTOCOL)),
        )


CHECK = Check(
    name="peer_access_off",
    summary="a process did not enable peer access between its GPUs",
    right="processes enable peer access between their GPUs",
    costs="38 GB/s at 256 MiB instead of 391, and 15 us at 4 KiB instead of 7 (measured on 2 H200,"
    " NIXL 1.5.1, UCX 1.23)",
    remedy="call cudaDeviceEnablePeerAccess in both directions before the first transfer (PyTorch does when it first"
    " copies from one GPU to another), or use one process per GPU",
    signs=_signs,
    needs_results=True,
)
