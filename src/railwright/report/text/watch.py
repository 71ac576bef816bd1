"""The iterations of a watched job as text; `--json` prints the same records."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.diagnosis.iterations.records import Estimate
from railwright.diagnosis.iterations.trial import SimulatedJob
from railwright.process import describe_status
from railwright.report.text.wording import escape
from railwright.units import format_bandwidth, format_count, format_duration
from railwright.watch.cost import Cost
from railwright.watch.now import BIN_S, Bins
from railwright.watch.seen import Watched

NAME_COLUMNS = 16
_RESOLVED = 0.6
"""The samples an iteration times the variation that they resolve: twice the noise of simulated jobs without one."""


def simulated_job_lines(found: SimulatedJob) -> Iterator[str]:
    """Yield the true values of a simulated job, then the estimates from its curves."""
    truth = found.truth
    yield " ".join(f"{name}={value:g}" for name, value in found.words.items())
    yield ""
    shares = f"compute {truth.compute:.1%}, communication {truth.communication:.1%}, exposed {truth.exposed:.1%}"
    yield line("true", f"{format_count(truth.iterations, 'iteration')} of {format_duration(truth.period_s)}, {shares}")
    if found.estimate is None:
        yield line("seen", f"no period here: {found.why_none}")
        return
    for estimate in (found.estimate, *found.others):
        yield from estimate_lines(estimate)


def cost_lines(found: Cost) -> Iterator[str]:
    """Yield the cost of a monitor, its confidence interval, and the number of pairs that would decide."""
    yield f"{escape(found.monitor)}, next to a tight load on {format_count(found.threads, 'core')}"
    between = f"95 % interval {found.slowed_by_low:+.2%} to {found.slowed_by_high:+.2%}"
    pairs = f"{format_count(len(found.pairs), 'pair')} of {format_duration(found.load_s)}"
    yield line("the load", f"{found.slowed_by:+.2%} longer, {between}, {pairs}")
    if found.sampling_cpu_share is not None:
        yield line("sampling", f"took {found.sampling_cpu_share:.2%} of one core")
    if found.slowed_by_high < found.threshold:
        so = "it costs less than"
    elif found.slowed_by_low > found.threshold:
        so = "it costs more than"
    elif found.pairs_needed is not None:
        so = f"not decided by these pairs; about {found.pairs_needed} would show less than"
    else:
        so = "not decided by these pairs, and no number of pairs would show less than"
    yield line("so", f"{so} {found.threshold:.1%}")


def now_line(bins: Bins) -> str:
    """Format the rates of the last second by kind of counter."""
    until_s = bins.seconds - BIN_S  # the last bin is not full yet
    if until_s <= BIN_S:
        return "no sample yet"
    rates = {kind: bins.rates(kind, max(0.0, until_s - 1.0), until_s, 1)[0] for kind in bins.kinds}
    words = [f"{kind} {rate_words(unit, rate)}" for (kind, unit), rate in rates.items()]
    return f"{bins.seconds:7.1f} s   {'   '.join(words)}"


def watched_lines(found: Watched) -> Iterator[str]:
    """Yield a recording's scope, its iterations, the counters, and the sources that could not be read."""
    lost = f", {found.lost_ticks} left out" if found.lost_ticks else ""
    yield f"{escape(found.scope)}, {found.seconds:.1f} s, {found.ticks} ticks at {1 / found.interval_s:.0f} Hz{lost}"
    if found.command_status:
        yield line("the command", f"ended with {describe_status(found.command_status)}")
    if found.cut:
        yield line("the recording", escape(found.cut))
    yield ""
    if not found.estimates:
        yield line("iterations", f"no period here: {escape(found.why_none)}")
    for estimate in found.estimates:
        yield from estimate_lines(estimate)
    yield from gpu_lines(found)
    yield ""
    yield from source_lines(found)
    for name, reason in found.missing.items():
        yield line("not read", f"{escape(name)}: {escape(reason)}")
    if found.sampling_cpu_share is not None:
        yield line("sampling", f"took {found.sampling_cpu_share:.2%} of one core")


