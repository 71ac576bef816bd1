"""A slow path lists the findings about itself, and not those about its neighbours."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks.finding import BenchmarkPlace, Certainty, Finding, ParameterPlace, PartPlace, PathPlace, Place
from railwright.diagnosis.runs.causes import find_causes
from railwright.diagnosis.verdicts.judged import Judged, Verdict
from railwright.limits.limit import NoLimit, Quantity
from railwright.results.records import Evidence
from railwright.topology.devices import Path, Scalar
from railwright.topology.expand import expand
from railwright.topology.paths import Graph

TOPOLOGY = expand("hgx-h100", {})
KV = BenchmarkPlace("kv_vram")


def found(*where: Place, certainty: Certainty = "seen") -> Finding:
    return Finding(fault="a_fault", where=where, certainty=certainty, says="wrong")


def causes(
    finding: Finding,
    path: str = "gpu0>gpu1",
    benchmark: str = "kv_vram",
    evidence: tuple[Evidence, ...] = (),
    **parameters: Scalar,
) -> bool:
    quantity: Quantity = "bandwidth_bytes_per_s"
    judged = Judged(
        benchmark=benchmark, quantity=quantity, path=path, parameters=parameters, outcome="measured",
        limit=NoLimit(quantity=quantity, why="a test"), verdict=Verdict(state="slow", why="a test"),
        evidence=evidence,
    )  # fmt: skip
    return find_causes((judged,), path_of(path), (finding,)) == (finding,)


def path_of(path_id: str) -> Path | None:
    source, _, target = path_id.partition(">")
    graph = Graph(TOPOLOGY)
    return graph.find(source, target) if {source, target} <= set(graph.devices) else None


def test_a_finding_that_names_paths_is_about_those_alone() -> None:
    finding = found(KV, PathPlace("gpu0>memory0"), PathPlace("memory0>gpu0"))
    assert causes(finding, "gpu0>memory0")
    assert causes(finding, "memory0>gpu0")
    assert not causes(finding, "gpu0>gpu1"), "the benchmark's name alone proves nothing"
    assert not causes(finding, "gpu1>memory0")


def test_another_benchmark_over_the_same_path_is_not_concerned() -> None:
    finding = found(KV, PathPlace("gpu0>memory0"))
    assert not causes(finding, "gpu0>memory0", "gpu_copy")
    assert causes(found(PathPlace("gpu0>memory0")), "gpu0>memory0", "gpu_copy"), "it names no benchmark"


def test_a_finding_about_a_number_of_processes_is_about_those_points_alone() -> None:
    finding = found(KV, PathPlace("gpu0>memory0"), ParameterPlace("processes", 2))
    assert causes(finding, "gpu0>memory0", processes=2)
    assert not causes(finding, "gpu0>memory0", processes=1)
    assert not causes(found(KV, ParameterPlace("processes", 2)), "gpu0>memory0", processes=1), (
        "also where it names no path"
    )


def test_a_finding_about_a_parameter_is_not_about_points_without_it() -> None:
    assert causes(found(KV, ParameterPlace("ucx", "pipeline")), ucx="pipeline")
    assert not causes(found(KV, ParameterPlace("ucx", "pipeline")))


def test_a_finding_of_what_was_seen_of_points_is_about_those_points_alone() -> None:
    def seen(*values: str) -> tuple[Evidence, ...]:
        return tuple(Evidence(claim="ucx_protocol", value=value, seen="a log") for value in values)

    emulated = replace(found(KV, PathPlace("gpu0>gpu1")), evidence=seen("software emulation over tcp/lo", "emulation"))
    assert causes(emulated, evidence=seen("emulation"))
    assert not causes(emulated, evidence=seen("cuda_copy/cuda"))
    assert causes(emulated), "nothing was seen of it that speaks against it"
    assert causes(emulated, evidence=seen("unknown"))


def test_a_device_with_its_paths_is_not_every_path_of_the_device() -> None:
    slower = found(PartPlace("gpu3"), PathPlace("memory0>gpu3"), PathPlace("gpu3>memory0"))
    assert causes(slower, "memory0>gpu3", "gpu_copy")
    assert not causes(slower, "gpu3>gpu4", "gpu_copy")


def test_a_device_a_link_or_a_benchmark_without_a_path_concerns_all_that_has_it() -> None:
    path = path_of("gpu0>memory0")
    assert path is not None
    for place in (PartPlace("gpu0"), PartPlace(path.links[0].id), KV):
        assert causes(found(place), "gpu0>memory0"), place
    assert not causes(found(PartPlace("gpu5")), "gpu0>memory0")
    assert causes(found(PartPlace("gpu9")), "gpu9>gpu10"), "its ends are known, though the machine has no such path"


def test_the_surest_comes_first() -> None:
    certainties: tuple[Certainty, ...] = ("could not look", "possible", "seen", "likely")
    findings = tuple(found(KV, certainty=certainty) for certainty in certainties)
    judged = Judged(
        benchmark="kv_vram", quantity="latency_s", path="a>b", parameters={}, outcome="measured",
        limit=NoLimit(quantity="latency_s", why=""), verdict=Verdict(state="slow", why=""),
    )  # fmt: skip
    assert [one.certainty for one in find_causes((judged,), None, findings)] == [
        *("seen", "likely", "possible", "could not look")
    ]


def test_a_place_is_told_by_its_kind_and_not_by_its_words() -> None:
    assert not causes(found(PathPlace("kv_vram"))), "a path that is named like the benchmark"
    assert causes(found(BenchmarkPlace("a > b c")), benchmark="a > b c")
