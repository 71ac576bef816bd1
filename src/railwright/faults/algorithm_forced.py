"""NCCL_ALGO or NCCL_PROTO exclude the best choice, or NVLink SHARP (NVLS) is switched off.

LL reaches 25 to 50 % of the bandwidth (arXiv 2507.04786).
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks.check import Facts, Findings
from railwright.checks.finding import Place
from railwright.checks.settings import Cause, Settings, is_below, is_one_of
from railwright.errors import RailwrightError
from railwright.expected.machine import Machine
from railwright.expected.nccl_collectives import NVLS_VARIABLE, compute_reached, nvls_is_off
from railwright.faults.cases import can_run
from railwright.faults.fault import ONLY_NCCL, Fault, Hypotheses
from railwright.limits.case import Case
from railwright.limits.traffic import domains, has_nvls
from railwright.results.declarations import find_benchmarks
from railwright.results.records import Evidence, Result
from railwright.results.workload import Collective
from railwright.topology.devices import Topology

_DEFAULT_THREADS = 256
"""NCCL uses 512 threads in a block, or 256 on older GPUs (NCCL User Guide, Environment Variables)."""
_ALGORITHM_CAUSES = {
    "NCCL_ALGO": Cause(lambda value: bool(value.strip()), "restricts NCCL to these algorithms"),
    "NCCL_PROTO": Cause(is_one_of("LL", "LL128", "LL,LL128"), "restricts NCCL to protocols for small sizes"),
}
_TUNING_CAUSES = {
    "NCCL_NTHREADS": Cause(is_below(_DEFAULT_THREADS), "leaves fewer threads per block than NCCL chooses"),
}
_NVLS_CAUSES = {
    NVLS_VARIABLE: Cause(is_one_of("0"), "turns NVLink SHARP off"),
    "NCCL_CUMEM_ENABLE": Cause(is_one_of("0"), "turns the cuMem API off, which NVLink SHARP needs"),
}
_TOO_FEW_FOR_NVLS = 2
_COSTS = "8 Hopper GPUs: NCCL plans 476 GB/s busbw with NVLS (src/graph/tuning.cc), 371 with rings (src/graph/topo.h)"
_COLLECTIVE = "all_reduce"
"""The only collective whose algorithms differ at large sizes: the others are rings or direct (limits.traffic)."""


def _signs(facts: Facts) -> Findings:
    off = [
        result for result in _list_collectives(facts) if nvls_is_off(result.settings.get("nvls", ""), facts.environment)
    ]
    switched_off = bool(off) and has_nvls(facts.topology)
    if switched_off:  # a deliberate setting, so no fault
        benchmarks = ", ".join(dict.fromkeys(result.benchmark for result in off))
        yield FAULT.finding(
            (Place("environment"),),
            f"NVLS (NVLink SHARP) is switched off by {NVLS_VARIABLE}=0, and the limits assume no NVLS",
            Evidence(claim="setting", value=f"{NVLS_VARIABLE}=0", seen=f"{off[0].ranks} ranks, {benchmarks}"),
            certainty="possible",
            costs=_COSTS,
            remedy="none if NVLS is off on purpose, as on machines with shared NVSwitches (NCCL User Guide,"
            " Environment Variables)",
        )
    settings = Settings(
        _ALGORITHM_CAUSES | _TUNING_CAUSES | (_NVLS_CAUSES if not switched_off and _could_use_nvls(facts) else {}),
        costs=f"{_COSTS}; 2 hosts: Ring sends 2(n-1)/n S over the NICs, Tree and NVLSTree S (NCCL issue 812)",
        remedy="unset it; set it only for comparisons, or to switch NVLS off on shared NVSwitches (NCCL User Guide,"
        " Environment Variables)",
    )
    yield from FAULT.setting_findings(settings, facts)


def _list_collectives(facts: Facts) -> list[Result]:
    """Return the results of our NCCL collectives that ran on enough GPUs for NVLS."""
    ours = find_benchmarks(Collective, facts.declarations, by="nccl")
    enough = (result for result in facts.results if result.ranks > _TOO_FEW_FOR_NVLS)
    return [result for result in enough if result.benchmark in ours and result.outcome != "waived"]


def _could_use_nvls(facts: Facts) -> bool:
    """Report whether NVLS settings can cost anything: not in a run without a collective that could use NVLS."""
    if not _may_have_nvls(facts.topology):
        return False
    # Tables of other tools have no declarations but record NCCL's variables as settings.
    with_variables = (result.settings.keys() & _NVLS_CAUSES.keys() for result in facts.results)
    return not facts.results or any(with_variables) or bool(_list_collectives(facts))


def _may_have_nvls(topology: Topology) -> bool:
    """Report whether the machine may use NVLS, which NCCL uses for three or more ranks."""
    gpus = len(topology.of_kind("gpu"))
    return not gpus or (gpus > _TOO_FEW_FOR_NVLS and has_nvls(topology))


def _hypotheses(case: Case) -> Hypotheses:
    """Yield hypotheses with Ring or Tree forced, if NCCL is expected to choose another algorithm at large sizes."""
    if case.algorithm != "auto" or not can_run(case):
        return
    try:
        found = compute_reached(
            Collective(operation=_COLLECTIVE), Machine(cluster=case.cluster, case=case, is_explained=False)
        )
    except RailwrightError:
        return  # without an expected rate no collective can be slower
    for name in ("ring", "tree") if domains(case.cluster) > 1 else ("ring",):
        if name != found.likely.name and any(algorithm.name == name for algorithm in found.algorithms):
            yield FAULT.supposed(
                _format_hypothesis(name, found.likely.name),
                replace(case, algorithm=name),
                "env | grep -E 'NCCL_(ALGO|NVLS)' and /etc/nccl.conf; NCCL_DEBUG=INFO"
                " NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING, then railwright explain LOG",
            )


def _format_hypothesis(name: str, best: str) -> str:
    if best == "nvls":
        return f"NVLink SHARP (NVLS) is off or {name} is forced, so all_reduce runs as {name}"
    cause = "NCCL_ALGO, or NVLS is off" if best == "nvlstree" else "NCCL_ALGO"
    return f"all_reduce runs as {name} instead of {best} ({cause})"


FAULT = Fault(
    name="algorithm_forced",
    summary="a setting keeps NCCL from its best algorithm",
    right="NCCL may choose its best algorithm",
    signs=_signs,
    needs_results=True,
    transports=ONLY_NCCL,
    collectives=frozenset({_COLLECTIVE}),
    ways=_hypotheses,
)
