"""UCX carried data between hosts over TCP, or emulated the transfer, although the hosts have RDMA ports.

UCX's own log of the run names the transport (`UCX_PROTO_INFO=y`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.parts import rdma_ports
from railwright.results.evidence import UCX_PROTOCOL, find_claim
from railwright.results.readers.ucx.protocols import EMULATION
from railwright.results.records import Evidence, Result
from railwright.topology.devices import Topology

_OVER_TCP = re.compile(r"(?:^| on )tcp\b")
"""Matches a lane over TCP: `tcp/eth0`, or a part of `52% on tcp/eth0 and 48% on tcp/eth1`."""


def explain_ucx(result: Result, topology: Topology) -> str:
    """Return the reason why UCX's choice between hosts is not the best, or an empty string if none is known."""
    value = find_claim(result, UCX_PROTOCOL)
    if result.hosts == 1 or result.settings.get("hosts_in_one_machine") is True:
        return ""
    if not (_OVER_TCP.search(value) or value.startswith(EMULATION)):
        return ""
    able = [nic for nic, _ in rdma_ports(topology) if nic.facts.get("state") != "down"]
    return f"UCX moved data between hosts by {value}, although a host has {len(able)} RDMA ports" if able else ""


def _signs(facts: Facts) -> Findings:
    return CHECK.result_findings(_find(facts))


def _find(facts: Facts) -> Iterator[tuple[Result, str, Evidence]]:
    for result in facts.results:
        item = next((item for item in result.evidence if item.claim == UCX_PROTOCOL), None)
        # `rma_emulated` names an emulated transfer.
        if item is None or item.value.startswith(EMULATION):
            continue
        if why := explain_ucx(result, facts.topology):
            yield result, why, item


CHECK = Check(
    name="ucx_over_tcp",
    summary="UCX uses TCP between hosts that have RDMA ports",
    costs="1 to 6 GB/s per port instead of its payload rate, and ten times the latency",
    remedy="`ucx_info -d` on every host, and in the job's container, must list rc or dc transports of the NICs: mount"
    " /dev/infiniband, use a UCX built with --with-verbs, and check UCX_TLS and UCX_NET_DEVICES",
    right="UCX's log names an RDMA transport for every transfer between hosts that have RDMA ports",
    signs=_signs,
    needs_results=True,
)
