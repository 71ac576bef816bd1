"""Removal of the prefixes that launchers, containers and log collectors add to the lines of a tool.

Nobody can list all of them. But a tool begins its output with fixed words, so the text before those words is a prefix,
and it is removed from every line that begins alike. Digits may differ (time stamps, ranks); the rest may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice, takewhile

import msgspec

MAX_PREFIXES = 4096
"""The maximum number of distinct prefixes, as in the combined log of that many pods."""
_MOST_PLAIN = 10_000
"""The number of tool lines without a prefix after which the search for prefixes ends."""
_LONGEST = 200
_MOST_PARTS = 100
"""The maximum number of parts (numbers, words, spaces, signs) of a prefix. kubectl has 20 of them, syslog 24."""
_MOST_SPACE = 24
"""The maximum number of spaces before and after a prefix."""
_END = ""
"""The key of a node of the tree where a prefix may end."""
_ANCHOR = re.compile(
    r"# nThread|# nccl-tests version|# Collective test starting|# Using devices|# Out of bounds|# Avg bus bandwidth"
    r"|#\s{1,24}size\s{1,24}(?:count|time)|\d{1,19}\s{1,24}\d{1,19}\s{1,12}(?:float|half|double|bfloat16|u?int\d{0,2}"
    r"|u?char|f8e\dm\d|fp8_e\dm\d)\s{1,12}[a-z]{3,12}\s{1,12}-?\d"
    r"|# OSU MPI|# Size\s|#bytes\s|(?:RDMA_Write|RDMA_Read|Send|Atomic) (?:Bidirectional |Post List )?(?:BW|Latency)"
    r"|Block Size \(B\)|NIXLBench Configuration|IoType: |T/V\s|W[RC]\d\w{4,12}\s|fio-\d|memcpy (?:CE|SM) "
    r"|(?:Running|SUM) [a-z_]{8,60}_(?:ce|sm)\b|GPU0\s{1,16}GPU1"
    r"|\[ ID\] Interval|Function\s{1,16}(?:Best Rate|MBytes/sec)|OPERATION\s{1,8}RESULT TYPE|Final Summary::"
    r"|access\s{1,8}bw\(MiB/s\)|Operation\s{8,40}Max\s"
    r"|\|\s{1,8}(?:Stage|Test)\s{1,8}\| # iterations|Final:\s{4,40}\d|\[thread \d"
)
"""The first words of the lines of known tools."""
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
    "Interval",
    "Function",
    "OPERATION",
    "bw(MiB/s)",
    "Std Dev",
    "Final",
    "[thread ",
)
"""Every line with an anchor contains one of these words, which makes the first test cheap."""
_STAMP = re.compile(r"\d{1,4}[-/:.]\d\d[-/:.]\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")
_CLOCK = re.compile(
    r"(?:\[ {0,8}\d{1,9}\.\d{6}\]"  # the kernel
    r"|(?:[A-Z][a-z]{2} {1,2}\d{1,2} |\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)"
    r"(?: std(?:out|err) [FP])?(?: (?!(?:DEBUG|INFO|WARN|ERROR))|$)"  # a container's runtime; a level is of a logger
)
"""A time that a line begins with."""
COLOUR = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_PARTS = re.compile(r"\d+|\s+|[^\W\d_]+|.")
_CLOSES = frozenset(":|]>-+})Z#")
"""The last characters of a common prefix, so that no word of a table is taken for a prefix: signs, and UTC's Z."""
_LEAST_LINES = 3
_LEVEL = re.compile(r" ?(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR)\b:? ?")
"""The level that a logger writes behind its time."""
_JSON_KEYS = ("log", "message", "msg", "line", "text", "MESSAGE", "stdout")
_QUOTE = re.compile(r"(?:[ \t]{0,12}>[ \t]?){1,4}")
_STRING = re.compile(r'\s{0,40}(?:"[A-Za-z_.]{1,40}": )?("(?:[^"\\]|\\.)*"),?\s*')
_LIST = re.compile(r'"[A-Za-z_.]{1,40}": \[\s{0,8}$')


_Tree = dict[str, "_Tree"]


