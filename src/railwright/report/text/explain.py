"""A known tool's table compared with the limits of its machine, as plain text, for `explain`.

The answer comes first: the verdict, the limit, the likeliest cause and the next step. The rows follow.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise

from railwright.checks.finding import Finding
from railwright.diagnosis.verdicts.judged import Judged
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.explain.fitted import ALIKE
from railwright.explain.table import CLEARLY, EXCLUDED, Explained, find_likely, names_setting
from railwright.explain.topology_matrix import SOURCE
from railwright.limits.limit import Limit, NoLimit
from railwright.report.text import wording
from railwright.report.text.collectives import labelled
from railwright.results.records import find_size
from railwright.terminal import text_width
from railwright.units import format_count, format_size

_WIDEST_NAME, _WIDEST_NAME_WITH_ROOM = 38, 62
_LONG_WORD = 20
_COLUMNS_WITHOUT_NAME = 44
"""The minimum width of a row in characters, without the name."""
_WIDEST_SHOWN = 23
_MAX_SETTINGS = 3
_MAX_NEXT = 2
_MORE_SIZES = (
    "the same test with more and larger sizes, to 1 GiB or more (nccl-tests: -b 1M -e 4G -f 2; OSU: -m 1:1073741824;"
    " perftest: -a)"
)
_TOOLS_WITH_SIZES = ("nccl-tests", "OSU", "perftest")
_LARGE_BYTES = 2**28
"""From this size the bytes decide the time of every collective and message."""
_OPEN_BAND = "{} and up"


def render_explained(found: Explained) -> str:
    """Render verdict, limit, cause and next step, then the rows, the hypotheses, the findings and the notes."""
    return "\n".join(_lines(found))


def _lines(found: Explained) -> Iterator[str]:
    if found.wrong_machine:
        yield from textwrap.wrap(wording.escape(found.wrong_machine), text_width(), break_long_words=False)
        yield ""
    yield from textwrap.wrap(_title(found), text_width(), break_long_words=False, break_on_hyphens=False)
    yield ""
    if found.contradictions:
        yield from labelled("but", *found.contradictions)
    yield from labelled("verdict", f"{wording.state_word(found.verdict.state)}: {found.verdict.why}")
    yield from _cause(found)
    yield from _format_limits(found)
    yield ""
    yield from _table(found)
    yield from _hypotheses(found)
    settings = [finding for finding in found.findings if names_setting(finding)]
    yield from format_findings("settings recorded with the table", settings)
    yield from format_findings(
        "findings on the machine given", [finding for finding in found.findings if finding not in settings]
    )
    if found.notes:
        yield ""
        yield from labelled("note", *found.notes)


def _title(found: Explained) -> str:
    ranks = f", {format_count(found.ranks, 'rank')}" if found.ranks else ""
    hosts = f" on {format_count(found.hosts, 'host')}" if found.hosts else ""
    against = ", no machine given"
    if found.machine:
        against = f", compared with {wording.escape(found.machine)}, {found.scale}"
    test = "" if found.test == found.tool.rpartition(" ")[2].lower() else found.test
    test = test.removeprefix(f"{found.tool.lower()} ")
    return f"{wording.escape(' '.join(filter(None, (found.tool, found.version, test))))}{ranks}{hosts}{against}"


def _format_limits(found: Explained) -> Iterator[str]:
    """Yield band, limit and source of the table's headline row, or its measured value if it has no limit."""
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
    kind = "" if row.limit.kind == "derived" else " (measured)"
    yield from labelled("limit", f"{format_quantity(row.quantity, row.limit.value)}{unit}{kind}: {row.limit.because}")
    yield from labelled("source", "; ".join(map(str, row.limit.sources)))


def _cause(found: Explained) -> Iterator[str]:
    """Yield cause and next step: settings seen in the run, else findings in the table, else the nearest fault."""
    if found.verdict.state not in ("slow", "unknown"):
        return
    seen = [finding for finding in found.findings if finding.certainty == "seen" and names_setting(finding)]
    if seen:
        words = "; ".join(f"{finding.fault}: {finding.says}" for finding in seen[:_MAX_SETTINGS])
        yield from labelled("seen", f"forced setting, {words}")
        yield from labelled("next", "; ".join(dict.fromkeys(finding.remedy for finding in seen[:_MAX_SETTINGS])))
    elif shown := [
        finding for finding in found.findings if any(seen.claim in ("curve", SOURCE) for seen in finding.evidence)
    ]:
        yield from labelled("perhaps", "; ".join(f"{finding.fault}: {finding.says}" for finding in shown))
        yield from labelled("next", "; ".join(finding.remedy for finding in shown))
    elif (likely := list(_likeliest(found))) or not found.next_command:
        yield from likely
    else:
        yield from labelled("next", *([_MORE_SIZES] if _ends_early(found) else []), found.next_command)


def _ends_early(found: Explained) -> bool:
    """Report whether a larger size may judge a table that is unknown."""
    if found.headline is None or found.verdict.state != "unknown" or found.tool not in _TOOLS_WITH_SIZES:
        return False
    row = found.rows[found.headline]
    size = find_size(row.parameters)
    return row.quantity != "latency_s" and size is not None and size < _LARGE_BYTES


def _likeliest(found: Explained) -> Iterator[str]:
    """Yield the nearest fault and its command, if it is clearly nearer to the table than the healthy machine."""
    if len(found.hypotheses) < 2:
        return
    healthy, nearest = found.hypotheses[:2]
    if healthy.distance < CLEARLY * nearest.distance:
        return
    if found.cause_doubt:
        yield from labelled("cause", f"not known: {found.cause_doubt}")
        yield from labelled("next", *_list_next(found))
        return
    # A doubtful verdict has no likely cause.
    label = "likely" if find_likely(found) is not None else "perhaps"
    near = f"within a factor of {nearest.distance:.2f}, a healthy machine {healthy.distance:.2f}"
    yield from labelled(label, f"{nearest.fault}: {nearest.says} ({near})")
    yield from labelled("next", nearest.tell_apart)


