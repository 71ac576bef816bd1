"""RDMA ports missing from `ucx_info -d`: UCX then uses TCP, or a NIC far from the GPU.

UCX, FAQ, Which network devices does UCX use.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting
from railwright.checks.parts import rdma_nics
from railwright.topology.gpus import format_runs

_RDMA_PREFIXES = ("rc", "dc", "ud", "gga", "srd")
"""Prefixes of RDMA transports: rc_verbs, rc_mlx5, dc_mlx5, ud_verbs, srd."""


def _signs(facts: Facts) -> Findings:
    transports, devices = (setting(facts.topology, name) for name in ("ucx_transports", "ucx_devices"))
    if not isinstance(transports, str) or not isinstance(devices, str) or needs.ucx(facts.topology):
        return
    version = setting(facts.topology, "ucx")
    up = [nic for nic in rdma_nics(facts.topology) if nic.facts.get("state") != "down" and nic.facts.get("rdma_device")]
    has_rdma = any(name.partition("_")[0] in _RDMA_PREFIXES for name in transports.split())
    known = {name.partition(":")[0] for name in devices.split()}
    missing = [nic.id for nic in up if not has_rdma or str(nic.facts["rdma_device"]) not in known]
    if missing:
        yield CHECK.finding(
            missing,
            f"UCX {version} does not list {format_runs(missing)}"
            if has_rdma
            else f"UCX {version} lists no RDMA transport",
            ("transports", transports, "ucx_info -d"),
            ("devices", devices, "ucx_info -d"),
        )


CHECK = Check(
    name="ucx_without_rdma",
    summary="UCX does not use all RDMA ports",
    right="UCX uses all RDMA ports",
    certainty="likely",
    costs="TCP as with tcp_fallback, or the NIC of another GPU",
    remedy="use a UCX built with --with-verbs; pass /dev/infiniband to the container; UCX_LOG_LEVEL=info shows its log",
    signs=_signs,
    needs=(needs.settings, needs.rdma_nic, needs.ucx),
    asks=(require_read("ucx_transports", "ucx_devices"),),
)
