"""An acceptance sheet in lines: each item with the number of values met, and the worst values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from railwright.diagnosis.acceptance.lines import WORST_FIRST, LineState, Sheet, SheetLine, worst_state
from railwright.groups import group_by_key
from railwright.report.text import wording
from railwright.units import format_count

SIGNS: dict[LineState, str] = {"met": wording.STATES["ok"].sign, "not met": wording.STATES["slow"].sign,
                              "not judged": wording.STATES["unknown"].sign}  # fmt: skip
_MAX_BAD_LINES = 4
_MEANING: dict[LineState, str] = {"met": "every line of the sheet is met", "not met": "a line of the sheet is not met",
                                 "not judged": "a line of the sheet could not be judged"}  # fmt: skip


def items(sheet: Sheet) -> list[tuple[str, LineState, list[SheetLine]]]:
    """Return each requirement with its standing and its lines, unmet lines first."""
    found = []
    for _, lines in group_by_key(sheet.lines, lambda line: (line.item, line.asked)):
        ordered = sorted(lines, key=lambda line: WORST_FIRST.index(line.state))
        found.append((lines[0].asked, worst_state(line.state for line in lines), ordered))
    return found


def summarize(sheet: Sheet) -> str:
    """Summarize the sheet in one sentence."""
    states = Counter(state for _, state, _ in items(sheet))
    counted = ", ".join(f"{number} {state}" for state, number in states.most_common())
    answer = "Accepted" if sheet.state == "met" else "Not accepted"
    return f"{answer}: of {format_count(sum(states.values()), 'line')} {counted}"


def closing_words(sheet: Sheet) -> str:
    """Format the exit status and its meaning."""
    return f"Exit status {sheet.exit_status}: {_MEANING[sheet.state]}."


def subject(line: SheetLine) -> str:
    """Name the host, the path and the parameters of a line."""
    varied = wording.parameter_words(line.parameters)
    return ", ".join(filter(None, (wording.escape(line.host), f"{line.benchmark} {line.path}".strip(), varied)))


def quantity_words(line: SheetLine, value: float | None) -> str:
    """Format a value or a limit of a line, like `6.1 GB/s`, or a dash."""
    return wording.quantity(line.quantity, value) if line.quantity else wording.ABSENT


def tally(lines: Sequence[SheetLine]) -> str:
    """Count the lines that are met, like `4 of 4 met`."""
    return f"{sum(line.state == 'met' for line in lines)} of {len(lines)} met"


def text_lines(sheet: Sheet) -> Iterator[str]:
    """Yield the sheet for a terminal, without its summary: that is the first line of the report."""
    yield ""
    yield wording.escape(", ".join(filter(None, (sheet.title, sheet.reference))))
    for asked, state, lines in items(sheet):
        yield f"  {SIGNS[state]} {wording.escape(asked)}: {tally(lines) if len(lines) > 1 else lines[0].state}"
        bad = [line for line in lines if line.state != "met"]
        for line in bad[:_MAX_BAD_LINES]:
            yield "      " + ": ".join(filter(None, (subject(line), _value_and_reason(line))))
        if len(bad) > _MAX_BAD_LINES:
            yield f"      and {len(bad) - _MAX_BAD_LINES} more"


def _value_and_reason(line: SheetLine) -> str:
    value = "" if line.value is None else f"{quantity_words(line, line.value)}, "
    return f"{value}{wording.escape(line.why)}"
