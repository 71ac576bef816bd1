"""An acceptance sheet as a page to print and sign; each value names the lines of its records."""

from __future__ import annotations

from railwright.diagnosis.acceptance.lines import Sheet, SheetLine
from railwright.report.pages.offline_page import render_page
from railwright.report.text import acceptance as acceptance_text


def render_acceptance(sheet: Sheet) -> str:
    """Render the whole page."""
    fields = {
        "sheet": sheet,
        "answer": acceptance_text.summarize(sheet),
        "items": [(asked, state, acceptance_text.tally(lines), [_row(line) for line in lines])
                  for asked, state, lines in acceptance_text.items(sheet)],
        "signs": acceptance_text.SIGNS,
    }  # fmt: skip
    return render_page("acceptance.html.j2", [], fields)


def _row(line: SheetLine) -> tuple[str, str, str, str, str, str]:
    """Return subject, measured value, limit, state, reason and records of a line."""
    value, limit = (acceptance_text.quantity_words(line, number) for number in (line.value, line.limit))
    return acceptance_text.subject(line), value, limit, line.state, line.why, ", ".join(line.records)
