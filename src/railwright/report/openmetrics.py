"""The measured values, limits and verdicts for a metrics system, as OpenMetrics text.

Names and units follow the OpenMetrics specification 1.0 (base units, the unit at the end of the name).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from railwright.diagnosis.model import Diagnosis, Judged, State
from railwright.diagnosis.verdict import WORST_FIRST
from railwright.limits.model import Limit, Quantity
from railwright.report import wording
from railwright.report.text import all_findings
from railwright.results.model import Run

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

UNITS: dict[Quantity, str] = {
    "bandwidth_bytes_per_s": "bytes_per_second",
    "latency_s": "seconds",
    "operations_per_s": "operations_per_second",
    "messages_per_s": "messages_per_second",
    "flop_per_s": "floating_point_operations_per_second",
}

NAMES: dict[Quantity, str] = {
    "bandwidth_bytes_per_s": "railwright_bandwidth",
    "latency_s": "railwright_latency",
    "operations_per_s": "railwright_rate",
    "messages_per_s": "railwright_message_rate",
    "flop_per_s": "railwright_flop_rate",
}

Labels = dict[str, str]

_OWN_LABELS = frozenset({"host", "benchmark", "quantity", "path", "ranks", "hosts", "repeat"})
_RESERVED_LABELS = frozenset({"le", "quantile", "railwright_verdict"})  # OpenMetrics gives these a meaning


def render_openmetrics(run: Run, diagnosis: Diagnosis) -> str:
    """The whole exposition, with its `# EOF`. Points without a value have only their verdict."""
    from prometheus_client.openmetrics.exposition import generate_latest
    from prometheus_client.registry import CollectorRegistry

    class Families:
        def collect(self) -> Iterable[Metric]:
            return _families(run, diagnosis)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families())
    exposition: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]  # prometheus_client types only parts
    return exposition.decode("utf-8")


def point_labels(host: str, points: Iterable[Judged]) -> list[Labels]:
    """Labels for every point, all different: parameters under their own names, `repeat` where all else is the same."""
    seen: dict[tuple[tuple[str, str], ...], int] = {}
    made = []
    for point in points:
        labels = {
            "host": wording.visible(host), "benchmark": wording.visible(point.benchmark), "quantity": point.quantity,
            "path": wording.visible(point.path), "ranks": str(point.ranks), "hosts": str(point.hosts),
        }  # fmt: skip
        for key, value in point.parameters.items():
            labels[_label_name(key, labels)] = _label_value(value)
        key_of_all = tuple(sorted(labels.items()))
        seen[key_of_all] = seen.get(key_of_all, 0) + 1
        if seen[key_of_all] > 1:
            labels["repeat"] = str(seen[key_of_all])
        made.append(labels)
    return made


def _label_name(key: str, taken: Labels) -> str:
    """A legal label name for a parameter, different from those taken (OpenMetrics 1.0, ABNF of `label-name`)."""
    name = re.sub(r"[^a-zA-Z0-9_]", "_", key).strip("_") or "parameter"
    if name[0].isdigit() or name in _OWN_LABELS or name in _RESERVED_LABELS:
        name = f"parameter_{name}"
    while name in taken:
        name += "_"
    return name


def _label_value(value: object) -> str:
    return wording.visible(str(value).lower() if isinstance(value, bool) else str(value))


def _families(run: Run, diagnosis: Diagnosis) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

    context = run.context
    host = wording.visible(context.host)
    labelled = list(zip(diagnosis.points, point_labels(context.host, diagnosis.points), strict=True))
    facts = {"version": run.railwright, "started_at": run.started_at, "kernel": context.kernel, "cpu": context.cpu}
    labels = {"host": host, **{key: wording.visible(text) for key, text in facts.items()}}
    yield InfoMetricFamily("railwright_run", "The run that these values are from.", value=labels)
    status = GaugeMetricFamily(
        "railwright_exit_status", "0 ok, 1 slow, 2 error, 3 could not be judged.", labels=["host"]
    )
    status.add_metric([host], diagnosis.exit_status)
    yield status
    if context.noise is not None:
        lost = GaugeMetricFamily("railwright_noise_lost", "Share of the time the machine took away from fixed work.",
                                 labels=["host"], unit="ratio")  # fmt: skip
        lost.add_metric([host], context.noise.lost_fraction)
        yield lost
    yield from _values(labelled)
    yield from _verdicts(labelled)
    yield from _findings(host, diagnosis)


def _values(labelled: list[tuple[Judged, Labels]]) -> Iterator[Metric]:
    for quantity, unit in UNITS.items():
        name = NAMES[quantity]
        same = [(point, labels) for point, labels in labelled if point.quantity == quantity]
        yield from _gauge(
            name, unit, "Median of the launches' medians.", ((labels, point.value) for point, labels in same)
        )
        limits = (
            ({**labels, "limit_kind": point.limit.kind}, point.limit.value)
            for point, labels in same
            if isinstance(point.limit, Limit)
        )
        yield from _gauge(f"{name}_limit", unit, "The best value that the path can reach.", limits)
    fractions = ((labels, point.fraction_of_limit) for point, labels in labelled)
    yield from _gauge(
        "railwright_fraction_of_limit", "ratio", "Measured / limit; floor / measured for a latency.", fractions
    )
    spreads = ((labels, point.launch_spread) for point, labels in labelled)
    yield from _gauge("railwright_launch_spread", "ratio", "(highest - lowest) / median of the launches.", spreads)


def _gauge(name: str, unit: str, help_text: str, samples: Iterable[tuple[Labels, float | None]]) -> Iterator[Metric]:
    """One family with the samples that have a finite value; nothing at all if none has."""
    from prometheus_client.metrics_core import Metric

    full_name = name if name.endswith(unit) else f"{name}_{unit}"
    family = Metric(full_name, help_text, "gauge", unit)
    for labels, value in samples:
        if value is not None and math.isfinite(value):
            family.add_sample(full_name, labels, value)
    if family.samples:
        yield family


def _verdicts(labelled: list[tuple[Judged, Labels]]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import Metric

    family = Metric("railwright_verdict", "The verdict on the point: one of the states is 1.", "stateset")
    states: tuple[State, ...] = WORST_FIRST
    for point, labels in labelled:
        for state in states:
            family.add_sample(
                "railwright_verdict", {**labels, "railwright_verdict": state}, point.verdict.state == state
            )
    yield family


def _findings(host: str, diagnosis: Diagnosis) -> Iterator[Metric]:
    from prometheus_client.metrics_core import Metric

    family = Metric("railwright_finding", "A fault that was found, or could not be looked for.", "info")
    for number, finding in enumerate(all_findings(diagnosis)):
        labels = {
            "host": host,
            "number": str(number),
            "fault": wording.visible(finding.fault),
            "certainty": finding.certainty,
            "where": wording.visible(", ".join(finding.where)),
        }
        family.add_sample("railwright_finding_info", labels, 1)
    if family.samples:
        yield family
