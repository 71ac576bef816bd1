"""The pictures of a search: the fabric with its suspects, and the matrices of rates and of round trips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os.path import commonprefix
from string import digits
from typing import NamedTuple

from railwright.diagnosis.localise.records import Suspect
from railwright.locate.search import Located
from railwright.report.pictures.locate_map import build_map, build_matrix, build_times, find_suspect, index_suspects
from railwright.report.pictures.svg import MARGIN, WIDTH, Sheet
from railwright.report.text.locate import hop_words
from railwright.units import format_duration

_ROW = 58.0
_BOX_HEIGHT = 16.0
_MAX_ACROSS = 40
_LETTER = 5.6
_SHADES = ((0.9, "m0"), (0.75, "m1"), (0.5, "m2"), (0.0, "m3"))
"""Shades of the matrix, by the minimum share of the rate."""
_NAMES = 62.0
_DIGITS_UP_TO = 16
_TOP = 32.0
_CLASSES = ("t0", "t1", "t2")
"""Shades of hop classes, the nearest first."""


def fabric_svg(found: Located) -> str:
    """Draw the levels from the top switches down to the ports; suspects are heavy and carry their verdict."""
    there, sheet = build_map(found), Sheet("locate")
    suspects = index_suspects(found.suspects)
    shown = [_select_nodes(level, suspects) for level in there.levels]
    places = {
        name: (MARGIN + (number + 0.5) * (WIDTH - 2 * MARGIN) / len(level), 20 + row * _ROW)
        for row, level in enumerate(reversed(shown))
        for number, name in enumerate(level)
    }
    for edge in there.edges:
        if edge.lower not in places or edge.upper not in places:
            continue
        (x1, y1), (x2, y2) = places[edge.lower], places[edge.upper]
        suspect = find_suspect(edge, suspects)
        style = "bad" if suspect is not None else "wire"
        steps = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
        sheet.line(steps, style, dash="" if edge.filled or suspect is not None else "3 3", behind=True)
        if suspect is not None:
            arrow = {"up": "\u2191 ", "down": "\u2193 "}.get(suspect.direction, "")
            words = f"{arrow}{suspect.verdict} {suspect.capacity:.0%}"
            x, y = x1 + 0.42 * (x2 - x1), y1 + 0.42 * (y2 - y1) + 4
            sheet.text(min(max(x, 40), WIDTH - 40), y, words, "halo", 24, anchor="middle")
    for row, level in enumerate(reversed(shown)):
        room = (WIDTH - 2 * MARGIN) / max(len(level), 1)
        for name, short in shorten(level).items():
            _box(sheet, (name, short), places[name], room, suspects)
        sheet.y = max(sheet.y, 20 + row * _ROW + _BOX_HEIGHT)
    left_out = sum(len(level) for level in there.levels) - sum(map(len, shown))
    sheet.note("heavy: suspected, with its direction; dashed: no flow ran there")
    if left_out:
        sheet.note(f"{left_out} more ports and switches are not drawn")
    return sheet.document(f"{found.fabric}: the fabric and its suspects")


def _select_nodes(level: tuple[str, ...], suspects: dict[str, Suspect]) -> tuple[str, ...]:
    """Return the nodes of a level that fit, suspects first."""
    if len(level) <= _MAX_ACROSS:
        return level
    wanted = [name for name in level if any(name in other.split("-") for other in suspects)][:_MAX_ACROSS]
    rest = [name for name in level if name not in wanted][: _MAX_ACROSS - len(wanted)]
    chosen = {*wanted, *rest}
    return tuple(name for name in level if name in chosen)


def _box(
    sheet: Sheet, names: tuple[str, str], place: tuple[float, float], room: float, suspects: dict[str, Suspect]
) -> None:
    (x, y), (name, short) = place, names
    suspect = suspects.get(name) or suspects.get(name.partition(":")[0])
    width = min(room - 2, 64.0)
    sheet.box(x - width / 2, y - _BOX_HEIGHT / 2, width, _BOX_HEIGHT, "badbox" if suspect else "box", title=name)
    letters = int(width / _LETTER)
    words = name if len(name) <= letters else short
    if len(words) <= letters:
        sheet.text(x, y + 3.5, words, "s", letters, anchor="middle")


def shorten(names: Sequence[str]) -> dict[str, str]:
    """Map each name to the part of its host or switch that distinguishes it, such as its number."""
    hosts = {name: name.partition(":")[0] for name in names}
    start = len(commonprefix(list(hosts.values())).rstrip(digits))  # noqa: RUF071  # of letters, not of folders
    end = len(commonprefix([host[:start:-1] for host in hosts.values()]).rstrip(digits))  # noqa: RUF071
    return {name: host[start : len(host) - end] or host for name, host in hosts.items()}


class _Grid(NamedTuple):
    """The positions of the cells of a matrix."""

    sheet: Sheet
    places: dict[str, int]
    """The position of each name, as a row and as a column."""
    side: float

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield every row with every column."""
        return ((row, column) for row in self.places for column in self.places)

    def box(self, ends: tuple[str, str], style: str, words_of_pair: str, words: str) -> None:
        """Draw a cell with its tooltip; its words only if they fit."""
        row, column = (self.places[name] for name in ends)
        x, y, gap = MARGIN + _NAMES + column * self.side, _TOP + row * self.side, 0.5 if self.side > 4 else 0.0
        side = self.side - 2 * gap
        self.sheet.box(x + gap, y + gap, side, side, style, title=f"{ends[0]} to {ends[1]}: {words_of_pair}")
        if words and len(self.places) <= _DIGITS_UP_TO:
            letters = "d" if style in ("m2", "m3") else "c"
            self.sheet.text(x + self.side / 2, y + self.side / 2 + 3, words, letters, 5, anchor="middle")


