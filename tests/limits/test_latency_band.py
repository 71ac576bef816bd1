"""The combination of the uncertainties of latency and bandwidth in one band."""

from __future__ import annotations

import pytest

from railwright.limits import latency
from railwright.limits.case import Case
from railwright.limits.choice import choose_at_size
from railwright.limits.collectives import compute_algorithms
from railwright.topology.cluster import build_cluster
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
