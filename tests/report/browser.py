"""A headless Chromium for tests; without one the test fails and says how to get it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless",
    "--no-sandbox",  # the tests also run as root, where Chromium has no sandbox
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def _program(*names: str) -> str:
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        pytest.fail(f"none of {', '.join(names)} is installed\nhint: run: make test-deps")
    return found


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own, that keeps its console's messages."""
    options = webdriver.ChromeOptions()
    options.binary_location = _program("chromium", "chromium-browser", "google-chrome")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # With the driver named, selenium does not look for one on the network.
    driver = webdriver.Chrome(options=options, service=Service(_program("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def said_by_the_page(driver: webdriver.Chrome) -> list[str]:
    """The messages of the console but for those of the browser's own pages, which a slow machine makes it say."""
    return [entry["message"] for entry in driver.get_log("browser") if not entry["message"].startswith("chrome://")]