def gpu_lines(found: Watched) -> Iterator[str]:
    """Yield the GPUs that were throttled or slower than their siblings."""
    for held in found.held_back:
        since = f"from {held.from_s:.1f} s on, {held.fraction:.0%} of the time since"
        yield line("held back", f"{escape(held.gpu)} by {escape(held.by)}, {since}")
    for slow in found.slower_gpus:
        why = (
            f"held back by {' and '.join(map(escape, slow.why))}" if slow.why else "none of its counters gives a reason"
        )
        clocks = f"{slow.clock_hz / 1e6:.0f} MHz, its siblings {slow.siblings_hz / 1e6:.0f} MHz"
        yield line("slower", f"{escape(slow.gpu)} from {slow.from_s:.1f} to {slow.to_s:.1f} s: {clocks}; {why}")


def source_lines(found: Watched) -> Iterator[str]:
    """Yield the counters that moved, each with its rate, its update interval and the scope it counts."""
    moved = [source for source in found.sources if source.mean_per_s > 0]
    if not moved:
        yield "no counter moved"
        return
    for source in moved:
        rests = "steady" if source.unit in ("W", "Hz", "C", "%") else "hardly moves"
        updates = f"updated every {format_duration(source.update_s)}" if source.update_s else rests
        shared = f", counts {escape(source.shared)}" if source.shared else ""
        role = f" ({source.stands_for})" if source.stands_for else ""
        rate = (
            f"{source.mean_per_s:.0%} of it"
            if ".held_back." in source.name
            else rate_words(source.unit, source.mean_per_s)
        )
        yield line(escape(source.name), f"{rate:>12}  {updates}{shared}{role}")


def rate_words(unit: str, per_s: float) -> str:
    """Format a rate with its unit, like `1.90 cores`, `1.2 GB/s`, `215 W` or `1980 MHz`."""
    if unit == "s":
        return f"{per_s:.2f} cores"
    if unit == "bytes":
        return format_bandwidth(per_s)
    if unit == "Hz":
        return f"{per_s / 1e6:.0f} MHz"
    return f"{per_s:.0f} {'W' if unit == 'J' else unit}"


def estimate_lines(found: Estimate) -> Iterator[str]:
    """Yield the period and the shares of a stretch of iterations."""
    lasts = f"{format_duration(found.period_s)} ± {format_duration(found.period_half_width_s)}"
    yield line("iterations", f"{found.iterations} of {lasts}, from {found.from_s:.1f} to {found.to_s:.1f} s")
    if abs(found.drift) >= 0.005:
        yield line("", f"{abs(found.drift):.1%} {'longer' if found.drift > 0 else 'shorter'} at the end")
    if found.variation is not None:
        shown = _RESOLVED / found.samples_a_period
        words = f"{found.variation:.1%}" if found.variation > shown else f"below {shown:.1%}"
        yield line("variation", f"standard deviation of single iterations {words} of the period")
    if found.second_period_s is not None:
        yield line("another job", f"repeats every {format_duration(found.second_period_s)}")
    if found.compute is not None or not found.why_no_shares:
        yield _share("compute", found.compute, found.compute_half_width)
    if found.why_no_shares:
        yield line("shares", f"unknown: {escape(found.why_no_shares)}")
        return
    yield _share("communication", found.communication, found.communication_half_width)
    yield _share("exposed", found.exposed, found.exposed_half_width)
    if found.best_gain is not None:
        between = f"({found.best_gain_low:.2f} to {found.best_gain_high:.2f})"
        yield line("best gain", f"{found.best_gain:.2f} times as fast with a perfect interconnect {between}")


def _share(name: str, value: float | None, half_width: float | None) -> str:
    return line(name, f"{value or 0:.1%} ± {half_width or 0:.1%} of an iteration")


def line(name: str, words: str) -> str:
    """Format a name and its text in two columns."""
    return f"{name:{NAME_COLUMNS}}{words}"
