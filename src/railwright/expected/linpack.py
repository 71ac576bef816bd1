"""Linpack: the FP64 rate of GPUs, and products of matrices by the same ranks."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.expected.bands import of_baseline
from railwright.expected.machine import Machine
from railwright.limits.limit import Bounds, Limit
from railwright.limits.linpack import WHOLE_CORES, fp64_limit, hpl_limit
from railwright.results.declarations import no_limit
from railwright.results.workload import Linpack
from railwright.units import format_flops


def expect_linpack(workload: Linpack, machine: Machine) -> Bounds:
    """The limit in flop/s; a band only of the vendor's own program, which peers ran."""
    if workload.by_vendor:
        if min(workload.n, workload.p, workload.q) < 1 or workload.quantity != "flop_per_s":
            return no_limit(workload, "no limit is derived for this row")
        return hpl_limit(machine.host, workload.p * workload.q, workload.n)
    return _on_gpus(workload, machine) if workload.on_gpus else _on_cores(workload, machine)


def _on_cores(workload: Linpack, machine: Machine) -> Bounds:
    """What dgemm reached on the same ranks, as an upper limit alone: how near Linpack comes depends on its size."""
    if workload.shares_cores:
        return no_limit(workload, f"a functional run, the threads of its {workload.ranks} ranks shared cores")
    product = machine.measured.of("dgemm", workload) if machine.measured is not None else None
    if product is None:
        return no_limit(workload, "no product of matrices was measured in this run on the same ranks")
    because = "the best dgemm on all ranks at once in this run: an upper limit alone, no peers of this CPU are known"
    if workload.cpu_share < WHOLE_CORES.value:
        because += f"; a rank had {workload.cpu_share:.0%} of the time of its cores, others had the rest".replace(
            "%", " %"
        )
    return of_baseline(workload.quantity, product, product.best, because), None


def _on_gpus(workload: Linpack, machine: Machine) -> Bounds:
    """The GPUs' FP64 rate; where it is not known, dgemm of the same run. No band: peers used other solvers."""
    limit = fp64_limit(machine.host, workload.ranks or 1, workload.n)
    product = machine.measured.of("dgemm", workload) if machine.measured is not None else None
    if product is None:
        return limit, None
    reached = f"dgemm of the same run reached {format_flops(product.best)}"
    if isinstance(limit, Limit):
        return replace(limit, because=f"{limit.because}; {reached}"), None
    return of_baseline("flop_per_s", product, product.best, f"{reached}; {limit.why}"), None
