"""The curves of a watched job, as drawn on a terminal."""

from __future__ import annotations

from array import array
from math import nan

import pytest

from railwright.report.pictures.watch import SPANS_S, View, bars, picture_lines
from railwright.report.text.watch import now_line
from railwright.sampling.recording import Recorded, new_about
from railwright.sampling.sources import Source
from railwright.verbs.watch.live import parse_keys
from railwright.watch.now import Bins

SOURCES = (
    Source(name="cpu.user", kind="processor", unit="s", scale=1, path=""),
    Source(name="cpu.system", kind="processor", unit="s", scale=1, path=""),
    Source(name="gpu0.power", kind="power", unit="W", scale=1, path="", gauge=True),
)


def recorded(ticks: int, interval_s: float = 0.01) -> Recorded:
    """Simulate 1.5 busy cores in every other second, and 300 W reported at each tenth tick."""
    times = array("d", [100.0 + tick * interval_s for tick in range(ticks)])
    busy = [int((tick - 0.5) * interval_s) % 2 == 0 for tick in range(ticks)]
    user = array("f", [nan, *(interval_s if one else 0.0 for one in busy[1:])])
    power = array("f", [300.0 if tick % 10 == 0 else nan for tick in range(ticks)])
    moved = (user, array("f", [one / 2 for one in user]), power)
    return Recorded(about=new_about(SOURCES, {}, "this machine", interval_s, []), times_s=times, moved=moved)


@pytest.mark.parametrize("steps", [[1000], [1, 2, 500, 501, 1000]])
def test_counters_of_a_kind_are_added_up_however_the_rows_come(steps):
    bins = Bins()
    for ticks in steps:
        bins.take(recorded(ticks))
    assert bins.seconds == pytest.approx(9.99)
    assert bins.rates(("processor", "s"), 0, 8, 8) == pytest.approx([1.5, 0, 1.5, 0, 1.5, 0, 1.5, 0], abs=0.02)
    assert bins.rates(("power", "W"), 1, 9, 4) == pytest.approx([300] * 4, rel=0.02)


def test_a_stretch_shorter_than_its_columns_is_drawn_with_the_bins_that_there_are():
    bins = Bins()
    bins.take(recorded(300))
    assert bins.rates(("processor", "s"), 0.0, 0.2, 6) == pytest.approx([1.5] * 6, rel=0.1)


def test_the_line_is_of_the_last_second():
    bins = Bins()
    assert now_line(bins) == "no sample yet"
    bins.take(recorded(511))
    assert now_line(bins) == "    5.1 s   processor 1.50 cores   power 300 W"


def test_bars_are_in_eighths_and_what_is_not_zero_is_seen():
    above, below = bars([0, 0.001, 8, 9, 16])
    assert (above, below) == ("   ▁█", " ▁███")
    assert bars([0, 0]) == ("  ", "  ")


def test_keys_zoom_move_and_follow():
    view, now_s = View(), 1000.0
    closer = view.apply_key("+", now_s)
    assert SPANS_S[closer.zoom] < SPANS_S[view.zoom]
    assert closer.apply_key("-", now_s) == view
    back = view.apply_key("left", now_s).apply_key("<", now_s)
    assert back.end_s == now_s - SPANS_S[view.zoom]
    assert back.apply_key("right", now_s + 5).end_s == back.end_s + SPANS_S[view.zoom] / 2
    assert back.apply_key("f", now_s).end_s is None
    assert back.apply_key(">", now_s).apply_key(">", now_s).end_s is None, "now again"
    far = view
    for _ in range(1000):
        far = far.apply_key("-", now_s).apply_key("left", now_s).apply_key("x", now_s)
    assert far.end_s == now_s, "there is no more to the left"
    assert list(parse_keys("+\x1b[Dq\x1b[A\x1b")) == ["+", "left", "q", "up", "\x1b"]


def test_curves_that_have_no_room_are_counted_and_can_be_reached():
    bins = Bins()
    bins.take(recorded(1000))
    told = [("node1", bins), ("node\x1b2", "silent for 20 s"), ("node3", bins)]
    everything = list(picture_lines(told, View(), 80, 40, keys=True))
    assert any("node\\x1b2: silent for 20 s" in line for line in everything)
    assert max(map(len, everything)) <= 80
    few = list(picture_lines(told, View(), 80, 8, keys=False))
    assert few[-1].startswith("1 to 3 of 5 curves")
    assert few[1].startswith("node1 processor")
    below = list(picture_lines(told, View(first=99), 80, 8, keys=False))
    assert below[-1].startswith("3 to 5 of 5 curves")
