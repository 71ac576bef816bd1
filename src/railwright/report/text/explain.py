"""A known tool's table beside what the machine can reach, as plain text, for `explain`.

What is asked first stands first: the verdict, what it is held against, the likeliest cause and the next step; the rows
come after it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise

from railwright.checks.finding import Finding
from railwright.diagnosis.verdicts.judged import Judged
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.explain.hypotheses import Fitted
from railwright.explain.table import Explained
from railwright.explain.topology_matrix import SEEN
from railwright.limits.limit import Limit, NoLimit
from railwright.report.text import wording
from railwright.report.text.collectives import labelled
from railwright.results.records import size_of
from railwright.terminal import text_width
from railwright.units import count, format_size

_WIDEST_NAME, _WIDEST_NAME_WITH_ROOM = 38, 62
_LONG_WORD = 20
_BESIDE_NAME = 44
"""Columns that a table needs besides the name at least."""
_WIDEST_SHOWN = 23
_MOST_SEEN = 3
_OPEN_BAND = "{} and up"
_CLEARLY = 1.1
"""A fault is named as the cause only if the healthy machine is farther from the table by this factor, and alone only
if the other faults are."""
_NEAR = 2.0
"""Beyond this factor between curve and table a fault explains little of it."""


def render_explained(found: Explained) -> str:
    """Head with verdict, limit, cause and next step, a line for each row, the hypotheses, what settings show, notes."""
    return "\n".join(_lines(found))


def _lines(found: Explained) -> Iterator[str]:
    yield from textwrap.wrap(_title(found), text_width(), break_long_words=False, break_on_hyphens=False)
    yield ""
    if found.contradictions:
        yield from labelled("but", *found.contradictions)
    yield from labelled("verdict", f"{found.verdict.state}: {found.verdict.why}")
    yield from _cause(found)
    yield from _held_against(found)
    yield ""
    yield from _table(found)
    yield from _hypotheses(found.hypotheses)
    settings = [one for one in found.findings if _is_setting(one)]
    yield from _findings("settings that the table came with", settings)
    yield from _findings("what the machine given shows", [one for one in found.findings if one not in settings])
    if found.notes:
        yield ""
        yield from labelled("note", *found.notes)


def _title(found: Explained) -> str:
    ranks = f", {count(found.ranks, 'rank')}" if found.ranks else ""
    hosts = f" on {count(found.hosts, 'host')}" if found.hosts else ""
    against = f", held against {wording.visible(found.machine)}" if found.machine else ", no machine given"
    test = "" if found.test == found.tool.rpartition(" ")[2].lower() else found.test
    return f"{wording.visible(' '.join(filter(None, (found.tool, found.version, test))))}{ranks}{hosts}{against}"


def _held_against(found: Explained) -> Iterator[str]:
    """Band, limit and source of the row that stands for the table."""
    row = found.rows[found.headline] if found.headline is not None else None
    if row is None:
        return
    unit = f" {found.bandwidths_are}" if found.bandwidths_are else ""
    if not isinstance(row.limit, Limit):
        size = wording.size_words(row.parameters)
        if row.value is not None:
            value = f"{format_quantity(row.quantity, row.value)}{unit}"
            yield from labelled("measured", f"{value} at {size}" if size else value)
        return
    if row.expected is not None:
        yield from labelled("expected", f"{wording.band_words(row.expected, _OPEN_BAND)}{unit}: {row.expected.because}")
    yield from labelled("limit", f"{format_quantity(row.quantity, row.limit.value)}{unit}: {row.limit.because}")
    yield from labelled("source", "; ".join(map(str, row.limit.sources)))


def _cause(found: Explained) -> Iterator[str]:
    """What was seen comes before what is only near: a setting of the run, else the fault with the nearest curve."""
    if found.verdict.state not in ("slow", "unknown"):
        return
    seen = [one for one in found.findings if one.certainty == "seen" and _is_setting(one)]
    if seen:
        yield from labelled("seen", "; ".join(f"{one.fault}: {one.says}" for one in seen[:_MOST_SEEN]))
        yield from labelled("next", "; ".join(dict.fromkeys(one.remedy for one in seen[:_MOST_SEEN])))
    elif shown := [one for one in found.findings if any(seen.claim in ("curve", SEEN) for seen in one.evidence)]:
        yield from labelled("perhaps", "; ".join(f"{one.fault}: {one.says}" for one in shown))
        yield from labelled("next", "; ".join(one.remedy for one in shown))
    elif len(found.hypotheses) > 1:
        healthy, nearest = found.hypotheses[:2]
        if healthy.distance < _CLEARLY * nearest.distance:
            return
        # What is in doubt itself has no likely cause.
        label = "likely" if nearest.distance <= _NEAR and found.verdict.state == "slow" else "perhaps"
        near = f"within a factor of {nearest.distance:.2f}, a healthy machine {healthy.distance:.2f}"
        rivals = {one.fault: None for one in found.hypotheses[2:] if one.distance <= _CLEARLY * nearest.distance}
        rivals.pop(nearest.fault, None)
        others = f"; about as near: {', '.join(rivals)}" if rivals else ""
        yield from labelled(label, f"{nearest.fault}: {nearest.says} ({near}){others}")
        yield from labelled("next", nearest.tell_apart)


def _is_setting(finding: Finding) -> bool:
    return any(seen.claim == "setting" for seen in finding.evidence)


def _table(found: Explained) -> Iterator[str]:
    """The tool's own string stands beside the value where the two differ. Without a machine no row is judged."""
    names = _names(found.rows)
    width = max(map(len, names), default=4)
    judged = any(not isinstance(row.limit, NoLimit) for row in found.rows)
    failed = any(row.verdict.state == "failed" for row in found.rows)
    table = [("row", "the tool says", found.bandwidths_are or "measured", "of limit", "expected", "verdict")]
    for name, row, shown in zip(names, found.rows, found.shown, strict=True):
        value = format_quantity(row.quantity, row.value) if row.value is not None else "none"
        share = f"{row.fraction_of_limit:.3f}" if row.fraction_of_limit is not None else ""
        band = wording.band_words(row.expected, _OPEN_BAND)
        table.append((name, wording.visible(shown)[:_WIDEST_SHOWN], value, share, band, row.verdict.state))
    wide = max(len(row[4]) for row in table)
    # The tool's own words go first, then the share of the limit.
    wanted = (0 if found.bandwidths_are else _WIDEST_SHOWN + 2, 10 * judged, (wide + 1) * judged)
    their_width, share_width, band_width = _room(width, wanted)
    for name, said, value, share, band, state in table:
        line = f"  {name:{width}}{said[:their_width]:>{their_width}}{value:>14}"
        line += f"{share[:share_width]:>{share_width}}   {band[:band_width]:{band_width}}"
        yield f"{line} {state}" if judged or failed else line.rstrip()


