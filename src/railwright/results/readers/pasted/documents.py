"""Removal of document formats: mail, HTML archives, escaped markdown, line numbers, colors, tabs, Unicode spaces.

It uses no HTML parser. Only the text between the tags is needed, and the time of Python's parser grows with the square
or more on a malicious page.
"""

from __future__ import annotations

import re
from itertools import pairwise

from railwright.results.readers.pasted.prefixes import COLOUR

_FORMAT_CHARACTERS = 200_000
"""The number of leading characters that decide the format of a text."""
_LEAST_SIGNS = 4
_ESCAPED = re.compile(r"=3D|=[0-9A-F]{2}=[0-9A-F]{2}")
_SOFT_BREAK = re.compile(r"(?m)[^=\s]=$")
_PRE = re.compile(r"<pre\b[^<>]{0,200}>", re.IGNORECASE)
_KNOWN = re.compile(r"</?(?:br|span|pre|div|p|code|td|tr|li)\b[^<>]{0,200}>", re.IGNORECASE)
_BREAK = re.compile(r"<br\b[^<>]{0,200}>\n?|</(?:p|div|tr|li|pre|table)\s{0,20}>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-z][^<>]{0,1000}>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:lt|gt|quot|nbsp);")
_SLASHED = re.compile(r"\\([#_*\[\]<>|`~])")
_BOLD = re.compile(r"\*\*([^*\n]{1,120})\*\*")
_SPACES = str.maketrans({**dict.fromkeys(map(chr, (0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)), " "),
                         **dict.fromkeys(map(chr, (0x200B, 0x2060, 0xFEFF)), None)})  # fmt: skip
"""Spaces of web pages and word processors, and characters of zero width."""
_TABS = re.compile(r"\t+")
_BLANKS = "  "
"""The spaces in place of tabs: two tell columns from words."""
_NUMBERED = re.compile(r"[ \t]{0,8}(\d{1,6})(?:[:|\t-] ?| \| ?| {1,2}|$)")
_LEAST_LINES = 6
_LEAST_BY_COLON = 3
_LEAST_BY_TAB = 3
_FORMAT_LINES = 400


def extract_text(text: str) -> str:
    """Return the text as the tool printed it, or unchanged. A line that the source broke stays broken."""
    if not text.isascii():
        text = text.translate(_SPACES)
    if "\x1b" in text:
        text = COLOUR.sub("", text)
    text = _remove_markup(text.replace("\r\n", "\n"))
    begin = text[:_FORMAT_CHARACTERS]
    if _ENTITY.search(begin):
        import html

        text = html.unescape(text)
    if len(_SLASHED.findall(begin)) >= _LEAST_SIGNS:
        text = _SLASHED.sub(r"\1", text)
    if "**" in begin:
        text = _BOLD.sub(r"\1", text)
    text = _remove_line_numbers(text)
    return _TABS.sub(_BLANKS, text) if "\t" in text else text


def _remove_markup(text: str) -> str:
    """Convert a mail or a web page to its text."""
    begin = text[:_FORMAT_CHARACTERS]
    if "=3D" in begin and len(_ESCAPED.findall(begin)) >= _LEAST_SIGNS and _SOFT_BREAK.search(begin):
        import quopri

        text = quopri.decodestring(text.encode()).decode(errors="replace")
        begin = text[:_FORMAT_CHARACTERS]
    if "<" in begin and (len(_KNOWN.findall(begin)) >= _LEAST_SIGNS or _PRE.search(begin)):
        import html

        return html.unescape(_TAG.sub("", _BREAK.sub("\n", text)))
    return text


def _remove_line_numbers(text: str) -> str:
    """Remove the line numbers that editors, `cat -n` and `grep -n` write."""
    lines = text.split("\n")
    filled = [line for line in lines[:_FORMAT_LINES] if line.strip()]
    found = [match for line in filled if (match := _NUMBERED.match(line))]
    by_colon = all(match[0].rstrip().endswith(":") for match in found)
    is_short = len(filled) < (_LEAST_BY_COLON if by_colon else _LEAST_LINES)
    if len(filled) < _LEAST_BY_TAB or len(found) < len(filled):
        return text
    steps = [int(after[1]) - int(before[1]) for before, after in pairwise(found)]
    if is_short and (set(steps) != {1} or not all("\t" in match[0] for match in found)):
        return text
    if min(steps) < 1 or steps.count(1) * 2 < len(steps):  # sizes rise by more than one
        return text
    return "\n".join(_NUMBERED.sub("", line, count=1) for line in lines)
