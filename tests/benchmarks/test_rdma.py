"""RDMA by verbs over stand-ins for libibverbs and CUDA: modes, data checks, GPU memory, faults, a peer that dies."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import errno
import functools
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.stand_ins import build, environment, stand_ins  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]
FAULTS = 1000 if os.environ.get("RAILWRIGHT_TEST_LONG") else 48
CALLS = (
    *("get_device_list", "open_device", "close_device", "query_device", "query_port", "query_gid_ex", "alloc_pd"),
    *("dealloc_pd", "reg_mr", "dereg_mr", "create_cq", "destroy_cq", "create_qp", "destroy_qp", "modify_qp"),
    *("post_send", "post_recv", "poll_cq"),
)
DATA = ("corrupt", "short")
HARMLESS = {"dereg_mr", "create_qp"}
"""A region is deregistered again, and a queue pair is created again without inline data."""

pytestmark = pytest.mark.machine

Pair = Callable[[Iterable[dict[str, Any]]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def verbs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in for libibverbs alone."""
    folder = tmp_path_factory.mktemp("verbs")
    build("verbs.c", folder / "libibverbs.so.1")
    return folder


def run_cases(variables: dict[str, str], cases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run cases in a child, and return their answers."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.rdma_pair"],
        input="".join(f"{json.dumps(case)}\n" for case in cases),
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"} | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def pair(verbs: Path) -> Pair:
    return functools.partial(run_cases, {"LD_LIBRARY_PATH": str(verbs)})


@pytest.fixture
def gpu_pair(verbs: Path, stand_ins: Path) -> Pair:
    gpus = environment(stand_ins, *(f"0000:{place:02x}:00.0" for place in range(1, 9)))
    return functools.partial(run_cases, gpus | {"LD_LIBRARY_PATH": f"{verbs}:{gpus['LD_LIBRARY_PATH']}"})


