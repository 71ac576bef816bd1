"""Faults that another table of the same call excludes, because its rates are higher than the fault would allow."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.explain.bus_rates import busbw_scale, is_busbw
from railwright.explain.cause_doubts import doubt_cause
from railwright.explain.hypotheses import HEALTHY, suppose_case
from railwright.explain.rows import can_affect, fit_machine, row_workload
from railwright.explain.table import EXCLUDED, Explained
from railwright.faults.registry import FAULTS
from railwright.limits.case import Case
from railwright.limits.limit import Limit
from railwright.results.readers.foreign_file import ForeignFile
from railwright.units import format_bandwidth

_SURELY_ABOVE = 1.02


def exclude_faults(
    files: Sequence[ForeignFile], tables: Sequence[Explained], machine: Machine
) -> tuple[Explained, ...]:
    """Return the tables without the faults that another table of the same ranks and hosts excludes."""
    placed = [fit_machine(file, machine) for file in files]
    found = []
    for number, (file, table) in enumerate(zip(files, tables, strict=True)):
        excluded: dict[str, str] = {}
        for other, (rival, place) in enumerate(zip(files, placed, strict=True)):
            alike = tables[other].ranks == table.ranks and tables[other].hosts == table.hosts
            if other != number and alike and table.hypotheses[1:]:
                excluded |= _find_excluded(rival, place, table)
        found.append(_remove(file, table, placed[number], excluded) if excluded else table)
    return tuple(found)


def _find_excluded(rival: ForeignFile, machine: Machine, table: Explained) -> dict[str, str]:
    """Map each hypothesis that the rival table excludes to the reason."""
    named = {fitted.fault for fitted in table.hypotheses if fitted.fault != HEALTHY}
    rates = [
        (result.summary.median, result)
        for result in rival.results
        if result.summary is not None and result.quantity == "bandwidth_bytes_per_s"
    ]
    if not rates:
        return {}
    rate, fastest = max(rates, key=lambda pair: pair[0])
    excluded = {}
    scale = busbw_scale(rival)
    unit = " busbw" if is_busbw(rival) else ""
    for fault in FAULTS:
        if fault.name not in named or not can_affect(fault, rival):
            continue
        for supposed in fault.suppose(Case(cluster=machine.cluster)):
            limit, _ = expect(row_workload(fastest, rival), suppose_case(machine, supposed.case))
            if isinstance(limit, Limit) and rate > _SURELY_ABOVE * limit.value:
                shown, allowed = format_bandwidth(rate * scale), format_bandwidth(limit.value * scale)
                excluded[supposed.says] = (
                    f"{fault.name}{EXCLUDED}{rival.test} of the same ranks reaches {shown}{unit}, but the"
                    f" fault would limit it to {allowed}"
                )
    return excluded


def _remove(file: ForeignFile, table: Explained, machine: Machine, excluded: dict[str, str]) -> Explained:
    """Remove the excluded hypotheses, and say why for each fault of which none is left."""
    kept = tuple(fitted for fitted in table.hypotheses if not set(fitted.says.split(", or ")) <= set(excluded))
    gone = {fitted.fault for fitted in table.hypotheses} - {fitted.fault for fitted in kept}
    reasons = {why.partition(" ")[0]: why for why in excluded.values()}
    notes = tuple(why for fault, why in reasons.items() if fault in gone)
    doubt = doubt_cause(file, table.rows, kept, machine)
    return msgspec.structs.replace(table, hypotheses=kept, cause_doubt=doubt, notes=(*notes, *table.notes))
