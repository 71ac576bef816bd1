"""The format's own parser accepts the OpenMetrics file, and the names contain the units."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from railwright.diagnosis.verdicts.judged import Diagnosis
from railwright.report.formats.openmetrics import render_openmetrics
from railwright.report.view import build_view

from . import sample


def parsed(diagnosis: Diagnosis) -> dict[str, list[Sample]]:
    families = text_string_to_metric_families(render_openmetrics(build_view(sample.run(), diagnosis, None)))  # type: ignore[no-untyped-call]
    return {family.name: family.samples for family in families}


def test_the_parser_reads_every_value_back() -> None:
    diagnosis = sample.diagnosis()
    families = parsed(diagnosis)
    values = [*families["railwright_bandwidth_bytes_per_second"], *families["railwright_latency_seconds"],
              *families["railwright_rate_operations_per_second"]]  # fmt: skip
    assert sorted(item.value for item in values) == sorted(point.value for point in diagnosis.points if point.value)
    first = values[0]
    assert first.labels["benchmark"] == "memory_copy"
    assert first.labels["threads"] == "1"
    assert first.labels["size_bytes"] == "8"
    assert first.labels["host"] == "vm-1[red]x[/red]"


def test_limits_fractions_and_noise_are_there() -> None:
    families = parsed(sample.diagnosis())
    assert {item.labels["limit_kind"] for item in families["railwright_bandwidth_limit_bytes_per_second"]} == {
        "derived",
        "measured_ceiling",
    }
    assert max(item.value for item in families["railwright_fraction_of_limit_ratio"]) == pytest.approx(1.15, abs=0.01)
    assert families["railwright_noise_lost_ratio"][0].value == pytest.approx(0.013)
    assert families["railwright_exit_status"][0].value == 1
    assert [item.labels["fault"] for item in families["railwright_finding"]] == [
        "loopback_mtu",
        "transparent_huge_pages",
    ]


def test_exactly_one_state_of_a_point_is_set() -> None:
    diagnosis = sample.diagnosis()
    samples = parsed(diagnosis)["railwright_verdict"]
    assert len(samples) == 7 * len(diagnosis.points)
    states = [item.labels["railwright_verdict"] for item in samples if item.value]
    assert states == [point.verdict.state for point in diagnosis.points]


def test_parameter_names_become_legal_labels_that_never_collide() -> None:
    point = sample.diagnosis().points[0]
    odd = {"path": "x", "le": "y", "3d": 1, "a-b": 1, "a b": 2, "__name__": "z", "": "", "ü": sample.CONTROL_NAME}
    points = (msgspec.structs.replace(point, parameters=odd), point, point)
    families = parsed(Diagnosis(points=points, paths=(), findings=(), exit_status=0))
    first, second, third = families["railwright_bandwidth_bytes_per_second"]
    assert {"parameter_path", "parameter_le", "parameter_3d", "a_b", "a_b_", "name"} <= set(first.labels)
    assert first.labels["path"] == "memory0>memory0"
    assert "repeat" not in second.labels
    assert third.labels["repeat"] == "2"


def test_values_that_are_not_numbers_are_left_out() -> None:
    point = msgspec.structs.replace(sample.diagnosis().points[0], value=float("nan"), fraction_of_limit=None)
    families = parsed(Diagnosis(points=(point,), paths=(), findings=(), exit_status=3))
    assert "railwright_bandwidth_bytes_per_second" not in families
    assert "railwright_verdict" in families


def test_a_run_without_points_is_still_valid() -> None:
    assert "railwright_run" in parsed(Diagnosis(points=(), paths=(), findings=(), exit_status=3))
