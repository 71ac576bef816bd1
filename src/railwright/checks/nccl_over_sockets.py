"""NCCL carried data between hosts over TCP sockets although the hosts have RDMA devices, by its own log of the run."""

from __future__ import annotations

from collections.abc import Iterable

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.parts import is_rdma
from railwright.results.evidence import NETWORK, RDMA_DEVICES
from railwright.results.records import Evidence
from railwright.topology.devices import Topology

_SOCKETS = "NET/Socket"


def explain_sockets(evidence: Iterable[Evidence], topology: Topology) -> str:
    """Return the reason why sockets were not the network to use, or an empty string if none is known."""
    values = {item.claim: item.value for item in evidence}
    if _SOCKETS not in values.get(NETWORK, ""):
        return ""
    if devices := values.get(RDMA_DEVICES, ""):
        return f"NCCL used TCP sockets between hosts, although it found the RDMA devices {devices}"
    able = [link for link in topology.links if is_rdma(link)]
    return f"NCCL used TCP sockets between hosts, although a host has {len(able)} RDMA ports" if able else ""


def _signs(facts: Facts) -> Findings:
    return CHECK.result_findings(
        (result, why, next(item for item in result.evidence if item.claim == NETWORK))
        for result in facts.results
        if (why := explain_sockets(result.evidence, facts.topology))
    )


CHECK = Check(
    name="nccl_over_sockets",
    summary="NCCL uses TCP sockets between hosts that have RDMA devices",
    costs="all_reduce fell from 340 to 4 GB/s on machines with 8 NICs (GKE), from 123 to 5 at 128 MiB elsewhere (Alps)",
    remedy="`ibv_devices` on every host, and in the job's container, must list the NICs: mount /dev/infiniband, install"
    " libibverbs, unset NCCL_IB_DISABLE and NCCL_NET, and check that the network plugin loads",
    right="NCCL's log names NET/IB or a plugin for every connection between hosts that have RDMA devices",
    signs=_signs,
    needs_results=True,
)
