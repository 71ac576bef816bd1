"""The combination of the uncertainties of latency and bandwidth in one band."""

from __future__ import annotations

import pytest

from railwright.limits import latency
from railwright.limits.case import Case
from railwright.limits.choice import choose_at_size
from railwright.limits.collectives import compute_algorithms
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand
from railwright.topology.sources.load import load

SLOW, FAST = 80e9, 100e9


def band(machine, size, slow=SLOW, fast=FAST):
    return latency.band_s(build_cluster(load(machine), 16), "all_gather", "ring", size, slow, fast, "Simple")


def test_one_byte_is_as_uncertain_as_the_latency_and_a_tebibyte_as_the_bandwidth():
    shortest, longest = band("hgx-h100", 1)
    assert longest / shortest == pytest.approx(1.35 * 2.1, rel=1e-3)
    shortest, longest = band("hgx-h100", 2**40)
    assert longest / shortest == pytest.approx(FAST / SLOW, rel=1e-2)


def test_where_both_count_the_band_is_narrower_than_their_sum_and_wider_than_either():
    size = 2**26
    (soon, late), (least, most) = band("hgx-h100", 1), (size / FAST, size / SLOW)
    ramp = 1 - 0.036 * 7
    shortest, longest = band("hgx-h100", size)
    assert soon + least < shortest
    assert longest < late + most / ramp
    assert longest - shortest > max(late - soon, most / ramp - least)


def test_on_efa_both_ends_are_taken_at_once():
    size = 2**26
    (soon, late), (least, most) = (band("aws-p5", 1), (size / FAST, size / SLOW))
    shortest, longest = band("aws-p5", size)
    assert shortest == pytest.approx(soon + least, rel=0.02)
    assert longest == pytest.approx(late + most / (1 - 0.036 * 7), rel=0.02)


@pytest.mark.parametrize(("size", "counted"), [(2**30, False), (None, False), (2**14, True)])
def test_inside_one_host_a_tree_is_a_choice_for_small_sizes_alone(size, counted):
    cluster = build_cluster(load("h100-pcie"), 1)
    found = compute_algorithms(Case(cluster=cluster), "all_reduce", explained=False)
    rings = tuple(algorithm for algorithm in found if algorithm.name == "ring")
    assert {algorithm.name for algorithm in found} == {"ring", "tree"}
    _, both, _ = choose_at_size(cluster, "all_reduce", found, size)
    _, ring, _ = choose_at_size(cluster, "all_reduce", rings, size)
    same = (both.expected_low, both.expected_high) == (ring.expected_low, ring.expected_high)
    assert same is not counted


@pytest.mark.parametrize("megabytes", [16, 32, 128])
def test_a_broadcast_by_simple_waits_until_the_last_rank_has_a_chunk(megabytes):
    """V100 over EDR: 22.5 GB/s / (1 + (ranks - 1) x 1 MiB / size), two channels of 512 KiB."""
    cluster = build_cluster(expand("dgx-1-v100", {"nics": "2", "gpus": "4"}), 4)
    size = megabytes * 2**20
    found = [latency.time_s(cluster, name, "ring", size, 22.5e9, "Simple") for name in ("broadcast", "all_gather")]
    assert found[0] - found[1] == pytest.approx(15 * 2**20 / 22.5e9, rel=0.01)
    shortest, longest = latency.band_s(cluster, "broadcast", "ring", size, 20e9, 24e9, "Simple")
    assert shortest < size / 22.5e9 + 15 * 2**20 / 22.5e9 < longest


def test_a_small_broadcast_passes_no_more_than_its_own_bytes_and_ll128_no_chunk():
    cluster = build_cluster(expand("dgx-1-v100", {"nics": "2", "gpus": "4"}), 4)

    def filling(size, protocol):
        times = [latency.time_s(cluster, name, "ring", size, 22.5e9, protocol) for name in ("reduce", "reduce_scatter")]
        return times[0] - times[1]

    assert filling(2**16, "Simple") == pytest.approx(15 * 2**16 / 22.5e9, rel=0.01)
    assert filling(2**22, "LL128") == 0
    one = build_cluster(expand("dgx-1-v100", {}), 1)
    rates = {latency.time_s(one, name, "ring", 2**24, 1e11, "Simple") for name in ("reduce", "reduce_scatter")}
    assert len(rates) == 1
