"""Words that people type, terminals that are narrow, and locales without UTF-8."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from tests.conftest import InProcess

from railwright.expected.machine import Machine
from railwright.explain.table import explain
from railwright.report.text.explain import render_explained
from railwright.results.readers import registry
from railwright.terminal import AsciiOutput, text_width, to_ascii, wants_ascii
from railwright.topology.cluster import build_cluster
from railwright.topology.shapes import SHAPES
from railwright.topology.sources.load import load
from railwright.verbs.topo import topo

TABLE = str(Path(__file__).parents[2] / "testdata/external/nccl_tests/2.19.6-all_reduce-p2p-off-2xh200.txt")


def test_help_and_version_are_found_by_the_words_of_other_tools(answer: InProcess) -> None:
    assert answer("-V").out == answer("--version").out
    assert answer("help", "explain").out == answer("explain", "--help").out
    assert answer("help").out == answer("--help").out


def test_shapes_lists_the_machines_that_a_word_names(answer: InProcess) -> None:
    everything, some = answer("shapes").out, answer("shapes", "H200").out
    assert all(f"\n{name}\n" in f"\n{everything}" for name in SHAPES)
    assert "hgx-h200\n" in some
    assert "hgx-a100\n" not in some
    refused = answer("shapes", "no-such-machine")
    assert (refused.status, "no known machine" in refused.err) == (2, True)


@pytest.mark.parametrize("path", ["gpu0:gpu1", "gpu0->gpu1", "gpu0>gpu1", "gpu0 -> gpu1"])
def test_a_path_is_taken_however_its_ends_are_joined(answer: InProcess, path: str) -> None:
    assert answer("limits", "--host", "hgx-h100", path).out == answer("limits", "--host", "hgx-h100", "gpu0>gpu1").out
    assert answer("limits", "--host", "hgx-h100", "--path", path).out.startswith("limits of hgx-h100")


def test_other_names_of_host_and_count_are_taken_or_answered(answer: InProcess) -> None:
    asked = ("limits", "--collective", "all_reduce")
    usual = answer(*asked, "--host", "hgx-h100", "nics=4", "--count", "2").out
    assert answer(*asked, "--shape", "hgx-h100", "nics=4", "--nodes", "2").out == usual
    refused = answer(*asked, "--machine", "hgx-h100")
    assert "--host hgx-h100 --count 2" in refused.err


def test_a_decimal_size_is_said_to_be_a_binary_one(answer: InProcess) -> None:
    asked = ("limits", "hgx-h100", "--collective", "all_reduce", "--size")
    assert "1GB is read as 1 GiB" in answer(*asked, "1GB").err
    assert answer(*asked, "1GiB").err == ""


def test_text_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    (table,) = registry.read(Path(TABLE).read_text(encoding="utf-8"))
    found = explain(table, Machine(cluster=build_cluster(load("hgx-h200 gpus=2"), 1)))
    for columns, width in (("10", 60), ("80", 80), ("400", 110)):
        monkeypatch.setenv("COLUMNS", columns)
        assert text_width() == width
        lines = render_explained(found).splitlines()
        assert max(map(len, lines)) <= width
        assert any(line.startswith("  1 GiB") and line.endswith("slow") for line in lines)


def test_a_locale_of_c_prints_ascii() -> None:
    assert wants_ascii({"LC_ALL": "C", "LANG": "de_DE.UTF-8"})
    assert wants_ascii({"LANG": "POSIX"})
    assert not wants_ascii({})
    assert not wants_ascii({"LC_ALL": "C.UTF-8"})
    assert to_ascii("├─ gpu0 → nic0 \N{GREEK SMALL LETTER ALPHA}") == "|- gpu0 -> nic0 \\u03b1"
    below = io.BytesIO()
    stream = AsciiOutput(below, encoding="utf-8")
    print("│ x", file=stream, flush=True)
    assert below.getvalue() == f"| x{os.linesep}".encode()


def test_a_shell_can_complete_the_names_of_machines() -> None:
    found = topo.params[0].shell_complete(None, "HGX-H")  # type: ignore[arg-type]
    assert {"hgx-h100", "hgx-h200"} <= {item.value for item in found}
