"""Several hosts of a job, watched together, as text; `--json` prints the same records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright.diagnosis.iterations.records import Estimate
from railwright.diagnosis.iterations.stragglers import Straggler
from railwright.process import describe_status
from railwright.report.text.watch import NAME_COLUMNS, line
from railwright.report.text.wording import escape
from railwright.units import format_count, format_duration
from railwright.watch.seen_hosts import SeenHost, WatchedHosts

_HEADS = ("iterations", "period", "computes", "longer", "longest", "later")
_COLUMNS = (12, 11, 11, 20, 9, 20)


def watched_hosts_lines(found: WatchedHosts) -> Iterator[str]:
    """Yield a table of the hosts, the stragglers, and the gaps of the observation."""
    there = [host for host in found.hosts if host.watched is not None]
    yield f"{format_count(len(there), 'host')} of {len(found.hosts)} watched, on one time axis"
    if found.command:
        ended = "" if found.command_status is None else f" ended with {describe_status(found.command_status)}"
        yield line("command", escape(" ".join(found.command))[:100] + ended)
    yield ""
    if there:
        yield _row("", _HEADS)
    for host in there:
        yield _row(escape(host.host), _cells(host))
    yield ""
    for host in there:
        if host.watched is not None and host.watched.estimates:
            yield line(escape(host.host), _shares(host.watched.estimates[0]))
        elif host.watched is not None:
            yield line(escape(host.host), f"no period here: {escape(host.watched.why_none)}")
    yield from _straggler_lines(found)
    yield from _clocks(there)
    for host in found.hosts:
        if host.trouble:
            yield line("trouble", f"{escape(host.host)}: {escape(host.trouble)}")
        yield from _gpu_lines(host)
    if found.why_not:
        yield line("unknown", escape(found.why_not))
    if any(host.compared is not None for host in there):
        yield ""
        yield "longer, later: than the median of the others; longest: share of the iterations with the longest compute"


def _cells(host: SeenHost) -> tuple[str, ...]:
    estimates = host.watched.estimates if host.watched is not None else ()
    if not estimates:
        return ("none", "", "", "", "", "")
    found, held = estimates[0], host.compared
    cells = [str(found.iterations), format_duration(found.period_s)]
    if held is None:
        return (*cells, "", "", "", "")
    later = "unknown" if held.later_s is None else _signed(held.later_s, held.later_half_width_s or 0.0)
    return (*cells, format_duration(held.computes_s), _signed(held.longer_s, held.longer_half_width_s),
            f"{held.longest:.0%}", later)  # fmt: skip


def _clocks(there: Sequence[SeenHost]) -> Iterator[str]:
    """Yield the uncertainty of the time axis, from the host with the least certain clock."""
    worst = max(there, key=lambda host: host.clock_half_width_s or 0.0, default=None)
    if worst is None or worst.clock_half_width_s is None:
        return
    moved = max(abs(host.clock_drift_s or 0.0) for host in there)
    known = f"known to ± {format_duration(worst.clock_half_width_s)}, half of the shortest round trip"
    yield line("clocks", f"{known} ({escape(worst.host)}); they moved {format_duration(moved)} at most meanwhile")


def _signed(value_s: float, half_width_s: float) -> str:
    return f"{'+' if value_s >= 0 else '-'}{format_duration(abs(value_s))} ± {format_duration(half_width_s)}"


def _shares(found: Estimate) -> str:
    lasts = f"from {found.from_s:.1f} to {found.to_s:.1f} s of its recording"
    if found.exposed is None or found.compute is None or found.communication is None:
        return f"{lasts}, shares unknown: {escape(found.why_no_shares)}"
    shares = f"compute {found.compute:.1%}, communication {found.communication:.1%}, exposed {found.exposed:.1%}"
    return f"{shares}; {lasts}"


def _straggler_lines(found: WatchedHosts) -> Iterator[str]:
    if not found.stragglers:
        held = sum(host.compared is not None for host in found.hosts)
        if held > 1 and not found.why_not:
            yield line("stragglers", f"none: the {held} hosts compute equally long and begin together")
        return
    for straggler in found.stragglers:
        yield line("straggler", f"{escape(straggler.host)} {straggler_words(straggler)}")


def straggler_words(straggler: Straggler) -> str:
    """Describe a straggler: `computes 32 ms ± 2 ms longer than the others, longest of all in 96% of the iterations`."""
    difference = format_duration(abs(straggler.by_s))
    by = f"{difference} ± {format_duration(straggler.half_width_s)}"
    fraction = straggler.fraction or 0.0
    return {
        "computes longer": f"computes {by} longer than the others, longest of all in {fraction:.0%} of the iterations",
        "begins later": f"begins its iterations {by} later than the others, last of all in {fraction:.0%}",
        "another period": f"has iterations {by} {'longer' if straggler.by_s > 0 else 'shorter'} than the others",
        "no period": "has no period, unlike the others",
        "begins iterating later": f"begins to iterate {difference} after the others",
        "stops early": f"stops iterating {difference} before the others",
    }[straggler.how]


def _gpu_lines(host: SeenHost) -> Iterator[str]:
    if host.watched is None:
        return
    for held in host.watched.held_back:
        yield line("held back", f"{escape(host.host)} {escape(held.gpu)} by {escape(held.by)}, from "
                                 f"{held.from_s + (host.begins_s or 0):.1f} s on")  # fmt: skip
    for slow in host.watched.slower_gpus:
        since_s = slow.from_s + (host.begins_s or 0.0)
        clock = f"{slow.clock_hz / 1e6:.0f} MHz"
        yield line("slower", f"{escape(host.host)} {escape(slow.gpu)} from {since_s:.1f} s on: {clock}")


def _row(name: str, cells: tuple[str, ...]) -> str:
    padded = (f"{cell:>{width}}" for cell, width in zip(cells, _COLUMNS, strict=True))
    return f"{name:{NAME_COLUMNS}}{''.join(padded)}".rstrip()
