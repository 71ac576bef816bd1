"""The drawing of the machine: nothing overlaps, everything is said, nothing from a machine becomes markup."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from railwright.report import wording
from railwright.report.machine_svg import render_machine
from railwright.report.view import Row, view_of
from railwright.topology.expand import expand
from railwright.topology.sources.load import load

from . import sample

SVG = "{http://www.w3.org/2000/svg}"
HOSTS = ("2cpu-firecracker-vm", "2xh200-probed-vm", "8xh200-probed-vm", "8xh100-8nic", "8xa100-4nic", "8gpu-pcie")


def rows(*changes: dict[str, object]) -> list[Row]:
    one = next(path for path in sample.diagnosis().paths if path.headline and path.headline.value)
    paths = tuple(replace(one, **change) for change in changes)
    return list(view_of(replace(sample.diagnosis(), paths=paths), sample.end()).every)


def drawn(topology, found=()):
    return ET.fromstring(render_machine(topology, found))


def place(text):
    """(left, right, baseline) of a word, 6 units a letter at most."""
    x, width = float(text.get("x")), 6.2 * len(text.text)
    return x - width / 2, x + width / 2, float(text.get("y"))


@pytest.mark.parametrize("name", HOSTS)
def test_no_label_meets_another_and_every_device_has_its_own(name: str) -> None:
    host = load(f"testdata/hosts/{name}/machine.jsonl")
    picture = drawn(host, rows({"path": "memory0>gpu0"}, {"path": "gpu0>gpu1"}))
    words = [text for text in picture.iter(f"{SVG}text") if "rotate" not in text.get("transform", "")]
    labels = {text.text for text in words}
    for device in host.of_kind("gpu", "nic", "drive", "memory"):
        assert any(device.id[:11] in label for label in labels), device.id
    for (left, right, y), (other, end, below) in combinations(map(place, words), 2):
        assert abs(below - y) > 9 or right <= other + 1 or end <= left + 1, (name, y)


def test_a_link_has_the_worst_verdict_and_leads_to_its_path() -> None:
    host = load("testdata/hosts/2xh200-probed-vm/machine.jsonl")
    fine = sample.diagnosis().paths[0]
    slow = next(path for path in sample.diagnosis().paths if path.verdict.state == "slow")
    found = rows({"path": "memory0>gpu0", "verdict": fine.verdict}, {"path": "gpu0>memory0", "verdict": slow.verdict})
    picture = drawn(host, found)
    slowed = [link for link in picture.iter(f"{SVG}a") if any("slow" in shape.get("class", "") for shape in link)]
    assert {link.get("href") for link in slowed} == {"#path-2"}
    assert any("gpu0>memory0" in (link.find(f"{SVG}title").text or "") for link in slowed)
    marks = [text.text for text in picture.iter(f"{SVG}text") if "mark" in text.get("class", "").split()]
    assert marks == [wording.STATES["slow"].sign] * len(slowed), "colour does not stand alone"
    assert all(float(shape.get("stroke-width", 1)) > 0 for shape in picture.iter(f"{SVG}path"))


def test_names_of_a_machine_are_text() -> None:
    host = expand("laptop", {})
    odd = replace(host, devices=tuple(replace(one, name="<script>&\x1b") for one in host.devices))
    text = render_machine(odd, rows({"path": "memory0>memory0", "benchmark": "<b>"}))
    ET.fromstring(text)
    assert not re.search(r"<(script|b)>|\x1b", text)


def test_a_machine_with_nothing_to_draw_has_no_drawing() -> None:
    host = expand("laptop", {})
    assert render_machine(replace(host, devices=(), links=()), ()) == ""
