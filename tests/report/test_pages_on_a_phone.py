"""The other pages in a real browser, 400 px wide: nothing scrolls sideways, nothing is loaded, no name is broken."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.diagnosis.fleet.test_host_table import host, path
from tests.watch.test_watch import a_recording

from railwright.diagnosis.acceptance.lines import RecordFile, Sheet, SheetLine
from railwright.diagnosis.fleet.host_table import host_table
from railwright.expected.designs import Question, compare_designs, evaluate_design
from railwright.report.pages.acceptance import render_acceptance
from railwright.report.pages.hosts import render_hosts_html
from railwright.report.pages.locate import render_located_html
from railwright.report.pages.run import render_html
from railwright.report.pages.whatif import render_designs_html
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

from .browser import chromium, read_console
from .test_locate_html import SLOW, located, pair
from .test_recorded_runs import RUNS, recorded_view

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.machine

NAME = "node099/8"
A4 = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
LINES_OF_NAME = f"""
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
for (let node = walker.nextNode(); node; node = walker.nextNode()) {{
  const at = node.data.indexOf("{NAME}"), range = document.createRange();
  if (at < 0) continue;
  range.setStart(node, at);
  range.setEnd(node, at + {len(NAME)});
  if (range.getClientRects().length) found.push(range.getClientRects().length);
}}
return found;
"""


def acceptance() -> str:
    lines = [
        SheetLine(
            item=1,
            asked="mpi_bandwidth: at least 0.5 of the limit",
            state=state,
            why="of the expected band",
            host=NAME,
            benchmark="mpi_bandwidth",
            path=f"{NAME}>node100/8",
            quantity="bandwidth_bytes_per_s",
            value=9e9,
            limit=12e9,
            parameters={"transport": "shm", "size_bytes": 2**21},
            records=(f"hosts/{NAME}/results.jsonl:2,259,516",),
        )
        for state in ("met", "not met", "not judged")
    ]
    file = RecordFile(
        name=f"hosts/{NAME}/results.jsonl", sha256="f9" * 32, lines=773, host=NAME, started_at="2026-11-25"
    )
    sheet = Sheet(
        title="Acceptance of 64 servers", state="not met", lines=tuple(lines), files=(file,), between=("a", "b")
    )
    return render_acceptance(sheet)


def hosts() -> str:
    names = [f"node{number:03}/8" for number in range(95, 105)]
    paths = [path(f"copy{number}", (10e9,)) for number in range(40)]
    fleet = {name: host(*paths) if name != NAME else host(path("copy0", (1e9,)), *paths[1:]) for name in names}
    return render_hosts_html(host_table(fleet), lambda name: f"hosts/{name}/report.html")


def locate() -> str:
    ports = [f"node{number:03}/8:r0" for number in range(95, 111)]
    pairs = [pair(one, other, 0.97, "leaf0", "spine0", "leaf1") for one in ports for other in ports if one != other]
    return render_located_html(located(*pairs, suspects=(SLOW,)))


def whatif() -> str:
    asked = Question(collectives=("all_reduce",))
    designs = [evaluate_design(name, build_cluster(load(name), 16), asked) for name in ("hgx-h100", "aws-p5")]
    return render_designs_html(compare_designs(designs), asked)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        screen = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        yield driver


def check(browser: Chrome, page: Path) -> list[int]:
    """Check that a page fits, and return the number of lines of each name that it shows."""
    browser.get(page.as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    widths = browser.execute_script(
        "const root = document.documentElement; return [root.scrollWidth, root.clientWidth]"
    )
    assert widths[0] <= widths[1], "the page scrolls sideways"
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert read_console(browser) == []
    lines: list[int] = browser.execute_script(LINES_OF_NAME)
    return lines


@pytest.mark.parametrize("render", [acceptance, hosts, locate, whatif])
def test_a_page_fits_on_a_phone(browser: Chrome, tmp_path: Path, render: Callable[[], str]) -> None:
    page = tmp_path / "page.html"
    page.write_text(render(), encoding="utf-8")
    lines = check(browser, page)
    assert bool(lines) == (render is not whatif)
    assert set(lines) <= {1}, f"{NAME} is broken into lines"


@pytest.mark.parametrize("name", RUNS)
def test_the_report_of_a_recorded_run_fits_on_a_phone_and_on_five_sheets(
    browser: Chrome, tmp_path: Path, name: str
) -> None:
    folder, records, _ = RUNS[name]
    page = tmp_path / "page.html"
    page.write_text(render_html(recorded_view(folder, records, tmp_path)), encoding="utf-8")
    check(browser, page)
    browser.get(page.as_uri())
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", A4)["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 5


def test_the_page_of_a_watched_job_fits_on_a_phone(browser: Chrome, tmp_path: Path, answer) -> None:
    page = tmp_path / "page.html"
    a_recording(tmp_path / "a.arrows")
    assert answer("watch", "--from", str(tmp_path / "a.arrows"), "-O", str(page)).status == 0
    check(browser, page)
    values = browser.execute_script(
        "const chart = document.querySelector('.chart'); chart.focus();"
        "chart.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));"
        "return [...document.querySelectorAll('.tip.shown *')].map((each) => each.textContent)"
    )
    assert [value.split("\u2002")[0] for value in values[1:]] == ["cores in user mode"]
    assert values[0].endswith(" s")
