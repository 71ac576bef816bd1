"""An acceptance sheet as a page to print and sign; each value names the lines of its records."""

from __future__ import annotations

from railwright.diagnosis.acceptance.lines import Sheet, SheetLine
from railwright.report.pages.offline_page import render_page
from railwright.report.text import acceptance as words_of


def render_acceptance(sheet: Sheet) -> str:
    """Render the whole page."""
    fields = {
        "sheet": sheet,
        "answer": words_of.answer(sheet),
        "items": [(asked, state, words_of.tally(lines), [_row(line) for line in lines])
                  for asked, state, lines in words_of.items(sheet)],
        "signs": words_of.SIGNS,
    }  # fmt: skip
    return render_page("acceptance.html.j2", [], fields)


def _row(line: SheetLine) -> tuple[str, str, str, str, str, str]:
    """Return subject, measured value, limit, state, reason and records of a line."""
    value, limit = (words_of.quantity_words(line, number) for number in (line.value, line.limit))
    return words_of.subject(line), value, limit, line.state, line.why, ", ".join(line.records)
