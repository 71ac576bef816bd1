"""Partial output: a sweep that ended with an error, rows without a header, latencies of two devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.expected.machine import Machine
from railwright.explain.paste import read_paste
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

THREADS = Path(__file__).parents[2] / "testdata/external/threads"


def pasted(number: str) -> str:
    (file,) = THREADS.glob(f"{number}-*")
    return file.read_text(encoding="utf-8")


def machine(shape: str, count: int, path: str = "") -> Machine:
    return Machine(cluster=build_cluster(load(shape), count), path=path)


@pytest.mark.parametrize(("cut", "state"), [("", "unknown"), (" Completion with", "ok")])
def test_a_sweep_that_an_error_ended_is_never_ok(cut: str, state: str) -> None:
    text = pasted("041")
    (told,) = read_paste(text.partition(cut)[0] if cut else text, machine("a3-ultragpu-8g", 2)).tables
    assert told.verdict.state == state
    assert any("Completion with error" in words for words in told.contradictions) == (state == "unknown")


def test_rows_of_one_size_without_a_header_are_runs_of_as_many_ranks_as_the_log_has() -> None:
    found = read_paste(pasted("194"), machine("hgx-h100", 235))
    assert [(one.test, one.ranks, one.hosts) for one in found.tables] == [("all_reduce", 1840, 230)] * 6
    assert {one.verdict.state for one in found.tables} == {"ok"}


def test_a_latency_between_two_devices_takes_their_path_and_its_settings_are_named() -> None:
    shape = "a100-pcie-40gb-8gpu gpus=1 nics=1 nic-rate=200Gb/s nic-protocol=infiniband"
    found = read_paste(pasted("190"), machine(shape, 2, "gpu0:gpu0@1"))
    (told,) = found.tables
    assert told.verdict.state == "slow", "1.7 ms for 128 KiB is beyond what any healthy host takes"
    assert [one.fault for one in told.findings] == ["gpudirect_off"]
    assert "UCX_IB_GPU_DIRECT_RDMA=0" in told.findings[0].says


def test_what_drives_cannot_carry_came_from_memory_and_no_advice_is_of_nccl() -> None:
    (told,) = read_paste(pasted("187"), machine("pcie-8gpu gpus=0 drives=1 drive-pcie=4", 1)).tables
    assert told.verdict.state == "suspicious"
    assert any("data came from memory (the page cache" in note for note in told.notes)
    assert not any("NCCL" in note for note in told.notes)


def test_gpus_that_are_numbered_otherwise_are_named_by_their_pairs() -> None:
    (told,) = read_paste(pasted("185"), machine("dgx-1-v100", 1)).tables
    (note,) = [note for note in told.notes if "numbered differently" in note]
    suspicious = {row.path for row in told.rows if row.verdict.state == "suspicious"}
    assert {word.rstrip(",") for word in note.split() if ">" in word} < suspicious
    assert "and 4 more" in note
    assert len(suspicious) == 10
