"""The pages of 4 KiB or of 2 MiB that buffers lie on, which a benchmark varies where they decide.

They do from 64 KiB up: below it a buffer has a few small pages, whose look-up nobody measures.
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
    """The option of a benchmark; the first kind that is asked for is that of all sizes below 64 KiB."""
    first, _, second = default.partition(",")
    from_size = format_size(PAGES_DECIDE_FROM_BYTES)
    text = f"pages of {what} from {from_size} up: {first}, {second}, or both"
    return option(default, text, choice("small", "huge"))


def kinds_at(size_bytes: int, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The pages that a size is measured on."""
    return asked if size_bytes >= PAGES_DECIDE_FROM_BYTES else asked[:1]


def buffer_on(pages: str, size_bytes: int) -> Buffer:
    """A buffer of at least a huge page where it is to lie on huge ones, so that a small size can, too."""
    is_huge = pages == "huge"
    return Buffer(max(size_bytes, HUGE_PAGE_BYTES if is_huge else 1), huge=is_huge)


def pages_evidence(buffers: Buffer) -> Evidence:
    """What the kernel says of the buffers' mapping: it may refuse huge pages, or join small ones by itself."""
    huge = buffers.huge_bytes()
    if huge is None:
        return Evidence(claim="pages", value="unknown", seen="/proc/self/smaps cannot be read")
    kind = "huge" if huge >= buffers.size_bytes / 2 else "small"
    return Evidence(claim="pages", value=kind, seen=f"AnonHugePages: {format_size(huge)} of the buffers' mapping")


def unless_elsewhere(blank: Result, pages: str, lies: Evidence, elsewhere: str) -> Result:
    """The record as waived where its buffers lie on other pages, and as failed where its data went elsewhere."""
    if lies.value != "unknown" and (why := wrong_pages(pages, lies)):
        return waived(blank, why)
    return failed_if(blank, elsewhere)


def wrong_pages(pages: str, seen: Evidence) -> str:
    """Why nothing can be measured on the pages that there are; empty where they are those that were asked for."""
    if seen.value == pages:
        return ""
    other = "small" if pages == "huge" else "huge"
    return f"{pages} pages were asked for, but {seen.seen}: pages={other} measures on {other} ones"
