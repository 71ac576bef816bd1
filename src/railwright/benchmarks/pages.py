"""Buffers on pages of 4 KiB or 2 MiB, varied by benchmarks whose results depend on them.

Pages matter from 64 KiB up. Smaller buffers have so few pages that looking them up costs nothing measurable.
"""

from __future__ import annotations

from typing import Any

from railwright.benchmarks.options import choice, option
from railwright.benchmarks.record import failed_if, waived
from railwright.native.memory import Buffer
from railwright.results.records import PAGES_DECIDE_FROM_BYTES, Evidence, Result
from railwright.units import MIB, format_size

HUGE_PAGE_BYTES = 2 * MIB


def pages_option(default: str, what: str) -> Any:  # noqa: ANN401 - see option
    """Return a benchmark's pages option. Sizes below 64 KiB use only the first kind given."""
    first, _, second = default.partition(",")
    from_size = format_size(PAGES_DECIDE_FROM_BYTES)
    text = f"pages of {what} from {from_size} up: {first}, {second}, or both"
    return option(default, text, choice("small", "huge"))


def choose_pages(size_bytes: int, asked: tuple[str, ...]) -> tuple[str, ...]:
    """Return the kinds of pages for measurements of a size."""
    return asked if size_bytes >= PAGES_DECIDE_FROM_BYTES else asked[:1]


def allocate_buffer(pages: str, size_bytes: int) -> Buffer:
    """Allocate a buffer; one on huge pages is at least a huge page long, even for small sizes."""
    is_huge = pages == "huge"
    return Buffer(max(size_bytes, HUGE_PAGE_BYTES if is_huge else 1), huge=is_huge)


def pages_evidence(buffers: Buffer) -> Evidence:
    """Return the kernel's report on the buffers' mapping: it may refuse huge pages, or merge small pages by itself."""
    huge = buffers.huge_bytes()
    if huge is None:
        return Evidence(claim="pages", value="unknown", seen="/proc/self/smaps cannot be read")
    kind = "huge" if huge >= buffers.size_bytes / 2 else "small"
    return Evidence(claim="pages", value=kind, seen=f"AnonHugePages: {format_size(huge)} of the buffers' mapping")


def check_placement(blank: Result, pages: str, lies: Evidence, elsewhere: str) -> Result:
    """Return the record as waived if its buffers are on other pages, or as failed if `elsewhere` gives a reason."""
    if lies.value != "unknown" and (why := wrong_pages(pages, lies)):
        return waived(blank, why)
    return failed_if(blank, elsewhere)


def wrong_pages(pages: str, seen: Evidence) -> str:
    """Return the reason why the buffers' pages cannot be measured as requested, or an empty string."""
    if seen.value == pages:
        return ""
    other = "small" if pages == "huge" else "huge"
    return f"{pages} pages were requested, but {seen.seen}: use pages={other} to measure {other} pages"