def _grid(names: tuple[str, ...], what: str) -> _Grid:
    """Draw the names of rows and columns on a new sheet."""
    sheet = Sheet("locate")
    side = min((WIDTH - 2 * MARGIN - _NAMES) / max(len(names), 1), 26.0)
    sheet.text(MARGIN, 12, f"row: sending {what}; column: receiving {what}", "s", 80)
    for number, (name, short) in enumerate(shorten(names).items()):
        x, y = MARGIN + _NAMES + number * side, _TOP + number * side
        if side >= 10 or number % 4 == 0:
            sheet.text(x + side / 2, _TOP - 4, short, "s", 5, anchor="middle")
        if side >= 7 or number % 4 == 0:
            sheet.text(MARGIN + _NAMES - 4, y + side / 2 + 3, name, "s", 12, anchor="end")
    sheet.y = _TOP + len(names) * side
    return _Grid(sheet, {name: number for number, name in enumerate(names)}, side)


def matrix_svg(found: Located) -> str:
    """Draw the lowest rate of all tries, senders as rows and receivers as columns."""
    matrix = build_matrix(found, build_map(found).leaf_of)
    grid = _grid(matrix.names, matrix.what)
    for ends in grid.pairs():
        if ends not in matrix.cells:
            grid.box(ends, "none", "not tested", "")
        elif (ratio := matrix.cells[ends]) is None:
            grid.box(ends, "lost", "did not run", "\u00d7")
        else:
            style = next((style for minimum, style in _SHADES if ratio >= minimum), _SHADES[-1][1])
            grid.box(ends, style, f"{ratio:.0%}", f"{100 * ratio:.0f}")
    words = ("90 % or more", "75 to 90 %", "50 to 75 %", "less", "did not run", "not tested")
    _draw_legend(grid.sheet, ("m0", "m1", "m2", "m3", "lost", "none"), words)
    return grid.sheet.document(f"{found.fabric}: rates of pairs")


def times_svg(found: Located) -> str:
    """Draw the fastest round trip of each pair in microseconds, by hop class; empty if none was measured."""
    times = build_times(found, build_map(found).leaf_of)
    if not times.cells:
        return ""
    grid = _grid(times.names, "port")
    for ends in grid.pairs():
        if ends not in times.cells:
            grid.box(ends, "none", "not tested", "")
            continue
        seconds, place = times.cells[ends]
        style = "m3" if ends in times.late else _CLASSES[min(place, len(_CLASSES) - 1)]
        grid.box(ends, style, format_duration(seconds), f"{1e6 * seconds:.0f}")
    classes = [hop_words(hop_class.switches) for hop_class in found.latency.classes][: len(_CLASSES)]
    _draw_legend(grid.sheet, (*_CLASSES[: len(classes)], "m3", "none"), (*classes, "late for its class", "not tested"))
    return grid.sheet.document(f"{found.fabric}: round trips of pairs")


def _draw_legend(sheet: Sheet, styles: tuple[str, ...], words: tuple[str, ...]) -> None:
    sheet.y += 8
    x = float(MARGIN)
    for style, text in zip(styles, words, strict=True):
        sheet.box(x, sheet.y, 9, 9, style)
        sheet.text(x + 12, sheet.y + 8, text, "s", 40)
        x += 20 + 4.6 * len(text)
    sheet.y += 12
