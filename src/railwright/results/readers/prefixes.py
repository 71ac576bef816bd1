"""What launchers, containers and collectors of logs put around the lines of a tool, taken off again.

Nobody can list all of them. But a tool begins its output with words that are always the same, so what stands before
those words is what was put there, and every line that begins alike has it taken off. Digits may differ (time stamps,
ranks), the rest may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

MAX_PREFIXES = 4096
"""Different beginnings that are followed: a job of so many pods whose lines stand in one text."""
_LONGEST = 200
_ANCHOR = re.compile(
    r"# nThread|# nccl-tests version|# Collective test starting|# Using devices|# Out of bounds|# Avg bus bandwidth"
    r"|#\s{1,24}size\s{1,24}(?:count|time)|\d{1,19}\s{1,24}\d{1,19}\s{1,12}(?:float|half|double|bfloat16|u?int\d{0,2}"
    r"|u?char|f8e\dm\d|fp8_e\dm\d)\s{1,12}[a-z]{3,12}\s{1,12}-?\d"
    r"|# OSU MPI|# Size\s|#bytes\s|(?:RDMA_Write|RDMA_Read|Send|Atomic) (?:Bidirectional |Post List )?(?:BW|Latency)"
    r"|Block Size \(B\)|NIXLBench Configuration|IoType: |T/V\s|W[RC]\d\w{4,12}\s|fio-\d|memcpy (?:CE|SM) "
    r"|(?:Running|SUM) [a-z_]{8,60}_(?:ce|sm)\b|GPU0\s{1,16}GPU1"
)
"""The words that a line of a known tool begins with."""
_WORDS = (
    "#",
    " sum",
    " none",
    "IoType:",
    "Block Size",
    "NIXLBench",
    "memcpy",
    "T/V",
    "fio-",
    "GPU0",
    "Test",
    "WR",
    "WC",
)
"""One of them is in every line with an anchor: looked for first, because it is cheap."""
_STAMP = re.compile(r"\d{1,4}[-/:.]\d\d[-/:.]\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")
_PARTS = re.compile(r"\d+|\s+|[^\d\s]+")
_JSON_KEYS = ("log", "message", "msg", "line", "text", "MESSAGE", "stdout")
_QUOTE = re.compile(r"(?:[ \t]{0,12}>[ \t]?){1,4}")
_STRING = re.compile(r'\s{0,40}(?:"[A-Za-z_.]{1,40}": )?("(?:[^"\\]|\\.)*"),?\s*')


class Prefixes:
    """The beginnings of the lines of one text."""

    def __init__(self, lines: Iterable[str]) -> None:
        templates: dict[str, None] = {}
        for line in lines:
            if len(templates) >= MAX_PREFIXES:
                break
            if not any(word in line for word in _WORDS):
                continue
            found = _ANCHOR.search(line[: _LONGEST * 2])
            if found is None or not 0 < found.start() <= _LONGEST:
                continue
            before = line[: found.start()]
            if before.strip() and _may_stand_before(before, found[0]):
                templates.setdefault(_template(before.rstrip()))
        # The longest first: what begins like a shorter one may be more than that.
        joined = "|".join(sorted(templates, key=len, reverse=True))
        self._pattern = re.compile(joined) if templates else None

    def split(self, line: str) -> tuple[str, str]:
        """(what was put before it, without time stamps; the line)."""
        found = self._pattern.match(line) if self._pattern is not None else None
        if found is None:
            return "", line
        prefix, rest = found[0], line[found.end() :]
        tag = prefix.strip()
        if "[" in tag and "NCCL " not in rest:
            rest = rest.replace(tag, "")  # mpirun and Hydra tag each write of a line, and a row is three of them
        origin = " ".join(_STAMP.sub("", prefix).split())
        return origin if any(map(str.isalnum, origin)) else "", rest


def _may_stand_before(before: str, anchor: str) -> bool:
    """Whether it can be a prefix: a number directly before a row's size would be a part of the row."""
    return not (anchor[:1].isdigit() and (not before[-1:].isspace() or before.rstrip()[-1:].isdigit())) and not (
        before.rstrip().endswith(("echo", '"', "'")) and not before.lstrip().startswith(('"', "'"))
    )


def _template(before: str) -> str:
    pieces = (
        r"\d{1,19}" if part[0].isdigit() else r"\s{1,24}" if part.isspace() else re.escape(part)
        for part in _PARTS.findall(before)
    )
    return "".join(pieces).removeprefix(r"\s{1,24}").join((r"\s{0,24}", ""))


def unwrapped(text: str) -> str:
    """The text with its lines as they were printed, where another format holds them.

    Carriage returns alone, JSON log lines, Ansible's lists of lines, markdown quotes.
    """
    if "\n" not in text.strip() and "\r" in text:
        text = text.replace("\r", "\n")
    lines = text.split("\n")
    filled = [line for line in lines[:400] if line.strip()]
    if sum(line.lstrip().startswith("{") for line in filled) * 2 > len(filled):
        lines = [part for line in lines for part in _of_json(line)]
    elif any('": "' in line and "\\n" in line for line in filled) or sum(
        _STRING.fullmatch(line) is not None for line in filled
    ) * 2 > len(filled):
        lines = [part for line in lines for part in _of_string(line)]
    elif sum(_QUOTE.match(line) is not None for line in filled) * 2 > len(filled):
        lines = [_QUOTE.sub("", line, count=1) for line in lines]
    return "\n".join(lines)


def _of_json(line: str) -> list[str]:
    try:
        found = msgspec.json.decode(line.encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        return [line]
    if not isinstance(found, dict):
        return [line]
    words = next((found[key] for key in _JSON_KEYS if isinstance(found.get(key), str)), None)
    return [line] if words is None else words.rstrip("\n").split("\n")


def _of_string(line: str) -> list[str]:
    found = _STRING.fullmatch(line)
    if found is None:
        return [line]
    try:
        words = msgspec.json.decode(found[1].encode(errors="replace"), type=str)
    except msgspec.DecodeError:
        return [line]
    return words.rstrip("\n").split("\n")
