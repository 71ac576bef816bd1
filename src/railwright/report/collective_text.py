"""What a collective can reach, as plain text, for `limits --collective`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from railwright.limits.collectives import Algorithm, CollectiveLimit, Rate, Share
from railwright.report import wording
from railwright.units import format_bandwidth, format_duration, format_size

WIDTH = 110
"""Characters of a line of text; a terminal of fewer breaks it once more."""
LABEL = 10


def labelled(label: str, text: str, *, indent: int = 0) -> Iterator[str]:
    """A label and a sentence beside it, broken into lines; what the text has of control characters is escaped."""
    first = " " * indent + f"{label:{LABEL}}"
    yield from textwrap.wrap(
        wording.visible(text), WIDTH, initial_indent=first, subsequent_indent=" " * (indent + LABEL),
        break_on_hyphens=False, break_long_words=False,
    ) or [first.rstrip()]  # fmt: skip


def render_collective(found: CollectiveLimit) -> str:
    """Limit and band as busbw and algbw, every algorithm, the bottleneck and what relaxing it brings."""
    return "\n".join(_lines(found))


def _lines(found: CollectiveLimit) -> Iterator[str]:
    size = f", {format_size(found.size_bytes)}" if found.size_bytes else ", large sizes"
    plural = "host" if found.hosts == 1 else "hosts"
    yield f"{found.collective} on {found.hosts} {plural} of {wording.visible(found.cluster)}, {found.ranks} ranks{size}"
    yield ""
    yield f"{'':10}{'limit':>12}   expected"
    yield f"{'busbw':10}{_rate(found.busbw_bytes_per_s)}"
    yield f"{'algbw':10}{_rate(found.algbw_bytes_per_s)}"
    if found.time_s is not None:
        yield f"{'time':10}{_time(found.time_s)}"
    yield ""
    yield from labelled("because", found.because)
    for share in found.bottleneck:
        yield from _share_lines(share, found.algbw_bytes_per_s.limit)
    if len(found.algorithms) > 1:
        yield ""
        yield "busbw by algorithm"
        for algorithm in found.algorithms:
            yield _algorithm_line(algorithm, found.chosen)
    for title, sentences in (("software", found.software_limits), ("assumed", found.assumptions)):
        if sentences:
            yield ""
        for number, sentence in enumerate(sentences):
            yield from labelled(title if number == 0 else "", sentence)
    yield ""
    for number, source in enumerate(found.sources):
        yield from labelled("source" if number == 0 else "", source)


def _rate(rate: Rate) -> str:
    limit = f"{format_bandwidth(rate.limit):>12}"
    if rate.expected_low is None or rate.expected_high is None:
        return f"{limit}   unknown: no document tells what healthy systems reach"
    return f"{limit}   {format_bandwidth(rate.expected_low)} to {format_bandwidth(rate.expected_high)}"


def _time(time: Rate) -> str:
    least = f"{format_duration(time.limit):>12}"
    if time.expected_low is None or time.expected_high is None:
        return f"{least}   unknown"
    return f"{least}   {format_duration(time.expected_low)} to {format_duration(time.expected_high)}"


def _share_lines(share: Share, rate: float) -> Iterator[str]:
    gain = share.doubled_bytes_per_s / rate - 1
    then = f", then {share.then} holds it back" if share.then and share.then != share.what else ""
    more = f"doubling it brings {gain:+.0%}{then}" if gain > 0.005 else "doubling it alone brings nothing"
    yield f"{'':10}{share.share:4.0%} {share.what}: {more}"


def _algorithm_line(algorithm: Algorithm, chosen: str) -> str:
    mark = "  expected choice" if algorithm.name == chosen else "" if algorithm.in_nccl else "  not in NCCL"
    return f"  {algorithm.name:14}{_rate(algorithm.busbw_bytes_per_s)}{mark}"
