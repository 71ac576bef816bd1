"""Texts in the form of what they were sent or kept in: quoted-printable of mails, HTML of their archives.

No HTML parser: what is needed is the text between the tags, and Python's takes time that grows with the square, or
more, of a page made to do so.
"""

from __future__ import annotations

import html
import quopri
import re

_LOOKED_AT = 200_000
"""Characters at the beginning that tell the form of a text."""
_LEAST_SIGNS = 4
_ESCAPED = re.compile(r"=3D|=[0-9A-F]{2}=[0-9A-F]{2}")
_SOFT_BREAK = re.compile(r"(?m)[^=\s]=$")
_KNOWN = re.compile(r"</?(?:br|span|pre|div|p|code|td|tr|li)\b[^<>]{0,200}>", re.IGNORECASE)
_BREAK = re.compile(r"<br\b[^<>]{0,200}>\n?|</(?:p|div|tr|li|pre|table)\s{0,20}>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-z][^<>]{0,1000}>", re.IGNORECASE)


def plain(text: str) -> str:
    """The text as the tool printed it; any other as it is. A line that the source broke stays broken."""
    begin = text[:_LOOKED_AT]
    if "=3D" in begin and len(_ESCAPED.findall(begin)) >= _LEAST_SIGNS and _SOFT_BREAK.search(begin):
        text = quopri.decodestring(text.encode()).decode(errors="replace")
        begin = text[:_LOOKED_AT]
    if "<" in begin and len(_KNOWN.findall(begin)) >= _LEAST_SIGNS:
        return html.unescape(_TAG.sub("", _BREAK.sub("\n", text)))
    return text
