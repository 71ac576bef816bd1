"""Limits and bands of GPU paths on a captured machine with two H200 of known PCIe, NVLink and memory."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.expected.finders import Finder
from tests.topology.machines import archive

from railwright.diagnosis.verdicts.verdict import judge
from railwright.expected.bands import decides_nothing
from railwright.expected.links import expect_narrowest
from railwright.expected.machine import Machine
from railwright.expected.nccl_collectives import select_gpus
from railwright.limits.limit import NoLimit
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.results.workload import Collective
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand
from railwright.topology.sources.load import load
from railwright.units import KIB

CHECKED = Verification(method="m", bytes_checked=1, bytes_wrong=0)
HALF_GIB = 2**29
HOST = {"size_bytes": HALF_GIB, "engine": "ce", "host": "pinned", "direction": "one"}
PEER = {"size_bytes": HALF_GIB, "engine": "ce", "by": "read", "direction": "one"}
REDUCED = {"placement": "in place", "launched": "plain", "ranks_in": "processes"}


@pytest.fixture(scope="module")
def finder():
    return Finder(load(str(archive("2xh200-probed-vm"))), ())


def state(finder, benchmark, path, value, parameters, quantity="bandwidth_bytes_per_s"):
    limit, expected = finder.find(benchmark, quantity, path, parameters)
    return judge("measured", "", value, limit, expected, CHECKED).state


@pytest.mark.parametrize(
    ("path", "parameters", "gigabytes", "expected"),
    [
        ("memory0>gpu0", HOST, 55.4, "ok"),
        ("memory0>gpu0", HOST, 26.0, "slow"),
        ("memory0>gpu0", HOST, 60.0, "suspicious"),
        ("gpu1>memory0", HOST | {"engine": "sm"}, 51.1, "ok"),
        ("gpu1>memory0", HOST | {"direction": "both"}, 46.0, "ok"),
        ("gpu1>memory0", HOST | {"direction": "both"}, 30.0, "slow"),
        ("gpu1>memory0", HOST | {"direction": "both"}, 40.0, "unknown"),  # seen now and then, on healthy machines
        ("memory0>gpu0", HOST | {"engine": "sm", "direction": "both"}, 27.5, "ok"),
        ("memory0>gpu0", HOST | {"engine": "sm", "direction": "both"}, 22.0, "slow"),
        ("gpu0>gpu1", PEER | {"engine": "sm", "direction": "both", "by": "read"}, 338.0, "ok"),
        ("gpu0>gpu1", PEER | {"engine": "sm", "direction": "both", "by": "read"}, 300.0, "slow"),
        ("memory0>gpu0", HOST | {"host": "pageable"}, 21.6, "unknown"),
        ("memory0>gpu0", HOST | {"size_bytes": 2**16}, 12.0, "unknown"),
        ("gpu0>gpu1", PEER, 394.0, "ok"),
        ("gpu0>gpu1", PEER, 200.0, "slow"),
        ("gpu0>gpu1", PEER, 470.0, "suspicious"),
        ("gpu0>gpu0", {"size_bytes": HALF_GIB, "engine": "ce", "direction": "one"}, 2106.0, "ok"),
        ("gpu0>gpu0", {"size_bytes": HALF_GIB, "engine": "ce", "direction": "one"}, 1200.0, "slow"),
        ("gpu0>gpu0", {"size_bytes": HALF_GIB, "engine": "ce", "direction": "one"}, 2600.0, "suspicious"),
    ],
)
def test_copies_are_compared_with_pcie_nvlink_and_the_gpu_s_own_memory(finder, path, parameters, gigabytes, expected):
    assert state(finder, "gpu_copy", path, gigabytes * 1e9, parameters) == expected


@pytest.mark.parametrize(
    ("shape", "path", "gigabytes", "expected"),
    [
        ("dgx-1-v100", "gpu0>gpu3", 48.45, "ok"),  # NVIDIA's DGX-1, half of the sum of both directions
        ("dgx-1-v100", "gpu0>gpu3", 25.0, "slow"),
        ("rtx-pro-6000-8gpu", "gpu0>gpu1", 55.7, "ok"),
        ("rtx-pro-6000-8gpu", "gpu0>gpu1", 20.0, "slow"),
        ("rtx-pro-6000-8gpu", "gpu0>gpu7", 20.0, "unknown"),  # across sockets
    ],
)
def test_copies_of_a_pair_in_both_directions_at_once_have_a_band(shape, path, gigabytes, expected):
    parameters = PEER | {"direction": "both"}
    assert state(Finder(load(shape), ()), "gpu_copy", path, gigabytes * 1e9, parameters) == expected


@pytest.mark.parametrize(
    ("benchmark", "path", "gigabytes", "expected"),
    [
        ("gpu_file_read", "nvme0n1>gpu0", 1.0, "unknown"),
        ("gpu_file_write", "gpu0>nvme0n1", 0.2, "unknown"),
        ("kv_file", "nvme0n1>gpu0", 1.0, "unknown"),
        ("kv_file", "gpu0>nvme0n1", 0.2, "unknown"),
        ("kv_file", "memory0>nvme0n1", 0.2, "unknown"),
        ("gpu_file_read", "nvme0n1>gpu0", 20.0, "suspicious"),  # the link is given, not assumed
    ],
)
def test_a_drive_that_is_slower_than_its_link_is_never_called_slow(benchmark, path, gigabytes, expected):
    drives = Finder(expand("hgx-h100", {"drive-pcie": "4"}), ())
    on_the_way = drives.path(path)
    assert on_the_way is not None
    assert expect_narrowest(expand("hgx-h100", {}), on_the_way)[1] is not None, (
        "the links alone have a band, which no drive need reach"
    )
    assert state(drives, benchmark, path, gigabytes * 1e9, {"size_bytes": 2**20, "way": "bounce"}) == expected
    limit, band = drives.find(benchmark, "bandwidth_bytes_per_s", path, {})
    assert band is None
    assert ": only an upper limit, " in limit.because


@pytest.mark.parametrize(
    ("path", "size", "gigabytes", "expected"),
    [
        ("gpu0>gpu1", 2**28, 391.0, "ok"),
        ("gpu0>memory0", 2**28, 0.43, "slow"),
        ("gpu0>memory0", 2**28, 52.7, "ok"),
        ("gpu0>memory0", 2**20, 0.4, "unknown"),
    ],
)
def test_nixl_with_gpu_memory_is_compared_with_the_link_it_crosses(finder, path, size, gigabytes, expected):
    parameters = {"size_bytes": size, "operation": "WRITE", "initiator": "gpu0", "processes": 2}
    assert state(finder, "kv_vram", path, gigabytes * 1e9, parameters) == expected


@pytest.mark.parametrize(
    ("path", "nanoseconds", "expected"),
    [
        ("gpu0>gpu1", 850, "ok"),
        ("gpu0>gpu1", 1300, "slow"),
        ("gpu0>gpu1", 100, "suspicious"),
        ("memory0>gpu1", 1200, "ok"),
        ("memory0>gpu1", 2000, "slow"),
        ("gpu1>gpu1", 142, "unknown"),
        ("gpu1>gpu0", 850, "unknown"),  # whose own loads were not measured
    ],
)
def test_a_load_from_other_memory_is_compared_with_one_from_the_gpu_s_own(path, nanoseconds, expected):
    own_load = Result(
        benchmark="gpu_latency",
        quantity="latency_s",
        path="gpu1>gpu1",
        parameters={"kind": "chase", "size_bytes": 2**21},
        samples=(142e-9,),
        summary=summarise([142e-9]),
        verification=CHECKED,
    )
    machine = load(str(archive("2xh200-probed-vm")))
    finder = Finder(machine, [own_load])
    chase = {"kind": "chase", "size_bytes": 2**21}
    assert state(finder, "gpu_latency", path, nanoseconds * 1e-9, chase, "latency_s") == expected
    ampere = tuple(
        replace(device, facts={**device.facts, "compute_capability": "8.0"}) if device.kind == "gpu" else device
        for device in machine.devices
    )
    older = Finder(replace(machine, devices=ampere), [own_load])
    assert state(older, "gpu_latency", path, nanoseconds * 1e-9, chase, "latency_s") in ("unknown", "suspicious")


def test_a_collective_has_the_limit_that_limits_and_explain_give_it(finder):
    large = {"size_bytes": 2**30, "rate": "busbw", **REDUCED}
    assert state(finder, "nccl_all_reduce", "gpu0>gpu1", 327e9, large) == "ok"
    assert state(finder, "nccl_all_reduce", "gpu0>gpu1", 28e9, large) == "slow"
    assert state(finder, "nccl_all_reduce", "gpu0>gpu1", 460e9, large) == "suspicious"
    small = {"size_bytes": 8, **REDUCED}
    assert state(finder, "nccl_all_reduce", "gpu0>gpu1", 9e-6, small, "latency_s") == "ok"
    assert state(finder, "nccl_all_reduce", "gpu0>gpu1", 200e-6, small, "latency_s") == "slow"


@pytest.mark.parametrize("fact", [{"cuda_visible": False}, {"mig": True}])
def test_a_collective_is_of_the_gpus_that_ranks_use(fact):
    whole = load(str(archive("8xh100-8nic")))
    devices = tuple(
        replace(device, facts={**device.facts, **fact}) if device.id == "gpu0" else device for device in whole.devices
    )
    parameters = {"size_bytes": 2**30, "rate": "busbw", **REDUCED}
    workload = Collective(operation="all_reduce", path="gpu1>gpu2")
    limits = [
        select_gpus(workload, Machine(cluster=build_cluster(topology, 1))).ranks
        for topology in (replace(whole, devices=devices), replace(whole, devices=whole.devices))
    ]
    assert limits == [2, 3]
    hidden = Finder(replace(whole, devices=devices), ())
    assert isinstance(hidden.find("nccl_all_reduce", "bandwidth_bytes_per_s", "gpu0>gpu0", parameters)[0], NoLimit)


def test_busbw_of_all_gather_counts_half_of_what_algbw_does(finder):
    sizes = {"size_bytes": 2**30, **REDUCED}
    algbw, _ = finder.find("nccl_all_gather", "bandwidth_bytes_per_s", "gpu0>gpu1", {**sizes, "rate": "algbw"})
    busbw, _ = finder.find("nccl_all_gather", "bandwidth_bytes_per_s", "gpu0>gpu1", {**sizes, "rate": "busbw"})
    assert busbw.value == pytest.approx(algbw.value / 2)


def test_a_forced_protocol_has_no_band_and_an_impossible_algorithm_no_limit(finder):
    sizes = {"size_bytes": 2**24, "rate": "busbw", **REDUCED}
    _, band = finder.find("nccl_all_reduce", "bandwidth_bytes_per_s", "gpu0>gpu1", {**sizes, "protocol": "LL128"})
    assert band is None
    limit, _ = finder.find("nccl_all_reduce", "bandwidth_bytes_per_s", "gpu0>gpu1", {**sizes, "algorithm": "NVLSTree"})
    assert isinstance(limit, NoLimit)
    assert "cannot run" in limit.why


def test_communication_that_is_hidden_whole_is_not_suspicious(finder):
    step = {"part": "exposed", "model": "resnet50", "dtype": "fp32", "buckets": "25M", "overlap": "yes"}
    assert state(finder, "train_step", "gpu0>gpu1", -1e-6, step, "latency_s") == "unknown"
    assert state(finder, "train_step", "gpu0>gpu1", 5e11, {**step, "rate": "busbw"}) == "suspicious"


def test_an_unknown_path_has_no_limit(finder):
    limit, band = finder.find("gpu_copy", "bandwidth_bytes_per_s", "gpu0>gpu7", PEER)
    assert isinstance(limit, NoLimit)
    assert band is None
    limit, _ = finder.find("nccl_all_reduce", "bandwidth_bytes_per_s", "gpu0>gpu7", {"size_bytes": 8, **REDUCED})
    assert "no GPUs" in limit.why


EIGHT = "8xh200-probed-vm"
OFF = {"nvls": "off (NCCL_NVLS_ENABLE=0)"}
LARGE = {"size_bytes": 8 * 2**30, "rate": "busbw", **REDUCED}


def judge_all_reduce(finder, gigabytes, settings=None, parameters=LARGE, benchmark="nccl_all_reduce"):
    limit, band = finder.find(benchmark, "bandwidth_bytes_per_s", "gpu0>gpu7", parameters, settings)
    return judge("measured", "", gigabytes * 1e9, limit, band, CHECKED).state, limit


@pytest.mark.parametrize(
    ("gigabytes", "state_with", "state_without"),
    [(367, "slow", "ok"), (320, "slow", "slow"), (480, "ok", "suspicious"), (600, "ok", "suspicious")],
)
def test_with_nvls_switched_off_an_all_reduce_is_compared_with_rings(gigabytes, state_with, state_without):
    eight = load(str(archive(EIGHT)))
    finder = Finder(eight, ())
    assert judge_all_reduce(finder, gigabytes)[0] == state_with
    state_of_rings, limit = judge_all_reduce(finder, gigabytes, OFF)
    assert state_of_rings == state_without
    assert limit.value == pytest.approx(450e9)
    assert limit.because.startswith("ring: NVLink")
    by_environment = Finder(eight, (), {"NCCL_NVLS_ENABLE": "0"})
    assert judge_all_reduce(by_environment, gigabytes)[0] == state_without
    allowed = Finder(eight, (), {"NCCL_NVLS_ENABLE": "1"})
    assert judge_all_reduce(allowed, gigabytes)[0] == state_with


def test_nvls_requested_and_switched_off_has_no_limit():
    finder = Finder(load(str(archive(EIGHT))), ())
    forced = {**LARGE, "algorithm": "NVLS"}
    assert judge_all_reduce(finder, 400, None, forced)[1].value == pytest.approx(700e9)
    _, limit = judge_all_reduce(finder, 400, OFF, forced)
    assert isinstance(limit, NoLimit)
    assert "nvls cannot run" in limit.why


def test_a_training_step_without_nvls_is_bounded_by_rings():
    finder = Finder(load(str(archive(EIGHT))), ())
    step = {"part": "exposed", "rate": "busbw"}
    assert judge_all_reduce(finder, 400, None, step, "train_step")[1].value == pytest.approx(700e9)
    assert judge_all_reduce(finder, 400, OFF, step, "train_step")[1].value == pytest.approx(450e9)


def test_the_bytes_of_a_small_operation_bound_nothing_and_its_band_judges_it(finder):
    for size, nothing in ((8, True), (2**10, True), (2**20, False)):
        small = {"size_bytes": size, **REDUCED}
        limit, band = finder.find("nccl_all_reduce", "latency_s", "gpu0>gpu1", small)
        assert decides_nothing(limit, band) is nothing
        assert ("the start decides" in limit.because) is nothing
    assert not decides_nothing(*finder.find("nccl_all_reduce", "bandwidth_bytes_per_s", "gpu0>gpu1", small))
    tiny = {"size_bytes": 8, **REDUCED}
    assert state(finder, "nccl_all_reduce", "gpu0>gpu1", 9.7e-6, tiny, "latency_s") == "ok"
    assert state(finder, "nccl_all_reduce", "gpu0>gpu1", 60e-6, tiny, "latency_s") == "slow"
    forced, band = finder.find("nccl_all_reduce", "latency_s", "gpu0>gpu1", {**tiny, "protocol": "LL"})
    assert isinstance(forced, NoLimit)
    assert band is None


def test_pcie_is_no_limit_of_gpus_that_nvlink_may_join():
    own_load = Result(
        benchmark="gpu_latency", quantity="latency_s", path="gpu1>gpu1", samples=(142e-9,),
        parameters={"kind": "chase", "size_bytes": 2**21}, summary=summarise([142e-9]), verification=CHECKED,
    )  # fmt: skip
    finder = Finder(load(str(archive("2xh200-firecracker-vm"))), [own_load])
    queries = [
        ("gpu_copy", "bandwidth_bytes_per_s", PEER),
        ("kv_vram", "bandwidth_bytes_per_s", {"size_bytes": 2**28}),
        ("nccl_all_reduce", "bandwidth_bytes_per_s", {"size_bytes": 2**30, "rate": "busbw", **REDUCED}),
        ("nccl_all_to_all", "latency_s", {"size_bytes": 8, **REDUCED}),
        ("train_step", "bandwidth_bytes_per_s", {"rate": "busbw"}),
        ("gpu_latency", "latency_s", {"kind": "chase", "size_bytes": 2**21}),
    ]
    for benchmark, quantity, parameters in queries:
        limit, band = finder.find(benchmark, quantity, "gpu0>gpu1", parameters)
        assert isinstance(limit, NoLimit), benchmark
        assert limit.quantity == quantity
        assert limit.missing == ("gpu0: NVLink", "gpu1: NVLink")
        assert "whether NVLink joins gpu0" in limit.why
        assert band is None
    assert state(finder, "gpu_copy", "gpu0>gpu1", 55e9, PEER) == "unknown"
    assert state(finder, "gpu_copy", "gpu0>gpu1", 394e9, PEER) == "unknown"
    assert state(finder, "gpu_copy", "memory0>gpu0", 55.4e9, HOST) == "ok", "of PCIe everything is known"


def test_a_forced_simple_protocol_has_its_own_latency():
    """On eight H200 all_reduce of 32 KiB took 60.3 us by Simple, where NCCL itself takes LL."""
    eight = Finder(load(str(archive("8xh200-probed-vm"))), (), {"NCCL_NVLS_ENABLE": "0"})
    highest = {}
    for protocol in ("free", "Simple", "LL"):
        parameters = {"size_bytes": 32 * KIB, "placement": "out of place", "protocol": protocol}
        _, band = eight.find("nccl_all_reduce", "latency_s", "gpu0>gpu7", parameters)
        highest[protocol] = band and band.high
    assert highest["free"] < 60.3e-6 < highest["Simple"]
    assert highest["LL"] is None
