"""KV bytes per token against the published geometries, block layouts of engines and of kvbench, hostile config.json."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from railwright.benchmarks.kv.cache import parse_geometry
from railwright.benchmarks.kv.geometry import (
    GEOMETRIES,
    MAX_CONFIG_BYTES,
    MAX_DESCRIPTORS,
    Geometry,
    Shape,
    parse_config,
    place_consecutively,
    plan_kvbench,
    plan_paged,
    scatter_blocks,
)
from railwright.errors import UsageError

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
}


def config(**fields: object) -> bytes:
    """Llama 3.1 8B's config.json with changes; a field set to `...` is omitted."""
    return json.dumps({k: v for k, v in (LLAMA_8B | fields).items() if v is not ...}).encode()


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        # config.json of each model: layers x KV heads x head size x (K and V) x 2 bytes of bf16
        ("llama-3.1-8b", 32 * 8 * 128 * 2 * 2),
        ("llama-3.1-70b", 80 * 8 * 128 * 2 * 2),
        ("llama-3.1-405b", 126 * 8 * 128 * 2 * 2),
        ("qwen3-8b", 36 * 8 * 128 * 2 * 2),
        ("qwen3-32b", 64 * 8 * 128 * 2 * 2),
        ("qwen3-235b-a22b", 94 * 4 * 128 * 2 * 2),
        # layers x (kv_lora_rank + qk_rope_head_dim) x 2 bytes of bf16
        ("deepseek-v3", 61 * (512 + 64) * 2),
        ("deepseek-r1", 61 * (512 + 64) * 2),
    ],
)
def test_bytes_per_token_are_those_of_the_published_geometry(name, bytes_per_token):
    assert GEOMETRIES[name].bytes_per_token(2) == bytes_per_token
    assert GEOMETRIES[name].bytes_per_token(1) == bytes_per_token // 2


def test_every_named_model_s_bytes_per_token_as_a_figure():
    assert {name: geometry.bytes_per_token(2) for name, geometry in GEOMETRIES.items()} == {
        "llama-3.1-8b": 131_072,
        "llama-3.1-70b": 327_680,
        "llama-3.1-405b": 516_096,
        "deepseek-v3": 70_272,  # DeepSeek-V3's authors give 70.272 KB (arXiv 2505.09343, table 1)
        "deepseek-r1": 70_272,
        "qwen3-8b": 147_456,
        "qwen3-32b": 262_144,
        "qwen3-235b-a22b": 192_512,
    }


def test_a_block_of_vllm_holds_k_or_v_of_one_layer():
    shape = plan_paged(GEOMETRIES["llama-3.1-8b"], 2, tokens=32768, block_tokens=16, tensor_parallel=1)
    assert shape == Shape(block_bytes=16 * 8 * 128 * 2, groups=32, parts=2, blocks=2048)
    assert shape.descriptors == 32 * 2 * 2048
    assert shape.size_bytes == 32768 * 131_072


def test_the_last_block_is_moved_whole():
    geometry = GEOMETRIES["llama-3.1-8b"]
    shapes = {tokens: plan_paged(geometry, 2, tokens, 16, 1) for tokens in (1, 16, 17)}
    assert [shapes[tokens].blocks for tokens in (1, 16, 17)] == [1, 1, 2]
    assert shapes[1].size_bytes == 16 * 131_072


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (64, 1)])
def test_kv_heads_are_split_over_ranks_and_replicated_beyond(tp, heads):
    geometry = GEOMETRIES["llama-3.1-70b"]
    assert geometry.count_rank_heads(tp) == heads
    assert plan_paged(geometry, 2, 1600, 16, tp).size_bytes == 1600 * 80 * 2 * heads * 128 * 2


@pytest.mark.parametrize("tp", [3, 6, 12])
def test_a_degree_over_which_heads_do_not_divide_is_refused(tp):
    with pytest.raises(UsageError, match=rf"8 KV heads of llama-3.1-8b cannot be split over tp={tp} ranks"):
        GEOMETRIES["llama-3.1-8b"].count_rank_heads(tp)


@pytest.mark.parametrize("tp", [1, 3, 8, 16])
def test_the_latent_is_one_block_per_layer_and_replicated_over_ranks(tp):
    shape = plan_paged(GEOMETRIES["deepseek-v3"], 2, 64, 64, tp)
    assert shape == Shape(block_bytes=64 * 576 * 2, groups=61, parts=1, blocks=1)
    assert shape.size_bytes == 64 * 70_272


