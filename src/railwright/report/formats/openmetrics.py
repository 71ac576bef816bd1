"""The measured values, limits and verdicts for a metrics system, as OpenMetrics text.

Names and units follow the OpenMetrics specification 1.0 (base units, the unit at the end of the name).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest

from railwright.diagnosis.verdicts.judged import Judged
from railwright.diagnosis.verdicts.verdict import WORST_FIRST
from railwright.limits.limit import Limit, Quantity
from railwright.report.text import wording
from railwright.report.view import View

_NAMES_AND_UNITS: dict[Quantity, tuple[str, str]] = {
    "bandwidth_bytes_per_s": ("railwright_bandwidth", "bytes_per_second"),
    "latency_s": ("railwright_latency", "seconds"),
    "operations_per_s": ("railwright_rate", "operations_per_second"),
    "messages_per_s": ("railwright_message_rate", "messages_per_second"),
    "flop_per_s": ("railwright_flop_rate", "floating_point_operations_per_second"),
}

Labels = dict[str, str]

_OWN_LABELS = frozenset({"host", "benchmark", "quantity", "path", "ranks", "hosts", "repeat"})
_RESERVED_LABELS = frozenset({"le", "quantile", "railwright_verdict"})  # OpenMetrics gives these a meaning


def render_openmetrics(view: View) -> str:
    """Render the whole exposition, with its `# EOF`. Points without a value have only their verdict."""
    registry = SimpleNamespace(collect=lambda: _families(view))
    exposition: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]  # prometheus_client types only parts
    return exposition.decode("utf-8")


def point_labels(host: str, points: Iterable[Judged]) -> list[Labels]:
    """Build unique labels for each point: its parameters by name, and `repeat` for points that are otherwise equal."""
    seen: dict[tuple[tuple[str, str], ...], int] = {}
    made = []
    for point in points:
        labels = {
            "host": wording.escape(host), "benchmark": wording.escape(point.benchmark), "quantity": point.quantity,
            "path": wording.escape(point.path), "ranks": str(point.ranks), "hosts": str(point.hosts),
        }  # fmt: skip
        for key, value in point.parameters.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            labels[_label_name(key, labels)] = wording.escape(text)
        key_of_all = tuple(sorted(labels.items()))
        seen[key_of_all] = seen.get(key_of_all, 0) + 1
        if seen[key_of_all] > 1:
            labels["repeat"] = str(seen[key_of_all])
        made.append(labels)
    return made


def _label_name(key: str, taken: Labels) -> str:
    """Return a legal label name for a parameter, distinct from those in `taken` (OpenMetrics 1.0, `label-name`)."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", key).strip("_") or "parameter"
    if name[0].isdigit() or name in _OWN_LABELS or name in _RESERVED_LABELS:
        name = f"parameter_{name}"
    while name in taken:
        name += "_"
    return name


def _families(view: View) -> Iterator[Metric]:
    """Yield all families. Gauges of measured values and findings are left out if they have no sample."""
    run, context = view.run, view.run.context
    host = {"host": wording.escape(context.host)}
    facts = {"version": run.railwright, "started_at": run.started_at, "kernel": context.kernel, "cpu": context.cpu}
    about = {**host, **{key: wording.escape(text) for key, text in facts.items()}}
    points = view.diagnosis.points
    labelled = list(zip(points, point_labels(context.host, points), strict=True))
    lost = context.noise.lost_fraction if context.noise is not None else None
    yield _family("info", "railwright_run", "The run that produced these values.", [(about, 1)])
    yield _family("gauge", "railwright_exit_status", "0 ok, 1 slow, 2 error, 3 could not be judged.",
                  [(host, view.diagnosis.exit_status)])  # fmt: skip
    gauges = [
        _family("gauge", "railwright_noise_lost", "Share of the time the machine took away from fixed work.",
                [(host, lost)], "ratio"),
        *(family for quantity in _NAMES_AND_UNITS for family in _values(quantity, labelled)),
        _family("gauge", "railwright_fraction_of_limit", "Measured / limit; floor / measured for a latency.",
                [(labels, point.fraction_of_limit) for point, labels in labelled], "ratio"),
        _family("gauge", "railwright_launch_spread", "(highest - lowest) / median of the launches.",
                [(labels, point.launch_spread) for point, labels in labelled], "ratio"),
    ]  # fmt: skip
    yield from (family for family in gauges if family.samples)
    states = [
        ({**labels, "railwright_verdict": state}, point.verdict.state == state)
        for point, labels in labelled
        for state in WORST_FIRST
    ]
    yield _family("stateset", "railwright_verdict", "The verdict on the point: one of the states is 1.", states)
    findings = [
        {
            **host,
            "number": str(number),
            "fault": wording.escape(finding.fault),
            "certainty": finding.certainty,
            "where": wording.escape(", ".join(finding.where)),
        }
        for number, finding in enumerate(view.all_findings)
    ]
    if findings:
        says = "A fault that was found, or that could not be checked."
        yield _family("info", "railwright_finding", says, [(labels, 1) for labels in findings])


def _values(quantity: Quantity, labelled: list[tuple[Judged, Labels]]) -> Iterator[Metric]:
    name, unit = _NAMES_AND_UNITS[quantity]
    same = [(point, labels) for point, labels in labelled if point.quantity == quantity]
    medians = [(labels, point.value) for point, labels in same]
    yield _family("gauge", name, "Median of the launches' medians.", medians, unit)
    limits = [
        ({**labels, "limit_kind": point.limit.kind}, point.limit.value)
        for point, labels in same
        if isinstance(point.limit, Limit)
    ]
    yield _family("gauge", f"{name}_limit", "The best value that the path can reach.", limits, unit)


def _family(
    kind: str, name: str, help_text: str, samples: Iterable[tuple[Labels, float | None]], unit: str = ""
) -> Metric:
    """Build a family with the samples that have a finite value."""
    family = Metric(name, help_text, kind, unit)
    for labels, value in samples:
        if value is not None and math.isfinite(value):
            family.add_sample(f"{family.name}_info" if kind == "info" else family.name, labels, value)
    return family
