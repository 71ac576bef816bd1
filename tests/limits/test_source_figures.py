"""The figures of the reports that this project began with, each answered by the model. docs/known-figures.md has the
commands."""

from __future__ import annotations

import pytest

from railwright.diagnosis.verdicts.verdict import judge
from railwright.expected.collective_rows import collective_row
from railwright.expected.linpack import expect_hpl
from railwright.expected.machine import Machine
from railwright.expected.path_rows import list_host_rows, list_network_rows
from railwright.limits.limit import Expected, Limit
from railwright.limits.storage import file_limit
from railwright.topology.cluster import Storage, build_cluster
from railwright.topology.sources.load import load

GBIT = 1e9 / 8
ROCE = "nic-protocol=ethernet"


def collective(shape, hosts, name, algorithm="auto"):
    return collective_row(build_cluster(load(shape), hosts), name, algorithm)


def verdict(value, limit, expected) -> str:
    return judge("measured", "", value, limit, expected, None, must_check=False).state


@pytest.mark.parametrize(("protocol", "gbit"), [("", 795.0), (ROCE, 784.3)])
def test_a_ring_over_2x400g_reaches_800_gbit(protocol, gbit):
    found = collective(f"hgx-h100 nics=2 {protocol}", 2, "all_gather", "ring")
    assert found.busbw_bytes_per_s.limit / GBIT == pytest.approx(gbit, rel=1e-3)
    assert 800 / gbit < 1.021  # the reported value, rounded, is at the limit


def test_all_reduce_over_2x400g_could_use_a_tree_on_two_hosts():
    found = collective("hgx-h100 nics=2", 2, "all_reduce")
    assert found.busbw_bytes_per_s.limit / GBIT == pytest.approx(1500 * 4096 / 4122, rel=1e-3)
    assert collective("hgx-h100 nics=2", 2, "all_reduce", "ring").busbw_bytes_per_s.limit / GBIT < 800


def test_all_to_all_with_2_nics_is_limited_by_them_and_by_the_cpu_on_the_receiving_side():
    found = collective(f"hgx-h100 nics=2 {ROCE}", 2, "all_to_all")
    assert found.busbw_bytes_per_s.limit / GBIT == pytest.approx(187.5 * 4096 / 4178, rel=1e-3)
    assert found.algbw_bytes_per_s.limit / GBIT == pytest.approx(200 * 4096 / 4178, rel=1e-3)
    text = " ".join(found.software_limits)
    assert "PXN helps the sender only" in text
    assert "gpu1, gpu2, gpu3, gpu5, gpu6, gpu7" in text


@pytest.mark.parametrize("layout", ["", "gpus-per-switch=2"])
def test_400_gbit_busbw_of_all_to_all_with_4_nics_is_above_the_limit_and_400_is_what_algbw_can_reach(layout):
    found = collective(f"hgx-h100 nics=4 {layout} {ROCE}", 2, "all_to_all")
    busbw, algbw = found.busbw_bytes_per_s.limit / GBIT, found.algbw_bytes_per_s.limit / GBIT
    assert busbw == pytest.approx(367.6, rel=1e-3)
    assert algbw == pytest.approx(392.1, rel=1e-3)
    assert busbw * 1.02 < 400
    assert algbw * 1.02 * 1.001 >= 400
    assert found.busbw_bytes_per_s.expected_high / GBIT < 375


def test_the_firmware_that_gives_every_gpu_a_nic_keeps_receivers_off_the_cpu():
    normal = collective(f"hgx-h100 nics=4 {ROCE}", 2, "all_to_all")
    changed = collective(f"hgx-h100 nics=4 gpus-per-switch=2 {ROCE}", 2, "all_to_all")
    assert "through the CPU" in " ".join(normal.software_limits)
    assert "through the CPU" not in " ".join(changed.software_limits)
    assert changed.algbw_bytes_per_s.expected_low > normal.algbw_bytes_per_s.expected_low * 1.1


def test_the_five_paths_of_a_kv_cache():
    cluster = build_cluster(load("hgx-h100"), 2)
    machine = Machine(cluster=cluster)
    peer, down = list_host_rows(machine, ("gpu0>gpu1", "gpu0>memory0"))
    assert peer.limit.value == 450e9
    assert verdict(400e9, peer.limit, peer.expected) == "ok"
    assert down.limit.value == pytest.approx(57.5e9, rel=5e-3)
    assert down.expected.low == pytest.approx(52.0e9, rel=5e-3)
    assert 50e9 / down.expected.low == pytest.approx(
        0.96, abs=0.01
    )  # "about 50": 4 % below the band for MaxPayload 256
    remote, memory, both = (
        list_network_rows(machine, path)[0] for path in ("gpu0:gpu0@1", "gpu0:memory0@1", "memory0:memory0@1")
    )
    for row in (remote, memory, both):
        assert row.limit.value == pytest.approx(49.7e9, rel=2e-3)
    assert verdict(49e9, remote.limit, remote.expected) == "ok"


