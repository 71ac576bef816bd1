"""The two pictures of a search: the fabric with its suspects, and the matrix of pairs."""

from __future__ import annotations

from railwright.diagnosis.localise.records import Suspect
from railwright.locate.search import Located
from railwright.report.locate_map import Matrix, map_of, matrix_of, of_edge, suspected
from railwright.report.svg import MARGIN, WIDTH, Sheet

_ROW = 58.0
_BOX_HEIGHT = 16.0
_MOST_ACROSS = 40
_LETTER = 5.6
_STEPS = ((0.9, "m0"), (0.75, "m1"), (0.5, "m2"), (0.0, "m3"))
"""Shades of the matrix: at least this part of the rate."""
_NAMES = 62.0
_DIGITS_UP_TO = 16


def fabric_svg(found: Located) -> str:
    """Levels from the top switches down to the ports; what is suspected is heavy, and its verdict stands at it."""
    there, sheet = map_of(found), Sheet("locate")
    suspects = suspected(found.suspects)
    shown = [_shown(level, suspects) for level in there.levels]
    places = {
        name: (MARGIN + (number + 0.5) * (WIDTH - 2 * MARGIN) / len(level), 20 + row * _ROW)
        for row, level in enumerate(reversed(shown))
        for number, name in enumerate(level)
    }
    for edge in there.edges:
        if edge.lower not in places or edge.upper not in places:
            continue
        (x1, y1), (x2, y2) = places[edge.lower], places[edge.upper]
        of_it = of_edge(edge, suspects)
        style = "bad" if of_it is not None else "wire"
        steps = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
        sheet.line(steps, style, dash="" if edge.filled or of_it is not None else "3 3", behind=True)
        if of_it is not None:
            arrow = {"up": "\u2191 ", "down": "\u2193 "}.get(of_it.direction, "")
            words = f"{arrow}{of_it.verdict} {of_it.capacity:.0%}"
            x, y = x1 + 0.42 * (x2 - x1), y1 + 0.42 * (y2 - y1) + 4
            sheet.text(min(max(x, 40), WIDTH - 40), y, words, "halo", 24, anchor="middle")
    for row, level in enumerate(reversed(shown)):
        room = (WIDTH - 2 * MARGIN) / max(len(level), 1)
        for name in level:
            _box(sheet, name, places[name], room, suspects)
        sheet.y = max(sheet.y, 20 + row * _ROW + _BOX_HEIGHT)
    left_out = sum(len(level) for level in there.levels) - sum(map(len, shown))
    sheet.note("heavy: suspected, with its direction; dashed: no flow ran there")
    if left_out:
        sheet.note(f"{left_out} more ports and switches are not drawn")
    return sheet.document(f"{found.fabric}: the fabric and its suspects")


def _shown(level: tuple[str, ...], suspects: dict[str, Suspect]) -> tuple[str, ...]:
    """As many of a level as have room, those that are suspected among them."""
    if len(level) <= _MOST_ACROSS:
        return level
    wanted = [name for name in level if any(name in other.split("-") for other in suspects)][:_MOST_ACROSS]
    rest = [name for name in level if name not in wanted][: _MOST_ACROSS - len(wanted)]
    chosen = {*wanted, *rest}
    return tuple(name for name in level if name in chosen)


def _box(sheet: Sheet, name: str, place: tuple[float, float], room: float, suspects: dict[str, Suspect]) -> None:
    x, y = place
    of_it = suspects.get(name) or suspects.get(name.partition(":")[0])
    width = min(room - 2, 64.0)
    sheet.box(x - width / 2, y - _BOX_HEIGHT / 2, width, _BOX_HEIGHT, "badbox" if of_it else "box", title=name)
    letters = int(width / _LETTER)
    words = name if len(name) <= letters else _short(name)
    if len(words) <= letters:
        sheet.text(x, y + 3.5, words, "s", letters, anchor="middle")


def _short(name: str) -> str:
    """The number at the end of a host's or switch's name, which tells it from its neighbours."""
    host = name.partition(":")[0]
    return host[len(host.rstrip("0123456789")) :] or host


def matrix_svg(found: Located) -> str:
    """A row sends, a column receives; the lowest of all tries."""
    sheet = Sheet("locate")
    matrix = matrix_of(found, map_of(found).leaf_of)
    count = max(len(matrix.names), 1)
    side = min((WIDTH - 2 * MARGIN - _NAMES) / count, 26.0)
    top, left = 32.0, MARGIN + _NAMES
    sheet.text(MARGIN, 12, f"{matrix.what} that sends: row; that receives: column", "s", 80)
    for column, name in enumerate(matrix.names):
        if side >= 10 or column % 4 == 0:
            sheet.text(left + (column + 0.5) * side, top - 4, _short(name), "s", 5, anchor="middle")
    for row, source in enumerate(matrix.names):
        y = top + row * side
        if side >= 7 or row % 4 == 0:
            sheet.text(left - 4, y + side / 2 + 3, source, "s", 12, anchor="end")
        for column, destination in enumerate(matrix.names):
            _cell(sheet, matrix, (source, destination), (left + column * side, y), side)
    sheet.y = top + count * side
    _key(sheet)
    return sheet.document(f"{found.fabric}: rates of pairs")


def _cell(sheet: Sheet, matrix: Matrix, ends: tuple[str, str], place: tuple[float, float], side: float) -> None:
    (x, y), gap = place, 0.5 if side > 4 else 0.0
    title = f"{ends[0]} to {ends[1]}"
    if ends not in matrix.cells:
        sheet.box(x + gap, y + gap, side - 2 * gap, side - 2 * gap, "none", title=f"{title}: not tested")
        return
    ratio = matrix.cells[ends]
    style = "lost" if ratio is None else shade(ratio)
    words = "did not run" if ratio is None else f"{ratio:.0%}"
    sheet.box(x + gap, y + gap, side - 2 * gap, side - 2 * gap, style, title=f"{title}: {words}")
    if len(matrix.names) <= _DIGITS_UP_TO:
        digits = "\u00d7" if ratio is None else f"{100 * ratio:.0f}"
        light = "d" if style in ("m2", "m3") else "c"
        sheet.text(x + side / 2, y + side / 2 + 3, digits, light, 4, anchor="middle")


def shade(ratio: float) -> str:
    """The style of a cell."""
    return next((style for least, style in _STEPS if ratio >= least), _STEPS[-1][1])


def _key(sheet: Sheet) -> None:
    sheet.y += 8
    x = float(MARGIN)
    words = ("90 % or more", "75 to 90 %", "50 to 75 %", "less", "did not run", "not tested")
    for style, text in zip(("m0", "m1", "m2", "m3", "lost", "none"), words, strict=True):
        sheet.box(x, sheet.y, 9, 9, style)
        sheet.text(x + 12, sheet.y + 8, text, "s", 40)
        x += 20 + 4.6 * len(text)
    sheet.y += 12
