"""A search as a page without network access: pictures, then the suspects with their next steps, and the coverage.

The page shares its policy and its style with the report of a run (`offline_page`); it contains no script.
"""

from __future__ import annotations

from railwright.locate.search import Located
from railwright.report.pages.offline_page import mark_safe, render_page
from railwright.report.pictures.locate import fabric_svg, matrix_svg, times_svg
from railwright.report.text.locate import capacity_words, confidence_words, cost_rows, suspect_words
from railwright.units import format_count

_MAX_LISTED = 200


def render_located_html(found: Located) -> str:
    """Render the whole page."""
    listed = found.suspects[:_MAX_LISTED]
    fields = {
        "found": found,
        "title": format_count(len(found.suspects), "suspect") if found.suspects else "no suspects",
        "suspects": [(suspect, suspect_words(suspect)) for suspect in listed],
        "capacity_words": capacity_words,
        "confidence_words": confidence_words,
        "left_out": len(found.suspects) - len(listed),
        "rows": list(cost_rows(found)),
        "fabric_svg": mark_safe(fabric_svg(found)),
        "matrix_svg": mark_safe(matrix_svg(found)),
        "times_svg": mark_safe(times_svg(found)),
    }
    return render_page("locate.html.j2", [], fields)
