"""Two GPUs of one process that may reach each other, and a process that did not ask for it.

A CUDA context reaches another GPU's memory only after cuCtxEnablePeerAccess; before, copies between the two are staged
through host memory (CUDA C++ Programming Guide, Peer-to-Peer Memory Copy). UCX's cuda_copy copies in the contexts that
it finds, and does not ask. Between two processes cuda_ipc maps the memory with peer access, so nothing is lost there.
"""

from __future__ import annotations

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import OfBenchmark, OfParameter, OfPath
from railwright.results.records import Result

CLAIM = "peer_access"
NONE = "no peer access"
"""What a benchmark saw of a process that holds memory of two GPUs."""
_PROTOCOL = "ucx_protocol"
_COPIES = "cuda_copy/"


def _signs(facts: Facts) -> Findings:
    found: dict[str, list[Result]] = {}
    for result in facts.results:
        seen = {one.claim: one.value for one in result.evidence}
        if seen.get(CLAIM) == NONE and seen.get(_PROTOCOL, "").startswith(_COPIES):
            found.setdefault(result.benchmark, []).append(result)
    for benchmark, points in found.items():
        paths = dict.fromkeys(OfPath(point.path) for point in points)
        yield CHECK.finding(
            (OfBenchmark(benchmark), *paths, OfParameter("processes", 1)),
            "a process with two GPUs did not enable peer access between them, so that UCX's copies of one to the other"
            f" go through host memory ({len(points)} points)",
            *dict.fromkeys(one for point in points for one in point.evidence if one.claim in (CLAIM, _PROTOCOL)),
        )


CHECK = Check(
    name="peer_access_off",
    summary="a process does not let its GPUs reach each other's memory",
    costs="38 GB/s at 256 MiB where 391 are made with it, and 15 us at 4 KiB instead of 7 (measured on 2 H200,"
    " NIXL 1.5.1, UCX 1.23)",
    remedy="call cudaDeviceEnablePeerAccess both ways before the first transfer (PyTorch does when it first"
    " copies from one GPU to another), or give each GPU a process of its own",
    signs=_signs,
    needs_results=True,
)