class Prefixes:
    """The prefixes of a text, as a tree of their parts, so that each line needs a single lookup."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._tree: _Tree = {}
        count = plain = 0
        lines = list(lines)
        begin = "\n".join(line[: _LONGEST * 3] for line in lines)
        words = [word for word in _WORDS if word in begin]
        for line in lines:
            if count >= MAX_PREFIXES or (plain >= _MOST_PLAIN and not count):
                break
            if not any(word in line for word in words):
                continue
            found = _ANCHOR.search(line[: _LONGEST * 2])
            if found is None or not 0 < found.start() <= _LONGEST:
                continue
            plain += line[: found.start()].isspace()
            before = line[: found.start()]
            if before.strip() and _is_possible_prefix(before, found[0]):
                count += self._add(before.strip())

    def _add(self, before: str) -> bool:
        """Add a prefix, and report whether it is new. A text with too many parts is not a prefix."""
        parts = [_normalize_part(part) for part in _PARTS.findall(before)]
        if len(parts) > _MOST_PARTS:
            return False
        tree = self._tree
        for part in parts:
            tree = tree.setdefault(part, {})
        is_new = _END not in tree
        tree[_END] = {}
        return is_new

    def split(self, line: str) -> tuple[str, str]:
        """Split a line into its prefix, without time stamps, and the rest."""
        end = self._end_of(line) if self._tree else 0
        if not end:
            return "", line
        prefix, rest = line[:end], line[end:]
        tag = _STAMP.sub("", prefix).strip()
        rest = rest[len(rest[:_MOST_SPACE]) - len(rest[:_MOST_SPACE].lstrip()) :]
        if "[" in tag and "NCCL " not in rest:
            rest = rest.replace(tag, "")  # mpirun and Hydra tag each write, and a row is three writes
        origin = " ".join(_STAMP.sub("", prefix).split()).rstrip("> ")  # some lines of a log may also be quoted
        return origin if any(map(str.isalnum, origin)) else "", rest

    def _end_of(self, line: str) -> int:
        """Return the end of the longest prefix of the line. A shorter match may be part of a longer prefix."""
        tree, end = self._tree, 0
        start = len(line[:_MOST_SPACE]) - len(line[:_MOST_SPACE].lstrip())
        for part in _PARTS.finditer(line, start, start + 2 * _LONGEST):
            found = tree.get(_normalize_part(part[0]))
            if found is None:
                break
            tree = found
            if _END in tree:
                end = part.end()
        return end


def remove_common_prefix(text: str) -> str:
    """Return the text unwrapped, and without a prefix that all lines share and that ends in a sign such as `:`."""
    text = unwrap_lines(text)
    lines = text.split("\n")
    common: list[str] = []
    alike = _PARTS
    filled = [line for line in lines if line.strip()]
    for line in filled:
        if common and alike.match(line, 0, 2 * _LONGEST):
            continue
        parts = [
            _normalize_part(found[0])
            for found in islice(_PARTS.finditer(line, 0, 2 * _LONGEST), len(common) or _MOST_PARTS)
        ]
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(common or parts, parts, strict=False))
        common = [part for part, _ in pairs]
        while common and common[-1] not in _CLOSES:
            common.pop()
        if not common:
            return text
        alike = _compile_parts(common)
    if len(filled) < _LEAST_LINES:
        return text
    bare = [
        line[found.end() :].removeprefix(" ") if (found := alike.match(line)) else skip_parts(line, len(common))
        for line in lines
    ]
    if all(_LEVEL.match(line) for line in bare if line.strip()):
        bare = [_LEVEL.sub("", line, count=1) for line in bare]
    return "\n".join(bare)


def _compile_parts(parts: list[str]) -> re.Pattern[str]:
    """Return a pattern of lines that begin with these normalized parts, the last of which is one of `_CLOSES`."""
    patterns = {"0": r"\d+(?!\d)", " ": r"\s+(?!\s)"}
    return re.compile("".join(patterns.get(part) or re.escape(part) for part in parts) + r"(?!(?<=Z)[^\W\d_])")


def count_parts(prefix: str) -> int:
    """Return the number of parts of a prefix."""
    return len(_PARTS.findall(prefix))


def skip_parts(line: str, parts: int) -> str:
    """Return the rest of a line after its first parts and one space."""
    last = next(islice(_PARTS.finditer(line), parts - 1, None), None)
    return line[last.end() :].removeprefix(" ") if last is not None else line


def _is_possible_prefix(before: str, anchor: str) -> bool:
    """Report whether the text before an anchor can be a prefix.

    A number directly before a row's size is part of the row.
    """
    return not (anchor[:1].isdigit() and (not before[-1:].isspace() or before.rstrip()[-1:].isdigit())) and not (
        before.rstrip().endswith(("echo", '"', "'")) and not before.lstrip().startswith(('"', "'"))
    )


def _normalize_part(part: str) -> str:
    """Normalize numbers, and spaces between words."""
    return "0" if part[0].isdigit() else " " if part.isspace() else part


def unwrap_lines(text: str) -> str:
    """Return the lines as they were printed, if another format wraps them.

    The formats are bare carriage returns, JSON log lines, Ansible's lists of lines, markdown quotes, and a time that
    most lines begin with.
    """
    if "\n" not in text.strip() and "\r" in text:
        text = text.replace("\r", "\n")
    lines = text.split("\n")
    filled = [line for line in lines[:400] if line.strip()]
    if sum(line.lstrip().startswith("{") for line in filled) * 2 > len(filled):
        lines = [part for line in lines for part in _unwrap_json(line)]
    elif any('": "' in line and "\\n" in line for line in filled) or _are_strings(filled):
        lines = [part for line in lines for part in _unwrap_string(line)]
    elif sum(_QUOTE.match(line) is not None for line in filled) * 2 > len(filled):
        lines = [_QUOTE.sub("", line, count=1) for line in lines]
    if sum(_CLOCK.match(line) is not None for line in filled) * 2 > len(filled):
        lines = [line[found.end() :] if (found := _CLOCK.match(line)) else line for line in lines]
    return "\n".join(lines)


def _are_strings(lines: list[str]) -> bool:
    """Report whether most lines are JSON strings, or all lines between the brackets of a list are."""
    strings = sum(_STRING.fullmatch(line) is not None for line in lines)
    return strings * 2 > len(lines) or (strings > 0 and any(_LIST.search(line) for line in lines))


def _unwrap_json(line: str) -> list[str]:
    try:
        found = msgspec.json.decode(line.encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        return [line]
    if not isinstance(found, dict):
        return [line]
    words = next((found[key] for key in _JSON_KEYS if isinstance(found.get(key), str)), None)
    return [line] if words is None else words.rstrip("\n").split("\n")


def _unwrap_string(line: str) -> list[str]:
    found = _STRING.fullmatch(line)
    if found is None:
        return [line]
    try:
        words = msgspec.json.decode(found[1].encode(errors="replace"), type=str)
    except msgspec.DecodeError:
        return [line]
    return words.rstrip("\n").split("\n")
