"""A search as one page that needs no network: pictures first, then each suspect with what to do, and what was tested.

The page, its policy and its style are those of the report of a run (`offline_page`); it holds no script.
"""

from __future__ import annotations

from railwright.locate.search import Located
from railwright.report.pages.offline_page import as_it_is, render_page
from railwright.report.pictures.locate import fabric_svg, matrix_svg, times_svg
from railwright.report.text.locate import cost_rows, suspect_words
from railwright.units import count

_MOST_LISTED = 200


def render_located_html(found: Located) -> str:
    """The whole page."""
    listed = found.suspects[:_MOST_LISTED]
    fields = {
        "found": found,
        "title": count(len(found.suspects), "suspect") if found.suspects else "no suspects",
        "suspects": [(one, suspect_words(one)) for one in listed],
        "left_out": len(found.suspects) - len(listed),
        "rows": list(cost_rows(found)),
        "fabric_svg": as_it_is(fabric_svg(found)),
        "matrix_svg": as_it_is(matrix_svg(found)),
        "times_svg": as_it_is(times_svg(found)),
    }
    return render_page("locate.html.j2", [], fields)