def test_efa_and_infiniband_each_against_its_own_limit():
    """PFN measured EFA 6 times slower. Ports explain a factor of 4 only if the InfiniBand hosts had four, which is
    not stated.
    """
    efa = collective("aws-p3dn", 2, "all_reduce", "ring").busbw_bytes_per_s.limit
    infiniband = collective("hgx-a100 nics=4 nic-rate=100Gb/s", 2, "all_reduce", "ring").busbw_bytes_per_s.limit
    assert efa == pytest.approx(12.4e9, rel=5e-3)
    assert infiniband == pytest.approx(49.7e9, rel=2e-3)
    assert infiniband / efa == pytest.approx(4.0, rel=5e-3)
    assert 7.5e9 / efa == pytest.approx(0.60, abs=0.01)  # p3dn rings of 60 Gb/s (nccl-tests issue 22)


def test_nccl_at_40_was_slow_and_at_90_is_normal_over_4x200g():
    found = collective("hgx-a100 nics=4", 16, "all_reduce", "ring")
    rate = found.busbw_bytes_per_s
    limit = Limit(quantity="bandwidth_bytes_per_s", value=rate.limit, kind="derived", because="")
    band = Expected(
        quantity="bandwidth_bytes_per_s", low=rate.expected_low, high=rate.expected_high, because="", sources=()
    )
    assert rate.limit == pytest.approx(99.4e9, rel=1e-3)
    assert verdict(40e9, limit, band) == "slow"
    assert verdict(90e9, limit, band) == "ok"


def test_oracle_storage_50_on_three_hosts_is_below_the_drives_links_and_81_gib_is_above_them():
    drives = file_limit(build_cluster(load("oci-bm-gpu4-8"), 3), clients=3)
    assert "12 drives" in drives.because
    assert 50e9 < drives.value < 81.53 * 2**30  # 87.5 GB/s is more than 12 drives' links carry: units before causes
    servers = (3, load("oci-bm-gpu4-8"))
    single = file_limit(build_cluster(load("oci-bm-gpu4-8"), 1, storage=servers), clients=1)
    assert single.value > 2 * 37.5e9  # neither drives nor NICs of one host explain 37.5: open
    assert Storage(servers=3, host="oci-bm-gpu4-8").servers == 3


@pytest.mark.parametrize(
    ("shape", "gpus", "order", "tera", "state"),
    [
        ("dgx-a100", 1560, 3_926_016, 13.80, "ok"),
        ("dgx-a100", 1088, 3_321_216, 14.72, "ok"),
        ("aws-p4d", 1072, 2_340_000, 8.82, "slow"),  # 134 hosts of 40 GB GPUs, before and after their work
        ("aws-p4d", 1072, 2_340_000, 11.95, "ok"),
    ],
)
def test_linpack_of_the_yandex_clusters_against_their_peers(shape, gpus, order, tera, state):
    limit, band = expect_hpl(load(shape), gpus, order)
    assert verdict(tera * 1e12 * gpus, limit, band) == state


def test_linpack_with_little_memory_has_no_peers():
    limit, band = expect_hpl(load("dgx-a100"), 8, 92_160)
    assert limit.value == pytest.approx(8 * 19.5e12)
    assert band is None
    assert limit.because.endswith("the matrix fills 10 % of the GPUs' memory, comparable runs 70 % and more")


def test_the_band_of_linpack_names_the_peers_and_their_rate_a_gpu():
    limit, band = expect_hpl(load("dgx-a100"), 8, 280_000)
    assert band.because == (
        "10.0 TFLOP/s to 17.2 TFLOP/s a GPU, the range of 9 of 10 systems of the TOP500 with A100 80 GB"
    )
    assert limit.because == "8 x NVIDIA A100 SXM4 80GB, FP64 matrix rate"


def test_linpack_on_a_gpu_without_known_peers_says_so():
    limit, band = expect_hpl(load("dgx-b200"), 8, 10**6)
    assert band is None
    assert limit.because.endswith("only an upper limit, no TOP500 systems with this GPU are recorded")
