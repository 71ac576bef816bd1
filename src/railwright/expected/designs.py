"""A comparison of cluster designs: their limits, their parts, and which of them are worth considering.

loss      1 - limit / the best limit of that collective among the designs, as busbw at large sizes.
saving    1 - cost / the cost of the dearest design; without prices, the same for the switch ports in use.
Pareto    no other design costs at most as much and is at least as fast in the first collective, with one of the two
          strictly better.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from railwright.errors import UsageError
from railwright.expected.collective_rows import collective_row
from railwright.expected.machine import Machine
from railwright.expected.path_rows import PathLimit, list_network_rows
from railwright.limits.bill import Cost, Optics, Parts, Prices, compute_cost, count_parts, port_rate_bits_per_s
from railwright.limits.rates import Rate
from railwright.limits.software import far_gpus
from railwright.limits.switches import RADIX
from railwright.topology.cluster import Cluster
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
    cost: float | None = None


class Design(msgspec.Struct, frozen=True, kw_only=True, tag="design", tag_field="record", omit_defaults=True,
             forbid_unknown_fields=True):  # fmt: skip
    """A design: its limits, its parts, and its comparison with the others."""

    name: str
    hosts: int
    gpus: int
    port_rate_bits_per_s: float | None
    """The rate of a NIC port, and so of every switch port."""
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
    machine = Machine(cluster=cluster)
    return Design(
        name=name,
        hosts=cluster.hosts,
        gpus=cluster.ranks,
        port_rate_bits_per_s=port_rate_bits_per_s(cluster.host),
        fabric=_describe_fabric(cluster, question.radix),
        collectives=tuple(_compute_reach(cluster, collective) for collective in question.collectives),
        paths=tuple(row for path in _list_kv_paths(cluster) for row in list_network_rows(machine, path)),
        far_gpu=_find_far_gpu(cluster),
        parts=parts,
        cost=compute_cost(parts, question.prices) if question.prices is not None else None,
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
        return f"{rails}{len(cluster.fabric.tiers)} tiers from the cluster file"
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
    dearest = max(designs, key=find_price)
    return tuple(
        msgspec.structs.replace(
            design,
            collectives=tuple(
                msgspec.structs.replace(reach, loss=_loss(reach.busbw_bytes_per_s.limit, best_limit))
                for reach, best_limit in zip(design.collectives, best, strict=True)
            ),
            saving=_saving(design, dearest),
            pareto=not _list_dominating(design, designs),
            beaten_by=_list_dominating(design, designs),
        )
        for design in designs
    )


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
        cost=find_price(dearest) - find_price(design) if design.cost is not None else None,
    )


def list_cautions(designs: Sequence[Design], prices: Prices | None) -> tuple[str, ...]:
    """Return the effects that the comparison ignores, a sentence each."""
    found = ["only ports in use are counted: switches are bought whole, and no redundancy is included"]
    rates = sorted({design.port_rate_bits_per_s or 0.0 for design in designs})
    if len(rates) > 1:
        words = " and ".join(format_line_rate(rate) if rate else "an unknown rate" for rate in rates)
        found.append(
            f"the designs have ports of {words}, but one radix"
            + (" and one price are" if prices else " is")
            + " used for all"
        )
    shapes = {design.name.partition(" ")[0] for design in designs}
    if prices is not None and len(shapes) > 1:
        found.append("the hosts differ, but the price list has one price for a GPU host")
    if len({design.gpus for design in designs}) > 1:
        found.append("the designs have different numbers of GPUs")
    if any(design.far_gpu for design in designs):
        found.append(
            "a GPU whose nearest NIC is beyond the CPU (PHB, SYS) has no GPUDirect RDMA by default, and its receiver"
            " gets no help from PXN: expect less than its limit"
        )
    return tuple(found)
