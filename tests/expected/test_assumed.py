"""Facts that a shape assumes: they are marked, and no verdict of slow or suspicious rests on one."""

from __future__ import annotations

import re

import pytest

from railwright.diagnosis.verdicts.verdict import judge
from railwright.errors import UsageError
from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.results.records import Verification
from railwright.results.workload import Crossing, Files, Memory, Workload
from railwright.topology.cluster import build_cluster
from railwright.topology.devices import PcieLink
from railwright.topology.expand import expand
from railwright.topology.matrix import Additions, build_topology, parse_matrix
from railwright.topology.shapes import SHAPES
from railwright.topology.shapes.parts import DrivePart, GpuPart, NicPart
from railwright.units import parse_line_rate

ASSUMED = re.compile(r"PCIe [\d.]+(?:,?\s| )x\d+ assumed|assumed: PCIe")
CHECKED = Verification(method="all", bytes_checked=1, bytes_wrong=0)


def parts() -> list[tuple[str, DrivePart | NicPart | GpuPart]]:
    found = [(name, part) for name, shape in SHAPES.items() for part in (shape.drive, shape.nic, shape.gpu) if part]
    assert len(found) > 100
    return found


def test_every_part_whose_source_says_that_its_link_is_assumed_is_marked() -> None:
    wrong = {name: part.source for name, part in parts() if bool(ASSUMED.search(part.source)) != part.pcie.assumed}
    assert not wrong


def test_every_link_to_the_cpu_whose_source_says_that_it_is_assumed_is_marked() -> None:
    for name, shape in SHAPES.items():
        says = re.search(r"links? to the\s+CPU at PCIe [\d.]+ x\d+ assumed", shape.layout_source)
        assert bool(says) == shape.layout.uplink_assumed, name


def test_every_port_whose_source_says_that_its_mtu_or_rate_is_assumed_is_marked() -> None:
    for name, shape in SHAPES.items():
        says = re.search(r"MTU (4220 )?assumed|that this machine has", shape.nic.source) is not None
        assert bool(shape.nic.port.assumed) == says, name


def test_the_option_for_an_assumed_rate_gives_another_rate() -> None:
    for name, shape in SHAPES.items():
        option, _, rate = shape.nic.port.assumed.partition("=")
        assert option != "nic-rate" or parse_line_rate(rate) != shape.nic.port.line_rate_bits_per_s, name


def test_memory_channels_of_every_shape_are_marked_until_they_are_given() -> None:
    known = {"hgx-a100-64gb-4gpu"}  # CINECA lists the modules of Leonardo
    for name in SHAPES:
        for changes, marked in (({}, name not in known), ({"memory": "8x4800"}, False)):
            found = [link.protocol for link in expand(name, changes).links if link.id == "cpu0--memory0"]
            assert len(found) == 1, name
            assert all(bool(protocol.assumed) == marked for protocol in found if protocol.channels), name


@pytest.mark.parametrize(
    ("workload", "share", "given", "option"),
    [
        (Crossing(path="memory0:memory0@1"), 0.96, "mtu=4096", "mtu=2048"),  # a smaller MTU would explain it
        (Crossing(path="gpu0>memory0"), 0.95, "max-payload=256", "max-payload=512"),
        (Memory(), 2.0, "memory=8x4800", "memory=8x4800"),  # over the low end of 0.7
    ],
)
def test_a_verdict_that_another_value_of_an_assumed_fact_would_explain_names_its_option(
    workload: Workload, share: float, given: str, option: str
) -> None:
    for changes, is_known in (({}, False), (dict([given.split("=")]), True)):
        machine = Machine(cluster=build_cluster(expand("hgx-h100", changes), 2 if "@" in given + workload.path else 1))
        limit, band = expect(workload, machine)
        assert band is not None
        verdict = judge("ok", "", share * band.low, limit, band, CHECKED)
        assert verdict.state in (("slow", "suspicious") if is_known else ("unknown",)), (changes, verdict)
        assert (option in verdict.needs) != is_known


def test_a_rate_that_no_value_of_an_assumed_fact_explains_stays_slow() -> None:
    machine = Machine(cluster=build_cluster(expand("hgx-h100", {}), 2))
    for path in ("memory0:memory0@1", "gpu0>memory0"):
        limit, band = expect(Crossing(path=path), machine)
        assert band is not None
        assert judge("ok", "", 0.5 * band.low, limit, band, CHECKED).state == "slow"


@pytest.mark.parametrize(
    ("changes", "value", "state"),
    [
        ({}, 100e9, "unknown"),  # eight PCIe 5.0 drives where the shape assumes 4.0
        ({}, 56e9, "ok"),  # the value itself confirms the assumption
        ({"drive-pcie": "4"}, 100e9, "suspicious"),
        ({"drive-pcie": "5"}, 100e9, "unknown"),
        ({"drive-pcie": "5"}, 112e9, "ok"),
    ],
)
def test_drives_faster_than_the_shape_assumes_are_not_suspicious(changes, value, state) -> None:
    bounds = expect(Files(size_bytes=2**20), Machine(cluster=build_cluster(expand("hgx-h100", changes), 1)))
    verdict = judge("ok", "", value, *bounds, CHECKED)
    assert verdict.state == state
    if not changes and state == "unknown":
        assert "that rests on an assumption" in verdict.why
        assert "drive-pcie=5" in (verdict.needs or "")


@pytest.mark.parametrize(
    ("share", "state"),
    [(0.3, "slow"), (0.99, "ok"), (1.9, "unknown"), (4.5, "suspicious")],  # B200 has 18 links too, at twice the rate
)
def test_nvlinks_of_a_gpu_without_a_name_have_a_rate_that_is_a_lower_bound(share, state) -> None:
    matrix = parse_matrix("\tGPU0\tGPU1\tNUMA Affinity\nGPU0\t X \tNV18\t0\nGPU1\tNV18\t X \t0\n")
    assert matrix is not None
    machine = Machine(cluster=build_cluster(build_topology(matrix, "pasted", Additions()), 1))
    limit, band = expect(Crossing(path="gpu0>gpu1"), machine)
    assert "NVLink 4 x18 (assumed)" in limit.because
    verdict = judge("ok", "", share * limit.value, limit, band, CHECKED)
    assert verdict.state == state, verdict
    assert ("gpu=" in verdict.needs) == (state == "unknown")


def test_a_slow_path_over_an_assumed_link_is_unknown_until_pcie_is_given() -> None:
    for changes, state in (({}, "unknown"), ({"pcie": "5"}, "slow")):
        machine = Machine(cluster=build_cluster(expand("hgx-b300", changes), 1))
        path = next(link for link in machine.host.links if link.b == "switch0")
        assert isinstance(path.protocol, PcieLink)
        assert bool(path.protocol.assumed) == (state == "unknown")
        bounds = expect(Crossing(path="gpu0>memory0"), machine)
        assert judge("ok", "", 20e9, *bounds, CHECKED).state == state


def test_drive_pcie_needs_drives() -> None:
    with pytest.raises(UsageError, match="not published"):
        expand("gcp-a3-mega", {"drive-pcie": "5"})
