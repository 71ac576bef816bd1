"""Runs a simulated search on a fabric with faults, and records its score."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec

from railwright.diagnosis.localise.baselines import Baseline, baselines
from railwright.diagnosis.localise.cover import CoverKind
from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.flows import Round
from railwright.diagnosis.localise.load import LoadClass, evaluate_load
from railwright.diagnosis.localise.prescribed import plan_cover
from railwright.diagnosis.localise.procedure import ROUND_S, Outcome, Rounds, carry_out, locate
from railwright.diagnosis.localise.records import Fault, Suspect
from railwright.diagnosis.localise.score import score_links, score_routes
from railwright.diagnosis.localise.simulate import Simulator, Weather
from railwright.diagnosis.localise.suspects import build_suspects
from railwright.diagnosis.localise.truth import Truth

NIC_RATE_BYTES_PER_S = 50e9
"""The rate of a 400 Gb/s port, assumed if the fabric gives none; only the bytes of a cost depend on it."""


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """The coverage of the rounds."""

    links: int
    """The number of classes of directed links."""
    links_filled: int
    """The classes that some round filled."""
    links_untested: int
    """The classes that no flow crossed."""
    links_partly: int
    """The classes that were crossed but never filled."""
    routes: int = 0
    """The routes of the route cover."""


class Simulated(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="locate-simulated"):
    """The record of `railwright simulate`."""

    fabric: str
    hosts: int
    nics: int
    switches: int
    seed: int
    weather: dict[str, float]
    precision: float
    """The score of link classes."""
    recall: float
    right: int
    wrong: int
    missed: int
    route_precision: float
    route_recall: float
    rounds: int
    """The screen and confirm rounds."""
    cover_rounds: int
    load_rounds: int = 0
    """The rounds of the load test."""
    seconds: float
    """The time with all rounds at their longest."""
    sent_bytes: float
    tested: Tested
    background: float
    """The share of slow flows without a cause."""
    suspects: tuple[Suspect, ...]
    truth: tuple[Fault, ...]
    load: tuple[LoadClass, ...] = ()
    """The results of the load test, by hop class."""
    baselines: tuple[Baseline, ...] = ()


def run(
    fabric: Fabric,
    described: str,
    truth: Truth,
    weather: Weather,
    *,
    seed: int,
    rounds: Rounds,
    cover: CoverKind | None = None,
    with_baselines: bool = False,
) -> Simulated:
    """Search a simulated fabric and score the result. Raises UsageError for an impossible cover."""
    simulator = Simulator(fabric, truth, weather, seed)
    random = Random(seed + 1)
    covering: Iterable[Round] = plan_cover(fabric, cover).rounds(random) if cover else ()
    outcome = carry_out(locate(fabric, random, rounds, covering), simulator.measure_all)
    found = _build_record(described, seed, weather, truth, simulator, outcome)
    if not with_baselines:
        return found
    bad = set(truth.left) - truth.occupied
    others = baselines(fabric, lambda: Simulator(fabric, truth, weather, seed), bad, random)
    return msgspec.structs.replace(found, baselines=tuple(others))


def _build_record(
    described: str, seed: int, weather: Weather, truth: Truth, simulator: Simulator, outcome: Outcome
) -> Simulated:  # fmt: skip
    links, routes, fabric = score_links(outcome, truth), score_routes(outcome, truth), simulator.fabric
    count = len(outcome.rounds)
    return Simulated(
        fabric=described,
        hosts=len(fabric.hosts),
        nics=fabric.nics,
        switches=len(fabric.switches),
        seed=seed,
        weather={name: getattr(weather, name) for name in ("noise", "interference", "wrong_map", "lost")},
        precision=links.precision,
        recall=links.recall,
        right=links.right,
        wrong=links.wrong,
        missed=links.missed,
        route_precision=routes.precision,
        route_recall=routes.recall,
        rounds=count,
        cover_rounds=outcome.cover_rounds,
        load_rounds=len(outcome.load),
        seconds=(count + outcome.cover_rounds + len(outcome.load)) * ROUND_S,
        sent_bytes=simulator.bytes_per_rate * NIC_RATE_BYTES_PER_S * ROUND_S,
        tested=measure_coverage(outcome),
        background=outcome.explanation.background,
        suspects=tuple(build_suspects(outcome)),
        truth=tuple(truth.faults),
        load=evaluate_load(outcome.load, outcome.evidence.floor, rate_is_known=True),
    )


def measure_coverage(outcome: Outcome) -> Tested:
    """Return the coverage of the rounds."""
    filled = outcome.evidence.filled
    full = sum(part >= 0.9 for part in filled)
    none = sum(not part for part in filled)
    return Tested(
        links=len(filled),
        links_filled=full,
        links_untested=none,
        links_partly=len(filled) - full - none,
        routes=outcome.routes_tested,
    )
