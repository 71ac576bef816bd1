"""A page that needs no network: one HTML file with its script, its style and plotly.js inside.

The page's own script and plotly.js are allowed by their hashes and nothing else may run, so that no name from a
machine can become code. All text is escaped by Jinja2; the figures' data is escaped JSON that a browser never runs.
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
    """One line of the table behind a figure."""

    series: str
    size: str
    cells: tuple[str, ...]
    state: State


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, what it shows in words, and the table of its numbers where it has one of its own."""

    title: str
    summary: str
    data: tuple[dict[str, Any], ...]
    """Traces as plotly.js reads them; a test holds them against plotly's schema."""
    layout: dict[str, Any]
    caption: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()


def plotly_text(words: str) -> str:
    """Words for plotly.js, which reads some HTML tags in its text."""
    return html.escape(words, quote=False)


def render_page(template: str, figures: Sequence[Figure], fields: dict[str, Any]) -> str:
    """The page from its template, with script, style, policy and the figures' data filled in.

    Raises RailwrightError if plotly.js cannot stand in it.
    """
    scripts = {"plotly_js": _plotly_js() if figures else "", "page_js": template_text("report.js")}
    hashes = " ".join(_hash(script) for script in scripts.values() if script)
    drawn = [{"data": figure.data, "layout": figure.layout} for figure in figures]
    page = _environment().get_template(template)
    return page.render(
        policy=as_it_is(_POLICY.format(hashes=hashes)),
        css=as_it_is(template_text("report.css")),
        figures=figures,
        figures_json=as_it_is(_script_json(drawn)),
        **{name: as_it_is(script) for name, script in scripts.items()},
        **fields,
    )


def as_it_is(text: str) -> Markup:
    """Text that must not be escaped: only our own, plotly's, and what `_script_json` or a caller made safe."""
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
    environment.filters["visible"] = wording.visible
    environment.globals.update(words=wording, states=wording.STATES, version=railwright.__version__)
    return environment


def template_text(name: str) -> str:
    """A file of `templates/` as it is."""
    return resources.files("railwright.report.pages").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _plotly_js() -> str:
    """plotly.js as its package brings it; it has one bundle, of all kinds of charts, 4.8 MB."""
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    if "</script" in source.lower() or "<!--" in source:
        raise RailwrightError(
            "this version of plotly.js holds text that would end the script it stands in",
            hint="install the version of plotly that railwright's lock file names",
        )
    return source.replace("\r\n", "\n")  # as a browser's parser does, or the hash would not fit


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _script_json(value: object) -> str:
    """JSON that can stand in a script element: no `<` to end it, no line separators that old parsers trip over."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
