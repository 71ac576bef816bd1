"""A UCX that knows no GPU memory, by its own `ucx_info -d`: no cuda_copy, or none of the ways between GPUs.

UCX, FAQ, Working with GPU: cuda_copy moves to and from host memory, cuda_ipc between GPUs of a host. Transports are
listed only where the CUDA driver answers, so that a `ucx_info` which sees no GPU lists none either.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import read, setting
from railwright.topology.gpus import nvidia_gpus

_COPY, _PEERS = "cuda_copy", "cuda_ipc"


def _signs(facts: Facts) -> Findings:
    told, version = setting(facts.topology, "ucx_transports"), setting(facts.topology, "ucx")
    if not isinstance(told, str) or needs.nvidia_gpu(facts.topology) or needs.ucx(facts.topology):
        return
    has = set(told.split())
    lacks = [name for name in (_COPY, _PEERS) if name not in has]
    if lacks == [_PEERS] and len(nvidia_gpus(facts.topology)) == 1:
        return
    if lacks:
        yield CHECK.of_host(
            facts, f"UCX {version} lists no {' and no '.join(lacks)}", ("transports", told, "ucx_info -d")
        )


CHECK = Check(
    name="ucx_without_cuda",
    summary="UCX knows no GPU memory",
    certainty="likely",
    costs="transfers of GPU memory by UCX, NIXL or MPI fail, or cross host memory",
    remedy="a UCX built with --with-cuda, with its cuda modules beside it; in a container: the GPUs as well",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu, needs.ucx),
    asks=(read("ucx_transports"),),
)
