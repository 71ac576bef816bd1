"""The algorithms that NCCL may take at a size, the band of each, and a forced protocol."""

from __future__ import annotations

import json
from functools import cache

import pytest

from railwright.diagnosis.verdicts.verdict import judge
from railwright.errors import UsageError
from railwright.expected.collective_rows import collective_row
from railwright.limits import latency, tuning
from railwright.limits.case import Case
from railwright.limits.choice import build_band, choose_at_size
from railwright.limits.collectives import build_limit, compute_algorithms
from railwright.topology.cluster import build_cluster
from railwright.topology.shapes import SHAPES
from railwright.topology.sources.load import load
from railwright.units import GIB, KIB, MIB

SIZES = tuple(4**power * KIB for power in range(1, 12))


@cache
def compute_on_cluster(machine, hosts, collective="all_reduce", algorithm="auto"):
    cluster = build_cluster(load(machine), hosts)
    return cluster, compute_algorithms(Case(cluster=cluster, algorithm=algorithm), collective, explained=False)


def rate_of(machine, hosts, size, collective="all_reduce", algorithm="auto"):
    cluster, found = compute_on_cluster(machine, hosts, collective, algorithm)
    return choose_at_size(cluster, collective, found, size)[1]


@cache
def near_a_switch():
    """Return (machine, hosts, size, rate) where two algorithms have their own bands."""
    places = ((machine, hosts, size) for machine in ("hgx-h100", "hgx-a100", "aws-p5", "dgx-1-v100")
              for hosts in (1, 2, 4) for size in SIZES)  # fmt: skip
    found = [(*place, rate_of(*place)) for place in places]
    return [case for case in found if case[-1].ways]


def test_near_a_switch_each_algorithm_has_its_band_and_together_they_are_the_whole():
    found = near_a_switch()
    assert len({machine for machine, *_ in found}) >= 3
    for machine, hosts, size, rate in found:
        names = [way.algorithm for way in rate.ways]
        assert len(set(names)) == len(names) >= 2
        assert min(way.low for way in rate.ways) == rate.expected_low
        assert max(way.high for way in rate.ways) == rate.expected_high <= rate.limit
        for way in rate.ways:
            lone = rate_of(machine, hosts, size, algorithm=way.algorithm)
            assert way.low == pytest.approx(lone.expected_low)
            assert way.high == pytest.approx(min(lone.expected_high, rate.limit))


def test_far_from_a_switch_there_is_one_band():
    assert rate_of("hgx-h100", 4, 8 * GIB, "all_gather").ways == ()


def test_times_are_those_of_the_rates():
    for _, _, size, rate in near_a_switch():
        times = rate.to_time(size)
        assert [way.algorithm for way in times.ways] == [way.algorithm for way in rate.ways]
        assert [(size / way.high, size / way.low) for way in times.ways] == [(way.low, way.high) for way in rate.ways]


def verdict_at(share):
    """Return the verdict on a value at that share of the gap between two bands."""
    cluster = build_cluster(load("aws-p5"), 4)
    found = compute_algorithms(Case(cluster=cluster), "all_reduce")
    likely, rate, _ = choose_at_size(cluster, "all_reduce", found, 256 * MIB)
    band = build_band(rate, likely)
    low, high = sorted(band.ways, key=lambda way: way.low)[0], sorted(band.ways, key=lambda way: way.high)[-1]
    value = low.low + share * (high.high - low.low)
    return judge("measured", "", value, build_limit(found, rate.limit), band, None, must_check=False), value, band


def test_a_verdict_names_the_algorithm_of_the_band():
    for share in (0.01, 0.3, 0.6, 0.99):
        verdict, value, band = verdict_at(share)
        assert verdict.state == "ok"
        for way in band.ways:
            assert way.algorithm in verdict.why
            inside, _, others = verdict.why.partition("NCCL may also take")
            if way.low <= value <= way.high:
                assert f"{way.algorithm} (" in inside
            elif others:
                assert f"{way.algorithm} (" in others
    assert verdict_at(-0.05)[0].state == "slow"


def test_a_value_between_two_bands_is_ok_and_reported_as_between():
    cluster = build_cluster(load("aws-p5"), 4)
    found = compute_algorithms(Case(cluster=cluster), "all_reduce")
    likely, rate, _ = choose_at_size(cluster, "all_reduce", found, 256 * MIB)
    band = build_band(rate, likely)
    apart = [
        type(way)(algorithm=way.algorithm, low=low, high=high)
        for way, (low, high) in zip(band.ways[:2], ((1e9, 2e9), (3e9, 4e9)), strict=True)
    ]
    gap = type(band)(quantity=band.quantity, low=1e9, high=4e9, ways=tuple(apart), because="", sources=())
    limit = build_limit(found, 9e9)
    for value, state, word in ((2.5e9, "ok", "between"), (1.5e9, "ok", apart[0].algorithm), (0.9e9, "slow", "below")):
        verdict = judge("measured", "", value, limit, gap, None, must_check=False)
        assert (verdict.state, word in verdict.why) == (state, True), verdict


def test_limits_prints_the_band_of_each(answer):
    machine, hosts, size, rate = near_a_switch()[0]
    words = ["limits", "--host", machine, "--count", str(hosts), "-c", "all_reduce", "--size", str(size)]
    text, record = answer(*words).out, json.loads(answer(*words, "--json").out)
    for way, printed in zip(rate.ways, record["busbw_bytes_per_s"]["ways"], strict=True):
        assert f"as {way.algorithm} " in text
        assert printed["algorithm"] == way.algorithm


