"""The site of `make docs`: no warning, nothing loaded from a network, and a search that works from files."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.conftest import ROOT, wait_until
from tests.report.browser import chromium, read_console

pytestmark = pytest.mark.machine


def build(pages: Path, site: Path) -> subprocess.CompletedProcess[str]:
    argv = ["make", "--no-print-directory", "docs", f"PAGES={pages}", f"SITE={site}"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)


class Page(HTMLParser):
    """The anchors of a page, the links that a reader follows, and the files that a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a":
            self.links += [given["href"]] if "href" in given else []
        else:
            self.loaded += [given[name] for name in ("src", "href", "srcset", "data", "poster") if name in given]
        self.loaded += re.findall(r"url\(([^)]*)\)", given.get("style", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_every_link_has_its_page_and_anchor(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not file.is_file() or (anchor and file in pages and anchor not in pages[file].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []
    assert len(pages) > 50


def test_no_page_loads_anything_from_a_network(site, pages):
    loaded = {(path, name) for path, page in pages.items() for name in page.loaded}
    for path in site.rglob("*.css"):
        styles = path.read_text(encoding="utf-8")
        loaded |= {(path, name.strip("'\" ")) for name in re.findall(r"(?:url\(|@import )([^);]*)", styles)}
    assert [
        f"{path.relative_to(site)}: {name}" for path, name in loaded if re.match(r"(?!data:)[a-z]*:|//", name)
    ] == []
    assert any(name.endswith("searchindex.js") for _, name in loaded)


def test_the_search_finds_pages_from_files(site, pages, tmp_path):
    with chromium(tmp_path / "profile") as browser:
        browser.get(f"{(site / 'search.html').as_uri()}?q=locate")
        listed = "return [...document.querySelectorAll('#search-results li a')].map((each) => each.href)"
        first = wait_until(lambda: browser.execute_script(listed), "a result of the search")[0]
        assert first.startswith((site / "docs/locate.html").as_uri())
        assert "(for engineers " in browser.find_element("css selector", "#search-results li").text
        # Chromium lists what it loads from a network, and no files.
        assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
        assert read_console(browser) == []


def test_a_lost_page_and_a_missing_anchor_fail_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    for name, text in (
        ("README", "# Front\n"),
        ("docs/README", "# Map\n\n## Jobs\n\n- [page](page.md)\n"),
        ("docs/page", "# Page\n\n[There](README.md#jobs), [nowhere](README.md#none).\n"),
        ("docs/lost", "# Lost\n"),
    ):
        (tmp_path / f"{name}.md").write_text(text, encoding="utf-8")
    done = build(tmp_path, tmp_path / "out")
    assert done.returncode != 0
    warnings = re.findall(r"docs/(\w+)\.md:?\d*: WARNING: .*\[([\w.]+)\]", done.stderr)
    assert sorted(warnings) == [("lost", "toc.not_included"), ("page", "myst.xref_missing")]
