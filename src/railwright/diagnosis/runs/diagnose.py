"""A whole run, judged: points, then curves, then the machine's faults, then the exit status."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks.check import Facts
from railwright.checks.finding import Finding
from railwright.diagnosis.peers import gpu_health
from railwright.diagnosis.peers.growth import losing_merges
from railwright.diagnosis.peers.hosts import slower_hosts
from railwright.diagnosis.peers.ranks import slower_ranks
from railwright.diagnosis.runs import usual
from railwright.diagnosis.runs.causes import causes_of
from railwright.diagnosis.runs.own_runs import LimitFinder
from railwright.diagnosis.verdicts.doubts import largest_row, weighed
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath, State, Verdict
from railwright.diagnosis.verdicts.policy import Requirement, exit_status, required_status, unmet
from railwright.diagnosis.verdicts.verdict import WORST_FIRST, if_alone, if_launches_agree, judged
from railwright.errors import EXIT_OK, EXIT_UNJUDGED
from railwright.faults.every_check import EVERY_CHECK
from railwright.groups import grouped
from railwright.results.declarations import Declarations, benchmarks_with
from railwright.results.records import Disturbed, Result, ResultFile, Verification, size_of
from railwright.results.statistics import quantile
from railwright.results.workload import Collective
from railwright.topology.devices import Scalar
from railwright.units import KIB, format_size

_BYTES_DECIDE_FROM = 64 * KIB


def diagnose(file: ResultFile, declarations: Declarations, required: tuple[Requirement, ...] = ()) -> Diagnosis:
    """Judge every point and curve of a results file, each against what its benchmark declares.

    With `required` the exit status is about those paths alone.
    """
    context, topology = file.run.context, file.run.topology
    finder = LimitFinder(topology, file.results, declarations, context.environment, file.run.fabric)
    by_point = grouped(file.results, lambda one: (*one.series(), one.parameters.get("size_bytes")))
    points = _doubted(tuple(_judge_point(results, finder, file.disturbed) for _, results in by_point), declarations)
    environment = file.run.context.environment
    facts = Facts(topology=file.run.topology, results=file.results, environment=environment, declarations=declarations)
    found = tuple(finding for check in EVERY_CHECK for finding in check.look(facts))
    findings = (
        *found,
        *gpu_health.look(file.results, points, file.run.topology),
        *slower_hosts(file.results),
        *losing_merges(file.results),
        *slower_ranks(file.results),
        *usual.look(file.results, declarations, file.run.topology),
    )
    by_curve = grouped(points, lambda one: (one.benchmark, one.quantity, one.path, *_varied(one).items()))
    paths = tuple(_judge_curve(curve, finder, findings) for _, curve in by_curve)
    missed = unmet(paths, required)
    status = required_status(missed) if required else exit_status(paths, findings)
    if status == EXIT_OK and (file.end is None or file.end.interrupted):
        status = EXIT_UNJUDGED  # what a run that was cut off did not reach, nobody has judged
    return Diagnosis(
        points=points,
        paths=paths,
        findings=findings,
        exit_status=status,
        required=tuple(map(str, required)),
        unmet=missed,
    )


def _doubted(points: tuple[Judged, ...], declarations: Declarations) -> tuple[Judged, ...]:
    """The points, where those of a collective by NCCL are in doubt as the rows of another tool's table are."""
    by_nccl = benchmarks_with(Collective, declarations, by="nccl", in_buckets=False)
    found = list(points)
    for _, curve in grouped(enumerate(points), lambda pair: _both_placements(pair[1])):
        rows = [point for _, point in curve]
        if rows[0].benchmark not in by_nccl or rows[0].quantity != "bandwidth_bytes_per_s":
            continue
        for (place, _), row in zip(curve, weighed(rows, largest_row(rows), rows[0].hosts, None), strict=True):
            found[place] = row
    return tuple(found)


def _both_placements(point: Judged) -> tuple[object, ...]:
    """What the points of one curve share, whether out of place or in place."""
    varied = (item for item in _varied(point).items() if item[0] != "placement")
    return point.benchmark, point.quantity, point.path, *varied


