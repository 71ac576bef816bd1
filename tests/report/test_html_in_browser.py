"""The page in a real browser, light and dark: no error, no request, no overflow; pointing, zooming and paper."""

from __future__ import annotations

import base64
import re
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
MOST_SHEETS = 5
SHEET_PX = 717  # A4 between Chromium's margins of 1 cm, at 96 px an inch

COLOURS = "return [...document.querySelectorAll('.plot .median')].map((e) => getComputedStyle(e).stroke).join()"
TICKS = "return [...document.querySelectorAll('#figure-1 .x text')].map((e) => e.textContent)"
SHOWN = "return [...document.querySelectorAll('#figure-1 .tip.shown *')].map((e) => e.textContent)"


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
    assert browser.execute_script("return document.querySelectorAll('.plot').length") == FIGURES


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
    assert browser.execute_script("return document.scripts.length") == 1
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
    light = browser.execute_script(COLOURS)
    emulate(browser, "dark")
    dark = browser.execute_script(COLOURS)
    assert dark != light != ""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.execute_script(COLOURS) == light
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    folded = "return document.querySelectorAll('details:not([open]):not(.path):not(.unprinted)').length"
    assert browser.execute_script(folded) > 0
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(folded) == 0
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script("return document.querySelectorAll('details[open]').length") == 0


def press(browser: Chrome, *keys: str) -> None:
    browser.execute_script(
        "const [chart, keys] = [document.querySelector('#figure-1 .chart'), arguments[0]]; chart.focus();"
        "for (const key of keys) chart.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));",
        keys,
    )


def test_keys_show_points_and_zoom(browser: Chrome, address: str) -> None:
    show(browser, address, 1280, "light")
    ticks = browser.execute_script(TICKS)
    press(browser, "ArrowRight", "ArrowRight")
    second = browser.execute_script(SHOWN)
    assert second[:2] == ["threads 1", "size\u200232 B"]
    assert "verdict\u2002unknown" in second
    press(browser, "ArrowDown")
    assert browser.execute_script(SHOWN)[0] == "threads 2"
    press(browser, "+", "+")
    zoomed = browser.execute_script(TICKS)
    assert zoomed != ticks
    assert all(re.fullmatch(r"[\d.]+ ([KM]i)?B", words) for words in zoomed)
    press(browser, "0")
    assert browser.execute_script(TICKS) == ticks
    assert browser.execute_script(SHOWN) == []


def test_a_mouse_drags_a_part_and_a_double_click_shows_all(browser: Chrome, address: str) -> None:
    show(browser, address, 1280, "light")
    ticks = browser.execute_script(TICKS)
    box = browser.execute_script(
        "const plot = document.querySelector('#figure-1 .plot'); plot.scrollIntoView({ block: 'center' });"
        "const { x, y, width, height } = plot.getBoundingClientRect(); return [x, y, width, height];"
    )
    across, down = (box[0] + share * box[2] for share in (0.4, 0.6)), (box[1] + share * box[3] for share in (0.2, 0.8))
    (x0, y0), (x1, y1) = zip(across, down, strict=True)
    for kind, x, y in (("mousePressed", x0, y0), ("mouseMoved", x1, y1), ("mouseReleased", x1, y1)):
        event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)
    assert browser.execute_script(TICKS) != ticks
    assert browser.execute_script("return document.querySelector('#figure-1 .plot-area').classList.contains('zoomed')")
    for count in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            event = {"type": kind, "x": x0, "y": y0, "button": "left", "clickCount": count}
            browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)
    assert browser.execute_script(TICKS) == ticks
    assert read_console(browser) == []


def test_paper_has_few_sheets_and_nothing_overlaps(browser: Chrome, address: str) -> None:
    show(browser, address, 1280, "light")
    sheet = {"width": SHEET_PX, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sheet)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    try:
        boxes = "return [...document.querySelectorAll('svg.chart, .legend, .curve > h3')].map((e) => e.getBoundingClientRect()).map((r) => [r.left, r.right, r.top, r.bottom])"  # noqa: E501
        found = [box for box in browser.execute_script(boxes) if box[1] > box[0]]
        assert len(found) >= 2 * FIGURES
        assert max(right for _, right, _, _ in found) <= SHEET_PX
        for place, (left, right, top, bottom) in enumerate(found):
            for other in found[:place]:
                assert left >= other[1] - 1 or right <= other[0] + 1 or top >= other[3] - 1 or bottom <= other[2] + 1
    finally:
        browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) <= MOST_SHEETS


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
