"""Designs of a cluster held side by side: what each can reach, what it is made of, and which are worth a thought.

loss      1 - limit / the best limit of that collective among the designs, as busbw at large sizes.
saving    1 - cost / the cost of the dearest design; without prices the same of the switch ports in use.
Pareto    no other design costs at most as much and is at least as fast in the first collective, one of them better.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from railwright.errors import UsageError
from railwright.expected.collective_rows import collective_row
from railwright.expected.machine import Machine
from railwright.expected.path_rows import PathLimit, rows_between
from railwright.limits.bill import Cost, Optics, Parts, Prices, cost_of, parts_of, port_rate_bits_per_s
from railwright.limits.rates import Rate
from railwright.limits.software import far_gpus
from railwright.limits.switches import RADIX
from railwright.topology.cluster import Cluster
from railwright.units import format_line_rate

_SAME = 1 / 1e6
"""Two limits are one if they differ by less, relatively: a linear program's result is not exact."""


class Reach(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one collective can reach on one design at large sizes."""

    collective: str
    busbw_bytes_per_s: Rate
    algorithm: str
    """The one with the highest limit, of those in NCCL."""
    expected_algorithm: str
    """The one that is expected to be the fastest, to which the band belongs."""
    held_back_by: str
    """The kind of link that decides most of the limit."""
    because: str
    loss: float | None = None
    """Against the best design; None where there is no other."""


class FarGpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU whose nearest NIC is beyond the CPU, so that the network reaches it without GPUDirect RDMA by default."""

    gpu: str
    nearest_nic_kind: str
    gpus: int
    """How many of a host's GPUs are so."""


class Saving(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the dearest design has more; a negative number is less."""

    against: str
    nics: int
    cables: int
    optics: int
    leaf_ports: int
    """To NICs."""
    uplink_ports: int
    spine_ports: int
    share: float
    """Of its cost, or of its switch ports where there are no prices."""
    cost: float | None = None


class Design(msgspec.Struct, frozen=True, kw_only=True, tag="design", tag_field="record", omit_defaults=True,
             forbid_unknown_fields=True):  # fmt: skip
    """One design: its limits, its parts, and what the others make of it."""

    name: str
    hosts: int
    gpus: int
    port_rate_bits_per_s: float | None
    """Of a NIC port, and so of every switch port."""
    fabric: str
    """What the switches were counted from, in words."""
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
    """What to ask of every design."""

    collectives: tuple[str, ...]
    radix: int = int(RADIX.value)
    """Ports of a switch, where the cluster has no tiers."""
    optics: Optics = "all"
    prices: Prices | None = None


def design_of(name: str, cluster: Cluster, question: Question) -> Design:
    """One design, not yet compared. Raises UsageError and CannotJudge, each as its collective does."""
    if cluster.hosts < 2:
        raise UsageError(f"{cluster.hosts} host needs no network", hint="give --count 2 or more")
    parts = parts_of(cluster, question.radix, question.optics)
    machine = Machine(cluster=cluster)
    return Design(
        name=name,
        hosts=cluster.hosts,
        gpus=cluster.ranks,
        port_rate_bits_per_s=port_rate_bits_per_s(cluster.host),
        fabric=_fabric_words(cluster, question.radix),
        collectives=tuple(_reach(cluster, collective) for collective in question.collectives),
        paths=tuple(row for path in _kv_paths(cluster) for row in rows_between(machine, path)),
        far_gpu=_far_gpu(cluster),
        parts=parts,
        cost=cost_of(parts, question.prices) if question.prices is not None else None,
    )


def _reach(cluster: Cluster, collective: str) -> Reach:
    found = collective_row(cluster, collective)
    return Reach(
        collective=found.collective,
        busbw_bytes_per_s=found.busbw_bytes_per_s,
        algorithm=found.because.partition(":")[0],
        expected_algorithm=found.chosen,
        held_back_by=found.bottleneck[0].what if found.bottleneck else "",
        because=found.because,
    )


def _fabric_words(cluster: Cluster, radix: int) -> str:
    if cluster.fabric.tiers:
        rails = "rail-optimised, " if cluster.fabric.rail_optimised else ""
        return f"{rails}{len(cluster.fabric.tiers)} tiers as the cluster file has them"
    return f"non-blocking, rail-optimised leaves, switches of {radix} ports at the NIC ports' rate"


def _kv_paths(cluster: Cluster) -> tuple[str, ...]:
    """What a KV cache takes to the next host: GPU to GPU, GPU to memory, and from a GPU far from all NICs."""
    gpus, memories = cluster.host.of_kind("gpu"), cluster.host.of_kind("memory")
    if not gpus:
        return ()
    first = gpus[0].id
    paths = [f"{first}:{first}@1", *(f"{first}:{memory.id}@1" for memory in memories[:1])]
    far = _far_gpu(cluster)
    if far is not None and far.gpu != first:
        paths.append(f"{far.gpu}:{far.gpu}@1")
    return tuple(paths)


def _far_gpu(cluster: Cluster) -> FarGpu | None:
    far = far_gpus(cluster.host)
    return FarGpu(gpu=far[0][0], nearest_nic_kind=far[0][1], gpus=len(far)) if far else None


def compared(designs: Sequence[Design]) -> tuple[Design, ...]:
    """The same with losses, savings and Pareto marks; one design alone is left as it is."""
    if len(designs) < 2:
        return tuple(designs)
    best = [
        max(design.collectives[place].busbw_bytes_per_s.limit for design in designs)
        for place in range(len(designs[0].collectives))
    ]
    dearest = max(designs, key=price)
    return tuple(
        msgspec.structs.replace(
            design,
            collectives=tuple(
                msgspec.structs.replace(reach, loss=_loss(reach.busbw_bytes_per_s.limit, most))
                for reach, most in zip(design.collectives, best, strict=True)
            ),
            saving=_saving(design, dearest),
            pareto=not _beaten_by(design, designs),
            beaten_by=_beaten_by(design, designs),
        )
        for design in designs
    )


def price(design: Design) -> float:
    """What is compared: the cost, or the number of switch ports where there are no prices."""
    return design.cost.total if design.cost is not None else float(design.parts.switch_ports)


def speed(design: Design, place: int = 0) -> float:
    """The limit of one of its collectives, as busbw in bytes/s."""
    return design.collectives[place].busbw_bytes_per_s.limit


def front(designs: Iterable[Design], place: int = 0) -> tuple[Design, ...]:
    """The designs that none beats in that collective, the cheapest first."""
    every = tuple(designs)
    return tuple(sorted((one for one in every if not _beaten_by(one, every, place)), key=price))


def _loss(limit: float, best: float) -> float:
    loss = 1 - limit / best
    return loss if loss > _SAME else 0.0


def _beaten_by(design: Design, designs: Iterable[Design], place: int = 0) -> tuple[str, ...]:
    found = []
    for other in designs:
        faster = speed(other, place) > speed(design, place) * (1 + _SAME)
        as_fast = speed(other, place) >= speed(design, place) * (1 - _SAME)
        cheaper, no_dearer = price(other) < price(design), price(other) <= price(design)
        if as_fast and no_dearer and (faster or cheaper):
            found.append(other.name)
    return tuple(found)


def _saving(design: Design, dearest: Design) -> Saving:
    own, most = design.parts, dearest.parts
    return Saving(
        against=dearest.name,
        nics=most.nics - own.nics,
        cables=most.cables - own.cables,
        optics=most.optics - own.optics,
        leaf_ports=most.leaf_ports - own.leaf_ports,
        uplink_ports=most.leaf_uplink_ports - own.leaf_uplink_ports,
        spine_ports=most.spine_ports - own.spine_ports,
        share=1 - price(design) / price(dearest) if price(dearest) else 0.0,
        cost=price(dearest) - price(design) if design.cost is not None else None,
    )


def cautions(designs: Sequence[Design], prices: Prices | None) -> tuple[str, ...]:
    """What the comparison does not see, one sentence each."""
    found = ["ports are counted as used; switches are bought whole, and none is there for redundancy"]
    rates = sorted({design.port_rate_bits_per_s or 0.0 for design in designs})
    if len(rates) > 1:
        words = " and ".join(format_line_rate(rate) if rate else "an unknown rate" for rate in rates)
        found.append(
            f"the designs have ports of {words}: one radix" + (" and one price" if prices else "") + " for all"
        )
    shapes = {design.name.partition(" ")[0] for design in designs}
    if prices is not None and len(shapes) > 1:
        found.append("the hosts differ, and the price list has one price for a GPU host")
    if len({design.gpus for design in designs}) > 1:
        found.append("the designs have different numbers of GPUs")
    if any(design.far_gpu for design in designs):
        found.append(
            "a GPU whose nearest NIC is beyond the CPU (PHB, SYS) has no GPUDirect RDMA by default, and its receiver"
            " gets no help from PXN: expect less than its limit"
        )
    return tuple(found)
