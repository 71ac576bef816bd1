"""RDMA by verbs over a stand-in for libibverbs: modes, data checks, faults, and a peer that dies."""

from __future__ import annotations

import errno
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
from tests.stand_ins import build

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


@pytest.fixture
def pair(verbs: Path) -> Pair:
    """Runs cases in a child, and returns their answers."""

    def run(cases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.rdma_pair"],
            input="".join(f"{json.dumps(case)}\n" for case in cases),
            env=os.environ | {"LD_LIBRARY_PATH": str(verbs), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


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


@pytest.mark.parametrize("victim", [0, 1])
def test_a_peer_that_dies_is_named_within_ten_seconds(
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
