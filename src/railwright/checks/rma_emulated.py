"""UCX emulates a transfer, because none of its transports reaches from the one memory to the other.

Between two processes of a host cuda_ipc reaches GPU memory from a GPU, and cma host memory from host memory; nothing
reaches from the one kind to the other. Inside one process even cuda_copy is left out, since NIXL asks for endpoints
that notice a peer's failure. UCX then cuts the data into small pieces, which the CPUs of both sides copy and send as
active messages over TCP, and says so in no log but that of its protocols (UCX 1.23, src/ucp/rma).
"""

from __future__ import annotations

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import OfBenchmark, OfParameter, OfPath
from railwright.results.readers.ucx.protocols import EMULATION
from railwright.results.records import Evidence
from railwright.topology.devices import Scalar

_REMEDY_IN_ONE_PROCESS = (
    "create NIXL's UCX backend with ucx_error_handling_mode=none: then UCX copies by cuda_copy (55 GB/s to and from"
    " host memory; 391 between GPUs with peer access, 38 without), but a peer's failure is no longer noticed; or copy"
    " with CUDA, without NIXL"
)
_REMEDY = (
    "set UCX_RMA_PPLN_ENABLE=y for both processes (UCX 1.22 and later, off by default): 31 to 39 GB/s where the GPU's"
    " side posts (5 where the other process has another GPU), 50 to 53 where the host's does; or let NIXL move it to a"
    " GPU of the other process, which copies it on (48 GB/s)"
)


def _signs(facts: Facts) -> Findings:
    found: dict[tuple[str, Scalar | None], list[tuple[OfPath, Evidence]]] = {}
    for result in facts.results:
        for one in result.evidence:
            if one.claim == "ucx_protocol" and one.value.startswith(EMULATION):
                processes = result.parameters.get("processes")
                found.setdefault((result.benchmark, processes), []).append((OfPath(result.path), one))
    for (benchmark, processes), points in found.items():
        paths = dict.fromkeys(path for path, _ in points)
        evidence = tuple(dict.fromkeys(one for _, one in points))
        varied = () if processes is None else (OfParameter("processes", processes),)
        over = ", ".join(dict.fromkeys(one.value for one in evidence))
        yield CHECK.finding(
            (OfBenchmark(benchmark), *paths, *varied),
            f"{'Inside one process' if processes == 1 else 'Between two processes'} UCX moved data by {over}: no"
            f" transport of it reaches from the one memory to the other ({len(points)} points)",
            *evidence,
            remedy=_REMEDY_IN_ONE_PROCESS if processes == 1 else _REMEDY,
        )


CHECK = Check(
    name="rma_emulated",
    summary="UCX emulates transfers that none of its transports can make",
    costs="0.4 to 0.9 GB/s at 256 MiB, where a copy makes 55 to host memory and 390 to a GPU (measured on 2"
    " H200, NIXL 1.5.1, UCX 1.23)",
    signs=_signs,
    needs_results=True,
)
