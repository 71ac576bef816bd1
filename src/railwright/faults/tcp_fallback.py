"""Data moves over TCP because a better transport is unavailable or switched off.

Between hosts NCCL falls back to sockets if it finds no usable RDMA device: 4 GB/s instead of 340, and 5.4 instead of
122 (GKE A3 and Alps, nccl-tests).
Between two processes of one host UCX falls back to TCP emulation, at ten times the latency of CMA, if it may not use
CMA on anonymous memory. CMA needs ptrace rights, which Docker's default seccomp profile and a
`kernel.yama.ptrace_scope` of 1 or more withhold.
"""

from __future__ import annotations

import re

from railwright.checks.check import Facts, Findings
from railwright.checks.finding import BenchmarkPlace, PathPlace
from railwright.checks.parts import is_rdma, rdma_ports
from railwright.checks.settings import Cause, Settings, is_one_of
from railwright.faults.cases import crosses_network, replace_host
from railwright.faults.fault import NOT_VERBS, Fault, Hypotheses
from railwright.limits.case import Case
from railwright.results.records import Evidence
from railwright.topology.changes import change_links, convert_to_tcp, remove_devices
from railwright.topology.devices import Topology

_OVER_TCP = re.compile(r"(?:^| on )tcp\b")
"""Matches a UCX lane over TCP: `tcp/lo`, or a part of `52% on tcp/lo and 48% on tcp/eth0`."""


def _signs(facts: Facts) -> Findings:
    fallen: dict[tuple[str, str], list[Evidence]] = {}
    for result in facts.results:
        for item in result.evidence:
            if item.claim == "ucx_protocol" and _OVER_TCP.search(item.value) and result.hosts == 1:
                fallen.setdefault((result.benchmark, result.path), []).append(item)
    for (benchmark, path), seen in fallen.items():
        kinds = {item.value: item for item in seen}
        yield FAULT.finding(
            (BenchmarkPlace(benchmark), PathPlace(path)),
            f"{benchmark} ran over {', '.join(kinds)} between two processes of one host ({len(seen)} points)",
            *kinds.values(),
        )


def _degrade(topology: Topology, where: str) -> Topology:
    """Restrict the port of a NIC or link id to TCP."""
    return change_links(topology, lambda link: convert_to_tcp(link) if where in (link.id, link.a, link.b) else link)


def _hypotheses(case: Case) -> Hypotheses:
    host = case.cluster.host
    found = [nic.id for nic, _ in rdma_ports(host)]
    if not crosses_network(case) or not found:
        return
    sockets = change_links(host, lambda link: convert_to_tcp(link) if is_rdma(link) else link)
    variants = [("NCCL uses TCP sockets instead of RDMA", sockets)]
    if len(found) > 1:
        # A pod has one interface, and NCCL uses the interfaces that it finds (NCCL_SOCKET_IFNAME).
        variants.append(("NCCL uses TCP sockets of one interface instead of RDMA", remove_devices(sockets, found[1:])))
    for says, changed in variants:
        yield FAULT.supposed(
            says,
            replace_host(case, changed),
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET, then railwright explain LOG, which shows NET/Socket;"
            " rdma link shows whether the container sees RDMA devices",
        )


FAULT = Fault(
    name="tcp_fallback",
    summary="data moves over TCP although a better transport is available",
    right="data moves over the best transport, not over TCP",
    costs="about ten times the latency of CMA, and a third of its bandwidth at large blocks",
    remedy="give the processes ptrace rights towards each other (container capability SYS_PTRACE, or"
    " kernel.yama.ptrace_scope=0), or check UCX_TLS; `ucx_info -d | grep cma` shows whether CMA is available",
    settings=Settings(
        {
            "NCCL_NET": Cause(is_one_of("Socket"), "uses TCP sockets even if RDMA is available"),
            "NCCL_IB_DISABLE": Cause(is_one_of("1"), "turns InfiniBand and RoCE off and leaves TCP sockets"),
        },
        costs="1.2 to 6 GB/s per port instead of its payload rate (nccl-tests on GKE A3 and Alps)",
        remedy="unset it, and check for NET/IB or NET/OFI in NCCL_DEBUG=INFO (NCCL User Guide, Environment Variables)",
    ),
    signs=_signs,
    needs_results=True,
    transports=NOT_VERBS,
    degrade=_degrade,
    ways=_hypotheses,
)
