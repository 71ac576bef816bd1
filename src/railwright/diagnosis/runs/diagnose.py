"""Judges a whole run: its points, its curves, the machine's faults, and the exit status."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks.check import Facts
from railwright.checks.finding import Finding
from railwright.checks.nccl_over_sockets import explain_sockets
from railwright.checks.ucx_over_tcp import explain_ucx
from railwright.diagnosis.peers import gpu_health
from railwright.diagnosis.peers.growth import losing_merges
from railwright.diagnosis.peers.hosts import slower_hosts
from railwright.diagnosis.peers.ranks import slower_ranks
from railwright.diagnosis.runs import usual
from railwright.diagnosis.runs.causes import find_causes
from railwright.diagnosis.runs.own_runs import LimitFinder
from railwright.diagnosis.verdicts.doubts import doubt_rows, largest_row
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath, Verdict
from railwright.diagnosis.verdicts.policy import Requirement, exit_status, find_unmet, required_status
from railwright.diagnosis.verdicts.verdict import (
    WORST_FIRST,
    doubt_unless_alone,
    doubt_unless_launches_agree,
    judge_result,
)
from railwright.errors import EXIT_OK, EXIT_UNJUDGED
from railwright.faults.every_check import EVERY_CHECK
from railwright.groups import group_by_key
from railwright.results.declarations import Declarations, find_benchmarks
from railwright.results.records import Disturbed, Result, ResultFile, Verification, find_size
from railwright.results.statistics import quantile
from railwright.results.workload import Collective
from railwright.topology.devices import Scalar
from railwright.units import KIB, format_size

_BYTES_DECIDE_FROM = 64 * KIB


def diagnose(file: ResultFile, declarations: Declarations, required: tuple[Requirement, ...] = ()) -> Diagnosis:
    """Judge every point and curve of a results file by the declarations of its benchmark.

    With `required` only those paths decide the exit status.
    """
    context, topology = file.run.context, file.run.topology
    links, switches = file.run.fabric, file.run.switches
    finder = LimitFinder(topology, file.results, declarations, context.environment, links, switches)
    by_point = group_by_key(file.results, lambda result: (*result.series(), result.parameters.get("size_bytes")))
    points = _doubt_collectives(
        tuple(_judge_point(results, finder, file.disturbed) for _, results in by_point), declarations
    )
    environment = file.run.context.environment
    facts = Facts(topology=file.run.topology, results=file.results, environment=environment, declarations=declarations)
    found = tuple(finding for check in EVERY_CHECK for finding in check.look(facts))
    findings = (
        *found,
        *gpu_health.find_unhealthy_gpus(file.results, points, file.run.topology),
        *slower_hosts(file.results),
        *losing_merges(file.results),
        *slower_ranks(file.results),
        *usual.find_unusual(file.results, declarations, file.run.topology),
    )
    by_curve = group_by_key(
        points, lambda point: (point.benchmark, point.quantity, point.path, *_curve_parameters(point).items())
    )
    paths = tuple(_judge_curve(curve, finder, findings) for _, curve in by_curve)
    missed = find_unmet(paths, required)
    status = required_status(missed) if required else exit_status(paths, findings)
    if status == EXIT_OK and (file.end is None or file.end.interrupted):
        status = EXIT_UNJUDGED  # the rest of an interrupted run was not judged
    return Diagnosis(
        points=points,
        paths=paths,
        findings=findings,
        exit_status=status,
        required=tuple(map(str, required)),
        unmet=missed,
    )


def _doubt_collectives(points: tuple[Judged, ...], declarations: Declarations) -> tuple[Judged, ...]:
    """Doubt the points of NCCL collectives like the rows of another tool's table."""
    by_nccl = find_benchmarks(Collective, declarations, by="nccl", in_buckets=False)
    found = list(points)
    for _, curve in group_by_key(enumerate(points), lambda pair: _key_without_placement(pair[1])):
        rows = [point for _, point in curve]
        if rows[0].benchmark not in by_nccl or rows[0].quantity != "bandwidth_bytes_per_s":
            continue
        for (place, _), row in zip(curve, doubt_rows(rows, largest_row(rows), rows[0].hosts, None), strict=True):
            found[place] = row
    return tuple(found)


def _key_without_placement(point: Judged) -> tuple[object, ...]:
    """Return the key of a curve that ignores the placement."""
    varied = (item for item in _curve_parameters(point).items() if item[0] != "placement")
    return point.benchmark, point.quantity, point.path, *varied


