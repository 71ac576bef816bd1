"""RDMA ports that UCX does not use, by its own `ucx_info -d`: then it takes TCP, or another NIC than the GPU's own.

UCX, FAQ, Which network devices does UCX use.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import read, setting
from railwright.checks.parts import rdma_nics
from railwright.topology.gpus import runs

_OF_RDMA = ("rc", "dc", "ud", "gga", "srd")
"""How the transports begin that are of RDMA: rc_verbs, rc_mlx5, dc_mlx5, ud_verbs, srd."""


def _signs(facts: Facts) -> Findings:
    told, devices = (setting(facts.topology, name) for name in ("ucx_transports", "ucx_devices"))
    if not isinstance(told, str) or not isinstance(devices, str) or needs.ucx(facts.topology):
        return
    version = setting(facts.topology, "ucx")
    up = [nic for nic in rdma_nics(facts.topology) if nic.facts.get("state") != "down" and nic.facts.get("rdma_device")]
    has = any(name.partition("_")[0] in _OF_RDMA for name in told.split())
    known = {name.partition(":")[0] for name in devices.split()}
    missing = [nic.id for nic in up if not has or str(nic.facts["rdma_device"]) not in known]
    if missing:
        yield CHECK.finding(
            missing,
            f"UCX {version} does not list {runs(missing)}" if has else f"UCX {version} lists no transport of RDMA",
            ("transports", told, "ucx_info -d"),
            ("devices", devices, "ucx_info -d"),
        )


CHECK = Check(
    name="ucx_without_rdma",
    summary="UCX does not use all RDMA ports",
    certainty="likely",
    costs="as tcp_fallback, or the NIC of another GPU",
    remedy="a UCX built with --with-verbs; /dev/infiniband in the container; its log: UCX_LOG_LEVEL=info",
    signs=_signs,
    needs=(needs.settings, needs.rdma_nic, needs.ucx),
    asks=(read("ucx_transports", "ucx_devices"),),
)
