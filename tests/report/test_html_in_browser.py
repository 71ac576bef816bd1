"""The page in a real browser, light and dark: no error, no request, all figures drawn, and no overflow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from railwright.report.pages.run import render_html
from railwright.report.view import build_view

from . import sample
from .browser import chromium, read_console

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.machine

FIGURES = 6
SHEET_PX = 717  # A4 between Chromium's margins of 1 cm, at 96 px an inch

DRAWN = """
const done = arguments[0];
(function look() {
  const drawn = document.querySelectorAll(".plot .main-svg .trace path, .plot .main-svg .trace .point");
  const plots = [...document.querySelectorAll(".plot")].filter((plot) => plot.querySelector(".trace path"));
  if (drawn.length && plots.length === document.querySelectorAll(".plot").length) done(plots.length);
  else setTimeout(look, 50);
})();
"""

LINE_COLOUR = (
    "return [...document.querySelectorAll('.plot path.js-line')].map((e) => getComputedStyle(e).stroke).join()"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    view = build_view(sample.run(), sample.diagnosis(), sample.end(), sample.results())
    path.write_text(render_html(view), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    profile: Path = tmp_path_factory.mktemp("profile")
    with chromium(profile) as driver:
        driver.set_script_timeout(60)
        yield driver


def show(browser: Chrome, address: str, width: int, scheme: str) -> None:
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    emulate(browser, scheme)
    browser.get(address)
    assert browser.execute_async_script(DRAWN) == FIGURES


def emulate(browser: Chrome, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_it_opens_without_an_error_and_fits(browser: Chrome, address: str, width: int, scheme: str) -> None:
    show(browser, address, width, scheme)
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    shown = browser.execute_script("return document.documentElement.scrollWidth")
    visible = browser.execute_script("return document.documentElement.clientWidth")
    assert shown <= visible, "the page scrolls sideways"
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert read_console(browser) == []


def test_a_link_of_the_drawing_shows_its_paths_to_keyboard_users(browser: Chrome, address: str) -> None:
    show(browser, address, 1280, "light")
    told = "return [link.querySelector('title').textContent, document.querySelector('.pointed').textContent]"
    title, seen = browser.execute_script(f"const link = document.querySelector('.machine a'); link.focus(); {told}")
    assert title == seen != ""
    browser.execute_script("document.activeElement.blur()")
    assert browser.execute_script("return document.querySelector('.pointed').textContent") == ""


def test_no_hostile_name_ran(browser: Chrome, address: str) -> None:
    show(browser, address, 1280, "light")
    assert browser.execute_script("return document.scripts.length") == 3
    assert browser.execute_script("return document.querySelectorAll('main script, main img, main iframe').length") == 0
    legend = browser.execute_script("return document.querySelector('#curves').textContent")
    assert "</script><!--" in legend


def test_a_script_that_is_not_ours_is_refused(browser: Chrome, address: str) -> None:
    show(browser, address, 1280, "light")
    script = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
    browser.execute_script(script)
    assert browser.execute_script("return window.ran") is None
    assert "Content Security Policy" in read_console(browser)[0]


def test_figures_follow_the_colour_scheme_and_paper_is_light(browser: Chrome, address: str) -> None:
    show(browser, address, 1280, "light")
    light = browser.execute_script(LINE_COLOUR)
    emulate(browser, "dark")
    wait = (
        "const [was, done] = arguments; (function look() {"
        + LINE_COLOUR.replace("return", "const now =")
        + ("; if (now !== was) done(now); else setTimeout(look, 50); })();")
    )
    dark = browser.execute_async_script(wait, light)
    assert dark != light
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_async_script(wait, dark) == light
    assert browser.execute_script("return document.querySelectorAll('details:not([open]):not(.path)').length") == 0
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert browser.execute_async_script(wait, light) == dark
    assert browser.execute_script("return document.querySelectorAll('details[open]').length") == 0


def test_on_paper_nothing_overflows_or_overlaps(browser: Chrome, address: str) -> None:
    show(browser, address, 1280, "light")
    sheet = {"width": SHEET_PX, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sheet)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    try:
        boxes = "return [...document.querySelectorAll('.plot .main-svg, table.numbers')].map((e) => e.getBoundingClientRect()).map((r) => [r.left, r.right, r.top, r.bottom])"  # noqa: E501
        found = [box for box in browser.execute_script(boxes) if box[1] > box[0]]
        assert len(found) >= 2 * FIGURES
        assert max(right for _, right, _, _ in found) <= SHEET_PX
        # Boxes are below each other or identical, since a figure has several layers.
        for left, right, top, bottom in found:
            for box in found:
                assert box[2] >= bottom or box[3] <= top or box == [left, right, top, bottom]
    finally:
        browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_words_have_enough_contrast(browser: Chrome, address: str) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1 for text, in both schemes, for every named colour of words."""
    for scheme in ("light", "dark"):
        show(browser, address, 1280, scheme)
        names = ["ink", "muted", "ok", "slow", "suspicious", "failed", "unknown", "waived", "reference"]
        names += [f"series-{number}" for number in range(1, 7)]
        read = "const s = getComputedStyle(document.documentElement); return arguments[0].map((n) => s.getPropertyValue('--' + n).trim())"  # noqa: E501
        page, *colours = browser.execute_script(read, ["page", *names])
        for name, colour in zip(names, colours, strict=True):
            assert contrast(colour, page) >= 4.5, f"{name} in {scheme}"


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
