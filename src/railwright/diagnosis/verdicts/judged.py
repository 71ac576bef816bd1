"""Judged results: the value, its limit and the verdict, as shown in reports and printed by `--json`."""

from __future__ import annotations

from typing import Literal

import msgspec

from railwright.checks.finding import Finding
from railwright.limits.limit import Expected, Limit, NoLimit, Quantity
from railwright.results.records import Evidence, Outcome, Summary, Verification
from railwright.topology.devices import PathKind, Scalar

State = Literal["ok", "slow", "suspicious", "unknown", "reference", "failed", "waived"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`ok` within the expected band and at most 2 % above the limit, `slow` below the band, `suspicious` above the
    limit, `unknown` without a limit or a band, `failed` without a value or with wrong data, `waived` if it was not run.
    A `reference` is a baseline for other points and has no band itself.
    """

    state: State
    why: str
    needs: str = ""
    """The command or fact that would decide an unknown verdict."""


class Judged(msgspec.Struct, frozen=True, kw_only=True, tag="judged", tag_field="record", omit_defaults=True,
             forbid_unknown_fields=True):  # fmt: skip
    """A point: the median over all launches of one set of parameters, with its limit and verdict."""

    benchmark: str
    quantity: Quantity
    path: str
    parameters: dict[str, Scalar]
    outcome: Outcome
    reason: str = ""
    value: float | None = None
    """The median of the launches' medians, in the quantity's unit; None if nothing was measured."""
    launches: tuple[Summary, ...] = ()
    launch_spread: float | None = None
    """(highest - lowest) / median of the launches' medians: the noise between fresh processes."""
    limit: Limit | NoLimit
    expected: Expected | None = None
    fraction_of_limit: float | None = None
    verdict: Verdict
    verification: Verification | None = None
    evidence: tuple[Evidence, ...] = ()
    method: str = ""
    ranks: int = 1
    hosts: int = 1


class JudgedPath(msgspec.Struct, frozen=True, kw_only=True, tag="path", tag_field="record", omit_defaults=True,
                 forbid_unknown_fields=True):  # fmt: skip
    """A curve (all sizes of one benchmark over one path) with its verdict: a line of the report's table.

    The verdict is the worst of its points: a curve with a point that could not be judged is not ok.
    """

    benchmark: str
    quantity: Quantity
    path: str
    parameters: dict[str, Scalar]
    """The varied parameters except the size."""
    path_kind: PathKind | None = None
    headline: Judged | None = None
    """The point that represents the curve: the largest size if bytes decide, otherwise the smallest."""
    verdict: Verdict
    causes: tuple[Finding, ...] = ()
    points: int = 0
    measured_points: int = 0


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts on a whole run."""

    points: tuple[Judged, ...]
    paths: tuple[JudgedPath, ...]
    findings: tuple[Finding, ...]
    """The findings about the machine and its settings, whether or not they slow a measured path."""
    exit_status: int
    required: tuple[str, ...] = ()
    """The requested paths that alone decide the exit status; empty means all except references and waived."""
    unmet: tuple[tuple[str, str], ...] = ()
    """The required paths that are not ok, each with its state."""
