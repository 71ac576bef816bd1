"""Scores suspects against the truth of a simulation.

The score counts classes of directed links on the same flows; a host, switch or line card counts as its links.
Routes are scored separately. Occupied links count in neither figure, and suspects reported as "slow or occupied" do
not count for precision; a slow link reported so is a miss.
"""

from __future__ import annotations

from typing import NamedTuple

from railwright.diagnosis.localise.procedure import Outcome
from railwright.diagnosis.localise.truth import Truth


class Score(NamedTuple):
    """Counts of right, wrong and missed suspects, which can be summed over runs."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        """The faulty share of the suspects; 1 without suspects."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        """The found share of the faults; 1 without faults."""
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0


def score_links(outcome: Outcome, truth: Truth) -> Score:
    """Score classes of links."""
    twin_of = outcome.evidence.fabric.twin_of
    occupied = set(map(twin_of, truth.occupied))
    bad = set(map(twin_of, truth.left)) - occupied
    named = {twin_of(one.number) for one in outcome.explanation.suspicions if one.constant} - occupied
    return Score(len(bad & named), len(named - bad), len(bad - named))


def score_routes(outcome: Outcome, truth: Truth) -> Score:
    """Score routes, except those over a faulty link, which cannot be distinguished from it."""
    bad = {key for key in truth.routes if not any(number in truth.left for number in key[2])}
    named = {one.key for one in outcome.routes}
    middles = {key[2] for key in bad if key[0] < 0}
    # A suspected pair of a route that is slow for all pairs is right, though incomplete.
    right = {key for key in named if key in bad or key[2][1:-1] in middles}
    found = {key for key in bad if key in named or any(other[2][1:-1] == key[2] for other in named if key[0] < 0)}
    return Score(len(found), len(named - right), len(bad - found))
