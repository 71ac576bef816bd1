"""A search by real probes: phases of rounds, each measured by a launch, and their result."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from railwright.diagnosis.localise.cover import CoverKind
from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.flows import Round
from railwright.diagnosis.localise.latency import Latency, RoundTrip, classify_round_trips, latency_rounds
from railwright.diagnosis.localise.load import LoadClass, evaluate_load
from railwright.diagnosis.localise.pairs import pair_rounds
from railwright.diagnosis.localise.prescribed import plan_cover
from railwright.diagnosis.localise.procedure import Outcome, Phase, Rounds, carry_out, locate
from railwright.diagnosis.localise.records import Suspect
from railwright.diagnosis.localise.trial import Tested, measure_coverage
from railwright.errors import CannotJudge
from railwright.locate.host_fabric import find_uniform_suspects, select_above_leaves
from railwright.locate.journal import Journal
from railwright.locate.place import Place
from railwright.locate.probes import FlowResult, PhaseResult, RankProbes
from railwright.locate.signs import find_delayed, find_suspects
from railwright.locate.ways import ProbeKind, tcp_probes

Cover = CoverKind | Literal["hosts"]
"""Cover every route between leaves or between ports, or every pair of hosts by any route."""
_MIN_GAP = 0.1
"""TCP flows that share a few cores get no closer to their rate."""


class PairSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A flow of a round."""

    round: int
    source: str
    destination: str
    over: tuple[str, ...]
    """The switches of the path that the flow was meant to take, and took."""
    source_port: int | None
    """None if no tried port takes this path; 0 if the port was not chosen."""
    ratio: float | None
    """The measured rate over the due rate; None if the flow did not run."""
    share: float = 1.0
    """The due rate, over a port's rate."""
    bandwidth_bytes_per_s: float | None = None
    sent: int
    lost: int
    trouble: str = ""
    mtu_bytes: int | None = None
    """The MTU of the connection, by RDMA."""


class Located(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="locate"):
    """The record of `railwright locate` with real probes."""

    fabric: str
    routing: str
    probe: str = "tcp"
    """The kind of flows: tcp, mpi or nccl."""
    hosts: tuple[str, ...]
    seed: int
    rounds: int
    cover_rounds: int
    load_rounds: int = 0
    """Rounds of the load test."""
    seconds: float
    sent_bytes: float
    tested: Tested
    not_measured: int
    """The number of flows that did not run: no port took the wanted path, or an end did not answer."""
    suspects: tuple[Suspect, ...]
    pairs: tuple[PairSeen, ...]
    latency: Latency = Latency()
    load: tuple[LoadClass, ...] = ()
    """The results of the load test, by hop class."""
    set_aside: dict[str, str] = {}
    """Silent hosts, each with the reason; the others were measured without them."""
    cannot_tell: tuple[str, ...] = ()
    """Questions that no search can answer here, each with the reason."""
    unjudged: tuple[str, ...] = ()
    """Slow elements that may be slow by design."""
    resumed_phases: int = 0
    """The number of phases read from a journal."""


def search(
    place: Place,
    rounds: Rounds,
    *,
    seed: int,
    cover: Cover | None,
    way: ProbeKind | None = None,
    latency: bool = False,
    tell: Callable[[str], None],
    journal: str | None = None,
) -> Located:
    """Search a place. Raises CannotJudge if no probe ran, UsageError for the journal of another search."""
    random, way = Random(seed), way or tcp_probes(place)
    probes = RankProbes(place, way, tell)
    begun = time.monotonic()
    covering = _cover_rounds(place.fabric, cover, random)
    question = (place.described, place.fabric.hosts, rounds.screen, rounds.confirm, rounds.load, seed, cover or "",
                *(("load test",) if rounds.load_test else ()), *(() if way.name == "tcp" else (way.name,)))  # fmt: skip
    with Journal(Path(journal) if journal else None, question) as kept:

        def ask(phase: Phase) -> PhaseResult:
            found = kept.next(phase)
            if found is None:
                found = probes.measure(phase)
                kept.add(phase, found)
            return found

        asked = replace(rounds, least_gap=_MIN_GAP, one_way=way.one_way)
        phases = locate(place.fabric, random, asked, covering)
        outcome = carry_out(phases, lambda phase: probes.take(phase, ask(phase)))
        of_latency = latency_rounds(place.fabric) if latency else []
        times = ask(of_latency).rounds if of_latency else []
    trips = [*_round_trips(place.fabric, probes.rounds, probes.seen), *_round_trips(place.fabric, of_latency, times)]
    found = _build_record(place, probes, outcome, classify_round_trips(trips))
    took_s = round(time.monotonic() - begun, 2)
    return msgspec.structs.replace(found, seed=seed, seconds=took_s, resumed_phases=kept.read)


def _cover_rounds(fabric: Fabric, cover: Cover | None, random: Random) -> Iterable[Round]:
    if cover is None:
        return ()
    return pair_rounds(fabric, random) if cover == "hosts" else plan_cover(fabric, cover).rounds(random)


