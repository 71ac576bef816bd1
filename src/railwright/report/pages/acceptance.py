"""An acceptance sheet as a page to print and sign; each value names the lines of the records that it rests on."""

from __future__ import annotations

import railwright
from railwright.diagnosis.acceptance.lines import Sheet, SheetLine
from railwright.report.pages.offline_page import render_page
from railwright.report.text import acceptance as words_of
from railwright.report.text import wording


def render_acceptance(sheet: Sheet) -> str:
    """The whole page."""
    fields = {
        "sheet": sheet,
        "answer": words_of.answer(sheet),
        "items": [(asked, state, words_of.tally(lines), [_row(one) for one in lines])
                  for asked, state, lines in words_of.items(sheet)],
        "signs": words_of.SIGNS,
        "version": railwright.__version__,
    }  # fmt: skip
    return render_page("acceptance.html.j2", [], fields)


def _row(line: SheetLine) -> tuple[str, str, str, str, str, str]:
    """Subject, measured, limit, state, why, records."""
    limit = wording.quantity(line.quantity, line.limit) if line.quantity else wording.ABSENT
    records = ", ".join(line.records)
    return words_of.subject(line), words_of.value_words(line), limit, line.state, line.why, records
