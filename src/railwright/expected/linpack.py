"""Linpack: the FP64 rate of GPUs, the range that peers reach, and matrix products by the same ranks.

A band is the range of 9 of 10 TOP500 systems with that GPU. A matrix that fills less of the memory lowers the low end
of the band in proportion to the matrix's order. Nothing is extrapolated.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from msgspec.structs import replace

from railwright.expected.bands import limit_from_baseline
from railwright.expected.machine import Machine
from railwright.expected.rails import sum_port_rates
from railwright.limits.limit import Bounds, Constant, Expected, Limit, NoLimit, Source
from railwright.limits.linpack import WHOLE_CORES, bytes_into_host, first_gpu, fp64_limit, memory_bytes, memory_share
from railwright.limits.sources import TOP500
from railwright.results.declarations import no_limit
from railwright.results.workload import Linpack
from railwright.topology.devices import Device, Topology
from railwright.units import format_duration, format_flops, format_size

_FULL_MEMORY_SHARE = Constant(
    0.7, "of the GPUs' memory filled by the matrix, from which the whole band applies", TOP500
)
_MIN_MEMORY_SHARE = Constant(0.2, "of the GPUs' memory filled by the matrix, the minimum of a comparable run", TOP500)
OWN_SOLVER, USER_PROGRAM = "own", "program"
"""The setting `solver` of a record by our own factorization on GPUs, and by the user's HPL program."""
_OWN_MEMORY_SHARE = Constant(
    0.85,
    "of the GPUs' memory filled by the matrix, from which our solver is compared with peers",
    Source("Railwright docs/benchmarks/hpl.md", "gpu_hpl"),
)
_LEAST_OF_DGEMM = Constant(
    0.5,
    "of sustained dgemm, below which a solve that fills the memory is slow; one H100 reached 0.82",
    Source("Railwright docs/benchmarks/hpl.md", "gpu_hpl"),
)
_LARGE_MEMORY_BYTES = Constant(70e9, "bytes of memory, between the 40 and 80 GB models", TOP500)


class _Peers(NamedTuple):
    """The GPUs of a band, by words that their names must and must not contain, with the range in flop/s per GPU."""

    name: str
    has: tuple[str, ...]
    has_not: tuple[str, ...]
    large: bool
    low: Constant
    high: Constant


_PCIE = ("PCIe", "NVL", "PCIE")
_PEERS = tuple(
    _Peers(
        name,
        has,
        has_not,
        large,
        Constant(low, f"flop/s per GPU, {name}, low", TOP500),
        Constant(high, f"flop/s per GPU, {name}, high", TOP500),
    )
    for name, has, has_not, large, low, high in (
        ("A100 80 GB", ("A100",), (), True, 10.0e12, 17.2e12),
        ("A100 40 GB", ("A100",), (), False, 9.4e12, 14.5e12),
        ("GH200", ("GH200",), (), False, 29e12, 47.5e12),
        ("H200", ("H200",), ("GH200", *_PCIE), False, 40e12, 51e12),
        ("H100 SXM", ("H100",), _PCIE, False, 27.5e12, 48.5e12),
        ("H100 PCIe, two systems alone", ("H100",), (), False, 24e12, 39e12),
        ("V100", ("V100",), (), False, 3.2e12, 6.3e12),
        ("MI250X, half of one", ("MI250X",), (), False, 13.8e12, 21.3e12),
        ("MI300A", ("MI300A",), (), False, 37.5e12, 52.5e12),
    )
)


def expect_linpack(workload: Linpack, machine: Machine) -> Bounds:
    """Return the limit in flop/s. Only the vendor's own program, which peers ran, has a band."""
    if workload.by_vendor or (workload.on_gpus and workload.solver == USER_PROGRAM):
        if min(workload.n, workload.p, workload.q) < 1 or workload.quantity != "flop_per_s":
            return no_limit(workload, "no limit is derived for this row")
        return expect_hpl(machine.host, workload.p * workload.q, workload.n)
    return _expect_on_gpus(workload, machine) if workload.on_gpus else _expect_on_cores(workload, machine)


def _expect_on_cores(workload: Linpack, machine: Machine) -> Bounds:
    """Return the rate of dgemm on the same ranks as a limit without a band: Linpack's share of it depends on the
    matrix's order.
    """
    if workload.shares_cores:
        return no_limit(workload, f"functional run: the threads of its {workload.ranks} ranks shared cores")
    product = machine.measured.find("dgemm", workload) if machine.measured is not None else None
    if product is None:
        return no_limit(workload, "dgemm was not measured in this run on the same ranks")
    because = "the best dgemm on all ranks at once in this run: only an upper limit, no peers of this CPU are known"
    if workload.cpu_share < WHOLE_CORES.value:
        because += f"; a rank had only {workload.cpu_share:.0%} of the time of its cores".replace("%", " %")
    return limit_from_baseline(workload.quantity, product, product.best, because), None


