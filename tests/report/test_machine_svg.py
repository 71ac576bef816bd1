"""The drawing of the machine: labels do not overlap, each device has one, and no name becomes markup."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from railwright.report.pictures.machine import draw_machine
from railwright.report.text import wording
from railwright.report.view import Row, build_view
from railwright.topology.expand import expand
from railwright.topology.sources.load import load

from . import sample

SVG = "{http://www.w3.org/2000/svg}"
HOSTS = ("2cpu-firecracker-vm", "2xh200-probed-vm", "8xh200-probed-vm", "8xh100-8nic", "8xa100-4nic", "8gpu-pcie")


def rows(*changes: dict[str, object]) -> list[Row]:
    path = next(path for path in sample.diagnosis().paths if path.headline and path.headline.value)
    paths = tuple(replace(path, **change) for change in changes)
    return list(build_view(sample.run(), replace(sample.diagnosis(), paths=paths), sample.end()).every)


def drawn(topology, found=()):
    return ET.fromstring(draw_machine(topology, found)[0])


def place(text):
    """Return (left, right, baseline) of a word, at 6.2 units a letter."""
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


def replace_path(row, path):
    return row._replace(path=path, judged=replace(row.judged, path=path))


def links_to_gpu0(picture):
    """Return the class and the title of every link to gpu0."""
    links = [element for element in picture.iter() if element.tag in (f"{SVG}a", f"{SVG}g")]
    titled = [(element, element.findtext(f"{SVG}title") or "") for element in links]
    return [
        (element.find(f"{SVG}path").get("class"), title)
        for element, title in titled
        if element.find(f"{SVG}path") is not None
    ]


def test_a_link_that_carries_the_needed_rate_for_another_path_is_not_slow() -> None:
    host = load("testdata/hosts/2xh200-probed-vm/machine.jsonl")
    fine = next(path for path in sample.diagnosis().paths if path.verdict.state == "ok" and path.headline.expected)
    slow = next(path for path in sample.diagnosis().paths if path.verdict.state == "slow")
    need = slow.headline.expected
    assert need is not None
    fast = replace(fine.headline, quantity=slow.quantity, value=need.low * 2)
    found = rows(
        {"path": "gpu0>memory0", "verdict": slow.verdict, "headline": slow.headline, "quantity": slow.quantity},
        {"path": "gpu0>memory0", "verdict": fine.verdict, "headline": fast, "quantity": slow.quantity},
        {"path": "gpu0>gpu1", "verdict": slow.verdict, "headline": slow.headline, "quantity": slow.quantity},
    )
    shown = links_to_gpu0(drawn(host, found))
    cleared = [(style, title) for style, title in shown if "must be slow elsewhere" in title]
    assert cleared
    assert all("ok" in style for style, _ in cleared)
    assert any("slow" in style for style, _ in shown), "nothing clears the links between the GPUs"
    way_back = replace_path(found[1], "memory0>gpu0")
    back = [found[0], way_back]
    assert draw_machine(host, back)[1] == "", "the other direction clears nothing"
    assert draw_machine(host, found)[1] == ""
    assert draw_machine(host, found[:2])[1].startswith("No link is slow")


def test_a_link_leads_to_the_path_that_decided_its_colour() -> None:
    host = load("testdata/hosts/2xh200-probed-vm/machine.jsonl")
    fine = sample.diagnosis().paths[0]
    slow = next(path for path in sample.diagnosis().paths if path.verdict.state == "slow")
    found = rows(
        {"path": "memory0>gpu0", "verdict": fine.verdict, "quantity": "messages_per_s"},
        {"path": "gpu0>memory0", "verdict": slow.verdict},
    )
    picture = drawn(host, found)
    slowed = [link for link in picture.iter(f"{SVG}a") if any("slow" in shape.get("class", "") for shape in link)]
    assert {link.get("href") for link in slowed} == {"#path-2"}
    assert any("gpu0>memory0" in (link.find(f"{SVG}title").text or "") for link in slowed)
    marks = [text.text for text in picture.iter(f"{SVG}text") if "mark" in text.get("class", "").split()]
    assert marks == [wording.STATES["slow"].sign] * len(slowed), "colour is not the only sign"
    assert all(float(shape.get("stroke-width", 1)) > 0 for shape in picture.iter(f"{SVG}path"))


def test_names_of_a_machine_are_text() -> None:
    host = expand("laptop", {})
    odd = replace(host, devices=tuple(replace(device, name="<script>&\x1b") for device in host.devices))
    text, _ = draw_machine(odd, rows({"path": "memory0>memory0", "benchmark": "<b>"}))
    ET.fromstring(text)
    assert not re.search(r"<(script|b)>|\x1b", text)


def test_a_machine_with_nothing_to_draw_has_no_drawing() -> None:
    host = expand("laptop", {})
    assert draw_machine(replace(host, devices=(), links=()), ()) == ("", "")
