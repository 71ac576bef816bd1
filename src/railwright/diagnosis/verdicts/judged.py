"""Where and why: a result beside its limit, with the verdict. What reports show and `--json` prints."""

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
    limit, `unknown` without a limit or a band, `failed` and `waived` where there is no measurement. A `reference` is
    what others are held against, and has no band itself.
    """

    state: State
    why: str
    needs: str = ""
    """What would judge an unknown: a command, or a fact that nobody could read."""


class Judged(msgspec.Struct, frozen=True, kw_only=True, tag="judged", tag_field="record", omit_defaults=True,
             forbid_unknown_fields=True):  # fmt: skip
    """One point: the median over all launches of one set of parameters, held against its limit."""

    benchmark: str
    quantity: Quantity
    path: str
    parameters: dict[str, Scalar]
    outcome: Outcome
    reason: str = ""
    value: float | None = None
    """The median of the launches' medians, in the quantity's unit; None where nothing was measured."""
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
    """One curve (all sizes of one benchmark over one path) with one verdict: a line of the report's table.

    It is the worst verdict of the points that have an expected band; without any such point it is unknown.
    """

    benchmark: str
    quantity: Quantity
    path: str
    parameters: dict[str, Scalar]
    """What was varied, without the size."""
    path_kind: PathKind | None = None
    headline: Judged | None = None
    """The point that stands for the curve: the bandwidth at the largest size, else the value at the smallest."""
    verdict: Verdict
    causes: tuple[Finding, ...] = ()
    points: int = 0
    measured_points: int = 0


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run, judged."""

    points: tuple[Judged, ...]
    paths: tuple[JudgedPath, ...]
    findings: tuple[Finding, ...]
    """Faults of the machine's settings, whether or not a measured path shows them."""
    exit_status: int
    required: tuple[str, ...] = ()
    """The paths that alone decide the exit status, as they were asked for; none: all but references and waived."""
    unmet: tuple[tuple[str, str], ...] = ()
    """Those of them that are not ok, each with its state."""