def _room(name: int, columns: Sequence[int]) -> list[int]:
    """The widths of the columns that a narrow terminal has room for; the others are 0, the first of them go first."""
    left = list(columns)
    for place in range(len(left)):
        if 2 + name + 14 + 3 + 11 + sum(left) > text_width():
            left[place] = 0
    return left


def _names(rows: tuple[Judged, ...]) -> list[str]:
    """Each row's size, and its parameters that differ between rows."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for key, value in row.parameters.items():
            values.setdefault(key, set()).add(str(value))
    varied = [key for key, found in values.items() if len(found) > 1 and key != "size_bytes"]
    varied.sort(key=lambda key: max(map(len, values[key])) > _LONG_WORD)  # what may be cut off stands last
    if not varied and all("size_bytes" not in row.parameters for row in rows):
        varied = [key for key in values if key in ("n", "nb", "p", "q")]
    quantities = len({row.quantity for row in rows}) > 1
    most = max(_WIDEST_NAME, min(_WIDEST_NAME_WITH_ROOM, text_width() - _BESIDE_NAME))
    names = []
    for row in rows:
        size = size_of(row.parameters)
        words = [f"{format_size(size):9}"] if size is not None else []
        told = ((key, row.parameters[key]) for key in varied if key in row.parameters)
        words += [value.replace("_", " ") if isinstance(value, str) else f"{key}={value}" for key, value in told]
        words += [row.quantity.partition("_")[0]] if quantities else []
        names.append(wording.visible(" ".join(words))[:most].rstrip())
    return names


def _hypotheses(fitted: tuple[Fitted, ...]) -> Iterator[str]:
    """How a way is told from others stands once, below the last of the ways that it is told by."""
    if not fitted:
        return
    yield ""
    title = "what would give such a curve (the typical factor between it and the table; 1.00 is the same)"
    yield from textwrap.wrap(title, text_width())
    for one, following in pairwise((*fitted, None)):
        assert one is not None
        yield from labelled(f"x{one.distance:.2f}", f"{one.fault}: {one.says}", indent=2)
        if one.tell_apart and (following is None or following.tell_apart != one.tell_apart):
            yield from labelled("", f"tell apart: {one.tell_apart}", indent=2)
    if len(fitted) == 1:
        nothing = "no known fault comes nearer to the table than the healthy machine"
        yield from textwrap.wrap(nothing, text_width(), initial_indent="  ", subsequent_indent="  ")


def _findings(title: str, findings: Sequence[Finding]) -> Iterator[str]:
    if findings:
        yield ""
        yield title
    for finding in findings:
        more = [f"{label}: {text}" for label, text in (("costs", finding.costs), ("remedy", finding.remedy)) if text]
        yield from labelled(finding.certainty, f"{finding.fault}: {finding.says}", *more, indent=2)