@pytest.mark.parametrize(
    ("name", "tp", "stages", "page", "block_bytes", "batch"),
    [
        # what kvbench itself printed, with fp8 and ten requests of 10,000 tokens
        ("deepseek-r1", 1, 8, 512, 2_359_296, 1490),
        ("deepseek-r1", 8, 8, 512, 294_912, 11915),
        ("llama-3.1-70b", 1, 1, 16, 2_621_440, 6250),
    ],
)
def test_kvbench_s_own_plans_come_out(name, tp, stages, page, block_bytes, batch):
    shape = plan_kvbench(GEOMETRIES[name], 1, 10_000, page, tp, "whole", stages=stages, requests=10)
    assert (shape.block_bytes, shape.descriptors) == (block_bytes, batch)


def test_kvbench_s_layer_access_cuts_the_same_bytes_into_a_block_for_each_layer():
    geometry = GEOMETRIES["llama-3.1-8b"]
    whole, layers = (plan_kvbench(geometry, 2, 1024, 16, 1, access) for access in ("whole", "layers"))
    assert (whole.block_bytes, whole.descriptors) == (16 * 131_072, 64)
    assert (layers.block_bytes, layers.descriptors) == (16 * 4096, 64 * 32)
    assert whole.size_bytes == layers.size_bytes == 1024 * 131_072


def test_kvbench_divides_the_latent_where_engines_replicate_it():
    geometry = GEOMETRIES["deepseek-v3"]
    assert (
        plan_kvbench(geometry, 2, 64, 64, 8, "layers").block_bytes * 8 == plan_paged(geometry, 2, 64, 64, 8).block_bytes
    )


def test_a_page_of_which_no_byte_is_left_is_refused():
    with pytest.raises(UsageError, match="tp=1024 leaves no byte"):
        plan_kvbench(Geometry("tiny", 1, 1, 1, mla=True), 1, 16, 1, 1024, "layers")


def test_more_blocks_than_a_request_may_have_are_refused_with_their_number():
    with pytest.raises(UsageError, match=f"2097152 blocks, more than {MAX_DESCRIPTORS}") as caught:
        plan_paged(GEOMETRIES["llama-3.1-8b"], 2, 32768, 1, 1)
    assert "block-tokens" in caught.value.hint


def test_scattered_blocks_fill_the_pool_once_and_are_not_in_order():
    shape = Shape(block_bytes=100, groups=3, parts=2, blocks=50)
    groups = scatter_blocks(shape, pool_blocks=50, seed=1)
    assert sorted(offset for group in groups for offset in group) == list(range(0, 3 * 2 * 50 * 100, 100))
    neighbours = sum(b - a == 100 for group in groups for a, b in itertools.pairwise(group))
    assert neighbours < 30, "a paged allocator does not hand out consecutive blocks"


