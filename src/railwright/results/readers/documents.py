"""Texts in the form of what they were sent or kept in: quoted-printable of mails, HTML of their archives."""

from __future__ import annotations

import quopri
import re
from html.parser import HTMLParser

_LOOKED_AT = 200_000
"""Characters at the beginning that tell the form of a text."""
_LEAST_SIGNS = 4
_ESCAPED = re.compile(r"=3D|=[0-9A-F]{2}=[0-9A-F]{2}")
_SOFT_BREAK = re.compile(r"(?m)[^=\s]=$")
_TAG = re.compile(r"</?(?:br|span|pre|div|p|code|td|tr|li)\b[^<>]{0,200}>", re.IGNORECASE)
_LINES = frozenset({"p", "div", "tr", "li", "pre", "table"})


def plain(text: str) -> str:
    """The text as the tool printed it; any other as it is."""
    begin = text[:_LOOKED_AT]
    if "=3D" in begin and len(_ESCAPED.findall(begin)) >= _LEAST_SIGNS and _SOFT_BREAK.search(begin):
        text = quopri.decodestring(text.encode()).decode(errors="replace")
        begin = text[:_LOOKED_AT]
    if "<" in begin and len(_TAG.findall(begin)) >= _LEAST_SIGNS:
        reader = _Reader()
        reader.feed(text)
        reader.close()
        return "".join(reader.parts)
    return text


class _Reader(HTMLParser):
    """What a browser would show of the text, line by line; a line that the source broke stays broken."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._broke = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self._broke = tag == "br"
        if tag == "br":
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _LINES:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        self.parts.append(data.removeprefix("\n") if self._broke else data)
        self._broke = False
