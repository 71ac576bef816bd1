"""Machines that users describe in TOML files, and files of known and live machines."""

from __future__ import annotations

import os
import random
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from railwright.errors import UsageError
from railwright.report.formats.shape_toml import render_shape
from railwright.topology.expand import expand, expand_shape
from railwright.topology.possible import refuse_impossible
from railwright.topology.shapes import SHAPES
from railwright.topology.sources.load import load
from railwright.topology.sources.shape_file import MAX_SHAPE_FILE_BYTES, decode_shape
from railwright.topology.to_shape import list_differences, to_shape

from .machines import archive

OURS = """\
title = "Our servers"
cpu = "sapphire-rapids"
gpu = "h100-pcie"
nic = "roce-connectx7"

[layout]
gpus = 4
gpus_per_switch = 2
nics = 2
"""
VARIANTS = 100_000 if os.environ.get("RAILWRIGHT_TEST_LONG") else 400
BYTES_ALLOWED = 100e6


def written(folder: Path, text: str) -> str:
    file = folder / "ours.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_ten_lines_describe_a_machine_which_takes_changes(tmp_path: Path) -> None:
    machine = load(f"{written(tmp_path, OURS)} nics=4 nic-rate=200G")
    assert machine.name == "ours.toml nics=4 nic-rate=200G"
    assert (len(machine.of_kind("gpu")), len(machine.of_kind("nic")), len(machine.of_kind("pcie_switch"))) == (4, 4, 2)
    assert machine.is_described
    assert [port.protocol.line_rate_bits_per_s for _, port in machine.ports_out] == [200e9] * 4


def test_a_file_of_windows_reads_like_any_other(tmp_path: Path) -> None:
    machine = load(written(tmp_path, OURS))
    (tmp_path / "ours.toml").write_bytes(b"\xef\xbb\xbf" + OURS.replace("\n", "\r\n").encode())
    assert load(str(tmp_path / "ours.toml")) == machine


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_reads_back_from_its_file_and_from_its_machine(name: str) -> None:
    assert decode_shape(render_shape(SHAPES[name]).encode(), name) == SHAPES[name]
    machine = expand(name, {})
    again = expand_shape(to_shape(machine), name, {})
    assert again.links == machine.links
    assert list_differences(machine, again) == ()
    assert decode_shape(render_shape(to_shape(machine), ["a note"]).encode(), name) == to_shape(machine)


def test_a_live_machine_becomes_a_shape_that_says_where_it_differs() -> None:
    machine = load(str(archive("8xa100-4nic")))
    again = expand_shape(to_shape(machine), "again", {})
    assert [len(again.of_kind(kind)) for kind in ("gpu", "nic", "drive", "cpu")] == [8, 5, 2, 4]
    notes = list_differences(machine, again)
    assert notes[0] == "the NICs are not alike: 4x NVIDIA Mellanox ConnectX-6, 1x NVIDIA Mellanox ConnectX-6 Dx"
    assert "paths between GPUs and NICs are of another kind" in notes[1]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("title = 3", "Expected `str`, got `int` - at `$.title`", "shapes show"),
        ("[layout", "does not describe a machine", "shapes show"),
        ("hosts = 4\nhost = 'hgx-h100'", "unknown field `hosts`", "--cluster"),
        (OURS.replace("h100-pcie", "h100-pci"), "there is no gpu named 'h100-pci'", "h100-pcie"),
        (OURS.replace("gpus = 4", "gpus = 99"), "Expected `int` <= 16 - at `$.layout.gpus`", "shapes show"),
        (OURS.replace("gpus = 4", "gpus = nan"), "Expected `int`, got `float` - at `$.layout.gpus`", "shapes show"),
        (OURS.replace("servers", "\\u001b[2J"), "characters that do not print", "remove them"),
        (OURS.replace('gpu = "h100-pcie"\n', ""), "has no GPUs", "name a shape with GPUs"),
        (f"title = {'9' * 5000}", "does not describe a machine", "shapes show"),
        ("x = " + "[" * 5000, "does not describe a machine", "shapes show"),
        ("#" * (MAX_SHAPE_FILE_BYTES + 1), "64 KiB", "shapes show"),
        ("", "missing required field", "shapes show"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_the_next_step(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        load(written(tmp_path, text))
    assert message in caught.value.message
    assert caught.value.message.isprintable()
    assert hint in caught.value.hint


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file or directory .*missing\.toml"):
        load(f"{tmp_path}/missing.toml nics=2")


EXTREMES = ("-1", "0", "9" * 30, "1e308", "nan", "inf", "true", '"x"', "[]", "{}", "1979-05-27", '"\\u0000"', "-0.0")


def vary(text: str, chance: random.Random) -> bytes:
    """Return a text with a few changes: numbers, keys, lines and bytes."""
    lines = text.splitlines()
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(lines))
        match chance.randrange(6):
            case 0:
                lines[place] = re.sub(r"\d[\d.e_]*", lambda _: chance.choice(EXTREMES), lines[place], count=1)
            case 1:
                lines[place] = re.sub(r"= .*", lambda _: f"= {chance.choice(EXTREMES)}", lines[place])
            case 2:
                del lines[place : place + chance.randrange(1, 5)]
                lines = lines or [""]
            case 3:
                lines.insert(place, chance.choice(lines))
            case 4:
                lines[place] = lines[place].replace("a", chance.choice(("\x1b", "\0", "é", "[[", "}")), 1)
            case _:
                lines.insert(place, chance.choice(("[gpu]", "pairs = [[0, 0, 1], [99, 1, 1]]", "[[layout]]", "x = 1")))
    raw = "\n".join(lines).encode()
    if chance.random() < 0.1:
        cut = chance.randrange(len(raw) + 1)
        raw = raw[:cut] + bytes([chance.randrange(256)]) + raw[cut + 1 :]
    return raw


def outcomes() -> Iterator[str]:
    chance = random.Random(61)
    known = ("dgx-1-v100", "gb200-nvl72", "mi250x", "aws-p5", "laptop")
    texts = [OURS, *(render_shape(SHAPES[name]) for name in known)]
    for _ in range(VARIANTS):
        raw = vary(chance.choice(texts), chance)
        refusal = None
        try:
            topology = expand_shape(decode_shape(raw, "f.toml"), "f.toml", {})
            refuse_impossible(topology, "f.toml")
        except UsageError as error:
            refusal = error
        if refusal is not None:
            assert refusal.message.isprintable(), raw
            assert len(refusal.message) < 600, raw
            assert refusal.hint, raw
        yield "refused" if refusal is not None else "read"


def test_any_variant_of_a_file_is_read_or_refused_clearly() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = list(outcomes())
    assert min(seen.count("read"), seen.count("refused")) > VARIANTS / 20
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < BYTES_ALLOWED
