"""What the curves of a job tell of its iterations, as text; the same records as with `--json`."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.diagnosis.iterations.records import Estimate
from railwright.diagnosis.iterations.trial import SimulatedJob
from railwright.process import describe_status
from railwright.report.text.wording import visible
from railwright.units import count, format_bandwidth, format_duration
from railwright.watch.cost import Cost
from railwright.watch.now import BIN_S, Bins
from railwright.watch.seen import Watched

NAME_COLUMNS = 16


def simulated_job_lines(found: SimulatedJob) -> Iterator[str]:
    """What is true, and what the curves told."""
    truth = found.truth
    yield " ".join(f"{name}={value:g}" for name, value in found.words.items())
    yield ""
    shares = f"compute {truth.compute:.1%}, communication {truth.communication:.1%}, exposed {truth.exposed:.1%}"
    yield line("true", f"{count(truth.iterations, 'iteration')} of {format_duration(truth.period_s)}, {shares}")
    if found.estimate is None:
        yield line("seen", f"no period here: {found.why_none}")
        return
    for one in (found.estimate, *found.others):
        yield from estimate_lines(one)


def cost_lines(found: Cost) -> Iterator[str]:
    """What a monitor costs, how sure that is, and what would show more."""
    yield f"{visible(found.monitor)}, beside a tight load on {count(found.threads, 'core')}"
    between = f"95 % interval {found.slowed_by_low:+.2%} to {found.slowed_by_high:+.2%}"
    pairs = f"{count(len(found.pairs), 'pair')} of {format_duration(found.load_s)}"
    yield line("the load", f"{found.slowed_by:+.2%} longer, {between}, {pairs}")
    if found.sampling_cpu_share is not None:
        yield line("sampling", f"took {found.sampling_cpu_share:.2%} of one core")
    if found.slowed_by_high < found.threshold:
        so = "it costs less than"
    elif found.slowed_by_low > found.threshold:
        so = "it costs more than"
    elif found.pairs_needed is not None:
        so = f"these pairs do not tell; about {found.pairs_needed} would show less than"
    else:
        so = "these pairs do not tell, and no number would show less than"
    yield line("so", f"{so} {found.threshold:.1%}")


def now_line(bins: Bins) -> str:
    """What goes on now: rates of the last second, by kind."""
    until_s = bins.seconds - BIN_S  # the last bin is not full yet
    if until_s <= BIN_S:
        return "no sample yet"
    rates = {kind: bins.rates(kind, max(0.0, until_s - 1.0), until_s, 1)[0] for kind in bins.kinds}
    words = [f"{kind} {rate_words(unit, rate)}" for (kind, unit), rate in rates.items()]
    return f"{bins.seconds:7.1f} s   {'   '.join(words)}"


def watched_lines(found: Watched) -> Iterator[str]:
    """A recording: what was watched, its iterations, the counters and what could not be read."""
    lost = f", {found.lost_ticks} left out" if found.lost_ticks else ""
    yield f"{visible(found.scope)}, {found.seconds:.1f} s, {found.ticks} ticks at {1 / found.interval_s:.0f} Hz{lost}"
    if found.command_status:
        yield line("the command", f"ended with {describe_status(found.command_status)}")
    if found.cut:
        yield line("the recording", visible(found.cut))
    yield ""
    if not found.estimates:
        yield line("iterations", f"no period here: {visible(found.why_none)}")
    for one in found.estimates:
        yield from estimate_lines(one)
    yield from gpu_lines(found)
    yield ""
    yield from source_lines(found)
    for name, reason in found.missing.items():
        yield line("not read", f"{visible(name)}: {visible(reason)}")
    if found.sampling_cpu_share is not None:
        yield line("sampling", f"took {found.sampling_cpu_share:.2%} of one core")


def gpu_lines(found: Watched) -> Iterator[str]:
    """GPUs that were held back, or slower than their siblings."""
    for one in found.held_back:
        since = f"from {one.from_s:.1f} s on, {one.fraction:.0%} of the time since"
        yield line("held back", f"{visible(one.gpu)} by {visible(one.by)}, {since}")
    for slow in found.slower_gpus:
        why = f"held back by {' and '.join(map(visible, slow.why))}" if slow.why else "no counter of it says why"
        clocks = f"{slow.clock_hz / 1e6:.0f} MHz, its siblings {slow.siblings_hz / 1e6:.0f} MHz"
        yield line("slower", f"{visible(slow.gpu)} from {slow.from_s:.1f} to {slow.to_s:.1f} s: {clocks}; {why}")


def source_lines(found: Watched) -> Iterator[str]:
    """The counters that moved: rate, how often it is updated, whom it is shared with."""
    moved = [one for one in found.sources if one.mean_per_s > 0]
    if not moved:
        yield "no counter moved"
        return
    for one in moved:
        rests = "steady" if one.unit in ("W", "Hz", "C", "%") else "hardly moves"
        updates = f"updated every {format_duration(one.update_s)}" if one.update_s else rests
        shared = f", counts {visible(one.shared)}" if one.shared else ""
        role = f" ({one.stands_for})" if one.stands_for else ""
        rate = f"{one.mean_per_s:.0%} of it" if ".held_back." in one.name else rate_words(one.unit, one.mean_per_s)
        yield line(visible(one.name), f"{rate:>12}  {updates}{shared}{role}")


def rate_words(unit: str, per_s: float) -> str:
    """`1.9 cores`, `1.2 GB/s`, `215 W`, `1980 MHz`."""
    if unit == "s":
        return f"{per_s:.2f} cores"
    if unit == "bytes":
        return format_bandwidth(per_s)
    if unit == "Hz":
        return f"{per_s / 1e6:.0f} MHz"
    return f"{per_s:.0f} {'W' if unit == 'J' else unit}"


def estimate_lines(found: Estimate) -> Iterator[str]:
    """One stretch with its period and shares."""
    lasts = f"{format_duration(found.period_s)} ± {format_duration(found.period_half_width_s)}"
    yield line("iterations", f"{found.iterations} of {lasts}, from {found.from_s:.1f} to {found.to_s:.1f} s")
    if abs(found.drift) >= 0.005:
        yield line("", f"{abs(found.drift):.1%} {'longer' if found.drift > 0 else 'shorter'} at the end")
    if found.variation is not None:
        yield line("variation", f"single iterations differ by {found.variation:.1%} of it, in deviation")
    if found.second_period_s is not None:
        yield line("another job", f"comes again every {format_duration(found.second_period_s)}")
    if found.compute is not None or not found.why_no_shares:
        yield _share("compute", found.compute, found.compute_half_width)
    if found.why_no_shares:
        yield line("shares", f"not told: {visible(found.why_no_shares)}")
        return
    yield _share("communication", found.communication, found.communication_half_width)
    yield _share("exposed", found.exposed, found.exposed_half_width)
    if found.best_gain is not None:
        between = f"({found.best_gain_low:.2f} to {found.best_gain_high:.2f})"
        yield line("best gain", f"{found.best_gain:.2f} times as fast with a perfect interconnect {between}")


def _share(name: str, value: float | None, half_width: float | None) -> str:
    return line(name, f"{value or 0:.1%} ± {half_width or 0:.1%} of an iteration")


def line(name: str, words: str) -> str:
    """A name and what is said of it."""
    return f"{name:{NAME_COLUMNS}}{words}"
