"""Removal of manual marks in a tool's lines: numbers in bold, an arrow, or a remark after a row."""

from __future__ import annotations

import re

_BOLD = re.compile(r"(?<![\w*`~])(\*{1,3}|`|~~)([^\s*`~]{1,40})\1(?![\w*`~])")
_MARK = (
    r"\s{1,40}(?:<{1,4}[-=~<]|<$|\u2190|\u21d0|\u21d2|\u2192|\u26a0|\u2705|\u274c|-{1,3}>|={1,3}>|//\s|#+\s|!{2,}"
    r"|\*{2,}[\s!A-Za-z]).*"
)
_REMARK = re.compile(rf"(?P<row>\d.*?\s\S{{1,40}}|\S.*?[\s|]\(?\d[\w.,%+/:()-]{{0,40}}){_MARK}")
"""A row that begins or ends with a number."""
_ARROW = re.compile(r"(?:-{1,3}>|={1,3}>|>{2,}|\u2192|\u21d2|\*)\s{0,4}(?=\d{1,19}\s{1,40}\d)")
_SIGNS = ("**", "`", "~~", "<", ">", "//", "# ", "!!", "*", "\u2190", "\u21d0", "\u21d2", "\u2192", "\u26a0",
          "\u2705", "\u274c")  # fmt: skip
_SIGN = re.compile("|".join(map(re.escape, _SIGNS)))
"""Every line with a mark contains one of these characters, which makes the test cheap."""
_LONGEST = 400


def remove_marks(line: str) -> str:
    """Remove manual marks from a row. Other lines are unchanged."""
    if len(line) > _LONGEST or not _SIGN.search(line) or "NCCL " in line:
        return line  # an NCCL message that may be torn into a row; the row is joined later
    if any(sign in line for sign in ("*", "`", "~~")):
        line = _BOLD.sub(r"\2", line)
    text = line.lstrip()
    if arrow := _ARROW.match(text):
        text = text[arrow.end() :]
    if text[:1].isalnum() and _SIGN.search(text) and (found := _REMARK.fullmatch(text)):
        return found["row"]
    return text if arrow else line
