"""A page that needs no network: a single HTML file that contains its script, its style and plotly.js.

The policy allows the page's own script and plotly.js by their hashes and nothing else, so no name from a machine can
become code. Jinja2 escapes all text; the figures' data is escaped JSON that a browser never runs.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

import railwright
from railwright.diagnosis.verdicts.judged import State
from railwright.errors import RailwrightError
from railwright.report.text import wording

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

# `unsafe-inline` for styles only: plotly.js sets style attributes on what it draws and adds a style sheet of its own.
# A style can neither run code nor, with default-src 'none', send anything.
_POLICY = "default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table behind a figure."""

    series: str
    size: str
    cells: tuple[str, ...]
    state: State


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with a summary in words, and with its table of numbers, if it has one."""

    title: str
    summary: str
    data: tuple[dict[str, Any], ...]
    """Traces as plotly.js reads them; a test checks them against plotly's schema."""
    layout: dict[str, Any]
    caption: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()


def plotly_text(words: str) -> str:
    """Escape words for plotly.js, which interprets some HTML tags in its text."""
    return html.escape(words, quote=False)


def render_page(template: str, figures: Sequence[Figure], fields: dict[str, Any]) -> str:
    """Render a page from its template with script, style, policy and the figures' data.

    Raises RailwrightError if plotly.js cannot be embedded.
    """
    scripts = {"plotly_js": _plotly_js() if figures else "", "page_js": template_text("report.js")}
    hashes = " ".join(_hash(script) for script in scripts.values() if script)
    drawn = [{"data": figure.data, "layout": figure.layout} for figure in figures]
    page = _environment().get_template(template)
    return page.render(
        policy=mark_safe(_POLICY.format(hashes=hashes)),
        css=mark_safe(template_text("report.css")),
        figures=figures,
        figures_json=mark_safe(_script_json(drawn)),
        **{name: mark_safe(script) for name, script in scripts.items()},
        **fields,
    )


def mark_safe(text: str) -> Markup:
    """Mark text that must not be escaped: our own, plotly's, or text that `_script_json` or a caller made safe."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("railwright.report.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = wording.escape
    environment.globals.update(words=wording, states=wording.STATES, version=railwright.__version__)
    return environment


def template_text(name: str) -> str:
    """Read a file of `templates/`."""
    return resources.files("railwright.report.pages").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _plotly_js() -> str:
    """Return plotly.js from its package, which has a single bundle for all kinds of charts (4.8 MB)."""
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    if "</script" in source.lower() or "<!--" in source:
        raise RailwrightError(
            "plotly.js must not contain text that would end its script element",
            hint="install the version of plotly in railwright's lock file",
        )
    return source.replace("\r\n", "\n")  # a browser's parser does the same, and the hash must match


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _script_json(value: object) -> str:
    """Encode JSON for a script element: without `<`, which could end it, or separators that break old parsers."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
