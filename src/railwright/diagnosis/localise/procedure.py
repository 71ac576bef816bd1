"""The order of rounds: screen, confirm, and optional tests, for simulated and real fabrics alike.

Rounds come in phases of independent rounds, so that one launch can measure a phase. The caller measures each phase in
place and requests the next. All decisions are made here. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from railwright.diagnosis.localise.confirm import Confirm
from railwright.diagnosis.localise.evidence import MIN_GAP, Evidence, observe
from railwright.diagnosis.localise.explain import Explanation, explain
from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.flows import Flow, Round
from railwright.diagnosis.localise.load import load_rounds
from railwright.diagnosis.localise.pairs import split_rounds
from railwright.diagnosis.localise.prescribed import PrescribedScreen
from railwright.diagnosis.localise.routes import RouteSuspicion, repeated_flows, slow_routes
from railwright.diagnosis.localise.schedule import Screen

Phase = list[Round]

ROUND_S = 5.0
"""The longest duration of a round, with all NICs at once."""
_TRIES_OF_A_ROUTE = 4


@dataclass(frozen=True)
class Rounds:
    """The maximum number of rounds of each kind, and their constraints."""

    screen: int = 4
    confirm: int = 2
    least_gap: float = MIN_GAP
    """A flow that misses less of its rate is never slow."""
    load: float = 1.0
    """The part of the hosts that may be loaded at once; larger rounds are split."""
    one_way: bool = False
    """Whether to forbid two hosts from sending to each other in a round.

    MPI over sockets uses one connection for both directions, so one direction waits for the other.
    """
    cover_at_once: int = 16
    """The rounds of a cover per phase: an interruption loses at most these."""
    again: int = 24
    """The maximum number of rounds that repeat slow flows of a cover."""
    load_test: bool = False
    """Whether to compare flows with all ports busy and with a quarter of them, at the end."""


@dataclass
class Outcome:
    """The results of the rounds."""

    evidence: Evidence
    explanation: Explanation
    routes: list[RouteSuspicion]
    rounds: list[Round]
    """The screen and the confirm rounds."""
    cover_rounds: int = 0
    routes_tested: int = 0
    """The flows of the route cover, each over a different route."""
    load: list[Round] = field(default_factory=list)
    """The rounds of the load test, which give no suspects: see `evaluate_load`."""


def locate(
    fabric: Fabric, random: Random, wanted: Rounds, cover: Iterable[Round] = ()
) -> Generator[Phase, None, Outcome]:
    """Yield the phases to measure, and return the outcome. `cover` holds rounds over every route, run last."""
    screen = Screen(fabric, random) if fabric.ways is None else PrescribedScreen(fabric, random)
    done = _split_by_constraints(fabric, [screen.build_round() for _ in range(wanted.screen)], wanted)
    yield done[:]
    evidence = observe(fabric, done, wanted.least_gap)
    explanation = explain(evidence)
    for turn in range(wanted.confirm):
        repeated = repeated_flows(evidence, explanation.unexplained)
        doubtful = dict.fromkeys([*explanation.doubtful, *_doubtful_by_marks(fabric, done)])
        one = Confirm(evidence, random).build_round(list(doubtful), repeated, paired=turn % 2 == 0)
        if not one.flows:
            break
        parts = _split_by_constraints(fabric, [one], wanted)
        done += parts
        yield parts
        for part in parts:
            evidence.add(part)
        explanation = explain(evidence)
    outcome = Outcome(evidence, explanation, slow_routes(evidence, explanation), done)
    yield from _run_cover(outcome, random, cover, wanted)
    if wanted.load_test:
        (full, *_) = split_rounds(fabric, [screen.build_round()], 1.0, one_way=wanted.one_way)
        outcome.load = load_rounds(fabric, full)
        yield outcome.load
    return outcome


def _split_by_constraints(fabric: Fabric, rounds: list[Round], wanted: Rounds) -> list[Round]:
    """Split the rounds by the constraints."""
    return split_rounds(fabric, rounds, wanted.load, one_way=wanted.one_way)


def carry_out(phases: Generator[Phase, None, Outcome], measure: Callable[[Phase], None]) -> Outcome:
    """Measure every phase of a search in place, and return its outcome."""
    try:
        while True:
            measure(next(phases))
    except StopIteration as ended:
        outcome: Outcome = ended.value
        return outcome


def _doubtful_by_marks(fabric: Fabric, done: list[Round]) -> list[int]:
    """Return the classes accused by marked flows, each counted at half its rate."""
    if not any(one.marked for one in done):
        return []
    rounds = [
        Round(one.flows, [0.5 if number in one.marked else 1.0 for number in range(len(one.flows))]) for one in done
    ]
    return explain(observe(fabric, rounds)).doubtful


def _run_cover(
    outcome: Outcome, random: Random, cover: Iterable[Round], wanted: Rounds
) -> Generator[Phase, None, None]:
    """Run the cover, and repeat slow flows without a suspect on their path alone."""
    suspects = {one.number for one in outcome.explanation.suspicions}
    slow: list[Flow] = []
    fabric = outcome.evidence.fabric
    rounds = (part for one in cover for part in _split_by_constraints(fabric, [one], wanted))
    while phase := list(islice(rounds, wanted.cover_at_once)):
        yield phase
        outcome.cover_rounds += len(phase)
        for one in phase:
            outcome.routes_tested += sum(not math.isnan(ratio) for ratio in one.ratio)
            for flow, ratio in zip(one.flows, one.ratio, strict=True):
                if ratio < outcome.evidence.floor and not suspects.intersection(flow.path):
                    slow.append(flow)
    if not slow:
        return
    left = dict.fromkeys(slow, _TRIES_OF_A_ROUTE)
    again: list[Round] = []
    while left and len(again) < wanted.again:
        whole = Confirm(outcome.evidence, random).build_repeat(left)
        one = _split_by_constraints(fabric, [whole], wanted)[0]
        yield [one]
        again.append(one)
        for flow, ratio in zip(one.flows, one.ratio, strict=True):
            left[flow] -= 1
            if ratio >= outcome.evidence.floor or not left[flow]:
                del left[flow]
    outcome.cover_rounds += len(again)
    evidence = observe(fabric, [*outcome.rounds, *again], wanted.least_gap)
    rest = [number for number in evidence.slow_flows() if not suspects.intersection(evidence.flows[number].path)]
    outcome.explanation.unexplained = rest
    outcome.routes = slow_routes(evidence, outcome.explanation)
