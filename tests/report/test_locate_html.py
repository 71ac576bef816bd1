"""The page of a search: it shows the suspects as text, nothing becomes markup, and its pictures show the pairs."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from railwright.diagnosis.localise import trial
from railwright.diagnosis.localise.latency import HopClass, Latency, PairTime, SlowPair
from railwright.diagnosis.localise.records import Suspect
from railwright.locate.search import Located, PairSeen
from railwright.report.pages.locate import render_located_html
from railwright.report.pictures.locate import shorten
from railwright.report.pictures.locate_map import build_map, build_matrix, natural_key
from railwright.report.text import locate as locate_text

HOSTILE = "host1</svg><script>alert(1)</script>"


def pair(source: str, destination: str, ratio: float | None, *over: str) -> PairSeen:
    return PairSeen(
        round=1, source=source, destination=destination, over=over, source_port=1, ratio=ratio, sent=0, lost=0
    )


def located(*pairs: PairSeen, suspects: tuple[Suspect, ...] = ()) -> Located:
    tested = trial.Tested(links=8, links_filled=6, links_untested=2, links_partly=0)
    return Located(
        fabric=f"lab of {HOSTILE}", routing="ECMP", hosts=("host0",), seed=0, rounds=4, cover_rounds=0, seconds=1.5,
        sent_bytes=1e9, tested=tested, not_measured=1, suspects=suspects, pairs=pairs, cannot_tell=("routes: unknown",),
    )  # fmt: skip


SLOW = Suspect(
    kind="link", id="leaf0-spine1", direction="up", capacity=0.7, verdict="slow", confidence=0.99, tests=4,
    evidence="4 flows", alternatives=(HOSTILE,), action="reseat leaf0 port u1", verify="railwright locate again",
)  # fmt: skip


def test_the_page_names_each_suspect_with_its_next_step_and_the_untested_links() -> None:
    page = render_located_html(
        located(
            pair("host0:r0", "host2:r0", 0.7, "leaf0", "spine1", "leaf1"),
            pair(f"{HOSTILE}:r0", "host3:r0", None, "leaf0", "spine0", "leaf1"),
            suspects=(SLOW,),
        )
    )
    for words in (
        "1 suspect",
        "link leaf0-spine1 up (from leaf0 to spine1)",
        "carries 70% of its rate",
        "almost certain",
        "reseat leaf0 port u1",
        "railwright locate again",
        "2 link",
    ):
        assert words in page
    assert "<script" not in page
    assert "https://" not in page
    assert len(re.findall('class="bad"', page)) == 1
    assert "host0:r0 to host2:r0: 70%" in page
    assert "did not run" in page
    assert "host2:r0 to host0:r0: not tested" in page


def test_a_suspect_says_direction_share_and_confidence_in_words() -> None:
    def line(**changes: object) -> str:
        return next(iter(locate_text.suspect_lines([replace(SLOW, **changes)]))).partition("  ")[2].strip()

    assert line() == "link leaf0-spine1 up (from leaf0 to spine1): carries 70% of its rate, almost certain (99%)"
    assert "down (from spine1 to leaf0): carries 10% of its rate, a candidate, no more likely than not (50%)" in line(
        direction="down", capacity=0.1, confidence=0.5
    )
    assert line(kind="nic", id="host3:nic0", confidence=1.0).startswith(
        "nic host3:nic0 up (what the host sends): carries 70% of its rate, almost certain"
    )
    assert "leaf-a-spine-b up (away from the hosts)" in line(id="leaf-a-spine-b")
    assert line(kind="host", id="host3", direction="both").startswith("host host3: carries")


def test_coverage_does_not_read_as_the_rates_that_were_reached() -> None:
    rows = dict(locate_text.tested_rows(trial.Tested(links=32, links_filled=32, links_untested=0, links_partly=0)))
    assert rows == {"tested": "all 32 link directions, each with enough traffic to fill it"}


def test_levels_follow_the_paths_and_a_cell_keeps_the_lowest_rate() -> None:
    found = located(
        pair("host10:r0", "host2:r0", 0.9, "leaf1", "spine0", "leaf0"),
        pair("host10:r0", "host2:r0", 0.4, "leaf1", "spine0", "leaf0"),
        pair("host2:r0", "host3:r0", 1.0, "leaf0"),
    )
    there = build_map(found)
    assert there.levels == (("host2:r0", "host3:r0", "host10:r0"), ("leaf0", "leaf1"), ("spine0",))
    assert build_matrix(found, there.leaf_of).cells["host10:r0", "host2:r0"] == 0.4
    assert sorted(["a10", "a9", "", "b", "a"], key=natural_key) == ["", "a", "a9", "a10", "b"]


def test_rows_are_leaves_if_there_are_too_many_ports() -> None:
    pairs = [pair(f"host{n}:r0", f"host{n + 40}:r0", 1.0, "leaf0", "spine0", "leaf1") for n in range(40)]
    found = located(*pairs)
    matrix = build_matrix(found, build_map(found).leaf_of)
    assert (matrix.what, matrix.names) == ("leaf", ("leaf0", "leaf1"))
    assert "leaf0 to leaf1: 100%" in render_located_html(found)


def test_the_matrix_of_round_trips_shows_hop_classes_and_marks_the_late_pair() -> None:
    pairs = [pair("host0:r0", f"host{n}:r0", 1.0, "leaf0") for n in (1, 2)]
    times = tuple(
        PairTime(source=f"host{first}:r0", destination=f"host{second}:r0", switches=hops, seconds=seconds, tries=2)
        for first, second, hops, seconds in ((0, 1, 1, 20e-6), (0, 2, 3, 51e-6), (2, 0, 3, 300e-6))
    )
    classes = tuple(HopClass(switches=hops, pairs=2, median_s=20e-6 * hops, spread_s=1e-6) for hops in (1, 3))
    late = SlowPair(source="host2:r0", destination="host0:r0", switches=3, round_trip_s=300e-6, tries=2, times=5.0)
    page = render_located_html(
        replace(located(*pairs), latency=Latency(classes=classes, slow_pairs=(late,), pairs=times))
    )
    drawn = page[page.index("Pairs: round trip") :]
    assert [drawn.count(f'class="{style}"><title>host') for style in ("t0", "t1", "m3")] == [1, 1, 1]
    for words in (
        "20.0 us",
        "60.0 us",
        "below one leaf",
        "host2:r0 to host0:r0: 300 us, 5 times the median of its class",
    ):
        assert words in drawn, words
    assert "round trip, in" not in render_located_html(located(pair("host0:r0", "host1:r0", 1.0, "leaf0")))


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (("host0:r0", "host12:r0"), ["0", "12"]),
        (("node090/8:r0", "node099/8:r0"), ["090", "099"]),
        (("node1.rack17.example.com:r0", "node2.rack17.example.com:r0"), ["1", "2"]),
        (("leaf0",), ["0"]),
        (("a", "b"), ["a", "b"]),
        (("host1:r0", "host1:r1"), ["1", "1"]),
    ],
)
def test_a_short_name_is_the_part_that_distinguishes_it(names: tuple[str, ...], short: list[str]) -> None:
    assert list(shorten(names).values()) == short