def _list_next(found: Explained) -> tuple[str, ...]:
    """Return the commands that would tell the nearest hypotheses apart."""
    nearest = found.hypotheses[1]
    if not found.cause_doubt.startswith(ALIKE):
        return (_MORE_SIZES, nearest.tell_apart)
    near = (other for other in found.hypotheses[1:] if other.distance <= CLEARLY * nearest.distance)
    return tuple(dict.fromkeys(other.tell_apart for other in near if other.tell_apart))[:_MAX_NEXT]


def _table(found: Explained) -> Iterator[str]:
    """Yield the rows, with the tool's own string where it differs from the value; without a machine none is judged."""
    names = _names(found.rows)
    width = max(map(len, names), default=4)
    judged = any(not isinstance(row.limit, NoLimit) for row in found.rows)
    failed = any(row.verdict.state == "failed" for row in found.rows)
    table = [("row", "the tool says", found.bandwidths_are or "measured", "of limit", "expected", "verdict")]
    for name, row, shown in zip(names, found.rows, found.shown, strict=True):
        value = format_quantity(row.quantity, row.value) if row.value is not None else "none"
        share = f"{row.fraction_of_limit:.3f}" if row.fraction_of_limit is not None else ""
        band = wording.band_words(row.expected, _OPEN_BAND)
        state = wording.state_word(row.verdict.state)
        table.append((name, wording.escape(shown)[:_WIDEST_SHOWN], value, share, band, state))
    wide = max(len(row[4]) for row in table)
    # A narrow terminal drops the tool's own string first, then the share of the limit.
    wanted = (0 if found.bandwidths_are else _WIDEST_SHOWN + 2, 10 * judged, (wide + 1) * judged)
    shown_width, share_width, band_width = _room(width, wanted)
    for name, shown_words, value, share, band, state in table:
        line = f"  {name:{width}}{shown_words[:shown_width]:>{shown_width}}{value:>14}"
        line += f"{share[:share_width]:>{share_width}}   {band[:band_width]:{band_width}}"
        yield f"{line} {state}" if judged or failed else line.rstrip()


def _room(name: int, columns: Sequence[int]) -> list[int]:
    """Return the widths of the columns; a narrow terminal drops the first ones, which get width 0."""
    left = list(columns)
    for place in range(len(left)):
        if 2 + name + 14 + 3 + 11 + sum(left) > text_width():
            left[place] = 0
    return left


def _names(rows: tuple[Judged, ...]) -> list[str]:
    """Name each row by its size and by the parameters that differ between rows."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for key, value in row.parameters.items():
            values.setdefault(key, set()).add(str(value))
    varied = [key for key, found in values.items() if len(found) > 1 and key != "size_bytes"]
    varied.sort(key=lambda key: max(map(len, values[key])) > _LONG_WORD)  # the longest may be cut off
    if not varied and all("size_bytes" not in row.parameters for row in rows):
        varied = [key for key in values if key in ("n", "nb", "p", "q")]
    quantities = len({row.quantity for row in rows}) > 1
    max_width = max(_WIDEST_NAME, min(_WIDEST_NAME_WITH_ROOM, text_width() - _COLUMNS_WITHOUT_NAME))
    names = []
    for row in rows:
        size = find_size(row.parameters)
        words = [f"{format_size(size):9}"] if size is not None else []
        pairs = ((key, row.parameters[key]) for key in varied if key in row.parameters)
        words += [value.replace("_", " ") if isinstance(value, str) else f"{key}={value}" for key, value in pairs]
        words += [row.quantity.partition("_")[0]] if quantities else []
        names.append(wording.escape(" ".join(words))[:max_width].rstrip())
    return names


def _hypotheses(found: Explained) -> Iterator[str]:
    """Yield the hypotheses by distance. A command that tells several apart follows the last of them."""
    fitted = found.hypotheses
    if not fitted:
        return
    yield ""
    title = "faults that would give such a curve (typical factor between curve and table; 1.00 is equal)"
    yield from textwrap.wrap(title, text_width())
    for hypothesis, following in pairwise((*fitted, None)):
        assert hypothesis is not None
        yield from labelled(f"x{hypothesis.distance:.2f}", f"{hypothesis.fault}: {hypothesis.says}", indent=2)
        if hypothesis.tell_apart and (following is None or following.tell_apart != hypothesis.tell_apart):
            yield from labelled("", f"tell apart: {hypothesis.tell_apart}", indent=2)
    if len(fitted) == 1:
        nothing = "no known fault is nearer to the table than the healthy machine"
        if any(EXCLUDED in note for note in found.notes):
            nothing = "no other fault is left: the notes say what excludes those that were nearer"
        yield from textwrap.wrap(nothing, text_width(), initial_indent="  ", subsequent_indent="  ")


def format_findings(title: str, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the findings below a title, each with its cost and remedy, which like findings in a row share."""
    if findings:
        yield ""
        yield title
    for place, finding in enumerate(findings):
        both = ("costs", finding.costs), ("remedy", finding.remedy)
        following = findings[place + 1] if place + 1 < len(findings) else None
        shared = following is not None and both == (("costs", following.costs), ("remedy", following.remedy))
        more = [f"{label}: {text}" for label, text in both if text and not shared]
        yield from labelled(finding.certainty, f"{finding.fault}: {finding.says}", *more, indent=2)
