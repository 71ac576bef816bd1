"""NCCL_ALGO leaves NCCL an algorithm that is not the best there, or NVLink SHARP (NVLS) is switched off."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.errors import RailwrightError
from railwright.faults.model import Facts, Fault, Finding, Supposed
from railwright.faults.parts import can_run
from railwright.faults.settings import Cause, is_one_of, look_at_settings
from railwright.limits.case import Case
from railwright.limits.collectives import algorithms, at_size
from railwright.limits.traffic import domains, has_nvls
from railwright.topology.model import Topology

_SETTINGS = {
    "NCCL_ALGO": Cause(lambda value: bool(value.strip()), "leaves NCCL only these algorithms"),
}
_NVLS_SETTINGS = {
    "NCCL_NVLS_ENABLE": Cause(is_one_of("0"), "turns NVLink SHARP off"),
    "NCCL_CUMEM_ENABLE": Cause(is_one_of("0"), "turns the cuMem API off, which NVLink SHARP needs"),
}
_TOO_FEW_FOR_NVLS = 2
_COLLECTIVE = "all_reduce"
"""The only one whose algorithms differ at large sizes: the others are rings or direct (limits.traffic)."""


def _look(facts: Facts) -> tuple[Finding, ...]:
    return look_at_settings(
        facts,
        FAULT.name,
        _SETTINGS | (_NVLS_SETTINGS if _may_have_nvls(facts.topology) else {}),
        costs="8 Hopper GPUs: NCCL plans 476 GB/s busbw with NVLS (src/graph/tuning.cc), 371 with rings"
        " (src/graph/topo.h); 2 hosts: Ring sends 2(n-1)/n S over the NICs, Tree and NVLSTree S (NCCL issue 812)",
        remedy="unset it; set it only for a comparison (NCCL User Guide, Environment Variables)",
    )


def _may_have_nvls(topology: Topology) -> bool:
    """False only for a machine that is known to have no use for it: NCCL takes NVLS for three ranks or more."""
    gpus = len(topology.of_kind("gpu"))
    return not gpus or (gpus > _TOO_FEW_FOR_NVLS and has_nvls(topology))


def _suppose(case: Case) -> tuple[Supposed, ...]:
    """Ring or Tree where another one is expected to be faster for large sizes."""
    if case.algorithm != "auto" or not can_run(case):
        return ()
    try:
        found = algorithms(case, _COLLECTIVE, explained=False)
    except RailwrightError:
        return ()  # no collective can be computed for that cluster, so none would be slower
    best, _, _ = at_size(case.cluster, _COLLECTIVE, found, None)
    names = ("ring", "tree") if domains(case.cluster) > 1 else ("ring",)
    return tuple(
        Supposed(
            fault=FAULT.name,
            says=_says(name, best.name),
            case=replace(case, algorithm=name),
            tell_apart="env | grep -E 'NCCL_(ALGO|NVLS)' and /etc/nccl.conf; NCCL_DEBUG=INFO"
            " NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING, then railwright explain LOG",
        )
        for name in names
        if name != best.name and any(one.name == name for one in found)
    )


def _says(name: str, best: str) -> str:
    if best == "nvls":
        return f"NVLink SHARP (NVLS) is off or {name} is forced, so all_reduce runs as {name}"
    cause = "NCCL_ALGO, or NVLS is off" if best == "nvlstree" else "NCCL_ALGO"
    return f"all_reduce runs as {name} and not as {best} ({cause})"


FAULT = Fault(
    name="algorithm_forced",
    summary="a setting keeps NCCL from its best algorithm",
    look=_look,
    needs_results=True,
    suppose=_suppose,
)
