"""PXN is off: a GPU sends by its own NIC only, across the CPU where it has none near, and not by a peer's NIC."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks.settings import Cause, Settings, is_one_of
from railwright.errors import RailwrightError
from railwright.expected.machine import Machine
from railwright.expected.nccl_collectives import reached
from railwright.faults.cases import over_network
from railwright.faults.fault import ONLY_NCCL, Fault, Ways
from railwright.limits.case import Case
from railwright.results.workload import Collective

_OF_PAIRS = frozenset({"all_to_all", "all_to_allv", "send_recv", "gather", "scatter"})
"""What NCCL makes of sends and receives: rings and trees have no use for PXN on machines with NVSwitches."""
_NOTICEABLE = 0.99
"""Less than a hundredth cannot be told from noise."""


def _ways(case: Case) -> Ways:
    """Only where all_to_all is slower without: in most fabrics the receivers, whom PXN never helps, decide it."""
    if case.relay == "none" or not over_network(case) or not case.cluster.host.joins_gpus:
        return
    without = replace(case, relay="none")
    try:
        slower = _expected(without) < _NOTICEABLE * _expected(case)
    except RailwrightError:
        return  # no collective can be computed for that cluster, so none would be slower
    if slower:
        yield FAULT.supposed(
            "PXN is off, so that GPUs send by their own NICs only",
            without,
            "env | grep PXN; NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET, then railwright explain LOG: with PXN"
            " some sends say NET/IB/N(RANK)",
        )


def _expected(case: Case) -> float:
    """The middle of the algbw that is expected of all_to_all, in bytes/s; its limit where nothing is expected."""
    machine = Machine(cluster=case.cluster, case=replace(case, algorithm="auto"), is_explained=False)
    rate = reached(Collective(operation="all_to_all"), machine).rate
    return rate.limit if rate.middle is None else rate.middle


FAULT = Fault(
    name="pxn_off",
    summary="GPUs may not send by the NICs of their peers",
    settings=Settings(
        {
            "NCCL_PXN_DISABLE": Cause(is_one_of("1"), "makes each GPU send by its own NIC only"),
            "NCCL_P2P_PXN_LEVEL": Cause(is_one_of("0"), "keeps sends, all_to_all among them, from the NICs of peers"),
        },
        costs="GPUs without a NIC under their switch send through the CPU (NCCL src/graph/paths.cc, issue 412: 16 GB/s)"
        " and in a rail-optimised fabric all_to_all crosses the spines",
        remedy="unset it (NCCL User Guide, Environment Variables)",
    ),
    needs_results=True,
    transports=ONLY_NCCL,
    collectives=_OF_PAIRS,
    ways=_ways,
)
