"""A comparison of cluster designs: their limits, their parts, and which of them are worth considering.

loss      1 - limit / the best limit of that collective among the designs, as busbw at large sizes.
saving    1 - cost / the cost of the dearest design; without prices, the same for the switch ports in use.
Pareto    no other design costs at most as much and is at least as fast in the first collective, with one of the two
          strictly better.

Designs whose parts are unlike, but counted or priced as if they were alike, have neither saving nor Pareto mark: a
switch port of 800 Gb/s is not one of 400 Gb/s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from railwright.errors import UsageError
from railwright.expected.collective_rows import collective_row
from railwright.expected.machine import Machine
from railwright.expected.path_rows import PathLimit, list_network_rows
from railwright.limits.bill import Cost, Kinds, Optics, Parts, Prices, compute_cost, count_parts, find_kinds
from railwright.limits.rates import Rate
from railwright.limits.software import far_gpus
from railwright.limits.switches import RADIX
from railwright.topology.cluster import Cluster, describe_gpus, ports
from railwright.units import format_line_rate

_SAME = 1 / 1e6
"""Limits whose relative difference is smaller are equal: a linear program's result is not exact."""


class Reach(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The rates of a collective on a design at large sizes."""

    collective: str
    busbw_bytes_per_s: Rate
    algorithm: str
    """The algorithm with the highest limit, from those in NCCL."""
    expected_algorithm: str
    """The algorithm that is likely the fastest; the band is its band."""
    held_back_by: str
    """The kind of link that decides most of the limit."""
    because: str
    loss: float | None = None
    """The loss against the best design; None without another design."""


class FarGpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU whose nearest NIC is beyond the CPU, so that NCCL does not use GPUDirect RDMA for it by default."""

    gpu: str
    nearest_nic_kind: str
    gpus: int
    """Number of such GPUs in a host."""


class Saving(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parts of the dearest design less those of this one; a negative number means that this design has more."""

    against: str
    nics: int
    cables: int
    optics: int
    leaf_ports: int
    """Ports to NICs."""
    uplink_ports: int
    spine_ports: int
    share: float
    """The saved share of the cost, or of switch ports without prices."""
    unlike: tuple[str, ...] = ()
    """The kinds of part that differ from the dearest design's, however many there are: `NICs`, `hosts`."""
    cost: float | None = None


class Design(msgspec.Struct, frozen=True, kw_only=True, tag="design", tag_field="record", omit_defaults=True,
             forbid_unknown_fields=True):  # fmt: skip
    """A design: its limits, its parts, and its comparison with the others."""

    name: str
    hosts: int
    gpus: int
    scale: str
    """GPUs and racks in words."""
    port_rate_bits_per_s: float | None
    """The rate of a NIC port, and so of every switch port."""
    kinds: Kinds
    nic: str
    """The NICs' models."""
    compared_by: tuple[str, ...]
    """The kinds of part that cost or ports do not distinguish; only designs with the same are compared by cost."""
    fabric: str
    """A description of the fabric whose switches were counted."""
    collectives: tuple[Reach, ...]
    paths: tuple[PathLimit, ...]
    far_gpu: FarGpu | None = None
    parts: Parts
    cost: Cost | None = None
    saving: Saving | None = None
    pareto: bool | None = None
    beaten_by: tuple[str, ...] = ()
    """Designs that cost at most as much and are at least as fast in the first collective."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives and prices to evaluate for each design."""

    collectives: tuple[str, ...]
    radix: int = int(RADIX.value)
    """Ports of a switch, for clusters without tiers."""
    optics: Optics = "all"
    prices: Prices | None = None


def evaluate_design(name: str, cluster: Cluster, question: Question) -> Design:
    """Evaluate a design without comparison. Raises UsageError and CannotJudge as its collectives do."""
    if cluster.hosts < 2:
        raise UsageError(f"a design must have at least 2 hosts, got {cluster.hosts}", hint="give --count 2 or more")
    parts = count_parts(cluster, question.radix, question.optics)
    machine, kinds = Machine(cluster=cluster), find_kinds(cluster.host)
    return Design(
        name=name,
        hosts=cluster.hosts,
        gpus=cluster.ranks,
        scale=describe_gpus(cluster),
        port_rate_bits_per_s=kinds.rate_bits_per_s,
        kinds=kinds,
        nic=", ".join(sorted({nic.name for nic, _ in ports(cluster.host)})),
        compared_by=kinds.list_shared(parts, question.prices),
        fabric=_describe_fabric(cluster, question.radix),
        collectives=tuple(_compute_reach(cluster, collective) for collective in question.collectives),
        paths=tuple(row for path in _list_kv_paths(cluster) for row in list_network_rows(machine, path)),
        far_gpu=_find_far_gpu(cluster),
        parts=parts,
        cost=compute_cost(parts, question.prices, kinds) if question.prices is not None else None,
    )


def _compute_reach(cluster: Cluster, collective: str) -> Reach:
    found = collective_row(cluster, collective)
    return Reach(
        collective=found.collective,
        busbw_bytes_per_s=found.busbw_bytes_per_s,
        algorithm=found.because.partition(":")[0],
        expected_algorithm=found.chosen,
        held_back_by=found.bottleneck[0].what if found.bottleneck else "",
        because=found.because,
    )


def _describe_fabric(cluster: Cluster, radix: int) -> str:
    if cluster.fabric.tiers:
        rails = "rail-optimised, " if cluster.fabric.rail_optimised else ""
        derived = not all(tier.switches for tier in cluster.fabric.tiers)
        switches = f"; where it gives no switches, as many of {radix} ports as needed" if derived else ""
        return f"{rails}{len(cluster.fabric.tiers)} tiers from the cluster file{switches}"
    return f"non-blocking, rail-optimised leaves, switches of {radix} ports at the NIC ports' rate"


def _list_kv_paths(cluster: Cluster) -> tuple[str, ...]:
    """Return the paths of a KV cache to the next host: GPU to GPU, GPU to memory, and from a GPU far from all NICs."""
    gpus, memories = cluster.host.of_kind("gpu"), cluster.host.of_kind("memory")
    if not gpus:
        return ()
    first = gpus[0].id
    paths = [f"{first}:{first}@1", *(f"{first}:{memory.id}@1" for memory in memories[:1])]
    far = _find_far_gpu(cluster)
    if far is not None and far.gpu != first:
        paths.append(f"{far.gpu}:{far.gpu}@1")
    return tuple(paths)


def _find_far_gpu(cluster: Cluster) -> FarGpu | None:
    far = far_gpus(cluster.host)
    return FarGpu(gpu=far[0][0], nearest_nic_kind=far[0][1], gpus=len(far)) if far else None


def compare_designs(designs: Sequence[Design]) -> tuple[Design, ...]:
    """Return the designs with losses, savings and Pareto marks; a single design is unchanged."""
    if len(designs) < 2:
        return tuple(designs)
    best = [
        max(design.collectives[place].busbw_bytes_per_s.limit for design in designs)
        for place in range(len(designs[0].collectives))
    ]
    return tuple(
        msgspec.structs.replace(
            design,
            collectives=tuple(
                msgspec.structs.replace(reach, loss=_loss(reach.busbw_bytes_per_s.limit, best_limit))
                for reach, best_limit in zip(design.collectives, best, strict=True)
            ),
            **_compare_cost(design, [other for other in designs if other.compared_by == design.compared_by]),
        )
        for design in designs
    )


def _compare_cost(design: Design, alike: Sequence[Design]) -> dict[str, Any]:
    """Return saving and Pareto mark among designs with the same kinds of part, or nothing if there is no other."""
    if len(alike) < 2:
        return {}
    beaten_by = _list_dominating(design, alike)
    return {"saving": _saving(design, max(alike, key=find_price)), "pareto": not beaten_by, "beaten_by": beaten_by}


def find_price(design: Design) -> float:
    """Return the cost of a design, or its number of switch ports if it has no cost."""
    return design.cost.total if design.cost is not None else float(design.parts.switch_ports)


def busbw_limit(design: Design, place: int = 0) -> float:
    """Return the limit of the design's collective number `place`, as busbw in bytes/s."""
    return design.collectives[place].busbw_bytes_per_s.limit


def find_front(designs: Iterable[Design], place: int = 0) -> tuple[Design, ...]:
    """Return the Pareto front for collective number `place`, the cheapest design first."""
    candidates = tuple(designs)
    return tuple(
        sorted((design for design in candidates if not _list_dominating(design, candidates, place)), key=find_price)
    )


def _loss(limit: float, best: float) -> float:
    loss = 1 - limit / best
    return loss if loss > _SAME else 0.0


def _list_dominating(design: Design, designs: Iterable[Design], place: int = 0) -> tuple[str, ...]:
    found = []
    for other in designs:
        if other.compared_by != design.compared_by:
            continue
        faster = busbw_limit(other, place) > busbw_limit(design, place) * (1 + _SAME)
        as_fast = busbw_limit(other, place) >= busbw_limit(design, place) * (1 - _SAME)
        cheaper, no_dearer = find_price(other) < find_price(design), find_price(other) <= find_price(design)
        if as_fast and no_dearer and (faster or cheaper):
            found.append(other.name)
    return tuple(found)


def _saving(design: Design, dearest: Design) -> Saving:
    parts, dearest_parts = design.parts, dearest.parts
    return Saving(
        against=dearest.name,
        nics=dearest_parts.nics - parts.nics,
        cables=dearest_parts.cables - parts.cables,
        optics=dearest_parts.optics - parts.optics,
        leaf_ports=dearest_parts.leaf_ports - parts.leaf_ports,
        uplink_ports=dearest_parts.leaf_uplink_ports - parts.leaf_uplink_ports,
        spine_ports=dearest_parts.spine_ports - parts.spine_ports,
        share=1 - find_price(design) / find_price(dearest) if find_price(dearest) else 0.0,
        unlike=tuple(
            part
            for part, own, other in (
                ("hosts", design.kinds.host, dearest.kinds.host),
                ("NICs", design.nic, dearest.nic),
                ("ports", design.kinds.port, dearest.kinds.port),
            )
            if own != other
        ),
        cost=find_price(dearest) - find_price(design) if design.cost is not None else None,
    )


def list_cautions(designs: Sequence[Design], prices: Prices | None) -> tuple[str, ...]:
    """Return the effects that the comparison ignores, a sentence each."""
    found = ["only ports in use are counted: switches are bought whole, and no redundancy is included"]
    rates = sorted({design.port_rate_bits_per_s or 0.0 for design in designs})
    if len(rates) > 1:
        words = " and ".join(format_line_rate(rate) if rate else "an unknown rate" for rate in rates)
        found.append(f"the designs have ports of {words}, but one radix is used for all")
    found += list(_explain_uncompared(designs, prices))
    if len({design.gpus for design in designs}) > 1:
        found.append("the designs have different numbers of GPUs")
    if any(design.far_gpu for design in designs):
        found.append(
            "a GPU whose nearest NIC is beyond the CPU (PHB, SYS) has no GPUDirect RDMA by default, and its receiver"
            " gets no help from PXN: expect less than its limit"
        )
    return tuple(found)


def _explain_uncompared(designs: Sequence[Design], prices: Prices | None) -> Iterator[str]:
    """Yield the reason why some designs are not compared by cost, with the remedy."""
    kinds = list(dict.fromkeys(kind for design in designs for kind in design.compared_by))
    unlike = [kind for kind in kinds if not all(kind in design.compared_by for design in designs)]
    if not unlike:
        return
    listed = f"{', '.join(unlike[:-1])} and {unlike[-1]}"
    if prices is None:
        yield f"not compared with each other: {listed}; a price list with a price for each kind compares their cost"
        return
    yield f"not compared with each other, because the price list has one price for {listed}"
    yield 'a price for each kind compares them: gpu_host = {"hgx-h100" = 1000}, nic = {"400Gb/s" = 10, "800Gb/s" = 20}'