def _judge_point(results: list[Result], finder: LimitFinder, disturbed: tuple[Disturbed, ...]) -> Judged:
    """Judge one set of parameters over all launches."""
    measured = [result for result in results if result.outcome == "measured" and result.summary is not None]
    first = (measured or results)[0]
    medians = sorted(result.summary.median for result in measured if result.summary is not None)
    value = quantile(medians, 0.5) if medians else None
    # A launch that failed completely is a separate point; a failure at this point fails the point.
    failed = next((result for result in results if result.outcome == "failed"), None)
    telling = failed or first
    checks = _merge_checks([result.verification for result in measured])
    point = replace(first, outcome=telling.outcome, reason=telling.reason)
    met = judge_result(point, value, finder.find(first), checks, finder.standing(first))
    why = explain_sockets(first.evidence, finder.machine.host) or explain_ucx(first, finder.machine.host)
    if why and met.verdict.state in ("ok", "unknown"):
        met = replace(met, verdict=Verdict(state="slow", why=why))
    return replace(
        doubt_unless_launches_agree(_doubt_disturbed(met, measured, disturbed), medians),
        launches=tuple(result.summary for result in measured if result.summary is not None),
        launch_spread=(medians[-1] - medians[0]) / value if value and len(medians) > 1 else None,
        # Launches that ran differently have several values for a claim, so each value is kept once.
        evidence=tuple({(item.claim, item.value): item for result in measured for item in result.evidence}.values()),
    )


def _doubt_disturbed(point: Judged, measured: list[Result], disturbed: tuple[Disturbed, ...]) -> Judged:
    """Judge a slow point by its undisturbed launches if other work ran during some."""
    if point.verdict.state != "slow" or not disturbed:
        return point
    taken = [
        max((span.others_fraction for span in disturbed if span.concerns(result)), default=0.0) for result in measured
    ]
    pairs = zip(measured, taken, strict=True)
    quiet = [result.summary.median for result, share in pairs if not share and result.summary is not None]
    return doubt_unless_alone(point, quiet, max(taken, default=0.0))


def _merge_checks(verifications: list[Verification | None]) -> Verification | None:
    """Merge the data checks of all launches; None if any launch was not checked."""
    checks = [check for check in verifications if check is not None and check.bytes_checked]
    if not checks or len(checks) < len(verifications):
        return None
    return Verification(
        method=checks[0].method,
        bytes_checked=sum(check.bytes_checked for check in checks),
        bytes_wrong=sum(check.bytes_wrong for check in checks),
    )


def _curve_parameters(point: Judged) -> dict[str, Scalar]:
    """Return the parameters except the size, which identify a curve."""
    return {key: value for key, value in sorted(point.parameters.items()) if key != "size_bytes"}


def _judge_curve(points: list[Judged], finder: LimitFinder, findings: tuple[Finding, ...]) -> JudgedPath:
    headline = _select_headline(points)
    first = headline or points[0]
    verdict = _worst_verdict(points, headline)
    slow = [point for point in points if point.verdict.state == "slow"]
    path = finder.path(first.path)
    return JudgedPath(
        benchmark=first.benchmark,
        quantity=first.quantity,
        path=first.path,
        parameters=_curve_parameters(first),
        path_kind=path.kind if path else None,
        headline=headline,
        verdict=verdict,
        causes=find_causes(slow, path, findings) if verdict.state == "slow" else (),
        points=len(points),
        measured_points=sum(point.outcome == "measured" for point in points),
    )


def _select_headline(points: list[Judged]) -> Judged | None:
    """Return the point that represents a curve.

    The largest size for a bandwidth and for a latency measured only at large sizes, where the path decides; otherwise
    the smallest, where the cost of a message decides.
    """
    measured = [point for point in points if point.value is not None]
    sizes = [find_size(point.parameters) or 0 for point in measured]
    by_bytes = points[0].quantity == "bandwidth_bytes_per_s" or min(sizes, default=0) >= _BYTES_DECIDE_FROM
    pick = max if by_bytes else min
    return pick(measured, key=lambda point: find_size(point.parameters) or 0, default=None)


def _worst_verdict(points: list[Judged], headline: Judged | None) -> Verdict:
    """Return the worst verdict of the points: a curve is ok only if every point that should have a verdict is."""
    worst = min(points, key=lambda point: WORST_FIRST.index(point.verdict.state))
    if headline is None:
        return worst.verdict
    if WORST_FIRST.index(headline.verdict.state) <= WORST_FIRST.index(worst.verdict.state):
        return headline.verdict  # smaller sizes cannot improve the verdict of the headline
    if "size_bytes" not in worst.parameters:
        return worst.verdict
    return replace(worst.verdict, why=f"at {format_size(find_size(worst.parameters) or 0)}: {worst.verdict.why}")
