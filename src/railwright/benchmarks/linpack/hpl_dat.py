"""HPL.dat, HPL's input file: read for problem, grids and threshold, and written for another HPL.

HPL identifies lines by their position; HPL 2.x has 31 of them. A line has values and then a comment. Lines 14 to 31,
about HPL's own algorithm (panel factorisation, broadcast, look-ahead), are not read. HPL 1.0 has no line for the
mapping.
"""

from __future__ import annotations

from typing import NamedTuple

from railwright.benchmarks.linpack.problem import MOST_ROWS, THRESHOLD, Grid
from railwright.benchmarks.options import is_whole
from railwright.errors import UsageError

MOST_BYTES = 64 * 1024
MOST_VALUES = 20
"""HPL_MAX_PARAM in HPL's source."""
MOST_BLOCK = 4096
MOST_RANKS = 2**20


class HplDat(NamedTuple):
    """The problems in a file: every N with every NB on every grid."""

    orders: tuple[int, ...]
    blocks: tuple[int, ...]
    grids: tuple[Grid, ...]
    threshold: float = THRESHOLD.value
    """The residual threshold; 0 or less disables the check."""


def read(text: str) -> HplDat:
    """Parse a file. Raises UsageError with the line number for input that HPL itself would refuse."""
    if len(text) > MOST_BYTES:
        raise UsageError(
            f"HPL.dat must have at most {MOST_BYTES} characters, got {len(text)} characters",
            hint="HPL's own has 31 lines",
        )
    lines = text.splitlines()
    orders = _parse_list(lines, 5, "N", MOST_ROWS)
    blocks = _parse_list(lines, 7, "NB", MOST_BLOCK)
    has_mapping = len(lines) > 8 and _is_mapping(lines[8])
    if has_mapping and lines[8].split()[0] == "1":
        raise _line_error(9, "the mapping of ranks must be row-major, got column-major")
    place = 10 if has_mapping else 9
    rows = _parse_list(lines, place, "P", MOST_RANKS)
    columns = _parse_list(lines, place + 2, "Q", MOST_RANKS, count=len(rows))
    threshold = _parse_number(lines, place + 3)
    return HplDat(orders, blocks, tuple(Grid(*one) for one in zip(rows, columns, strict=True)), threshold)


def write(asked: HplDat) -> str:
    """Format a complete file for HPL 2.3; the lines about its algorithm are those of the file that HPL ships."""
    rows, columns = zip(*asked.grids, strict=True)
    settled = (
        ("HPLinpack benchmark input file", ""),
        ("written by railwright", ""),
        ("HPL.out", "output file name (if any)"),
        ("6", "device out (6=stdout,7=stderr,file)"),
        (str(len(asked.orders)), "# of problems sizes (N)"),
        (_join_values(asked.orders), "Ns"),
        (str(len(asked.blocks)), "# of NBs"),
        (_join_values(asked.blocks), "NBs"),
        ("0", "PMAP process mapping (0=Row-,1=Column-major)"),
        (str(len(asked.grids)), "# of process grids (P x Q)"),
        (_join_values(rows), "Ps"),
        (_join_values(columns), "Qs"),
        (f"{asked.threshold:g}", "threshold"),
        *_ALGORITHM,
    )
    return "".join(f"{value:<12} {words}".rstrip() + "\n" for value, words in settled)


# One variant: recursive right-looking panels, one-ring broadcast, look-ahead of one panel.
_ALGORITHM = (
    ("1", "# of panel fact"),
    ("2", "PFACTs (0=left, 1=Crout, 2=Right)"),
    ("1", "# of recursive stopping criterium"),
    ("4", "NBMINs (>= 1)"),
    ("1", "# of panels in recursion"),
    ("2", "NDIVs"),
    ("1", "# of recursive panel fact."),
    ("1", "RFACTs (0=left, 1=Crout, 2=Right)"),
    ("1", "# of broadcast"),
    ("1", "BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)"),
    ("1", "# of lookahead depth"),
    ("1", "DEPTHs (>=0)"),
    ("2", "SWAP (0=bin-exch,1=long,2=mix)"),
    ("64", "swapping threshold"),
    ("0", "L1 in (0=transposed,1=no-transposed) form"),
    ("0", "U  in (0=transposed,1=no-transposed) form"),
    ("1", "Equilibration (0=no,1=yes)"),
    ("8", "memory alignment in double (> 0)"),
)


def _join_values(values: tuple[int, ...]) -> str:
    return " ".join(map(str, values))


def _is_mapping(line: str) -> bool:
    """Report whether line 9 is the process mapping: a 0 or 1 with a comment that contains `map`."""
    return line.split()[:1] in (["0"], ["1"]) and "map" in line.lower()


def _parse_list(lines: list[str], place: int, name: str, most: int, count: int | None = None) -> tuple[int, ...]:
    """Return the values on the line after `place`, which states their number; with `count`, those on line `place`."""
    if count is None:
        what = f"number of {name}s"
        count = _parse_integer(place, f"the {what}", _split_line(lines, place, what)[0], MOST_VALUES)
        place += 1
    words = _split_line(lines, place, f"{name}s")
    if len(words) < count:
        raise _line_error(place, f"{count} {name}s are needed, got {len(words)}")
    return tuple(_parse_integer(place, name, word, most) for word in words[:count])


def _split_line(lines: list[str], place: int, what: str) -> list[str]:
    words = lines[place - 1].split() if place <= len(lines) else []
    if not words:
        raise _line_error(place, f"the {what} is missing")
    return words


def _parse_integer(place: int, what: str, word: str, most: int) -> int:
    if not is_whole(word, most):
        raise _line_error(place, f"{what} must be a whole number from 1 to {most}, got {word[:40]!r}")
    return int(word)


def _parse_number(lines: list[str], place: int) -> float:
    word = _split_line(lines, place, "threshold")[0]
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise _line_error(place, f"the threshold must be a number, got {word[:40]!r}")
    return value


def _line_error(place: int, why: str) -> UsageError:
    return UsageError(f"HPL.dat line {place}: {why}", hint="give a file with the 31 lines of HPL 2.x")
