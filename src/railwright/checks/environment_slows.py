"""Environment variables that slow a job down, set for debugging or by mistake.

NCCL User Guide, Environment Variables (its section on debugging); `ucx_info -c -f`; CUDA C++ Programming Guide (CUDA
environment variables); fabric(7); Open MPI, FAQ on TCP. Variables that cause a fault of their own are checked with
that fault.
"""

from __future__ import annotations

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import Finding, Place
from railwright.checks.parts import efas, rdma_ports
from railwright.checks.settings import Cause, Settings, is_one_of, short

_SETTINGS = Settings(
    {
        "CUDA_LAUNCH_BLOCKING": Cause(is_one_of("1"), "makes every kernel launch wait for its kernel"),
        "NCCL_CHECK_POINTERS": Cause(is_one_of("1"), "checks every pointer of every call"),
        "NCCL_DEBUG": Cause(is_one_of("TRACE"), "writes a line for every call"),
        "UCX_LOG_LEVEL": Cause(is_one_of("debug", "trace", "req", "data", "async", "func", "poll"),
                               "writes lines for every operation, if UCX was built with such logging"),
        "FI_LOG_LEVEL": Cause(is_one_of("debug", "trace"), "writes lines for every operation"),
    },
    costs="unknown from settings alone: compare with a run without it",
    remedy="unset it, unless it is set on purpose",
)  # fmt: skip
_RDMA_TRANSPORTS = frozenset({"all", "ib", "rc", "rc_x", "rc_v", "rc_verbs", "rc_mlx5", "dc", "dc_x", "dc_mlx5", "ud",
                              "ud_x", "ud_v", "ud_verbs", "ud_mlx5", "gga_mlx5", "srd"})  # fmt: skip
_GPU_TRANSPORTS = frozenset({"all", "cuda", "cuda_copy", "cuda_ipc", "gdr_copy", "rocm", "rocm_copy", "rocm_ipc", "ze",
                             "ze_copy", "ze_ipc"})  # fmt: skip


def _signs(facts: Facts) -> Findings:
    topology, environment = facts.topology, facts.environment
    words = {word.strip().lstrip("\\").lower() for word in environment.get("UCX_TLS", "").split(",")} - {""}
    named = bool(words) and not environment["UCX_TLS"].strip().startswith("^")
    if named and rdma_ports(topology) and not words & _RDMA_TRANSPORTS:
        yield _build_finding("UCX_TLS", environment, "leaves out RDMA, which the machine's NICs support")
    if named and topology.of_kind("gpu") and not words & _GPU_TRANSPORTS:
        yield _build_finding("UCX_TLS", environment, "leaves out the transports of GPU memory")
    provider = environment.get("FI_PROVIDER", "").strip().lower()
    if rdma_ports(topology) and provider in ("tcp", "sockets", "udp", "net"):
        yield _build_finding("FI_PROVIDER", environment, "leaves out RDMA, which the machine's NICs support")
    layer = {word.strip() for word in environment.get("OMPI_MCA_btl", "").split(",")}
    if rdma_ports(topology) and environment.get("OMPI_MCA_pml", "") == "ob1" and "tcp" in layer:
        yield _build_finding("OMPI_MCA_btl", environment, "makes Open MPI use TCP, although the NICs support RDMA")
    if efas(topology) and environment.get("NCCL_NET_PLUGIN", "").strip().lower() == "none":
        yield _build_finding("NCCL_NET_PLUGIN", environment, "keeps NCCL from using EFA, which requires aws-ofi-nccl")


def _build_finding(name: str, environment: dict[str, str], does: str) -> Finding:
    set_to = f"{name}={short(environment[name])}"
    return CHECK.finding((Place("environment"),), f"{set_to} {does}", ("setting", set_to, "environment"))


CHECK = Check(
    name="environment_slows",
    summary="environment variables meant for debugging or for another machine slow a job down",
    right="no environment variable slows jobs down",
    certainty="likely",
    costs="the difference between RDMA and TCP, or between direct copies and copies through the host",
    remedy="unset it, so that the library makes its own choice",
    settings=_SETTINGS,
    signs=_signs,
    needs_results=True,
)
