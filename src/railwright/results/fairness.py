"""Differences that make two runs incomparable, or less comparable than they look, with the values of both.

`blocking` means that the two values measure different things: 512 and 64 ranks, two methods, two routing modes.
`caution` means that they measure the same thing, but that something else may have caused the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from railwright.results.records import Context, Result, ResultFile
from railwright.topology.devices import Device, Link, Scalar, Topology
from railwright.units import format_duration

Severity = Literal["blocking", "caution"]
Part = TypeVar("Part", Device, Link)
Series = tuple[str, str, str, tuple[tuple[str, Scalar], ...]]

BLOCKING_SETTINGS = ("routing_mode", "thread_level")
"""Settings that change the quantity measured. All others may change only its value."""

NOT_RECORDED = "not recorded"

_MUST_BE_SAME = {
    "ranks": "more ranks make a different system",
    "hosts": "more hosts make a different system",
    "method": "methods count different things as one operation",
}
"""The fields that must be equal in two results, with the reason."""

_BUSY_FRACTION = 0.1  # a larger share of other work slows the measurement on any number of cores
_LOST_FRACTION = 0.01  # a smaller difference in noise cannot explain the 2 % that `compare` looks for
_CLOCK_FRACTION = 0.05  # the time of the fixed work is too imprecise to show a smaller difference
_CLOCK_WORDS = ("clock", "_hz", "mtu", "firmware", "driver")


class Difference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="difference", tag_field="record",
                 forbid_unknown_fields=True):  # fmt: skip
    """A difference between two runs. `where` names the curves that it affects, and is empty for the whole run."""

    what: str
    a: str
    b: str
    severity: Severity
    why: str = ""
    where: tuple[str, ...] = ()


def run_differences(a: ResultFile, b: ResultFile) -> tuple[Difference, ...]:
    """Compare the machines, their software and their state. Every difference found is a caution."""
    first, second = a.run.context, b.run.context
    found = [
        *_compare_values("railwright", a.run.railwright, b.run.railwright),
        *_compare_values("run", _completeness(a), _completeness(b), why="an interrupted run may lack launches"),
    ]
    for name in ("host", "cpu", "cores", "memory_bytes", "kernel", "operating_system"):
        found += _compare_values(name.replace("_", " "), str(getattr(first, name)), str(getattr(second, name)))
    found += _compare_mappings("version of", first.software, second.software)
    found += _compare_mappings("environment", first.environment, second.environment, absent="not set")
    found += _compare_load(first, second)
    found += _compare_topologies(a.run.topology, b.run.topology)
    return tuple(found)


def _compare_values(
    what: str, a: str, b: str, *, why: str = "", severity: Severity = "caution"
) -> Iterator[Difference]:
    if a != b:
        yield Difference(what=what, a=a or NOT_RECORDED, b=b or NOT_RECORDED, severity=severity, why=why)


def _compare_mappings(
    what: str, a: Mapping[str, Scalar], b: Mapping[str, Scalar], absent: str = NOT_RECORDED
) -> Iterator[Difference]:
    for key in sorted({*a, *b}):
        yield from _compare_values(f"{what} {key}", str(a.get(key, absent)), str(b.get(key, absent)))


def _completeness(file: ResultFile) -> str:
    if file.end is None:
        return "cut off"
    return f"ended early: {file.end.interrupted}" if file.end.interrupted else "complete"


def _compare_load(a: Context, b: Context) -> Iterator[Difference]:
    """Report a busy machine, more noise, or a different clock rate."""
    if max(a.busy_fraction, b.busy_fraction) > _BUSY_FRACTION:
        first, second = (f"{format_percent(each.busy_fraction)} of all cores" for each in (a, b))
        who = "both machines" if min(a.busy_fraction, b.busy_fraction) > _BUSY_FRACTION else "the machine"
        yield _caution_difference("busy before the run", first, second, f"other work used part of {who}")
    if a.noise is None or b.noise is None:
        first, second = ("measured" if each.noise else "not measured" for each in (a, b))
        yield from _compare_values("noise", first, second)
        return
    less, more = sorted((a.noise.lost_fraction, b.noise.lost_fraction))
    if more > 2 * less and more - less > _LOST_FRACTION:
        first, second = (f"{format_percent(each.lost_fraction)} of the time lost" for each in (a.noise, b.noise))
        yield _caution_difference("noise", first, second, "one machine was disturbed much more than the other")
    quick, long = sorted((a.noise.quantum_s, b.noise.quantum_s))
    if quick > 0 and long / quick > 1 + _CLOCK_FRACTION:
        first, second = (f"{format_duration(each.quantum_s)} for fixed work" for each in (a.noise, b.noise))
        yield _caution_difference("clocks", first, second, "a core ran at a different speed")


def _caution_difference(what: str, a: str, b: str, why: str) -> Difference:
    return Difference(what=what, a=a, b=b, severity="caution", why=why)


def _compare_topologies(a: Topology, b: Topology) -> Iterator[Difference]:
    """Compare the counts of GPUs, NICs and drives, and the properties of shared links and devices, such as MTU."""
    for kind in ("gpu", "nic", "drive"):
        first, second = (str(sum(device.kind == kind for device in topology.devices)) for topology in (a, b))
        yield from _compare_values(f"number of {kind}s", first, second)
    for link, twin in _pair_by_id(a.links, b.links):
        yield from _compare_mappings(
            f"link {link.id}", msgspec.to_builtins(link.protocol), msgspec.to_builtins(twin.protocol)
        )
    for device, other in _pair_by_id(a.devices, b.devices):
        yield from _compare_mappings(
            f"device {device.id}", _select_speed_facts(device.facts), _select_speed_facts(other.facts)
        )


def _pair_by_id(a: Iterable[Part], b: Iterable[Part]) -> list[tuple[Part, Part]]:
    """Pair the links or devices that are in both topologies."""
    by_id = {part.id: part for part in b}
    return [(part, by_id[part.id]) for part in a if part.id in by_id]


def _select_speed_facts(facts: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {key: value for key, value in facts.items() if any(word in key.lower() for word in _CLOCK_WORDS)}


def point_differences(
    where: str, a: Sequence[Result], b: Sequence[Result], runs: tuple[ResultFile, ResultFile]
) -> tuple[Difference, ...]:
    """Compare the conditions under which both sides measured one point."""
    found: list[Difference] = []
    for name, why in _MUST_BE_SAME.items():
        found += _compare_values(name, *_join_field(name, a, b), why=why, severity="blocking")
    found += _compare_settings(a, b, runs)
    found += _compare_evidence(a, b)
    found += _compare_verification(a, b)
    return tuple(msgspec.structs.replace(each, where=(where,)) for each in found)


def _join_values(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value) for value in values}))


def _join_field(name: str, a: Sequence[Result], b: Sequence[Result]) -> tuple[str, str]:
    """Join the values of one field on each side."""
    return _join_values(getattr(each, name) for each in a), _join_values(getattr(each, name) for each in b)


def _compare_settings(
    a: Sequence[Result], b: Sequence[Result], runs: tuple[ResultFile, ResultFile]
) -> Iterator[Difference]:
    # A time in the settings is also a measurement (of the setup, for example), and varies freely.
    keys = {key for result in (*a, *b) for key, value in result.settings.items()
            if not (isinstance(value, float) and key.endswith("_s"))}  # fmt: skip
    for key in sorted(keys.union(BLOCKING_SETTINGS)):
        blocks = key in BLOCKING_SETTINGS
        # A value that holds for the whole run may be in its environment rather than in each result.
        default = [run.run.context.environment.get(key, NOT_RECORDED) if blocks else NOT_RECORDED for run in runs]
        first, second = (
            _join_values(each.settings.get(key, otherwise) for each in side)
            for side, otherwise in zip((a, b), default, strict=True)
        )
        why: tuple[str, Severity] = ("it changes the quantity measured", "blocking") if blocks else ("", "caution")
        yield from _compare_values(key.replace("_", " "), first, second, why=why[0], severity=why[1])


def _compare_evidence(a: Sequence[Result], b: Sequence[Result]) -> Iterator[Difference]:
    claims = {seen.claim for result in (*a, *b) for seen in result.evidence}
    for claim in sorted(claims):
        first, second = (
            _join_values(seen.value for result in side for seen in result.evidence if seen.claim == claim)
            for side in (a, b)
        )
        yield from _compare_values(f"{claim} in use", first, second)


def _compare_verification(a: Sequence[Result], b: Sequence[Result]) -> Iterator[Difference]:
    """Compare data checks: wrong bytes and a check on one side only are blocking, no check at all is a caution."""
    first, second = (_describe_check(side) for side in (a, b))
    severity: Severity = "blocking"
    if "wrong" in first + second:
        why = "a transfer that delivered wrong bytes has no speed"
    elif first != second:
        why = "only one side verified its data"
    elif first != "verified":
        why, severity = "the data was not verified", "caution"
    else:
        return
    yield Difference(what="data check", a=first, b=second, severity=severity, why=why)


def _describe_check(side: Sequence[Result]) -> str:
    wrong = sum(result.verification.bytes_wrong for result in side if result.verification)
    if wrong:
        return f"{wrong} bytes wrong"
    checked = [result.verification is not None and result.verification.bytes_checked > 0 for result in side]
    return "verified" if all(checked) else "partly verified" if any(checked) else "not verified"


def unpaired_differences(
    only_a: Sequence[Result], only_b: Sequence[Result], paired: Iterable[Result]
) -> tuple[Difference, ...]:
    """Explain why curves of a benchmark have no partner in the other run: sizes, quantity or parameters differ."""
    with_partner = list(paired)
    paired_series = {result.series() for result in with_partner}
    paired_benchmarks = {(result.benchmark, result.quantity) for result in with_partner}
    common = {result.series() for result in only_a} & {result.series() for result in only_b}
    found = [_size_difference(series, only_a, only_b) for series in sorted(common - paired_series, key=str)]
    for benchmark in sorted({each.benchmark for each in only_a} & {each.benchmark for each in only_b}):
        a, b = ([each for each in side if each.benchmark == benchmark] for side in (only_a, only_b))
        first, second = _join_field("quantity", a, b)
        if first != second and not any(name == benchmark for name, _ in paired_benchmarks):
            found.append(blocking_difference("quantity", first, second, benchmark, "they have different units"))
        for quantity in sorted({each.quantity for each in a} & {each.quantity for each in b}):
            mine, theirs = ([each for each in side if each.quantity == quantity] for side in (a, b))
            alike = {each.series() for each in mine} & {each.series() for each in theirs}
            if not alike and (benchmark, quantity) not in paired_benchmarks:
                found += _parameter_differences(benchmark, mine, theirs)
    return tuple(found)


def _size_difference(series: Series, a: Sequence[Result], b: Sequence[Result]) -> Difference:
    first, second = (
        _join_values(each.parameters.get("size_bytes", "none") for each in side if each.series() == series)
        for side in (a, b)
    )
    benchmark, _, path, varied = series
    where = format_series(benchmark, path, dict(varied))
    return blocking_difference("sizes", f"{first} B", f"{second} B", where, "no size was measured on both sides")


def blocking_difference(what: str, a: str, b: str, where: str, why: str) -> Difference:
    """Return a difference that makes the values of a curve incomparable."""
    return Difference(what=what, a=a, b=b, severity="blocking", why=why, where=(where,))


def _parameter_differences(benchmark: str, a: Sequence[Result], b: Sequence[Result]) -> Iterator[Difference]:
    names = {key for result in (*a, *b) for key in result.parameters if key != "size_bytes"}
    for name in sorted(names):
        first, second = (_join_values(each.parameters.get(name, NOT_RECORDED) for each in side) for side in (a, b))
        if first != second:
            why = f"no curve has the same value on both sides (--across {name} pairs them anyway)"
            yield blocking_difference(name.replace("_", " "), first, second, benchmark, why)
    for name in ("path", "ranks", "hosts"):
        first, second = _join_field(name, a, b)
        if first != second:
            yield blocking_difference(name, first, second, benchmark, "no curve has the same value on both sides")


def format_percent(fraction: float) -> str:
    """Format a fraction as in `3.1 %`."""
    return f"{fraction * 100:.1f} %"


def format_series(benchmark: str, path: str, varied: Mapping[str, Scalar]) -> str:
    """Name a curve as in `mpi_bandwidth memory0>memory0 transport shm`."""
    return " ".join([benchmark, path, *(f"{key} {value}" for key, value in varied.items())])


def merge_differences(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Merge equal differences and list all the curves that each affects, with blocking differences first."""
    places: dict[Difference, list[str]] = {}
    for difference in differences:
        places.setdefault(msgspec.structs.replace(difference, where=()), []).extend(difference.where)
    found = [msgspec.structs.replace(each, where=tuple(dict.fromkeys(where))) for each, where in places.items()]
    return tuple(sorted(found, key=lambda each: each.severity != "blocking"))
