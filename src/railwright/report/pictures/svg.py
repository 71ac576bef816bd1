"""The sheet for pictures: a self-contained SVG that fits on a phone without scrolling sideways.

It follows the reader's light or dark setting, contains no script, loads nothing, and escapes all text.
"""

from __future__ import annotations

from html import escape

from railwright.report.pages.offline_page import template_text
from railwright.report.text.topology_words import clean

WIDTH = 400
MARGIN = 8
NOTE_CHARACTERS = 80


class Sheet:
    """The elements drawn so far; the next part starts at `y`. `name` is the style sheet in `templates/`."""

    def __init__(self, name: str) -> None:
        self.y = 0.0
        self._name = name
        self._back: list[str] = []
        self._middle: list[str] = []
        self._front: list[str] = []

    def text(self, x: float, y: float, words: str, style: str, room: int, *, anchor: str = "start") -> None:
        """Draw text, cut to `room` characters."""
        words = clean(words)
        words = words[: max(room - 1, 0)] + "…" if len(words) > room else words
        end = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._front.append(f'<text x="{x:g}" y="{y:g}" class="{style}"{end}>{escape(words)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, style: str, *, behind: bool = False, title: str = ""
    ) -> None:
        """Draw a rectangle with round corners; its title is the tooltip."""
        end = f"><title>{escape(clean(title))}</title></rect>" if title else "/>"
        element = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" class="{style}"{end}'
        (self._back if behind else self._front).append(element)

    def line(self, steps: str, style: str, *, dash: str = "", behind: bool = False) -> None:
        """Draw a line; `behind` puts it below boxes and words, but above the background."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        (self._middle if behind else self._front).append(f'<path d="{steps}" class="{style}"{dashes}/>')

    def note(self, words: str) -> None:
        """Draw a line of small text across the picture."""
        self.y += 13
        self.text(MARGIN, self.y, words, "s", NOTE_CHARACTERS)

    def document(self, title: str) -> str:
        """Return the whole SVG."""
        height, style = self.y + MARGIN, template_text(f"{self._name}.css")
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="rw-{self._name}" viewBox="0 0 {WIDTH} {height:g}"'
            f' width="100%" style="max-width:720px" role="img"><title>{escape(title)}</title><style>\n{style}</style>'
            f'<rect width="{WIDTH}" height="{height:g}" style="fill:var(--rw-page)"/>'
        )
        return "\n".join([head, *self._back, *self._middle, *self._front, "</svg>"]) + "\n"
