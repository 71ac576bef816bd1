"""The page as text: a single file, no network, and nothing from a machine can become code."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import msgspec
import pytest
from msgspec.structs import replace

from railwright.diagnosis.verdicts.judged import Diagnosis, Verdict
from railwright.errors import EXIT_OK, EXIT_UNJUDGED
from railwright.limits.limit import NoLimit
from railwright.report.pages.run import render_html
from railwright.report.pictures.figures import MAX_SERIES, figures
from railwright.report.view import build_view
from railwright.topology.devices import Scalar

from . import sample
from .drawn import marked, paths_of


class Page(HTMLParser):
    """A parser that collects scripts, attributes and visible text like a browser."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def source() -> str:
    return render_html(build_view(sample.run(), sample.diagnosis(), sample.end(), sample.results()))


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


def test_hostile_names_are_text_and_nothing_else(page: Page) -> None:
    assert len(page.scripts) == 1
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "alert(1)" in page.text
    assert "[red]x[/red]" in page.text
    assert "disk\\x1b[31m\\u202ered\\n" in page.text


def test_only_our_script_may_run(page: Page) -> None:
    policy = next(attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in page.scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_the_page_refers_to_nothing_outside_itself(source: str, page: Page) -> None:
    fetching = {"src", "href", "srcset", "action", "data", "poster", "xlink:href"}
    found = [attributes[name] for _, attributes in page.tags for name in fetching & set(attributes)]
    assert found
    assert all(re.fullmatch(r"#(path|source|method)-\d+", target or "") for target in found), (
        "links lead to the page alone"
    )
    targets = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    assert {(target or "").removeprefix("#") for target in found} <= targets
    styles = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    assert not [style for style in styles if re.search(r"url\((?!#)", style) or "@import" in style]


def test_the_page_shows_verdicts_limits_and_reasons(page: Page) -> None:
    for words in (
        "1 of 11 paths is slow",
        "11 paths: 1 slow, 1 suspicious, 1 failed, 2 unknown, 6 ok; besides, 1 not run;",
        "limit (derived): DDR5-4800, 1 channel, one read and one write for each byte copied",
        "4800 MT/s x 8 B x 1 channel 38.4 GB/s",
        "JEDEC JESD79-5, DDR5 SDRAM",
        "there is no GPU on this machine",
        "killed by SIGSEGV in nixl_post_xfer_req",
        "ip link set lo mtu 65536",
        "TcpRetransSegs",
        "UCX_TLS",
        "Permission denied",
    ):
        assert words in page.text


def test_baselines_are_one_table_and_each_reason_is_said_once() -> None:
    path = sample.diagnosis().paths[0]
    assert path.headline is not None
    bare = replace(path.headline, limit=NoLimit(quantity=path.quantity, why="a reason of theirs"))
    verdict = Verdict(state="reference", why="nothing above it")
    baselines = tuple(
        replace(path, benchmark=name, parameters={"threads": n}, headline=bare, verdict=verdict)
        for name in ("first_copy", "second_copy")
        for n in (1, 2)
    )
    ok = next(path for path in sample.diagnosis().paths if path.verdict.state == "ok")
    judged = Diagnosis(points=(), paths=(*baselines, ok), findings=(), exit_status=EXIT_OK)
    source = render_html(build_view(sample.run(), judged, sample.end(), sample.results()))
    (table,) = re.findall(r'<table class="numbers baselines">(.*?)</table>', source, re.DOTALL)
    assert source.index('id="baselines"') > source.index(f'class="bench">{ok.benchmark}<')
    assert re.findall(r'<tr id="(path-\d)"', table) == [f"path-{number}" for number in range(1, 5)]
    assert [table.count(f">{name}<td") for name in ("first_copy", "second_copy")] == [1, 1]
    assert source.count("a reason of theirs") == 1
    assert "first_copy, second_copy: no limit: a reason of theirs" in source


def test_a_name_in_a_figure_is_text() -> None:
    first = sample.diagnosis().points[0]
    parameters: dict[str, Scalar] = {"by": sample.SCRIPT_NAME}
    (figure,) = figures([msgspec.structs.replace(first, path=sample.CLOSING_NAME, parameters=parameters)])
    assert "<script" not in figure.svg
    assert sample.SCRIPT_NAME in "".join(ET.fromstring(figure.svg).itertext())


def test_a_figure_shows_the_median_each_launch_the_band_and_the_limit() -> None:
    drawn = {figure.title: figure for figure in figures(sample.diagnosis().points)}
    copies = drawn["memory_copy, bandwidth"]
    assert [entry.words for entry in copies.legend] == [
        "threads 1", "threads 2", "limit (derived)", "end of the expected band", "a launch", "samples"]  # fmt: skip
    assert [len(line) for line in paths_of(copies, "median")] == [10, 10]
    (limit,) = paths_of(copies, "limit")
    assert len({y for _, y in limit}) == 1, "a limit that all curves share is drawn once"
    assert [len(launches) for launches in paths_of(copies, "launches")] == [30, 30]
    assert [len(outline) for outline in paths_of(copies, "band")] == [20, 20]
    latency = drawn["mpi_latency, latency"]
    assert len(paths_of(latency, "measured")) == 2
    assert "floor (measured)" in [entry.words for entry in latency.legend]


def test_a_slow_point_has_the_sign_of_its_verdict() -> None:
    drawn = figures(sample.diagnosis().points)
    (figure,) = [figure for figure in drawn if any(row.state == "slow" for row in figure.rows)]
    assert marked(figure, "slow") == sum(row.state == "slow" for row in figure.rows)
    assert "slow" in [entry.words for entry in figure.legend]


def test_a_figure_has_a_name_and_a_description() -> None:
    for figure in figures(sample.diagnosis().points):
        root = ET.fromstring(figure.svg)
        assert root.get("role") == "img"
        assert root.findtext("title") == figure.title
        assert root.findtext("desc") == figure.summary


def test_one_bad_sample_does_not_squeeze_the_curves_flat() -> None:
    points = [point for point in sample.diagnosis(sample.CURVES[:1]).points if point.launches]
    broken = tuple(
        msgspec.structs.replace(point, launches=(msgspec.structs.replace(point.launches[0], minimum=1.0),))
        for point in points
    )
    heights = [y for _, y in paths_of(figures(broken)[0], "median")[0]]
    assert max(heights) - min(heights) > 100


def test_a_setting_that_changes_with_the_size_is_shown_as_a_range() -> None:
    measured = tuple(
        msgspec.structs.replace(result, settings={"iterations": 10 * place, "order": "random", "kept": place % 2})
        for place, result in enumerate(sample.results(sample.CURVES[:1]))
        if result.outcome == "measured"
    )
    text = Page(render_html(build_view(sample.run(), sample.diagnosis(), sample.end(), measured))).text
    assert "iterations 0 to 290, order random, kept 0 / 1." in text


def test_the_state_of_the_gpus_is_shown_in_words_and_not_as_settings() -> None:
    seen = {"gpu_samples": 5, "gpu_clock_min_hz": 1.98e9, "gpu_clock_median_hz": 1.98e9, "gpu_clock_min_of": "gpu0",
            "gpu_power_max_w": 244.878, "gpu_throttle": "none"}  # fmt: skip
    measured = tuple(
        msgspec.structs.replace(result, settings={"iterations": 10, **seen})
        for result in sample.results(sample.CURVES[:1])
        if result.outcome == "measured"
    )
    text = Page(render_html(build_view(sample.run(), sample.diagnosis(), sample.end(), measured))).text
    words = (
        f"locks 1980 MHz, up to 245 W, no throttling; {len(measured)} of {len(measured)} GPU results sampled themselves"
    )
    assert f"iterations 10. C{words}." in text
    assert f"Watched c{words}" in text
    assert "gpu clock" not in text
    assert "244.878" not in text
    assert "Watched" not in Page(render_html(build_view(sample.run(), sample.diagnosis(), sample.end(), ()))).text


def test_many_paths_of_one_size_share_a_lane_and_a_row() -> None:
    copy = sample.CURVES[0]
    curves = tuple(
        sample.Curve(copy.benchmark, copy.quantity, f"node099/{n}>memory0", {"threads": 1}, 19.2e9, 18e9, sizes=(4096,))
        for n in range(8)
    )
    diagnosis = sample.diagnosis(curves)
    (figure,) = figures(diagnosis.points)
    assert "8 paths" in figure.svg
    assert [len(marks) for marks in paths_of(figure, "marks")] == [8]
    assert len(figure.rows) == 8
    text = Page(render_html(build_view(sample.run(), diagnosis, sample.end()))).text
    assert text.count("and 6 more") == 1
    assert all(f"node099/{number}>memory0 " in text for number in range(8)), "each has its own row"


def test_many_curves_are_spread_over_several_figures() -> None:
    template = sample.CURVES[0]
    curves = tuple(
        sample.Curve(template.benchmark, template.quantity, template.path, {"threads": threads}, 19.2e9, 1e9 * threads)
        for threads in range(1, 15)
    )
    drawn = figures(sample.diagnosis(curves).points)
    assert [figure.title for figure in drawn] == [f"memory_copy, bandwidth ({part} of 3)" for part in (1, 2, 3)]
    assert [len({row.series for row in figure.rows}) for figure in drawn] == [MAX_SERIES, MAX_SERIES, 2]


def test_values_without_a_logarithm_are_not_drawn() -> None:
    points = sample.diagnosis().points
    for value in (0.0, -1.0, float("nan"), float("inf"), None):
        broken = tuple(msgspec.structs.replace(point, value=value) for point in points)
        assert figures(broken) == ()


def test_a_run_without_anything_measured_is_still_a_page() -> None:
    nothing = Diagnosis(points=(), paths=(), findings=(), exit_status=EXIT_UNJUDGED)
    source = render_html(build_view(sample.run(), nothing, None, ()))
    page = Page(source)
    assert "Nothing was judged" in page.text
    assert "The run was cut off" in page.text
    assert len(source) < 100_000


def test_the_headline_counts_only_what_was_measured() -> None:
    curve = sample.CURVES[0]
    whole = sample.diagnosis((curve,))
    fine = tuple(path for path in whole.paths if path.verdict.state in ("ok", "waived"))
    healthy = msgspec.structs.replace(whole, paths=fine, exit_status=EXIT_OK)
    source = render_html(build_view(sample.run(), healthy, sample.end()))
    assert Page(source).text.count("The one path that can be judged is as fast as expected") == 2
    assert '<h1 class="ok">' in source
