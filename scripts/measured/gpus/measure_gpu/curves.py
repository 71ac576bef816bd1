"""Draws curves of collectives as SVG with matplotlib, which is imported only when needed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from measure_gpu.points import Curve, Point

from railwright.diagnosis.verdicts.judged import Judged
from railwright.units import MIB, format_size

_COLOURS = ("#1f5fa8", "#b3541e", "#2f7d4f", "#7a4fa3", "#8a8a00", "#a8324a", "#3c8d9e", "#555555", "#c98a00")
_GIGA, _MICRO = 1e9, 1e-6
_WIDE, _HIGH = 12, 4.4
"""The size of a picture with both panels, in inches."""


def draw_collective(path: Path, every: Sequence[Curve]) -> None:
    """Draw busbw over size, and the time below 1 MiB, of ours, nccl-tests and the limit, per number of GPUs."""
    picture, (rate, time) = _panels(path.stem)
    for colour, curve in zip(_COLOURS, every, strict=False):
        points = curve.placed()
        for name, style in (("theirs", "--"), ("ours", "-")):
            label = f"{'nccl-tests' if name == 'theirs' else 'ours'}, {curve.gpus} GPUs"
            bus = [curve.bus(point.size, statistics.median(getattr(point, name))) / _GIGA for point in points]
            rate.plot([point.size for point in points], bus, style, color=colour, label=label)
            _time(time, [point for point in points if point.size < MIB], name, style, colour, label)
        if curve.limits:
            sizes = sorted(curve.limits)
            bound = [curve.limits[size] / _GIGA for size in sizes]
            rate.plot(sizes, bound, ":", color=colour, label=f"limit, {curve.gpus} GPUs")
    _finish(picture, rate, time, path)


def draw_settings(path: Path, title: str, curves: Mapping[str, tuple[list[int], list[float]]]) -> None:
    """Draw the busbw in GB/s over the size of each setting."""
    picture, (rate, time) = _panels(title)
    for colour, (setting, (sizes, rates)) in zip(_COLOURS, curves.items(), strict=False):
        for axes, most in ((rate, sizes[-1]), (time, MIB)):
            shown = [(size, one) for size, one in zip(sizes, rates, strict=True) if size <= most]
            values = [one if axes is rate else size / one / 1e3 for size, one in shown]
            axes.plot([size for size, _ in shown], values, color=colour, label=setting)
    _finish(picture, rate, time, path)


def _time(axes: Any, points: Sequence[Point], name: str, style: str, colour: str, label: str) -> None:  # noqa: ANN401
    """Draw the median, on a band from the fastest to the slowest round."""
    sizes = [point.size for point in points]
    every = [[one / _MICRO for one in getattr(point, name)] for point in points]
    axes.plot(sizes, [statistics.median(one) for one in every], style, color=colour, label=label)
    low, high = [min(one) for one in every], [max(one) for one in every]
    axes.fill_between(sizes, low, high, color=colour, alpha=0.12 if name == "ours" else 0.06, linewidth=0)


def draw_overview(path: Path, title: str, every: Sequence[Curve]) -> None:
    """Draw our curves of several collectives with the same ranks and GPUs, and the highest limit."""
    picture, (rate, time) = _panels(title)
    for colour, curve in zip(_COLOURS, every, strict=False):
        points = curve.placed()
        bus = [curve.bus(point.size, statistics.median(point.ours)) / _GIGA for point in points]
        rate.plot([point.size for point in points], bus, color=colour, label=curve.operation)
        _time(time, [point for point in points if point.size < MIB], "ours", "-", colour, curve.operation)
    limits = {size: limit / _GIGA for curve in every for size, limit in sorted(curve.limits.items())}
    rate.plot(sorted(limits), [limits[size] for size in sorted(limits)], "k:", label="limit")
    _finish(picture, rate, time, path)


def draw_choice(path: Path, gpus: int, points: Iterable[Judged]) -> None:
    """Draw the time below 1 MiB, and busbw, of every algorithm and protocol, NCCL's own choice in black."""
    times: dict[str, list[tuple[int, float]]] = defaultdict(list)
    rates: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for point in points:
        if point.value is None or point.parameters.get("launched") == "graph":
            continue
        forced = [str(point.parameters.get(key, "free")) for key in ("algorithm", "protocol")]
        name = "/".join(one for one in forced if one != "free") or "NCCL's own"
        size = int(point.parameters["size_bytes"])
        if point.quantity == "latency_s" and size < MIB:
            times[name].append((size, point.value / _MICRO))
        elif point.parameters.get("rate") == "busbw":
            rates[name].append((size, point.value / _GIGA))
    picture, (rate, time) = _panels(f"all_reduce on {gpus} GPUs by algorithm and protocol")
    names = sorted({*times, *rates} - {"NCCL's own"})
    looks = [{"color": colour, "linestyle": style, "linewidth": 1.1} for style in ("-", "-.") for colour in _COLOURS]
    own = {"color": "black", "linestyle": "--", "linewidth": 2.2, "zorder": 5}
    for name, look in [*zip(names, looks, strict=False), ("NCCL's own", own)]:
        for axes, found in ((rate, rates), (time, times)):
            if found[name]:
                axes.plot(*zip(*sorted(found[name]), strict=True), label=name, **look)
    _finish(picture, rate, time, path)


def _panels(title: str) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "railwright", "font.size": 9})
    from matplotlib import pyplot as plt

    picture, panels = plt.subplots(1, 2, figsize=(_WIDE, _HIGH), layout="constrained")
    picture.suptitle(title)
    panels[0].set(ylabel="busbw, GB/s", title="busbw over size")
    panels[1].set(ylabel="time of one operation, us", title="time below 1 MiB")
    return picture, panels


def _finish(picture: Any, rate: Any, time: Any, path: Path) -> None:  # noqa: ANN401
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    filled = [axes for axes in (rate, time) if any(len(line.get_xdata()) for line in axes.lines)]
    if time in filled:
        time.set_yscale("log")
        time.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        time.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        time.yaxis.set_minor_formatter(NullFormatter())
    if len(filled) == 1:
        _keep_alone(picture, filled[0], time if filled[0] is rate else rate)
    for axes in filled:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(max(1, round(value)))))
        axes.tick_params(axis="x", rotation=45)
        axes.set_xlabel("size")
        axes.grid(alpha=0.25)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    rate.set_ylim(bottom=0)
    picture.savefig(path, metadata={"Date": None})
    plt.close(picture)


def _keep_alone(picture: Any, kept: Any, empty: Any) -> None:  # noqa: ANN401
    """Shrink the picture to the only panel that has a curve."""
    from matplotlib.gridspec import GridSpec

    empty.remove()
    picture.set_size_inches(_WIDE / 2, _HIGH)
    kept.set_subplotspec(GridSpec(1, 1, figure=picture)[0])