def _build_record(place: Place, probes: RankProbes, outcome: Outcome, latency: Latency) -> Located:
    """Build the record, without seed and seconds. Raises CannotJudge if no probe ran."""
    not_measured = _count_not_measured(place, probes)
    busy = place.busy(one.number for one in outcome.explanation.suspicions)
    delayed = [(place.fabric.class_name(one.number), one.level) for one in find_delayed(outcome)]
    suspects = find_suspects(outcome, probes.signs(), probes.crossings(), busy, probes.set_aside, probes.unsure)
    load = evaluate_load(outcome.load, outcome.evidence.floor, rate_is_known=place.rate_bits_per_s is not None)
    alike: list[Suspect] = []
    pairs: list[Suspect] = []
    if place.uplinks_assumed:
        congested = any(one.is_congested for one in load)
        alike = select_above_leaves(suspects) if congested else find_uniform_suspects(place.fabric, suspects)
        pairs = [one for one in suspects if one.kind == "route"]
    return Located(
        fabric=place.described,
        routing=place.routing,
        probe=probes.way.name,
        hosts=place.fabric.hosts,
        seed=0,
        rounds=len(outcome.rounds),
        cover_rounds=outcome.cover_rounds,
        load_rounds=len(outcome.load),
        seconds=0.0,
        sent_bytes=probes.bytes_sent,
        tested=measure_coverage(outcome),
        not_measured=not_measured,
        suspects=tuple(one for one in suspects if one not in alike and one not in pairs),
        pairs=tuple(_pair_records(place, probes)),
        latency=latency,
        load=load,
        set_aside=probes.set_aside,
        cannot_tell=place.cannot_tell,
        unjudged=(
            *_unjudged_reasons(alike, pairs, load),
            *_delayed_reasons(delayed),
            *_unsure_reasons(probes.unsure, probes.set_aside),
        ),
    )


def _unjudged_reasons(alike: Sequence[Suspect], pairs: Sequence[Suspect], load: Sequence[LoadClass]) -> Iterable[str]:
    """Describe slow elements that may be slow by design, or whose paths are unknown."""
    if alike:
        left = statistics.median(one.capacity for one in alike)
        why = "as in an oversubscribed network" + ("" if load else "; --load-test can tell the two apart")
        if load and not any(one.is_congested for one in load):
            why = "and no more when a quarter of the ports send: load is not the cause"
        yield f"all leaves alike carry {left:.2f} of the traffic from their hosts to other leaves, {why}"
    for each in load:
        if each.is_congested:
            part = f"{each.full / each.quarter:.0%} of their rate with a quarter of the ports"
            yield f"with all ports sending, flows reach {part}: the network cannot carry all of them"
    for one in pairs:
        ends = one.id.partition("@")[0].replace(">", " to ")
        yield f"{ends} reached {one.capacity:.0%} in {one.tests} tries, and both ends are fast: a path between is slow"


def _delayed_reasons(delayed: Iterable[tuple[str, float]]) -> Iterable[str]:
    """Describe links whose flows wait for TCP's acknowledgements over a slow link."""
    for name, level in delayed:
        why = "because the acknowledgements of its flows return over the slow link named above"
        yield f"{name} carried {level:.0%} of its rate, its own or {why}: mend that and search again"


def _unsure_reasons(unsure: Sequence[str], set_aside: Mapping[str, str]) -> Iterable[str]:
    """Describe hosts that waited for each other until they were set aside."""
    for why in dict.fromkeys(set_aside[host] for host in unsure):
        names = " and ".join(host for host in unsure if set_aside[host] == why)
        yield f"{names} waited for each other twice, and each may be healthy; screen each: railwright prove ({why})"


def _count_not_measured(place: Place, probes: RankProbes) -> int:
    """Return the number of flows that did not run. Raises CannotJudge if none did."""
    missing = [math.isnan(ratio) for one in probes.rounds for ratio in one.ratio]
    if all(missing):
        why = next((seen.trouble for one in probes.seen for seen in one if seen.trouble), "no flow was planned")
        raise CannotJudge(f"no probe ran on {place.described}: {why}", hint="check that the hosts reach each other")
    return sum(missing)


def _pair_records(place: Place, probes: RankProbes) -> Iterable[PairSeen]:
    fabric = place.fabric
    for number, (one, flows) in enumerate(zip(probes.rounds, probes.seen, strict=True), 1):
        for flow, seen, ratio in zip(one.flows, flows, one.ratio, strict=True):
            yield PairSeen(
                round=number,
                source=fabric.node_name(flow.source),
                destination=fabric.node_name(flow.destination),
                over=fabric.switches_of(flow.path),
                source_port=seen.port,
                ratio=None if math.isnan(ratio) else round(ratio, 4),
                share=round(flow.share, 4),
                bandwidth_bytes_per_s=seen.bandwidth_bytes_per_s,
                sent=seen.sent,
                lost=seen.sent - seen.received,
                trouble=seen.trouble,
                mtu_bytes=seen.mtu_bytes,
            )


def _round_trips(fabric: Fabric, rounds: Sequence[Round], seen: Sequence[Sequence[FlowResult]]) -> Iterable[RoundTrip]:
    for one, flows in zip(rounds, seen, strict=True):
        for flow, what in zip(one.flows, flows, strict=True):
            if what.round_trip_s is not None:
                ends = fabric.node_name(flow.source), fabric.node_name(flow.destination)
                yield RoundTrip(*ends, len(flow.path) - 1, what.round_trip_s)
