"""A UCX without GPU transports in `ucx_info -d`: no cuda_copy, or no cuda_ipc.

UCX, FAQ, Working with GPU: cuda_copy moves data to and from host memory, cuda_ipc between GPUs of a host. Transports
are listed only if the CUDA driver answers, so `ucx_info` lists none if it sees no GPU.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting
from railwright.topology.gpus import nvidia_gpus

_COPY, _PEERS = "cuda_copy", "cuda_ipc"


def _signs(facts: Facts) -> Findings:
    transports, version = setting(facts.topology, "ucx_transports"), setting(facts.topology, "ucx")
    if not isinstance(transports, str) or needs.nvidia_gpu(facts.topology) or needs.ucx(facts.topology):
        return
    listed = set(transports.split())
    lacks = [name for name in (_COPY, _PEERS) if name not in listed]
    if lacks == [_PEERS] and len(nvidia_gpus(facts.topology)) == 1:
        return
    if lacks:
        yield CHECK.host_finding(
            facts, f"UCX {version} lists no {' and no '.join(lacks)}", ("transports", transports, "ucx_info -d")
        )


CHECK = Check(
    name="ucx_without_cuda",
    summary="UCX does not support GPU memory",
    right="UCX supports GPU memory",
    certainty="likely",
    costs="transfers of GPU memory by UCX, NIXL or MPI fail or cross host memory",
    remedy="use a UCX built with --with-cuda, with its cuda modules installed; in a container, pass the GPUs as well",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu, needs.ucx),
    asks=(require_read("ucx_transports"),),
)