def test_every_mode_is_measured_and_every_byte_is_checked(pair: Pair) -> None:
    modes = list(
        itertools.product(
            ("rdma_write", "rdma_read", "rdma_send"), ("one", "both"), ("1", "3"), ("fake0:1", "fake0:1+fake0:2")
        )
    )
    cases = [
        {
            "benchmark": name,
            "options": {
                "sizes": "1,100,64K",
                "directions": way,
                "queue-pairs": pairs,
                "nics": nics,
                "iterations": "70",
            },
        }
        for name, way, pairs, nics in modes
    ]
    for (name, way, pairs, nics), done in zip(modes, pair(cases), strict=True):
        assert (done["errors"], done["hung"], done["regions"]) == (["", ""], False, 0), (name, way, pairs, nics, done)
        rates = [one for one in done["results"] if one["quantity"] == "bandwidth_bytes_per_s"]
        assert [one["parameters"]["size_bytes"] for one in rates] == [1, 100, 65536]
        has_latency = (way, pairs, nics) == ("one", "1", "fake0:1")
        assert len(done["results"]) == len(rates) * (2 if has_latency else 1)
        lanes = int(pairs) * (nics.count("+") + 1)
        for one in done["results"]:
            size, is_rate = one["parameters"]["size_bytes"], one["quantity"] == "bandwidth_bytes_per_s"
            runs = 4 if is_rate else 3  # the first and the last, and two samples, or one
            places = max(1, 4096 // (-(-size // 64) * 64)) * lanes if is_rate else 1
            assert (one["outcome"], one["checked"], one["wrong"]) == ("measured", 2 * runs * places * size, 0), one
            assert one["evidence"]["transport"] == "rdma"
            assert one["settings"]["gid"] == "3 (RoCE v2, IPv4)"
        assert rates[0]["samples"] == 2


def test_settings_reach_the_queue_pairs_and_odd_fabrics_are_told(pair: Pair) -> None:
    both_ipv6 = {"STANDIN_VERBS_GIDS": "0:1/fe80::1 1:2/fe80::1 4:2/fd00::7"}
    cases = [
        ({"options": {"gid-index": "1", "mtu": "1024", "traffic-class": "104", "inline": "0"}}, ""),
        ({"set": both_ipv6}, ""),
        ({"set": {"STANDIN_VERBS_LINK": "InfiniBand"}}, ""),
        ({"set": {"STANDIN_VERBS_DOWN": "fake0:1"}}, "RDMA port fake0:1 is not active"),
        ({"set": {"STANDIN_VERBS_DOWN": "fake0:1"}, "options": {"nics": "fake0:2"}}, ""),
        ({"set": {"STANDIN_VERBS_GIDS": "0:2/::"}}, "the two ports have no GIDs of one kind: none and none"),
        ({"options": {"gid-index": "9"}}, "the two ports have no GIDs of one kind at index 9"),
        ({"options": {"nics": "other:1"}}, "no RDMA device is named 'other'; there is fake0"),
        ({"set": {"STANDIN_VERBS_DEVICES": ""}}, "libibverbs shows no RDMA device to this process"),
    ]
    told = [("1 (RoCE v2, link-local)", 1024), ("4 (RoCE v2, IPv6)", 4096), ("none (LID 1)", 4096)]
    for number, (done, (_, reason)) in enumerate(
        zip(pair({"benchmark": "rdma_write", **case} for case, _ in cases), cases, strict=True)
    ):
        assert done["errors"] == ["", ""], done
        first = done["results"][0]
        assert (first["outcome"], first["reason"][: len(reason)]) == ("waived" if reason else "measured", reason)
        if number < len(told):
            assert (first["settings"]["gid"], first["settings"]["mtu_bytes"]) == told[number]
    assert pair([{"benchmark": "rdma_write", **cases[0][0]}])[0]["results"][0]["settings"]["inline"] is False


def test_gpu_memory_is_registered_by_dma_buf_and_by_peer_memory(gpu_pair: Pair) -> None:
    peermem, no_export, no_dmabuf = (
        {"STANDIN_VERBS_PEERMEM": "1"}, {"STANDIN_CUDA_NO_DMABUF": "1"}, {"STANDIN_VERBS_NO_DMABUF": "1"}
    )  # fmt: skip
    told = [
        ("rdma_write", "dmabuf", {}, "", "dma-buf"),
        ("rdma_read", "dmabuf", {}, "", "dma-buf"),
        ("rdma_send", "dmabuf", peermem, "", "dma-buf and peermem"),
        ("rdma_write", "peermem", peermem, "", "dma-buf and peermem"),
        ("rdma_send", "peermem", peermem | no_export, "", "peermem"),
        ("rdma_write", "peermem", {}, "ibv_reg_mr: Bad address", "dma-buf"),
        ("rdma_write", "dmabuf", peermem | no_dmabuf, "ibv_reg_dmabuf_mr: Operation not supported", "peermem"),
        ("rdma_write", "dmabuf", no_export, "DMA buffer of ", "none"),
    ]
    options = {"memory": "gpu", "sizes": "1,64K", "queue-pairs": "2", "directions": "both", "iterations": "40"}
    cases = [
        {"benchmark": name, "set": given, "options": options | {"registration": way}} for name, way, given, *_ in told
    ]
    for (name, way, _, reason, ways), done in zip(told, gpu_pair(cases), strict=True):
        assert (done["errors"], done["hung"], done["regions"]) == (["", ""], False, 0), (name, way, done)
        assert {one["evidence"]["gpu_registration"] for one in done["results"]} == {ways}
        assert {one["outcome"] for one in done["results"]} == {"waived" if reason else "measured"}
        for one in done["results"]:
            assert reason in one["reason"], one
            assert one["parameters"]["registration"] == way
            assert reason or (one["checked"] > 0, one["wrong"], one["settings"]["inline"]) == (True, 0, False)
    alone = options | {"registration": "dmabuf", "queue-pairs": "1", "directions": "one"}
    write, read = gpu_pair({"benchmark": name, "options": alone} for name in ("rdma_write", "rdma_read"))
    assert {one["quantity"] for one in write["results"]} == {"bandwidth_bytes_per_s"}, "no CPU waits for a byte there"
    assert {one["quantity"] for one in read["results"]} == {"bandwidth_bytes_per_s", "latency_s"}


def test_wrong_bytes_in_gpu_memory_are_counted_and_its_regions_released(gpu_pair: Pair) -> None:
    options = {"memory": "gpu", "registration": "dmabuf", "sizes": "64K", "iterations": "40"}
    faults = ("corrupt:1", "short:1", "reg_dmabuf_mr:4:12", "post_send:9:5", "wc:2:10")
    for fault, done in zip(
        faults, gpu_pair({"benchmark": "rdma_write", "fault": one, "options": options} for one in faults), strict=True
    ):
        assert (done["hung"], done["regions"], done["fired"]) == (False, 0, True), (fault, done)
        unmeasured = any(one["outcome"] != "measured" for one in done["results"])
        assert unmeasured or any(done["errors"]) or any(one["wrong"] for one in done["results"]), (fault, done)


def _draw_fault(chance: random.Random) -> dict[str, Any]:
    kind = chance.choice((*CALLS, *DATA, "wc", "wc", "lost", "twice", "vanish"))
    often = kind in ("post_send", "post_recv", "poll_cq", "wc", "lost", "twice", "vanish", *DATA)
    at = chance.randint(1, 400 if often else 4)
    value = (
        chance.randint(1, 22) if kind == "wc" else chance.choice((errno.ENOMEM, errno.EIO, errno.EAGAIN, errno.EPERM))
    )
    return {
        "benchmark": chance.choice(("rdma_write", "rdma_read", "rdma_send")),
        "fault": f"{kind}:{at}:{value}",
        "options": {
            "sizes": chance.choice(("1", "64", "8K", "64K")),
            "directions": chance.choice(("one", "both")),
            "queue-pairs": chance.choice(("1", "2")),
            "iterations": "200",
        },
    }


def test_no_fault_hangs_passes_for_a_result_or_leaves_a_region(pair: Pair) -> None:
    chance = random.Random(55)
    cases = [_draw_fault(chance) for _ in range(FAULTS)]
    shown = 0
    for case, done in zip(cases, pair(cases), strict=True):
        kind = case["fault"].partition(":")[0]
        assert not done["hung"], (case, done)
        assert done["regions"] == 0, (case, done)
        ended = [error for error in done["errors"] if error]
        unmeasured = [one["reason"] for one in done["results"] if one["outcome"] != "measured"]
        wrong = any(one["wrong"] for one in done["results"])
        shown += done["fired"]
        if done["fired"] and kind not in HARMLESS:
            assert ended or unmeasured or wrong, (case, done)
        if not done["fired"]:
            assert (ended, unmeasured, wrong) == ([], [], False), (case, done)
        assert all(one["checked"] > 0 for one in done["results"] if one["outcome"] == "measured"), (case, done)
    assert shown > FAULTS / 3


PHASES = (
    "open_device",
    "alloc_pd",
    "reg_mr",
    "create_cq",
    "create_qp",
    "modify_qp",
    "post_send",
    "poll_cq",
    "dereg_mr",
)
DEATHS = list(itertools.product((0, 1), PHASES)) if FAULTS == 1000 else [(1, "reg_mr"), (0, "modify_qp")]


@pytest.mark.parametrize(("victim", "call"), DEATHS)
def test_a_peer_that_dies_in_any_phase_is_named_within_ten_seconds(
    railwright: Any, verbs: Path, tmp_path: Path, victim: int, call: str
) -> None:
    environment = {
        "LD_LIBRARY_PATH": str(verbs), "STANDIN_VERBS": str(tmp_path / "verbs"),
        "STANDIN_VERBS_KILL": f"{victim}:{call}",
    }  # fmt: skip
    options = ("-o", "nics=fake0:1", "-o", "sizes=8:8M:x2", "-o", "directions=both")
    railwright("run", "rdma_write", *options, "--force", environment=environment)
    railwright.expect_nothing_left()
    ended = datetime.fromisoformat(railwright.ends()[1].finished_at)
    assert ended.timestamp() - (tmp_path / "verbs.killed").stat().st_mtime < 10
    last = railwright.results()[-1]
    assert last.outcome == "failed"
    assert last.reason.startswith(f"rank {victim} ") or f"rank {victim} does not answer" in last.reason


@pytest.mark.parametrize("victim", [0, 1])
def test_a_peer_that_dies_in_a_stream_is_named_within_ten_seconds(
    railwright: Any, verbs: Path, tmp_path: Path, victim: int
) -> None:
    environment = {"LD_LIBRARY_PATH": str(verbs), "STANDIN_VERBS": str(tmp_path / "verbs")}
    options = ("-o", "nics=fake0:1", "-o", "sizes=8:8M:x2", "-o", "directions=both")
    process = railwright.start("run", "rdma_write", *options, "--force", environment=environment)
    wait_until(railwright.results, "a result")
    killed = time.time()
    os.kill(railwright.rank(victim).pid, signal.SIGKILL)
    railwright.finish(process)
    railwright.expect_nothing_left()
    ended = datetime.fromisoformat(railwright.ends()[1].finished_at)
    assert ended.timestamp() - killed < 10
    last = railwright.results()[-1]
    assert last.outcome == "failed"
    assert last.reason.startswith(f"rank {victim} ") or f"rank {victim} does not answer" in last.reason
