"""A known tool's table beside what the machine can reach, as plain text, for `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.diagnosis.explain import Explained
from railwright.diagnosis.hypotheses import Fitted
from railwright.diagnosis.model import Judged
from railwright.diagnosis.verdict import format_quantity
from railwright.limits.model import Limit
from railwright.report import wording
from railwright.topology.model import Scalar
from railwright.units import format_size


def render_explained(found: Explained) -> str:
    """Head, a line for each row, verdict with its limit, the hypotheses, what the settings show, notes."""
    return "\n".join(_lines(found))


def _lines(found: Explained) -> Iterator[str]:
    yield _title(found)
    yield ""
    yield from _table(found)
    yield ""
    yield f"verdict   {found.verdict.state}: {wording.visible(found.verdict.why)}"
    if found.headline is not None:
        limit = found.rows[found.headline].limit
        if isinstance(limit, Limit):
            yield f"limit     {wording.visible(limit.because)}"
            yield f"source    {'; '.join(map(str, limit.sources))}"
    yield from _hypotheses(found.hypotheses)
    for number, finding in enumerate(found.findings):
        if number == 0:
            yield ""
            yield "the table's own settings"
        yield f"  {finding.certainty}: {wording.visible(finding.says)}"
        if finding.remedy:
            yield f"  {'':6}{wording.visible(finding.remedy)}"
    for number, note in enumerate(found.notes):
        if number == 0:
            yield ""
        yield f"{'note' if number == 0 else '':10}{wording.visible(note)}"


def _title(found: Explained) -> str:
    ranks = f", {found.ranks} ranks" if found.ranks else ""
    hosts = f" on {found.hosts} host{'s' if found.hosts != 1 else ''}" if found.hosts else ""
    against = f", held against {wording.visible(found.machine)}" if found.machine else ", no machine given"
    test = "" if found.test == found.tool.rpartition(" ")[2].lower() else found.test
    return f"{wording.visible(' '.join(filter(None, (found.tool, found.version, test))))}{ranks}{hosts}{against}"


def _table(found: Explained) -> Iterator[str]:
    unit = found.bandwidths_are or "measured"
    names = _names(found.rows)
    width = min(40, max(map(len, names), default=4))
    yield f"  {'row':{width}}{'the tool says':>24}{unit:>12}{'of limit':>10}   {'expected':22} verdict"
    for name, row, shown in zip(names, found.rows, found.shown, strict=True):
        value = format_quantity(row.quantity, row.value) if row.value is not None else "none"
        share = f"{row.fraction_of_limit:.3f}" if row.fraction_of_limit is not None else ""
        said = wording.visible(shown)[:23]
        yield f"  {name[:width]:{width}}{said:>24}{value:>12}{share:>10}   {_band(row):22} {row.verdict.state}"


def _names(rows: tuple[Judged, ...]) -> list[str]:
    """Each row's size and what else differs between rows; what all rows have in common names none of them."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for key, value in row.parameters.items():
            values.setdefault(key, set()).add(str(value))
    varied = [key for key, found in values.items() if len(found) > 1 and key != "size_bytes"]
    if not varied and all("size_bytes" not in row.parameters for row in rows):
        varied = [key for key in values if key in ("n", "nb", "p", "q")]
    quantities = len({row.quantity for row in rows}) > 1
    names = []
    for row in rows:
        size = row.parameters.get("size_bytes")
        words = [f"{format_size(size):9}"] if isinstance(size, int) else []
        words += [_word(key, row.parameters[key]) for key in varied if key in row.parameters]
        words += [row.quantity.partition("_")[0]] if quantities else []
        names.append(wording.visible(" ".join(words)))
    return names


def _word(key: str, value: Scalar) -> str:
    return str(value).replace("_", " ") if isinstance(value, str) else f"{key}={value}"


def _band(row: Judged) -> str:
    if row.expected is None:
        return "unknown"
    low = format_quantity(row.quantity, row.expected.low)
    if row.expected.high is None:
        return f"{low} and up"
    return f"{low} to {format_quantity(row.quantity, row.expected.high)}"


def _hypotheses(fitted: tuple[Fitted, ...]) -> Iterator[str]:
    if not fitted:
        return
    yield ""
    yield "what would give such a curve (the typical factor between it and the table; 1.00 is the same)"
    for one in fitted:
        yield f"  x{one.distance:<7.2f}{one.fault}: {wording.visible(one.says)}"
        if one.tell_apart:
            yield f"  {'':8}tell apart: {wording.visible(one.tell_apart)}"
    if len(fitted) == 1:
        yield "  no known fault comes nearer to the table than the healthy machine"
