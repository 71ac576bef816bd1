"""NCCL's channels for sends between GPUs of one host, against recorded runs of nccl-tests on 2, 4 and 8 H200."""

import re
from pathlib import Path

import pytest
from tests.expected.finders import Finder
from tests.topology.machines import archive

from railwright.diagnosis.verdicts.verdict import judge
from railwright.expected.collective_rows import collective_row
from railwright.limits.nccl_channels import band_bytes_per_s, channels
from railwright.results.records import Verification
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load
from railwright.units import MIB

TABLES = Path(__file__).parents[2] / "testdata/external/nccl_tests"
LINKS = 18
LINK_BOUND = 200e9  # more than half of the 371 GB/s that NCCL plans for 18 links: they begin to count
RANKS = (2, 4, 8)


def measured(ranks: int) -> dict[int, float]:
    """bytes/s by size of a recorded table, from 1 MiB up: below, two decimals are too few."""
    text = (TABLES / f"2.19.6-sendrecv-{ranks}xh200.txt").read_text(encoding="utf-8")
    rows = re.findall(r"^ +(\d+) +\d+ +float +\S+ +-1 +[\d.]+ +([\d.]+)", text, re.MULTILINE)
    return {int(size): float(rate) * 1e9 for size, rate in rows if int(size) >= MIB}


@pytest.mark.parametrize(
    ("ranks", "mebibytes", "expected"),
    [(8, 64, 4), (8, 128, 8), (8, 256, 16), (8, 512, 32), (8, 8192, 32), (4, 128, 8), (4, 256, 16), (2, 256, 16),
     (2, 512, 32), (16, 64, 4), (64, 64, 4)],
)  # fmt: skip
def test_a_part_of_more_than_16_mib_doubles_the_channels(ranks, mebibytes, expected):
    assert channels(ranks, LINKS, mebibytes * MIB) == expected


def test_small_messages_and_few_links_have_few_channels():
    assert [channels(2, LINKS, size) for size in (8, 64 * 1024, 65 * 1024, 192 * 1024, MIB)] == [1, 1, 2, 3, 16]
    assert [channels(2, links, 2**33) for links in (1, 4, 6, 12, 18)] == [2, 8, 16, 32, 32]


@pytest.mark.parametrize("ranks", [4, 8])
def test_every_channel_carries_the_same_until_the_link_is_full(ranks):
    compared = 0
    for size, rate in measured(ranks).items():
        each = rate / channels(ranks, LINKS, size)
        assert each < 20.6e9, size  # no channel carries more than NCCL plans for a link
        if size >= 32 * MIB and rate < LINK_BOUND:
            assert each == pytest.approx(19.7e9, rel=0.05), size
            compared += 1
    assert compared == 3


@pytest.mark.parametrize("ranks", RANKS)
def test_a_recorded_run_is_not_slow_on_the_captured_machine_and_half_of_it_is(ranks):
    finder = Finder(load(str(archive(f"{ranks}xh200-probed-vm"))), ())
    checked = Verification(method="m", bytes_checked=1, bytes_wrong=0)
    for size, rate in measured(ranks).items():
        parameters = {"size_bytes": size, "rate": "busbw", "placement": "out of place", "launched": "plain"}
        limit, band = finder.find("nccl_send_recv", "bandwidth_bytes_per_s", f"gpu0>gpu{ranks - 1}", parameters)
        states = [judge("measured", "", value, limit, band, checked).state for value in (rate, rate / 2)]
        assert states[0] == "ok", (size, states)
        assert states[1] == "slow" or size < 32 * MIB, (size, states)


def test_limits_says_the_same_of_the_captured_machine():
    cluster = build_cluster(load(str(archive("8xh200-probed-vm"))), 1)
    narrow, wide = (
        collective_row(cluster, "send_recv", size_bytes=size).busbw_bytes_per_s for size in (64 * MIB, 2**33)
    )
    assert narrow.limit == wide.limit == pytest.approx(450e9)
    assert narrow.expected_low < measured(8)[64 * MIB] < 100e9 < wide.expected_low
    reduced = collective_row(cluster, "all_to_all", size_bytes=64 * MIB).busbw_bytes_per_s
    assert reduced.expected_low > 100e9, "all peers at once use all channels"


def test_channels_do_not_bound_messages_over_hosts_or_without_nvlink():
    assert band_bytes_per_s(build_cluster(load("hgx-h200"), 2), 64 * MIB) == (float("inf"), float("inf"))
    assert band_bytes_per_s(build_cluster(load("pcie-8gpu"), 1), 64 * MIB) == (float("inf"), float("inf"))
    low, high = band_bytes_per_s(build_cluster(load("hgx-h200"), 1), 64 * MIB)
    assert low == 4 * 19.0e9 < 79.7e9 < 81.7e9 < high