def _expect_on_gpus(workload: Linpack, machine: Machine) -> Bounds:
    """Return the GPUs' FP64 rate as a limit, or the rate of dgemm in the same run if that is unknown.

    A band exists for our own solver on a matrix that fills the memory.
    """
    limit = _limit_by_network(fp64_limit(machine.host, workload.ranks or 1, workload.n), workload, machine.host)
    product = machine.measured.find("dgemm", workload) if machine.measured is not None else None
    band = _band_of_own_solver(workload, machine.host, limit, product.best if product is not None else 0.0)
    if product is None:
        return limit, band
    reached = f"sustained dgemm of the same run reached {format_flops(product.best)}"
    if isinstance(limit, Limit):
        return replace(limit, because=f"{limit.because}; {reached}"), band
    return limit_from_baseline("flop_per_s", product, product.best, f"{reached}; {limit.why}"), band


def _limit_by_network(limit: Limit | NoLimit, workload: Linpack, host: Topology) -> Limit | NoLimit:
    """Add what our own solver's grid must move into each host, beside the arithmetic: the longer of the two counts."""
    hosts, gpus = workload.hosts or 1, workload.ranks or 1
    ports = sum_port_rates(host)
    known = workload.solver == OWN_SOLVER and min(workload.n, workload.p, workload.q) > 0 and 0 < ports < math.inf
    if not known or hosts < 2 or isinstance(limit, NoLimit):
        return limit
    work = 2 / 3 * workload.n**3 + 3 / 2 * workload.n**2
    compute_s, moved = work / limit.value, bytes_into_host(workload.n, (workload.p, workload.q), gpus // hosts)
    moved_s = moved / ports
    because = (
        f"{limit.because}, which takes {format_duration(compute_s)}; beside it the network needs "
        f"{format_duration(moved_s)}, for {format_size(round(moved))} into each host"
    )
    return replace(limit, value=work / max(compute_s, moved_s), because=because)


def _band_of_own_solver(
    workload: Linpack, host: Topology, limit: Limit | NoLimit, dgemm_flop_per_s: float
) -> Expected | None:
    """Return the range of peers for our own solver. Below it a run is slow only below half of its dgemm."""
    model = first_gpu(host)
    if workload.solver != OWN_SOLVER or model is None or isinstance(limit, NoLimit):
        return None
    gpus, peers = workload.ranks or 1, _find_peers(model)
    share = memory_share(model, gpus, workload.n)
    if peers is None or share < _OWN_MEMORY_SHARE.value:
        return None
    band = _peer_band(peers, gpus, share, limit.value)
    return replace(
        band,
        doubtful_to=min(band.low, _LEAST_OF_DGEMM.value * dgemm_flop_per_s),
        doubt="peers ran the vendor's program, so a slower solve is compared with dgemm and with sibling runs",
    )


def expect_hpl(host: Topology, gpus: int, order: int) -> Bounds:
    """Return (limit, band) in flop/s of NVIDIA's or AMD's own HPL, which the systems of the TOP500 ran."""
    limit, model = fp64_limit(host, gpus, order), first_gpu(host)
    if isinstance(limit, NoLimit) or model is None:
        return limit, None
    peers, share = _find_peers(model), memory_share(model, gpus, order)
    if incomparable := _explain_incomparable(peers is not None, share):
        return replace(limit, because=f"{limit.because}: only an upper limit, {incomparable}"), None
    return limit, _peer_band(peers, gpus, share, limit.value) if peers else None


def _peer_band(peers: _Peers, gpus: int, share: float, limit_flop_per_s: float) -> Expected:
    """Return the range of peers, with its low end scaled by the order of the matrix."""
    low, high = peers.low.value * min(1.0, math.sqrt(share / _FULL_MEMORY_SHARE.value)), peers.high.value
    each = f"{format_flops(low)} to {format_flops(high)} a GPU"
    return Expected(
        quantity="flop_per_s",
        low=low * gpus,
        high=min(high * gpus, limit_flop_per_s),
        because=f"{each}, the range of 9 of 10 systems of the TOP500 with {peers.name}",
        sources=(TOP500,),
    )


def _explain_incomparable(has_peers: bool, share: float) -> str:
    """Return the reason why a run cannot be compared with peers, or an empty text.

    `share` is the share of the GPUs' memory that the matrix takes, 0 if unknown.
    """
    if not has_peers:
        return "no TOP500 systems with this GPU are recorded"
    if not share:
        return "the memory size of these GPUs is not known, and only runs that fill it are comparable"
    if share < _MIN_MEMORY_SHARE.value:
        text = (
            f"the matrix fills {share:.0%} of the GPUs' memory, comparable runs {_FULL_MEMORY_SHARE.value:.0%} and more"
        )
        return text.replace("%", " %")
    return ""


def _find_peers(model: Device) -> _Peers | None:
    for peer in _PEERS:
        named = any(word in model.name for word in peer.has) and not any(word in model.name for word in peer.has_not)
        if named and (memory_bytes(model) >= _LARGE_MEMORY_BYTES.value or not peer.large):
            return peer
    return None
