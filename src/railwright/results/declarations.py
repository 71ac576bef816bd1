"""How a benchmark declares what its results are: which workload, and what baseline they give to others.

A declaration is data. The program hands the declarations to `diagnosis`: a results file names none, so that a record
cannot choose its own limit. A result that nothing was declared for has no limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from railwright.limits.limit import Bounds, NoLimit, Quantity
from railwright.results.records import Result
from railwright.results.workload import Baseline, Unlimited, Workload, describe
from railwright.topology.devices import Scalar

_UNDECLARED = "its benchmark declares no workload for this result"


class Declaration(msgspec.Struct, frozen=True, kw_only=False):
    """Which workload some results of a benchmark are. The first declaration that covers a result counts."""

    quantity: Quantity
    workload: Workload
    when: Mapping[str, tuple[Scalar | None, ...]] = {}
    """The parameters that must have one of these values; None: that the result does not have."""
    ends: Literal["any", "same", "apart"] = "any"
    """Whether the path begins and ends at one device."""
    supplies: Baseline | None = None
    """The baseline that other results are held against."""
    is_reference: bool = False
    """Whether it is the simplest measurement of its resource, so that nothing stands above it but hardware."""

    def covers(self, result: Result) -> bool:
        """Whether this declaration is about a result."""
        source, _, target = result.path.partition(">")
        return (
            self.quantity == result.quantity
            and (self.ends == "any" or (self.ends == "same") == (source == target))
            and all(result.parameters.get(name) in values for name, values in self.when.items())
        )

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The baselines of the same run that its results are held against."""
        return replace(self.workload, quantity=self.quantity).baselines


Declarations = Mapping[str, tuple[Declaration, ...]]
"""The declarations of each benchmark by its name."""


def benchmarks_with(kind: type[Workload], declarations: Declarations, **fields: object) -> frozenset[str]:
    """The names of the benchmarks that declare a workload of a kind, with these values of its fields."""
    return frozenset(
        name
        for name, rows in declarations.items()
        for row in rows
        if isinstance(row.workload, kind) and all(getattr(row.workload, key) == value for key, value in fields.items())
    )


def suppliers(baseline: Baseline, declarations: Declarations) -> tuple[str, ...]:
    """The names of the benchmarks that measure a baseline."""
    return tuple(name for name, rows in declarations.items() if any(row.supplies == baseline for row in rows))


def ceilings_of(name: str, declarations: Declarations) -> tuple[str, ...]:
    """The benchmarks whose baselines a benchmark's results are held against, and what those need in turn."""
    found: dict[str, None] = {}
    wanted = [name]
    while wanted:
        rows = declarations.get(wanted.pop(), ())
        own = {row.supplies for row in rows}
        needed = dict.fromkeys(baseline for row in rows for baseline in row.baselines if baseline not in own)
        new = [
            supplier
            for baseline in needed
            for supplier in suppliers(baseline, declarations)
            if supplier not in (name, *found)
        ]
        found |= dict.fromkeys(new)
        wanted += new
    return tuple(supplier for supplier in declarations if supplier in found)


def measured_alike(name: str, ceiling: str, declarations: Declarations) -> bool:
    """Whether a baseline of a benchmark has to be measured with that benchmark's own options."""
    supplied = {row.supplies for row in declarations.get(ceiling, ())}
    return any(row.workload.must_match and supplied & set(row.baselines) for row in declarations.get(name, ()))


def declared_for(result: Result, declarations: Declarations) -> Declaration | None:
    """The first declaration of its benchmark that covers a result; None where there is none."""
    return next((row for row in declarations.get(result.benchmark, ()) if row.covers(result)), None)


def workload_of(result: Result, declarations: Declarations) -> Workload:
    """The workload of a result of ours."""
    declared = declared_for(result, declarations)
    return describe(declared.workload if declared is not None else Unlimited(why=_UNDECLARED), result)


def no_limit(subject: Result | Workload, why: str) -> Bounds:
    """Why something has no limit, and nothing is expected of it."""
    return NoLimit(quantity=subject.quantity, why=why), None
