"""The curves of a report as charts, and the tables of the numbers behind them.

Each style has the same meaning in all figures:

    thick line    median of the launches      band      spread of the samples
    small marks   each launch's median        dashed    the limit: long dashes if derived, dashes and dots if measured
    large sign    the verdict, if not ok      dotted    the end of the expected band beyond which a value is slow
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from railwright.diagnosis.verdicts.judged import Judged
from railwright.groups import group_by_key
from railwright.report.pictures.chart import Figure
from railwright.report.pictures.curves import curve_figure
from railwright.report.pictures.lanes import lane_figure, make_lanes
from railwright.report.pictures.series import Head, Series, drawable_value, is_swept, size_of, sizes_words
from railwright.report.text import wording
from railwright.topology.devices import Scalar

MAX_SERIES = 6
"""Further curves go into another figure: everyone can distinguish six colours (Okabe and Ito 2008)."""
_MAX_LANES = 16
"""Further lanes go into another figure."""

Item = TypeVar("Item")


def figures(points: Iterable[Judged]) -> tuple[Figure, ...]:
    """Build figures for every benchmark and quantity that has a measured point.

    Curves over the size come first, at most six in a figure; then those of a single size, a lane each.
    """
    # A logarithmic axis has no place for other points. The table of paths has them, with their verdicts.
    drawn = (point for point in points if drawable_value(point.value))
    made: list[Figure] = []
    for (benchmark, quantity), group in group_by_key(drawn, lambda point: (point.benchmark, point.quantity)):
        shared = _shared_parameters(group)
        curves = _series(group, without=("size_bytes", *shared))
        note = wording.parameter_words(shared)
        swept = [curve for curve in curves if is_swept(curve)]
        single = [curve for curve in curves if not is_swept(curve)]
        sizes = {sizes_words(curve) for curve in single}
        shared_size = sizes.pop() if len(sizes) == 1 and len(single) > 1 else ""
        lanes = make_lanes(single, without_size=bool(shared_size))
        title = f"{wording.escape(benchmark)}, {wording.QUANTITY_WORDS[quantity]}"
        for suffix, part in _parts(swept, MAX_SERIES):
            numbered = [msgspec.structs.replace(curve, number=number) for number, curve in enumerate(part, 1)]
            made.append(curve_figure(Head(title + suffix, _all(note), quantity), numbered))
        for suffix, lanes_part in _parts(lanes, _MAX_LANES):
            made.append(lane_figure(Head(title + suffix, _all(note, shared_size), quantity), lanes_part))
    return tuple(made)


def _all(*shared: str) -> str:
    words = ", ".join(filter(None, shared))
    return f"all: {words}" if words else ""


def _shared_parameters(points: Sequence[Judged]) -> dict[str, Scalar]:
    """Return the parameters that all curves share, unless there is only one curve."""
    first, *others = points
    shared = {key: value for key, value in first.parameters.items()
              if key != "size_bytes" and all(point.parameters.get(key) == value for point in others)}  # fmt: skip
    is_alone = all(point.path == first.path and len(point.parameters.keys() - shared.keys() - {"size_bytes"}) == 0
                   for point in points)  # fmt: skip
    return {} if is_alone else shared


def _series(points: Sequence[Judged], *, without: Sequence[str]) -> list[Series]:
    """Return the curves of a benchmark and quantity, with names that tell them apart."""
    groups = list(group_by_key(
        points, lambda point: (point.path, wording.parameter_words(point.parameters, without=without))
    ))  # fmt: skip
    one_path = len({path for (path, _), _ in groups}) == 1
    return [
        Series(
            name=varied if one_path and varied else ", ".join(filter(None, (wording.escape(path), varied))),
            path=wording.escape(path), varied=varied, number=1, points=tuple(sorted(found, key=size_of)),
        ) for (path, varied), found in groups
    ]  # fmt: skip


def _parts(items: Sequence[Item], most: int) -> Iterator[tuple[str, Sequence[Item]]]:
    """Yield at most `most` items at a time, with words that count the parts if there are several."""
    parts = math.ceil(len(items) / most)
    for part in range(parts):
        yield (f" ({part + 1} of {parts})" if parts > 1 else ""), items[part * most : (part + 1) * most]