def _judge_point(results: list[Result], finder: LimitFinder, disturbed: tuple[Disturbed, ...]) -> Judged:
    """One set of parameters over all launches."""
    measured = [result for result in results if result.outcome == "measured" and result.summary is not None]
    first = (measured or results)[0]
    medians = sorted(result.summary.median for result in measured if result.summary is not None)
    value = quantile(medians, 0.5) if medians else None
    # A launch that failed outright is a point of its own; one that failed at this point makes this point fail.
    failed = next((result for result in results if result.outcome == "failed"), None)
    telling = failed or first
    checks = _together([result.verification for result in measured])
    point = replace(first, outcome=telling.outcome, reason=telling.reason)
    met = judged(point, value, finder.find(first), checks, finder.standing(first))
    return replace(
        if_launches_agree(_if_alone(met, measured, disturbed), medians),
        launches=tuple(result.summary for result in measured if result.summary is not None),
        launch_spread=(medians[-1] - medians[0]) / value if value and len(medians) > 1 else None,
        # Two values for one claim mean that the launches did not run alike, so one of each is kept.
        evidence=tuple({(one.claim, one.value): one for result in measured for one in result.evidence}.values()),
    )


def _if_alone(point: Judged, measured: list[Result], disturbed: tuple[Disturbed, ...]) -> Judged:
    """What other work may have slowed is not slow: judged by the launches that had the host to themselves."""
    if point.verdict.state != "slow" or not disturbed:
        return point
    taken = [max((one.others_fraction for one in disturbed if one.concerns(each)), default=0.0) for each in measured]
    pairs = zip(measured, taken, strict=True)
    quiet = [each.summary.median for each, share in pairs if not share and each.summary is not None]
    return if_alone(point, quiet, max(taken, default=0.0))


def _together(every: list[Verification | None]) -> Verification | None:
    """The checks of all launches; None if a single one was not checked."""
    checks = [check for check in every if check is not None and check.bytes_checked]
    if not checks or len(checks) < len(every):
        return None
    return Verification(
        method=checks[0].method,
        bytes_checked=sum(check.bytes_checked for check in checks),
        bytes_wrong=sum(check.bytes_wrong for check in checks),
    )


def _varied(point: Judged) -> dict[str, Scalar]:
    """What tells one curve from another: the parameters without the size."""
    return {key: value for key, value in sorted(point.parameters.items()) if key != "size_bytes"}


def _judge_curve(points: list[Judged], finder: LimitFinder, findings: tuple[Finding, ...]) -> JudgedPath:
    headline = _headline(points)
    first = headline or points[0]
    verdict = _worst(points, headline)
    slow = [point for point in points if point.verdict.state == "slow"]
    path = finder.path(first.path)
    return JudgedPath(
        benchmark=first.benchmark,
        quantity=first.quantity,
        path=first.path,
        parameters=_varied(first),
        path_kind=path.kind if path else None,
        headline=headline,
        verdict=verdict,
        causes=causes_of(slow, path, findings) if verdict.state == "slow" else (),
        points=len(points),
        measured_points=sum(point.outcome == "measured" for point in points),
    )


def _headline(points: list[Judged]) -> Judged | None:
    """The largest size where the path and not the cost of a message decides: of a bandwidth, and of a latency that was
    measured at large sizes alone. Else the smallest.
    """
    measured = [point for point in points if point.value is not None]
    sizes = [size_of(point.parameters) or 0 for point in measured]
    by_bytes = points[0].quantity == "bandwidth_bytes_per_s" or min(sizes, default=0) >= _BYTES_DECIDE_FROM
    pick = max if by_bytes else min
    return pick(measured, key=lambda point: size_of(point.parameters) or 0, default=None)


_TELLS_NOTHING: tuple[State, ...] = ("unknown", "reference")


def _worst(points: list[Judged], headline: Judged | None) -> Verdict:
    """The worst of the judged points. Sizes without a band do not count; without any judged point it is unknown, or a
    reference if all of them are.
    """
    telling = [point for point in points if point.verdict.state not in _TELLS_NOTHING]
    if not any(point.verdict.state != "waived" for point in telling) and headline is not None:
        unknown = (point.verdict for point in points if point.verdict.state == "unknown")
        return next(unknown, headline.verdict) if headline.verdict.state == "reference" else headline.verdict
    if not telling:
        return points[0].verdict
    worst = min(telling, key=lambda point: WORST_FIRST.index(point.verdict.state))
    if headline is None:
        return worst.verdict
    if WORST_FIRST.index(headline.verdict.state) <= WORST_FIRST.index(worst.verdict.state):
        return headline.verdict  # smaller sizes cannot vouch for the one that stands for the curve
    if "size_bytes" not in worst.parameters:
        return worst.verdict
    return replace(worst.verdict, why=f"at {format_size(size_of(worst.parameters) or 0)}: {worst.verdict.why}")
