"""An MPI built without support for GPU buffers: a job that passes one crashes, or copies through the host.

Open MPI, FAQ, Running CUDA-aware (`ompi_info --parsable --all`, built_with_cuda_support); MPICH, `--with-cuda`.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting


def _signs(facts: Facts) -> Findings:
    name = setting(facts.topology, "mpi")
    if setting(facts.topology, "mpi_cuda") is False and not needs.nvidia_gpu(facts.topology):
        yield CHECK.host_finding(
            facts,
            f"{name} was built without CUDA and does not support buffers in GPU memory",
            ("built with CUDA", "no", "ompi_info --parsable --all, or mpichversion"),
        )


CHECK = Check(
    name="mpi_without_cuda",
    summary="MPI does not support buffers in GPU memory",
    right="MPI supports buffers in GPU memory",
    certainty="possible",
    costs="a job whose ranks pass GPU buffers crashes, or copies each message through host memory",
    remedy="use an Open MPI and a UCX that are built with --with-cuda; not needed if MPI moves only host memory",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu, needs.mpi),
    asks=(require_read("mpi", "mpi_cuda"),),
)
