"""Limits of a collective as plain text, for `limits --collective`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from railwright.limits.rates import Algorithm, Rate, Share
from railwright.report.text.wording import escape
from railwright.terminal import text_width
from railwright.units import format_bandwidth, format_count, format_duration, format_size

if TYPE_CHECKING:
    from railwright.expected.collective_rows import CollectiveLimit

LABEL = 10


def labelled(label: str, *texts: str, indent: int = 0) -> Iterator[str]:
    """Yield a label with sentences next to it, wrapped into lines, with control characters escaped."""
    for text in texts:
        first = " " * indent + f"{label:{LABEL}}"
        yield from textwrap.wrap(
            escape(text), text_width(), initial_indent=first, subsequent_indent=" " * (indent + LABEL),
            break_on_hyphens=False, break_long_words=False,
        ) or [first.rstrip()]  # fmt: skip
        label = ""


def rate_words(rate: Rate, shown: Callable[[float], str] = format_bandwidth) -> str:
    """Format the expected band, or `unknown` if no document gives one."""
    if rate.expected_low is None or rate.expected_high is None:
        return "unknown"
    return f"{shown(rate.expected_low)} to {shown(rate.expected_high)}"


def render_collective(found: CollectiveLimit) -> str:
    """Render limit and band as busbw and algbw, each algorithm, the bottleneck and the gain from relaxing it."""
    return "\n".join(_lines(found))


def _lines(found: CollectiveLimit) -> Iterator[str]:
    size = f", {format_size(found.size_bytes)}" if found.size_bytes else ", large sizes"
    on = f"on {format_count(found.hosts, 'host')} of {escape(found.cluster)}"
    yield f"{found.collective} {on}, {found.scale}{size}"
    yield ""
    yield f"{'':10}{'limit':>12}   expected"
    yield f"{'busbw':10}{_rate(found.busbw_bytes_per_s)}"
    for way in found.busbw_bytes_per_s.ways:
        band = f"{format_bandwidth(way.low)} to {format_bandwidth(way.high)}"
        yield f"{'':10}{f'as {way.algorithm}':>12}   {band}"
    yield f"{'algbw':10}{_rate(found.algbw_bytes_per_s)}"
    if found.time_s is not None:
        yield f"{'time':10}{format_duration(found.time_s.limit):>12}   {rate_words(found.time_s, format_duration)}"
    yield ""
    yield from labelled("because", found.because)
    for share in found.bottleneck:
        yield _share_line(share, found.algbw_bytes_per_s.limit)
    if len(found.algorithms) > 1:
        yield ""
        yield "busbw by algorithm, large sizes"
        for algorithm in found.algorithms:
            yield _algorithm_line(algorithm, found.chosen)
    for title, sentences in (("software", found.software_limits), ("assumed", found.assumptions)):
        if sentences:
            yield ""
            yield from labelled(title, *sentences)
    yield ""
    yield from labelled("source", *found.sources)


def _rate(rate: Rate) -> str:
    band = rate_words(rate)
    why = ": no document gives what healthy systems reach" if band == "unknown" else ""
    return f"{format_bandwidth(rate.limit):>12}   {band}{why}"


def _share_line(share: Share, rate: float) -> str:
    gain = share.doubled_bytes_per_s / rate - 1
    then = f", then {share.then} holds it back" if share.then and share.then != share.what else ""
    more = f"doubling it brings {gain:+.0%}{then}" if gain > 0.005 else "doubling it alone brings nothing"
    return f"{'':10}{share.share:4.0%} {share.what}: {more}"


def _algorithm_line(algorithm: Algorithm, chosen: str) -> str:
    mark = "  expected choice" if algorithm.name == chosen else "" if algorithm.in_nccl else "  not in NCCL"
    return f"  {algorithm.name:14}{_rate(algorithm.busbw_bytes_per_s)}{mark}"
