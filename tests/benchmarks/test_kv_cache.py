"""KV caches in real blocks between two ranks: the data, the records, the refusals and the limits."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from tests.benchmarks.jobs import job_of
from tests.expected.finders import Finder
from tests.schemas import fits

from railwright.benchmarks.benchmark import AnyJob
from railwright.benchmarks.kv import cache as kv_cache
from railwright.benchmarks.kv.geometry import GEOMETRIES, plan_paged, scatter_blocks
from railwright.errors import UsageError
from railwright.limits.limit import Bounds, Limit, NoLimit, Quantity
from railwright.native import blocks
from railwright.native.memory import Buffer
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.devices import Scalar
from railwright.topology.expand import expand
from railwright.units import GIB, KIB, MIB

PATH = "memory0>memory0"
TOKENS = 64
SMALL = TOKENS * 131_072


@pytest.fixture(scope="module")
def measured(driver_of_module):
    """Measure few tokens of Llama 3.1 8B in every layout, access and operation."""
    done = driver_of_module(*("run", "kv_cache", "-o", f"tokens={TOKENS}", "-o", "layout=paged,as-kvbench", "--force"))
    assert done.status == 3, done.err  # no copy was measured, so there is no limit
    driver_of_module.expect_nothing_left()
    return driver_of_module


def of(results: list[Result], **wanted: Scalar) -> list[Result]:
    return [one for one in results if wanted.items() <= (one.parameters | {"quantity": one.quantity}).items()]


def test_every_byte_of_every_request_arrived_and_fits_the_schema(measured):
    results = measured.results()
    assert len(results) == 2 * (2 + 3) + 2 * (2 + 2)  # by layers there are two waits, otherwise one
    for one in results:
        assert one.outcome == "measured", one.reason
        assert one.verification == Verification(method=blocks.BLOCKS_PATTERN, bytes_checked=SMALL, bytes_wrong=0)
        assert one.parameters["size_bytes"] == SMALL
        assert one.parameters["model"] == "llama-3.1-8b"
        assert one.summary.minimum > 0
    for line in (measured.output / "results.jsonl").read_bytes().splitlines():
        fits(json.loads(line), "result")


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_the_settings_carry_geometry_blocks_and_what_preparing_them_took(measured, operation):
    for access, requests in (("whole", 1), ("layers", 32)):
        found = of(measured.results(), layout="paged", access=access, operation=operation)
        assert found
        for one in found:
            assert one.parameters["block_bytes"] == 32 * KIB
            held = one.settings
            assert (held["layers"], held["kv_heads"], held["head_size"], held["kv_dtype"]) == (32, 8, 128, "bf16")
            assert (held["tokens"], held["block_tokens"], held["tensor_parallel"]) == (TOKENS, 16, 1)
            assert (held["bytes_per_token"], held["descriptors"]) == (131_072, 32 * 2 * TOKENS // 16)
            assert held["requests"] == requests
            assert held["prepare_s"] > 0


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_the_first_layer_is_there_before_the_last(measured, operation):
    found = of(measured.results(), layout="paged", access="layers", operation=operation)
    waits = {one.parameters.get("until"): one for one in found}
    assert set(waits) == {None, "first layer", "last layer"}
    for first, last in zip(waits["first layer"].samples, waits["last layer"].samples, strict=True):
        assert 0 < first < last
    for rate, last in zip(waits[None].samples, waits["last layer"].samples, strict=True):
        assert rate == pytest.approx(SMALL / last, rel=1e-4)


def test_kvbench_s_plan_is_one_request_of_its_block_sizes(measured):
    for access, block_bytes, descriptors in (("whole", 2 * MIB, TOKENS // 16), ("layers", 64 * KIB, TOKENS // 16 * 32)):
        found = of(measured.results(), layout="as-kvbench", access=access)
        assert {one.parameters.get("until") for one in found} == {None, "whole request"}
        for one in found:
            assert one.parameters["block_bytes"] == block_bytes
            assert (one.settings["descriptors"], one.settings["requests"]) == (descriptors, 1)


def test_the_transport_is_read_from_ucx_s_log_and_the_loopback_counter(measured):
    for one in measured.results():
        claims = {evidence.claim: evidence for evidence in one.evidence}
        assert set(claims) == {"ucx_protocol", "transport"}
        assert claims["ucx_protocol"].value != "unknown", claims["ucx_protocol"].seen
        assert claims["transport"].value in ("not lo", "tcp", "mixed")


def test_a_config_and_mla_are_measured_as_a_named_model_is(railwright):
    config = railwright.folder / "config.json"
    config.write_text(json.dumps({"num_hidden_layers": 3, "kv_lora_rank": 512, "qk_rope_head_dim": 64}))
    options = (f"model={config}", "tokens=100", "block-tokens=64", "tp=8", "access=layers", "operations=READ")
    done = railwright("run", "kv_cache", *(part for one in options for part in ("-o", one)), "--force")
    assert done.status == 3, done.err
    for one in railwright.results():
        assert one.outcome == "measured", one.reason
        assert one.parameters["model"] == "config 3 x 576"
        assert one.parameters["size_bytes"] == one.verification.bytes_checked == 3 * 2 * 64 * 576 * 2
        assert str(railwright.folder) not in json.dumps(one.parameters | one.settings)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("model=lama-3.1-8b", "there is no model named 'lama-3.1-8b'"),
        ("model=no/config.json", "no/config.json cannot be read"),
        ("tokens=0", "must be a whole number from 1 to"),
        ("tokens=" + ",".join(map(str, range(1, 30))), "29 numbers of tokens, more than 16"),
        ("tp=3", "8 KV heads of llama-3.1-8b cannot be split over tp=3 ranks"),
        ("block-tokens=1", "blocks, more than"),
        ("layout=flat", "there is no choice named 'flat'"),
        ("dtype=fp64", "there is no choice named 'fp64'"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_starts(answer, option, why):
    done = answer("run", "kv_cache", "-o", option, "--force", "--dry-run")
    assert done.status == 2
    assert why in done.message()


def job(memory_bytes: int | None, **options: str) -> AnyJob:
    topology = expand("laptop", {})
    devices = tuple(
        replace(device, facts={"size_bytes": memory_bytes} if memory_bytes else {})
        if device.kind == "memory"
        else device
        for device in topology.devices
    )
    return job_of(kv_cache.BENCHMARK, replace(topology, devices=devices), given=options)


def test_the_memory_of_both_sides_is_planned_and_what_does_not_fit_is_left_out():
    plans = {size: kv_cache.BENCHMARK.plan(job(size and size * GIB)) for size in (None, 64, 8, 1)}
    assert 8 * GIB < plans[64].memory_bytes < 9 * GIB
    assert plans[None].memory_bytes == plans[64].memory_bytes
    assert 2 * GIB < plans[8].memory_bytes < 3 * GIB
    assert 256 * MIB < plans[1].memory_bytes < GIB
    assert plans[64].moved_bytes > plans[8].moved_bytes > plans[1].moved_bytes > 0


def test_a_request_that_no_memory_holds_is_waived_with_both_sizes():
    plan = kv_cache.BENCHMARK.plan(job(8 * GIB, tokens="131072", **{"block-tokens": "64"}))
    assert plan.memory_bytes == 0
    assert "131072 tokens need 32" in plan.waived
    assert "8 GiB" in plan.waived


def test_the_plan_refuses_heads_that_cannot_be_split():
    with pytest.raises(UsageError, match="cannot be split over tp=6"):
        job(None, tp="6")


def test_a_swapped_block_is_found_and_so_is_a_stale_one():
    shape = plan_paged(GEOMETRIES["llama-3.1-8b"], 2, tokens=64, block_tokens=16, tensor_parallel=8)
    with Buffer(shape.size_bytes) as buffer:
        groups = scatter_blocks(shape, pool_blocks=4, seed=1)
        placed = [(buffer.address + offset, shape.block_bytes) for group in groups for offset in group]
        blocks.fill(placed, seed=1)
        assert blocks.count_wrong(placed, seed=1) == 0
        assert blocks.count_wrong(placed, seed=2) > 0.99 * shape.size_bytes
        swapped = [placed[1], placed[0], *placed[2:]]
        assert 0.99 * 2 * shape.block_bytes < blocks.count_wrong(swapped, seed=1) <= 2 * shape.block_bytes


@pytest.mark.parametrize("size", [1, 7, 8, 9, 4097])
def test_blocks_of_any_size_have_patterns_of_their_own(size):
    with Buffer(4 * 4104) as buffer:
        placed = [(buffer.address + 4104 * place, size) for place in (2, 0, 3)]
        blocks.fill(placed, seed=9)
        assert blocks.count_wrong(placed, seed=9) == 0
        assert blocks.count_wrong([placed[1], placed[0], placed[2]], seed=9) > 0


def copied(size: int, value: float) -> Result:
    return Result(
        benchmark="memory_copy",
        quantity="bandwidth_bytes_per_s",
        path=PATH,
        parameters={"size_bytes": size, "threads": 1},
        samples=(value,),
        summary=summarise([value]),
        verification=Verification(method="a test", bytes_checked=1, bytes_wrong=0),
    )


def bounds(quantity: Quantity, copies: list[Result], **parameters: Scalar) -> Bounds:
    return Finder(expand("laptop", {}), copies).find("kv_cache", quantity, PATH, parameters)


def test_a_request_larger_than_every_copy_is_compared_with_the_largest_and_less_of_it_is_expected():
    copies = [copied(MIB, 30e9), copied(64 * MIB, 10e9)]
    limit, band = bounds("bandwidth_bytes_per_s", copies, size_bytes=4 * GIB, block_bytes=2 * MIB)
    assert isinstance(limit, Limit)
    assert (limit.value, limit.kind) == (10e9, "measured_ceiling")
    assert "64 MiB" in limit.because
    assert band is not None
    # Of a single launch half counts as its slowest.
    assert (band.low, band.doubtful_to) == (0.15 * 10e9, 0.15 * 5e9)


def test_of_smaller_blocks_less_is_expected_and_of_the_smallest_nothing():
    copies = [copied(64 * MIB, 10e9)]
    for block_bytes, low in ((2 * MIB, 5e9), (32 * KIB, 1.5e9), (16 * KIB, 1.5e9), (8 * KIB, None)):
        _, band = bounds("bandwidth_bytes_per_s", copies, size_bytes=64 * MIB, block_bytes=block_bytes)
        assert (band and band.low) == low


def test_a_wait_is_compared_with_the_time_of_copying_the_same_bytes():
    copies = [copied(64 * MIB, 10e9)]
    asked: dict[str, Scalar] = {"size_bytes": 64 * MIB, "block_bytes": 2 * MIB, "layers": 32}
    for until, awaited in (("last layer", 64 * MIB), ("first layer", 2 * MIB)):
        limit, band = bounds("latency_s", copies, **asked, until=until)
        assert isinstance(limit, Limit)
        assert limit.value == pytest.approx(awaited / 10e9)
        assert band is not None
        assert band.high == pytest.approx(awaited / 5e9)


def test_without_a_copy_there_is_no_limit():
    for quantity in ("bandwidth_bytes_per_s", "latency_s"):
        limit, band = bounds(quantity, [], size_bytes=64 * MIB, block_bytes=2 * MIB)
        assert isinstance(limit, NoLimit)
        assert "memory copy" in limit.why
        assert band is None
