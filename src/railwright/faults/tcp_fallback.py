"""Data moves over TCP, because a better transport could not be used or is switched off.

Between hosts NCCL falls back to sockets where it finds no RDMA device, or where it may not use one: 4 GB/s where RDMA
makes 340, and 5.4 where it makes 122 (GKE A3 and Alps, nccl-tests).
Between two processes of one host it is UCX that falls back.
Without ptrace rights (containers with Docker's default seccomp profile, `kernel.yama.ptrace_scope` of 1 or more) UCX
cannot use CMA on anonymous memory and falls back to TCP emulation, at ten times the latency.
"""

from __future__ import annotations

import re

from railwright.checks.check import Facts, Findings
from railwright.checks.finding import OfBenchmark, OfPath
from railwright.checks.parts import is_rdma, rdma_ports
from railwright.checks.settings import Cause, Settings, is_one_of
from railwright.faults.cases import over_network, with_host
from railwright.faults.fault import NOT_VERBS, Fault, Ways
from railwright.limits.case import Case
from railwright.results.records import Evidence
from railwright.topology.changes import over_tcp, with_links, without
from railwright.topology.devices import Topology

_OVER_TCP = re.compile(r"(?:^| on )tcp\b")
"""A lane of UCX: `tcp/lo`, or one of several in `52% on tcp/lo and 48% on tcp/eth0`."""


def _signs(facts: Facts) -> Findings:
    fallen: dict[tuple[str, str], list[Evidence]] = {}
    for result in facts.results:
        for one in result.evidence:
            if one.claim == "ucx_protocol" and _OVER_TCP.search(one.value) and result.hosts == 1:
                fallen.setdefault((result.benchmark, result.path), []).append(one)
    for (benchmark, path), seen in fallen.items():
        kinds = {one.value: one for one in seen}
        yield FAULT.finding(
            (OfBenchmark(benchmark), OfPath(path)),
            f"{benchmark} ran over {', '.join(kinds)} between two processes of one host ({len(seen)} points)",
            *kinds.values(),
        )


def _degrade(topology: Topology, where: str) -> Topology:
    """The port `where` (its NIC's id or its link's) speaks TCP only."""
    return with_links(topology, lambda link: over_tcp(link) if where in (link.id, link.a, link.b) else link)


def _ways(case: Case) -> Ways:
    host = case.cluster.host
    found = [nic.id for nic, _ in rdma_ports(host)]
    if not over_network(case) or not found:
        return
    sockets = with_links(host, lambda link: over_tcp(link) if is_rdma(link) else link)
    ways = [("NCCL goes over TCP sockets and not over RDMA", sockets)]
    if len(found) > 1:
        # A pod has one interface, and NCCL takes the interfaces that it has (NCCL_SOCKET_IFNAME).
        ways.append(("NCCL goes over TCP sockets of one interface and not over RDMA", without(sockets, found[1:])))
    for says, changed in ways:
        yield FAULT.supposed(
            says,
            with_host(case, changed),
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET, then railwright explain LOG: it says NET/Socket; rdma"
            " link shows whether the container sees RDMA devices",
        )


FAULT = Fault(
    name="tcp_fallback",
    summary="data moves over TCP where a better transport was to be had",
    costs="about ten times the latency of CMA, and a third of its bandwidth at large blocks",
    remedy="give the processes ptrace rights towards each other (container capability SYS_PTRACE, or"
    " kernel.yama.ptrace_scope=0), or look at UCX_TLS; `ucx_info -d | grep cma` shows whether CMA is there",
    settings=Settings(
        {
            "NCCL_NET": Cause(is_one_of("Socket"), "takes TCP sockets even where there is RDMA"),
            "NCCL_IB_DISABLE": Cause(is_one_of("1"), "turns InfiniBand and RoCE off, which leaves TCP sockets"),
        },
        costs="1.2 to 6 GB/s a port instead of its payload rate (nccl-tests on GKE A3 and Alps)",
        remedy="unset it, and look for NET/IB or NET/OFI in NCCL_DEBUG=INFO (NCCL User Guide, Environment Variables)",
    ),
    signs=_signs,
    needs_results=True,
    transports=NOT_VERBS,
    degrade=_degrade,
    ways=_ways,
)
