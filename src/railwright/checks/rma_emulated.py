"""UCX emulates a transfer because none of its transports connects the two kinds of memory.

Between two processes of a host cuda_ipc connects GPU memory to GPU memory, and cma host memory to host memory; no
transport connects the two kinds. Inside one process even cuda_copy is excluded, because NIXL requests endpoints that
detect a peer's failure. UCX then splits the data into small pieces, which the CPUs of both sides copy and send as
active messages over TCP. Only UCX's protocol log reports this (UCX 1.23, src/ucp/rma).
"""

from __future__ import annotations

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import BenchmarkPlace, ParameterPlace, PathPlace
from railwright.results.readers.ucx.protocols import EMULATION
from railwright.results.records import Evidence
from railwright.topology.devices import Scalar

_REMEDY_IN_ONE_PROCESS = (
    "create NIXL's UCX backend with ucx_error_handling_mode=none: then UCX copies by cuda_copy (55 GB/s to and from"
    " host memory; 391 between GPUs with peer access, 38 without), but a peer's failure goes undetected; or copy"
    " with CUDA, without NIXL"
)
_REMEDY = (
    "set UCX_RMA_PPLN_ENABLE=y for both processes (UCX 1.22 and later, off by default): 31 to 39 GB/s if the side"
    " with GPU memory posts (5 if the other process has another GPU), 50 to 53 if the other side posts; or let"
    " NIXL move the data to a GPU of the other process, which copies it further (48 GB/s)"
)

_REMEDY_BETWEEN_HOSTS = (
    "let the NIC reach GPU memory: load nvidia-peermem or use dma-buf, and check that `ucx_info -d` lists rc or dc"
    " transports and cuda_copy on both hosts; or set UCX_RMA_PPLN_ENABLE=y for both processes (UCX 1.22 and later)"
)


def _signs(facts: Facts) -> Findings:
    found: dict[tuple[str, Scalar | None, bool], list[tuple[PathPlace, Evidence]]] = {}
    for result in facts.results:
        for item in result.evidence:
            if item.claim == "ucx_protocol" and item.value.startswith(EMULATION):
                processes = result.parameters.get("processes")
                found.setdefault((result.benchmark, processes, result.hosts > 1), []).append(
                    (PathPlace(result.path), item)
                )
    for (benchmark, processes, is_apart), points in found.items():
        paths = dict.fromkeys(path for path, _ in points)
        evidence = tuple(dict.fromkeys(item for _, item in points))
        varied = () if processes is None else (ParameterPlace("processes", processes),)
        over = ", ".join(dict.fromkeys(item.value for item in evidence))
        where = "Between two hosts" if is_apart else "Inside one process" if processes == 1 else "Between two processes"
        remedy = _REMEDY_BETWEEN_HOSTS if is_apart else _REMEDY_IN_ONE_PROCESS if processes == 1 else _REMEDY
        yield CHECK.finding(
            (BenchmarkPlace(benchmark), *paths, *varied),
            f"{where} UCX moved data by {over}: none of"
            f" its transports connects the two kinds of memory ({len(points)} points)",
            *evidence,
            remedy=remedy,
        )


CHECK = Check(
    name="rma_emulated",
    summary="UCX emulates transfers that none of its transports supports",
    right="UCX's transports support every transfer",
    costs="0.4 to 0.9 GB/s at 256 MiB, where a copy reaches 55 to host memory and 390 to a GPU (measured on 2"
    " H200, NIXL 1.5.1, UCX 1.23)",
    signs=_signs,
    needs_results=True,
)
