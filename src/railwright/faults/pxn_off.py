"""PXN is off: a GPU sends only through its own NIC, even across the CPU, and never through a peer's NIC."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks.settings import Cause, Settings, is_one_of
from railwright.errors import RailwrightError
from railwright.expected.machine import Machine
from railwright.expected.nccl_collectives import compute_reached
from railwright.faults.cases import crosses_network
from railwright.faults.fault import ONLY_NCCL, Fault, Hypotheses
from railwright.limits.case import Case
from railwright.results.workload import Collective

_PAIRWISE = frozenset({"all_to_all", "all_to_allv", "send_recv", "gather", "scatter"})
"""Operations that NCCL builds from sends and receives; rings and trees do not need PXN with NVSwitches."""
_NOTICEABLE = 0.99
"""A smaller loss than 1 % is within noise."""


def _hypotheses(case: Case) -> Hypotheses:
    """Yield PXN off as a hypothesis if it slows all_to_all; usually the receivers decide, which PXN never helps."""
    if case.relay == "none" or not crosses_network(case) or not case.cluster.host.joins_gpus:
        return
    without = replace(case, relay="none")
    try:
        slower = _expected_rate(without) < _NOTICEABLE * _expected_rate(case)
    except RailwrightError:
        return  # without an expected rate no collective can be slower
    if slower:
        yield FAULT.supposed(
            "PXN is off, so GPUs send only through their own NICs",
            without,
            "env | grep PXN; NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET, then railwright explain LOG: with"
            " PXN some sends are NET/IB/N(RANK)",
        )


def _expected_rate(case: Case) -> float:
    """Return the middle of the expected algbw of all_to_all in bytes/s, or its limit if there is no expected band."""
    machine = Machine(cluster=case.cluster, case=replace(case, algorithm="auto"), is_explained=False)
    rate = compute_reached(Collective(operation="all_to_all"), machine).rate
    return rate.limit if rate.middle is None else rate.middle


FAULT = Fault(
    name="pxn_off",
    summary="GPUs may not send through their peers' NICs",
    right="GPUs may send through their peers' NICs",
    settings=Settings(
        {
            "NCCL_PXN_DISABLE": Cause(is_one_of("1"), "makes each GPU send only through its own NIC"),
            "NCCL_P2P_PXN_LEVEL": Cause(is_one_of("0"), "keeps sends, including all_to_all, off the NICs of peers"),
        },
        costs="GPUs without a NIC under their switch send through the CPU (NCCL src/graph/paths.cc, issue 412: 16 GB/s)"
        " and in a rail-optimised fabric all_to_all crosses the spines",
        remedy="unset it (NCCL User Guide, Environment Variables)",
    ),
    needs_results=True,
    transports=ONLY_NCCL,
    collectives=_PAIRWISE,
    ways=_hypotheses,
)
