"""Declarations of a benchmark: the workload of its results, and the baselines that they supply.

A declaration is data. The program passes the declarations to `diagnosis`. A results file contains no declarations, so a
record cannot choose its own limit. A result without a declaration has no limit.
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
    """The workload of some results of a benchmark. The first declaration that covers a result applies."""

    quantity: Quantity
    workload: Workload
    when: Mapping[str, tuple[Scalar | None, ...]] = {}
    """The permitted values of each parameter. None permits the absence of the parameter."""
    ends: Literal["any", "same", "apart"] = "any"
    """Whether the path must begin and end at one device."""
    supplies: Baseline | None = None
    """The baseline that these results supply to others."""
    is_reference: bool = False
    """Whether this is the simplest measurement of its resource, limited by hardware alone."""

    def covers(self, result: Result) -> bool:
        """Report whether this declaration applies to a result."""
        source, _, target = result.path.partition(">")
        return (
            self.quantity == result.quantity
            and (self.ends == "any" or (self.ends == "same") == (source == target))
            and all(result.parameters.get(name) in values for name, values in self.when.items())
        )

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The baselines of the same run that limit its results."""
        return replace(self.workload, quantity=self.quantity).baselines


Declarations = Mapping[str, tuple[Declaration, ...]]
"""The declarations of each benchmark, keyed by its name."""


def find_benchmarks(kind: type[Workload], declarations: Declarations, **fields: object) -> frozenset[str]:
    """Return the names of the benchmarks that declare a workload of this kind with these field values."""
    return frozenset(
        name
        for name, rows in declarations.items()
        for row in rows
        if isinstance(row.workload, kind) and all(getattr(row.workload, key) == value for key, value in fields.items())
    )


def find_suppliers(baseline: Baseline, declarations: Declarations) -> tuple[str, ...]:
    """Return the names of the benchmarks that measure a baseline."""
    return tuple(name for name, rows in declarations.items() if any(row.supplies == baseline for row in rows))


def list_ceilings(name: str, declarations: Declarations) -> tuple[str, ...]:
    """Return the benchmarks that supply the baselines of a benchmark, and those that supply theirs, recursively."""
    found: dict[str, None] = {}
    wanted = [name]
    while wanted:
        rows = declarations.get(wanted.pop(), ())
        own = {row.supplies for row in rows}
        needed = dict.fromkeys(baseline for row in rows for baseline in row.baselines if baseline not in own)
        new = [
            supplier
            for baseline in needed
            for supplier in find_suppliers(baseline, declarations)
            if supplier not in (name, *found)
        ]
        found |= dict.fromkeys(new)
        wanted += new
    return tuple(supplier for supplier in declarations if supplier in found)


def must_share_options(name: str, ceiling: str, declarations: Declarations) -> bool:
    """Report whether a baseline must be measured with the options of the benchmark that it limits."""
    supplied = {row.supplies for row in declarations.get(ceiling, ())}
    return any(row.workload.must_match and supplied & set(row.baselines) for row in declarations.get(name, ()))


def find_declaration(result: Result, declarations: Declarations) -> Declaration | None:
    """Return the first declaration that covers a result, or None."""
    return next((row for row in declarations.get(result.benchmark, ()) if row.covers(result)), None)


def find_workload(result: Result, declarations: Declarations) -> Workload:
    """Return the declared workload of a result of this program."""
    declared = find_declaration(result, declarations)
    return describe(declared.workload if declared is not None else Unlimited(why=_UNDECLARED), result)


def no_limit(subject: Result | Workload, why: str) -> Bounds:
    """Return bounds without a limit or an expected band, with the reason."""
    return NoLimit(quantity=subject.quantity, why=why), None
