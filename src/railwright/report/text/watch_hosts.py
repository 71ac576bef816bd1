"""Several hosts of a job, watched together, as text; the same records as with `--json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright.diagnosis.iterations.records import Estimate
from railwright.diagnosis.iterations.stragglers import Straggler
from railwright.process import describe_status
from railwright.report.text.watch import NAME_COLUMNS, line
from railwright.report.text.wording import visible
from railwright.units import count, format_duration
from railwright.watch.seen_hosts import SeenHost, WatchedHosts

_HEADS = ("iterations", "period", "computes", "longer", "longest", "later")
_COLUMNS = (12, 11, 11, 20, 9, 20)


def watched_hosts_lines(found: WatchedHosts) -> Iterator[str]:
    """A table of the hosts, who is unlike the others, and what could not be told."""
    there = [one for one in found.hosts if one.watched is not None]
    yield f"{count(len(there), 'host')} of {len(found.hosts)} watched, on one time axis"
    if found.command:
        ended = "" if found.command_status is None else f" ended with {describe_status(found.command_status)}"
        yield line("command", visible(" ".join(found.command))[:100] + ended)
    yield ""
    if there:
        yield _row("", _HEADS)
    for one in there:
        yield _row(visible(one.host), _cells(one))
    yield ""
    for one in there:
        if one.watched is not None and one.watched.estimates:
            yield line(visible(one.host), _shares(one.watched.estimates[0]))
        elif one.watched is not None:
            yield line(visible(one.host), f"no period here: {visible(one.watched.why_none)}")
    yield from _unlike(found)
    yield from _clocks(there)
    for one in found.hosts:
        if one.trouble:
            yield line("trouble", f"{visible(one.host)}: {visible(one.trouble)}")
        yield from _of_host(one)
    if found.why_not:
        yield line("not told", visible(found.why_not))
    if any(one.compared is not None for one in there):
        yield ""
        yield "longer, later: than the median of the others; longest: in this part of the iterations none took longer"


def _cells(one: SeenHost) -> tuple[str, ...]:
    estimates = one.watched.estimates if one.watched is not None else ()
    if not estimates:
        return ("none", "", "", "", "", "")
    found, held = estimates[0], one.compared
    cells = [str(found.iterations), format_duration(found.period_s)]
    if held is None:
        return (*cells, "", "", "", "")
    later = "not told" if held.later_s is None else _signed(held.later_s, held.later_half_width_s or 0.0)
    return (*cells, format_duration(held.computes_s), _signed(held.longer_s, held.longer_half_width_s),
            f"{held.longest:.0%}", later)  # fmt: skip


def _clocks(there: Sequence[SeenHost]) -> Iterator[str]:
    """How well the time axis is known, by the host whose clock is known worst."""
    worst = max(there, key=lambda one: one.clock_half_width_s or 0.0, default=None)
    if worst is None or worst.clock_half_width_s is None:
        return
    moved = max(abs(one.clock_drift_s or 0.0) for one in there)
    known = f"known to ± {format_duration(worst.clock_half_width_s)}, half of the shortest round trip"
    yield line("clocks", f"{known} ({visible(worst.host)}); they moved {format_duration(moved)} at most meanwhile")


def _signed(value_s: float, half_width_s: float) -> str:
    return f"{'+' if value_s >= 0 else '-'}{format_duration(abs(value_s))} ± {format_duration(half_width_s)}"


def _shares(found: Estimate) -> str:
    lasts = f"from {found.from_s:.1f} to {found.to_s:.1f} s of its recording"
    if found.exposed is None or found.compute is None or found.communication is None:
        return f"{lasts}, shares not told: {visible(found.why_no_shares)}"
    shares = f"compute {found.compute:.1%}, communication {found.communication:.1%}, exposed {found.exposed:.1%}"
    return f"{shares}; {lasts}"


def _unlike(found: WatchedHosts) -> Iterator[str]:
    if not found.stragglers:
        held = sum(one.compared is not None for one in found.hosts)
        if held > 1 and not found.why_not:
            yield line("stragglers", f"none: the {held} hosts compute as long as each other, and begin together")
        return
    for one in found.stragglers:
        yield line("straggler", f"{visible(one.host)} {straggler_words(one)}")


def straggler_words(one: Straggler) -> str:
    """`computes 32 ms longer than the others, longest of all in 96 % of the iterations`."""
    by = format_duration(abs(one.by_s))
    width = format_duration(one.half_width_s)
    fraction = one.fraction or 0.0
    return {
        "computes longer": f"computes {by} ± {width} longer than the others, longest of all in {fraction:.0%} of them",
        "begins later": f"begins its iterations {by} ± {width} later than the others, last of all in {fraction:.0%}",
        "another period": f"has iterations {by} ± {width} {'longer' if one.by_s > 0 else 'shorter'} than the others",
        "no period": "has no period, and the others have one",
        "begins iterating later": f"begins to iterate {by} after the others",
        "stops early": f"stops iterating {by} before the others",
    }[one.how]


def _of_host(one: SeenHost) -> Iterator[str]:
    if one.watched is None:
        return
    for held in one.watched.held_back:
        yield line("held back", f"{visible(one.host)} {visible(held.gpu)} by {visible(held.by)}, from "
                                 f"{held.from_s + (one.begins_s or 0):.1f} s on")  # fmt: skip
    for slow in one.watched.slower_gpus:
        since_s = slow.from_s + (one.begins_s or 0.0)
        clock = f"{slow.clock_hz / 1e6:.0f} MHz"
        yield line("slower", f"{visible(one.host)} {visible(slow.gpu)} from {since_s:.1f} s on: {clock}")


def _row(name: str, cells: tuple[str, ...]) -> str:
    padded = (f"{cell:>{width}}" for cell, width in zip(cells, _COLUMNS, strict=True))
    return f"{name:{NAME_COLUMNS}}{''.join(padded)}".rstrip()