def test_one_block_table_serves_every_layer_and_k_and_v():
    shape = Shape(block_bytes=10, groups=2, parts=2, blocks=5)
    groups = scatter_blocks(shape, pool_blocks=40, seed=3)
    tables = [[offset % 400 // 10 for offset in group[part * 5 : part * 5 + 5]] for group in groups for part in (0, 1)]
    assert tables[0] == tables[1] == tables[2] == tables[3]
    assert [group[part * 5] // 400 for group in groups for part in (0, 1)] == [0, 1, 2, 3]


def test_a_seed_gives_the_same_table_again_and_another_seed_another():
    shape = Shape(block_bytes=8, groups=1, parts=1, blocks=64)
    assert scatter_blocks(shape, 64, 1) == scatter_blocks(shape, 64, 1) != scatter_blocks(shape, 64, 2)


def test_consecutive_blocks_follow_each_other():
    assert place_consecutively(Shape(block_bytes=8, groups=2, parts=1, blocks=3)) == [[0, 8, 16], [24, 32, 40]]


def test_a_config_gives_the_geometry_of_the_named_model():
    assert parse_config(config())[1:] == GEOMETRIES["llama-3.1-8b"][1:]
    latent = config(num_hidden_layers=61, num_key_value_heads=128, kv_lora_rank=512, qk_rope_head_dim=64)
    assert parse_config(latent)[1:] == GEOMETRIES["deepseek-v3"][1:]


def test_missing_kv_heads_are_as_many_as_query_heads_and_a_missing_head_size_is_computed():
    geometry = parse_config(config(num_key_value_heads=...))
    assert (geometry.kv_heads, geometry.head_size) == (32, 4096 // 32)


def test_a_head_size_that_is_given_is_not_computed():
    """Qwen3-235B-A22B: 4096 / 64 would be 64, and half of the cache would be missing."""
    qwen = config(num_hidden_layers=94, num_attention_heads=64, num_key_value_heads=4, head_dim=128)
    assert parse_config(qwen)[1:] == GEOMETRIES["qwen3-235b-a22b"][1:]


def test_the_language_model_of_several_is_the_one_that_counts():
    nested = json.dumps({"vision_config": {"num_hidden_layers": 24}, "text_config": LLAMA_8B}).encode()
    assert parse_config(nested)[1:] == GEOMETRIES["llama-3.1-8b"][1:]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "invalid config.json"),
        (b"[]", "invalid config.json"),
        (b"\xff\xfe", "invalid config.json"),
        (b'{"text_config": ' * 5000 + b"1" + b"}" * 5000, "invalid config.json"),
        (b'{"x": ' + b"[" * 20000 + b"]" * 20000 + b"}", "invalid config.json"),
        (config(num_hidden_layers=...), "has no num_hidden_layers"),
        (config(num_hidden_layers=0), "num_hidden_layers must be 1 to"),
        (config(num_hidden_layers=-1), "num_hidden_layers must be 1 to"),
        (config(num_hidden_layers=10**30), "invalid config.json|must be 1 to"),
        (config(num_hidden_layers=True), "invalid config.json"),
        (config(num_hidden_layers="32"), "invalid config.json"),
        (config(num_hidden_layers=32.5), "invalid config.json"),
        (config(num_attention_heads=..., num_key_value_heads=...), "has no num_attention_heads"),
        (config(hidden_size=...), "has no hidden_size"),
        (config(hidden_size=4097), "hidden_size 4097 is not a multiple of num_attention_heads 32"),
        (config(head_dim=2**40), "head_dim"),
        (config(num_key_value_heads=0), "num_key_value_heads must be"),
        (config(kv_lora_rank=512), "has no qk_rope_head_dim"),
        (config(layer_types=["full_attention", "sliding_attention"]), "layer 1 is of type 'sliding_attention'"),
        (config(layer_types=["linear_attention"]), "layer 0 is of type 'linear_attention'"),
        (config(sliding_window=4096), "only the last 4096 tokens"),
        (config(layers_block_type=["mamba"]), "has layers_block_type"),
        (config(index_head_dim=128, kv_lora_rank=512, qk_rope_head_dim=64), "has index_head_dim"),
        (config(is_encoder_decoder=True), "encoder"),
        (json.dumps({"text_config": LLAMA_8B | {"full_attention_interval": 4}}).encode(), "full_attention_interval"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_by_its_reason(raw, why):
    with pytest.raises(UsageError, match=why) as caught:
        parse_config(raw)
    assert caught.value.hint
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "fields",
    [
        {"sliding_window": 32768, "use_sliding_window": False},
        {"sliding_window": None},
        {"layer_types": ["full_attention"] * 32, "sliding_window": 4096},
        {"cross_attention_layers": None, "num_kv_shared_layers": 0},
    ],
)
def test_a_config_that_names_another_cache_without_using_it_is_taken(fields):
    assert parse_config(config(**fields)).layers == 32


def test_a_model_is_a_name_or_a_path(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(config())
    assert parse_geometry("qwen3-32b") is GEOMETRIES["qwen3-32b"]
    assert parse_geometry(str(path))[1:] == parse_geometry(str(tmp_path))[1:] == GEOMETRIES["llama-3.1-8b"][1:]


def test_an_unknown_name_is_refused_with_near_ones():
    with pytest.raises(UsageError, match=r"no model named 'lama-3.1-8b'") as caught:
        parse_geometry("lama-3.1-8b")
    assert "llama-3.1-8b" in caught.value.hint


def test_a_path_that_is_missing_a_device_or_too_large_is_refused(tmp_path):
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (MAX_CONFIG_BYTES + 1))
    for path, why in (
        (tmp_path / "no.json", "cannot be read"),
        (tmp_path, "cannot be read"),
        (Path("/dev/zero"), "not a regular file"),
        (large, "larger than 1 MiB"),
    ):
        with pytest.raises(UsageError, match=why) as caught:
            parse_geometry(str(path))
        assert "config.json" in caught.value.hint


def test_the_page_has_every_model_with_its_bytes_per_token():
    page = (Path(__file__).parents[2] / "docs" / "benchmarks" / "kv_cache.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name, geometry in GEOMETRIES.items():
        (row,) = [line for line in rows if f"`{name}`" in line.split("|")[1]]
        assert f" {geometry.layers} " in row
        assert f"{geometry.bytes_per_token(2):,}" in row
