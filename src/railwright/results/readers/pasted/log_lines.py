"""The lines of a log as the tool printed them, without launcher prefixes, time stamps, colors and carriage returns.

A launcher that labels its ranks (`[1,0]<stdout>:`, Slurm's `0: `, Hydra's `[0] `) mixes their lines, so every line has
its origin, and a table is read from a single origin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from railwright.errors import UsageError
from railwright.groups import group_by_key
from railwright.results.readers.pasted.cut_numbers import drop_cut_number
from railwright.results.readers.pasted.hand_marks import remove_marks
from railwright.results.readers.pasted.prefixes import COLOUR, Prefixes, unwrap_lines

MAX_CHARACTERS = 16 * 2**20
MAX_LINES = 200_000
MAX_LINE = 4096
LEFT_OUT = "\x1e"
"""The mark of omitted lines (`long_text`). The number after it is that of the next line."""

_PREFIXES = (
    re.compile(  # kubectl, CI, systemd
        r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?(?::? |$)"
    ),
    re.compile(
        r"\d\d:\d\d:\d\d(?:[.,]\d{1,6})? (?:DEBUG|INFO|WARN(?:ING)?|ERROR) {0,4}\| ?(?:\[\w{1,12}\] )?"
    ),  # Avocado
    re.compile(r"\s{0,16}\[(?:\S{1,80}@)?(\d{1,6},\d{1,7})\]<std(?:out|err|diag)>: ?"),  # mpirun, PRRTE
    re.compile(r"\[(?:rank|default)?(\d{1,7})\](?: |:)"),  # mpiexec -l, torchrun
    re.compile(r"[ ]{0,6}(\d{1,7}): "),  # srun --label
)
"""The prefixes of a line. The group of a launcher's prefix is the rank that printed the line."""
_MAX_PREFIXES = 3
_LOOKED_AT = 7
"""The lines at the end of a text that show whether its last number is cut."""


class Line(NamedTuple):
    """A line with its number in the text, counted from 1, and the rank that printed it."""

    number: int
    origin: str
    text: str


def refusal(line: int, reason: str, hint: str = "") -> UsageError:
    """Return the error for an invalid table."""
    return UsageError(
        f"line {line}: {reason}", hint=hint or "give the tool's output as it was printed, starting with its header"
    )


def check_length(text: str) -> str:
    """Return the text. Raises UsageError if it is too large."""
    _refuse_above(len(text), "characters", MAX_CHARACTERS)
    return text


def _refuse_above(found: int, unit: str, limit: int) -> None:
    if found > limit:
        raise UsageError(
            f"the text must have at most {limit} {unit}, got {found}", hint="cut out the part with the table"
        )


def split_lines(text: str) -> list[Line]:
    """Return all lines, cleaned. Raises UsageError for a text that is too large."""
    return list(_split_cleaned(check_length(text)))


@lru_cache(maxsize=2)  # several readers inspect the same text, and some of them its unwrapped form
def _split_cleaned(text: str) -> tuple[Line, ...]:
    may_be_cut = text[-1:].isdigit() or text[-1:] == "."
    text = unwrap_lines(text.rstrip().replace("\r\n", "\n"))
    if "\x1b" in text:
        text = COLOUR.sub("", text)
    _refuse_above(text.count("\n"), "lines", MAX_LINES)
    lines = text.split("\n")
    if may_be_cut:
        lines[-1] = drop_cut_number(lines[-_LOOKED_AT:])
    prefixes = Prefixes(lines)
    return tuple(_clean_line(number, raw, prefixes) for number, raw in _number_lines(lines))


def _number_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    number = 0
    for line in lines:
        if line.startswith(LEFT_OUT) and line[1:].isdecimal():
            number = int(line[1:12]) - 1
        else:
            number += 1
            yield number, line


def _clean_line(number: int, raw: str, prefixes: Prefixes) -> Line:
    raw = raw[:MAX_LINE].rstrip("\r")
    raw = raw.rpartition("\r")[2]  # an overwritten progress line
    origin, raw = prefixes.split(raw)
    for _ in range(_MAX_PREFIXES):
        if raw[:1] not in "[0123456789 \t" or _begins_plainly(raw):
            break
        found = next(filter(None, (prefix.match(raw) for prefix in _PREFIXES)), None)
        if found is None:
            break
        origin = found[1] if found.re.groups and not origin else origin
        raw = raw[found.end() :]
    return Line(number, origin, remove_marks(raw.rstrip()))


def _begins_plainly(raw: str) -> bool:
    """Report whether a line that begins with a space has no prefix.

    This covers most rows of tables without patterns.
    """
    return raw[:1] in " \t" and ": " not in raw[:16] and "]<std" not in raw[:120]


def group_by_origin(lines: Iterable[Line]) -> list[list[Line]]:
    """Group the lines by origin, in the order of their first lines. Unlabeled lines are an origin too."""
    return [group for _, group in group_by_key(lines, lambda line: line.origin)]


def sort_by_origin(text: str) -> list[Line]:
    """Return all lines, grouped by origin."""
    return [line for stream in group_by_origin(split_lines(text)) for line in stream]


def split_runs(text: str, begins: Callable[[Line], bool]) -> list[list[Line]]:
    """Return the lines of each run. Labeled ranks are read separately."""
    return [part for stream in group_by_origin(split_lines(text)) for part in split_sections(stream, begins) if part]


def split_sections(lines: Iterable[Line], begins: Callable[[Line], bool]) -> list[list[Line]]:
    """Split the lines before each line that begins a run. The lines above the first such line are a part too."""
    parts: list[list[Line]] = [[]]
    for line in lines:
        if begins(line):
            parts.append([])
        parts[-1].append(line)
    return parts


def last_row(lines: list[Line]) -> int:
    """Return the number of the last line that begins with a digit, the only row that may be truncated.

    Text that people write after a table is not part of it.
    """
    return next((line.number for line in reversed(lines) if line.text.lstrip()[:1].isdigit()), lines[-1].number)


def row_ends(lines: list[Line]) -> frozenset[int]:
    """Return the numbers of the lines that begin with a digit and stand above an empty line or a fence of markdown."""
    return frozenset(
        line.number
        for line, following in pairwise(lines)
        if line.text.lstrip()[:1].isdigit() and following.text.strip()[:1] in ("", "`", "~")
    )


def parse_columns(header: str, known: re.Pattern[str], line: int, shown: str = "", min_columns: int = 1) -> list[str]:
    """Return the columns of a header. Raises UsageError if it has words that are not known columns."""
    columns = known.findall(header)
    if "".join(columns).replace(" ", "") != header.replace(" ", "") or len(columns) < min_columns:
        raise refusal(line, f"unknown columns: {shown or header[:100]!r}")
    return columns


ENDED_BY_ERROR = "the run ended by an error"
ENDS_INSIDE = "the text ends inside line "


def describe_truncation(line: int, found: int, expected: int) -> str:
    """Return the note for a truncated last row."""
    return f"{ENDS_INSIDE}{line} ({found} of {expected} columns): that row is left out"
