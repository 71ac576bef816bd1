"""A page that needs no network: a single HTML file that contains its drawings, its style and its script.

The policy allows the page's own script by its hash and nothing else, so no name from a machine can become code.
Jinja2 escapes all text; the drawings escape theirs.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

import railwright
from railwright.report.pictures.chart import Figure, markers
from railwright.report.text import wording

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

# `unsafe-inline` for styles only: a drawing has a style sheet of its own, so that it can leave the page.
# A style can neither run code nor, with default-src 'none', send anything.
_POLICY = "default-src 'none'; script-src {script}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render_page(template: str, figures: Sequence[Figure], fields: dict[str, Any]) -> str:
    """Render a page from its template with its script, its style, its policy and the figures."""
    script = template_text("report.js")
    return (
        _environment()
        .get_template(template)
        .render(
            policy=mark_safe(_POLICY.format(script=_hash(script))),
            css=mark_safe(template_text("report.css")),
            page_js=mark_safe(script),
            figures=figures,
            **fields,
        )
    )


def mark_safe(text: str) -> Markup:
    """Mark text that must not be escaped: our own, or text that a caller made safe."""
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
    environment.filters["drawn"] = mark_safe
    environment.filters["kept"] = _keep_together
    environment.globals.update(words=wording, states=wording.STATES, markers=markers, version=railwright.__version__)
    return environment


def _keep_together(words: str) -> Markup:
    """Keep each number with its unit, and each name with hyphens or slashes, on a line."""
    tokens = re.sub(r"(?<=\d) (?=[A-Za-z%])", "\u00a0", words).split(" ")
    return mark_safe(" ".join("".join(map(_keep, re.split(r"(?<=>)", token))) for token in tokens))


def _keep(name: str) -> str:
    return f'<span class="whole">{escape(name)}</span>' if re.search(r"[-/]", name) else escape(name)


def template_text(name: str) -> str:
    """Read a file of `templates/`."""
    return resources.files("railwright.report.pages").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