@pytest.mark.parametrize("protocol", ["LL", "LL128", "Simple"])
def test_a_protocol_is_a_change_and_no_faster_than_the_free_choice(protocol):
    for machine, hosts in (("hgx-h100", 1), ("hgx-h100", 4), ("h100-pcie", 2), ("gb200-nvl72", 36)):
        held = collective_row(build_cluster(load(f"{machine} protocol={protocol}"), hosts), "all_reduce")
        free = collective_row(build_cluster(load(machine), hosts), "all_reduce")
        assert held.busbw_bytes_per_s.limit <= free.busbw_bytes_per_s.limit
        assert held.busbw_bytes_per_s.middle <= 1.001 * free.busbw_bytes_per_s.middle
        names = {algorithm.name for algorithm in held.algorithms}
        assert (protocol == "Simple") or not names & {"nvls", "nvlstree"}


def test_half_of_lls_bytes_and_a_sixteenth_of_ll128s_are_flags():
    ring = {
        protocol: collective_row(build_cluster(load(f"hgx-h100{protocol}"), 2), "all_gather").busbw_bytes_per_s.limit
        for protocol in ("", " protocol=LL", " protocol=ll128")
    }
    assert ring[" protocol=LL"] == pytest.approx(ring[""] / 2)
    assert ring[" protocol=ll128"] == pytest.approx(ring[""] * 15 / 16)


def test_send_and_receive_do_not_heed_the_protocol():
    for collective in ("all_to_all", "send_recv"):
        held, free = (rate_of(f"hgx-h100{words}", 2, MIB, collective) for words in (" protocol=LL", ""))
        assert held == free


def test_an_unknown_protocol_is_refused():
    with pytest.raises(UsageError, match="got LL64"):
        load("hgx-h100 protocol=LL64")


def test_every_shape_takes_every_protocol():
    for name in SHAPES:
        if load(name).of_kind("gpu"):
            assert load(f"{name} protocol=Simple").device("host0").facts["nccl_protocol"] == "Simple"


def test_over_racks_a_tree_is_held_back_by_the_channels_that_a_gpu_s_nvlinks_carry():
    """16 channels of 45 GB/s fit into 721.8 GB/s; NCCL's caps are 42.8 GB/s each for two racks and 24 for more."""
    for hosts, cap in ((36, 16 * 42.8), (360, 16 * 24.0)):
        rate = collective_row(build_cluster(load("gb200-nvl72"), hosts), "all_reduce").busbw_bytes_per_s
        tree = next(way for way in rate.ways if way.algorithm == "tree")
        assert tree.low == pytest.approx(0.9 * cap * 1e9, rel=1e-3)
        assert tree.high <= 1.1 * cap * 1.001e9
        assert tree.high < next(way for way in rate.ways if way.algorithm == "nvlstree").low


def test_the_ring_is_a_candidate_on_two_hosts_and_on_three_only_if_nearly_as_fast():
    for machine in ("hgx-a100", "hgx-h100 gpus=4 nics=4 nic-rate=200G"):
        two, three = (rate_of(machine, hosts, 8 * GIB) for hosts in (2, 3))
        assert "ring" in {way.algorithm for way in two.ways}
        assert two.expected_low < 0.7 * two.expected_high
        assert three.expected_low > 0.7 * three.expected_high


def test_nvls_has_the_full_latency_of_nccl_and_a_ring_in_one_host_a_share():
    cluster = build_cluster(load("hgx-b200"), 1)
    nvls, ring = (latency.time_s(cluster, "all_reduce", name, 1, 4e11) for name in ("nvls", "ring"))
    assert nvls == pytest.approx((12 + 25) * 1e-6, rel=0.01)
    assert ring < nvls


def test_amd_s_gpus_have_rccl_s_protocols_and_latencies():
    amd, nvidia = (build_cluster(load(name), 2) for name in ("mi300x", "hgx-h100"))
    assert set(tuning.protocols(amd, "ring")) == {"LL", "Simple"}
    assert set(tuning.protocols(nvidia, "ring")) == {"LL", "LL128", "Simple"}
    # base, then both ways 7 steps in the host and one between: RCCL 2.21.5, src/graph/tuning.cc
    assert tuning.latency_us(amd, "all_reduce", "tree", "LL", 8, 0) == pytest.approx(12 + 2 * (7 * 0.9 + 10.5))


def test_tcp_past_the_kernel_takes_longer_than_rdma_and_may_be_ll():
    tcp, rdma = (rate_of(f"gcp-a3-mega{words}", 2, 16 * MIB) for words in ("", " nic-protocol=roce"))
    assert tcp.expected_low < 0.5 * rdma.expected_low
    assert tuning.network_us(build_cluster(load("gcp-a3-mega"), 2))[0] > 40
    assert tuning.network_us(build_cluster(load("gcp-a3-mega"), 1)) == (0, 0)


def test_no_slot_limits_a_gpu_in_its_cpus_package():
    """Two DGX Spark: 22.5 GB/s in the recorded table of healthy ones, 2.8 in that of faulty ones."""
    rate = rate_of("dgx-spark", 2, 4 * GIB, "all_gather").times(0.5)
    assert 2.83e9 < rate.expected_low < 22.46e9 < rate.expected_high <= rate.limit
