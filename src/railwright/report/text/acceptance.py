"""An acceptance sheet in lines: each item with how many of its values are met, and the worst of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from railwright.diagnosis.acceptance.lines import WORST_FIRST, Sheet, SheetLine, Standing, worst
from railwright.groups import grouped
from railwright.report.text import wording
from railwright.units import count

SIGNS: dict[Standing, str] = {"met": wording.STATES["ok"].sign, "not met": wording.STATES["slow"].sign,
                              "not judged": wording.STATES["unknown"].sign}  # fmt: skip
_MOST_TOLD = 4
_MEANING: dict[Standing, str] = {"met": "every line of the sheet is met", "not met": "a line of the sheet is not met",
                                 "not judged": "a line of the sheet could not be judged"}  # fmt: skip


def items(sheet: Sheet) -> list[tuple[str, Standing, list[SheetLine]]]:
    """What was asked, how it stands, and its lines, those that are not met first."""
    found = []
    for _, lines in grouped(sheet.lines, lambda one: (one.item, one.asked)):
        told = sorted(lines, key=lambda one: WORST_FIRST.index(one.state))
        found.append((lines[0].asked, worst(one.state for one in lines), told))
    return found


def answer(sheet: Sheet) -> str:
    """The first sentence."""
    states = Counter(state for _, state, _ in items(sheet))
    told = ", ".join(f"{number} {state}" for state, number in states.most_common())
    return f"{'Accepted' if sheet.state == 'met' else 'Not accepted'}: of {count(sum(states.values()), 'line')} {told}"


def closing_words(sheet: Sheet) -> str:
    """The exit status and what it means."""
    return f"Exit status {sheet.exit_status}: {_MEANING[sheet.state]}."


def subject(line: SheetLine) -> str:
    """Whose value it is."""
    varied = wording.parameter_words(line.parameters)
    return ", ".join(filter(None, (wording.visible(line.host), f"{line.benchmark} {line.path}".strip(), varied)))


def quantity_words(line: SheetLine, value: float | None) -> str:
    """The value or the limit of a line: `6.1 GB/s`, or a dash."""
    return wording.quantity(line.quantity, value) if line.quantity else wording.ABSENT


def tally(lines: Sequence[SheetLine]) -> str:
    """`4 of 4 met`."""
    return f"{sum(one.state == 'met' for one in lines)} of {len(lines)} met"


def text_lines(sheet: Sheet) -> Iterator[str]:
    """The sheet for a terminal."""
    yield ""
    yield wording.visible(", ".join(filter(None, (sheet.title, sheet.reference))))
    yield answer(sheet)
    for asked, state, lines in items(sheet):
        yield f"  {SIGNS[state]} {wording.visible(asked)}: {tally(lines) if len(lines) > 1 else lines[0].state}"
        bad = [one for one in lines if one.state != "met"]
        for one in bad[:_MOST_TOLD]:
            yield "      " + ": ".join(filter(None, (subject(one), _seen(one))))
        if len(bad) > _MOST_TOLD:
            yield f"      and {len(bad) - _MOST_TOLD} more"


def _seen(line: SheetLine) -> str:
    value = "" if line.value is None else f"{quantity_words(line, line.value)}, "
    return f"{value}{wording.visible(line.why)}"
