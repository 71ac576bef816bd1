"""The size of a model's KV cache and the place of its blocks: per token, per paged block, per request. Pure.

Sources of the geometries: the config.json on each model's Hugging Face page (meta-llama/Llama-3.1-8B, -70B and -405B,
deepseek-ai/DeepSeek-V3 and DeepSeek-R1, Qwen/Qwen3-8B, -32B and -235B-A22B). KV bytes per token = layers x 2 x KV heads
x head size x bytes per element (K and V), or with multi-head latent attention (MLA) layers x (kv_lora_rank +
qk_rope_head_dim) x bytes per element: one latent stands for K and V of all heads (DeepSeek-V2, arXiv 2405.04434,
section 2.1.4).
"""

from __future__ import annotations

import random
from typing import Literal, NamedTuple

import msgspec

from railwright.errors import UsageError
from railwright.reading import InvalidContent, decode_json

Access = Literal["whole", "layers"]

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp32": 4}
"""Bytes of one element of the cache by type, which may differ from the weights' type."""

MAX_CONFIG_BYTES = 2**20
MAX_DESCRIPTORS = 2**20
"""The most blocks in a request: more than Llama 3.1 405B has for 131,072 tokens in blocks of 64."""
_MAX_LAYERS, _MAX_HEADS, _MAX_WIDTH = 1024, 1024, 2**20

# A key with a value means that some layers do not keep K and V of every token, or keep more than that.
_OTHER_CACHES = (
    *("layers_block_type", "hybrid_override_pattern", "attn_layer_period", "full_attention_interval"),
    *("linear_attn_config", "index_head_dim", "num_kv_shared_layers", "cross_attention_layers"),
)


class Geometry(NamedTuple):
    """The dimensions of a model's KV cache per token."""

    name: str
    layers: int
    kv_heads: int
    """The number of KV heads; 1 with MLA, whose latent all heads share."""
    head_size: int
    """Elements of K, and as many of V; or of the latent with MLA."""
    mla: bool

    @property
    def parts(self) -> int:
        """The blocks that a layer keeps for the same tokens: K and V separately, or one latent."""
        return 1 if self.mla else 2

    def bytes_per_token(self, element_bytes: int) -> int:
        """Return the bytes per token of the whole model, before it is split over ranks."""
        return self.layers * self.parts * self.kv_heads * self.head_size * element_bytes

    def count_rank_heads(self, tensor_parallel: int) -> int:
        """Return the number of KV heads on each of `tensor_parallel` ranks.

        Heads are split, or replicated if there are more ranks than heads; MLA's latent is always replicated, as in vLLM
        and SGLang. Raises UsageError if neither number divides the other.
        """
        if self.mla:
            return 1
        if self.kv_heads % tensor_parallel and tensor_parallel % self.kv_heads:
            raise UsageError(
                f"{self.kv_heads} KV heads of {self.name} cannot be split over tp={tensor_parallel} ranks",
                hint="take a tp that divides the KV heads, or is a multiple of them",
            )
        return max(1, self.kv_heads // tensor_parallel)


class Shape(NamedTuple):
    """The blocks of one request as they are moved."""

    block_bytes: int
    groups: int
    """The number of layers, each with the same number of blocks; 1 if a block holds all layers."""
    parts: int
    """Blocks of one group for the same tokens."""
    blocks: int
    """Entries of the block table: blocks of one part of one group."""

    @property
    def descriptors(self) -> int:
        """The number of blocks in the request."""
        return self.groups * self.parts * self.blocks

    @property
    def size_bytes(self) -> int:
        """The size in whole blocks, which are moved even if the last one is not full."""
        return self.descriptors * self.block_bytes


GEOMETRIES: dict[str, Geometry] = {
    geometry.name: geometry
    for geometry in (
        Geometry("llama-3.1-8b", layers=32, kv_heads=8, head_size=128, mla=False),
        Geometry("llama-3.1-70b", layers=80, kv_heads=8, head_size=128, mla=False),
        Geometry("llama-3.1-405b", layers=126, kv_heads=8, head_size=128, mla=False),
        Geometry("deepseek-v3", layers=61, kv_heads=1, head_size=512 + 64, mla=True),
        Geometry("deepseek-r1", layers=61, kv_heads=1, head_size=512 + 64, mla=True),
        Geometry("qwen3-8b", layers=36, kv_heads=8, head_size=128, mla=False),
        Geometry("qwen3-32b", layers=64, kv_heads=8, head_size=128, mla=False),
        Geometry("qwen3-235b-a22b", layers=94, kv_heads=4, head_size=128, mla=False),
    )
}


class _Layout(msgspec.Struct):
    """The keys read from a config.json; others are ignored."""

    num_hidden_layers: int | None = None
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    layer_types: list[str] | None = None
    sliding_window: int | None = None
    use_sliding_window: bool | None = None
    is_encoder_decoder: bool | None = None


class _Config(_Layout):
    text_config: _Layout | None = None


class _Nested(msgspec.Struct):
    text_config: dict[str, msgspec.Raw] | None = None


def parse_config(raw: bytes) -> Geometry:
    """Parse a Hugging Face config.json into a geometry; uses `text_config`, the language model's part, if present.

    Raises UsageError for other files, and for models with a layer that does not keep exactly K and V of all tokens
    (sliding windows, linear attention, state spaces, indexers), because their blocks differ.
    """
    try:
        config = decode_json(raw, _Config)
        keys = decode_json(raw, dict[str, msgspec.Raw])
        nested = decode_json(raw, _Nested).text_config
    except InvalidContent as error:
        raise UsageError(f"invalid config.json: {str(error)[:120]}", hint="give the config.json of a model") from error
    layout = config.text_config if config.text_config is not None else config
    _refuse_other_caches(layout, nested if nested is not None else keys)
    layers = _check_range("num_hidden_layers", layout.num_hidden_layers, _MAX_LAYERS)
    if layout.kv_lora_rank is not None:
        rank = _check_range("kv_lora_rank", layout.kv_lora_rank, _MAX_WIDTH)
        latent = rank + _check_range("qk_rope_head_dim", layout.qk_rope_head_dim, _MAX_WIDTH)
        return Geometry(f"config {layers} x {latent}", layers, 1, latent, mla=True)
    heads, size = _count_heads(layout)
    return Geometry(f"config {layers} x {heads} x {size}", layers, heads, size, mla=False)


def _count_heads(layout: _Layout) -> tuple[int, int]:
    """Return the number of KV heads and their size. `num_key_value_heads` and `head_dim` default to those of Q."""
    if layout.num_key_value_heads is None or layout.head_dim is None:
        queries = _check_range("num_attention_heads", layout.num_attention_heads, _MAX_HEADS)
    heads = queries if layout.num_key_value_heads is None else layout.num_key_value_heads
    heads = _check_range("num_key_value_heads", heads, _MAX_HEADS)
    if layout.head_dim is not None:
        return heads, _check_range("head_dim", layout.head_dim, _MAX_WIDTH)
    hidden = _check_range("hidden_size", layout.hidden_size, _MAX_WIDTH)
    if hidden % queries:
        raise UsageError(
            f"config.json: hidden_size {hidden} is not a multiple of num_attention_heads {queries}",
            hint="add head_dim, the size of one head",
        )
    return heads, hidden // queries


def _check_range(name: str, value: int | None, most: int) -> int:
    if value is None:
        raise UsageError(f"config.json has no {name}", hint="give the config.json of a decoder-only language model")
    if not 1 <= value <= most:
        raise UsageError(f"config.json: {name} must be 1 to {most}, got {value}", hint="check the file")
    return value


def _refuse_other_caches(layout: _Layout, keys: dict[str, msgspec.Raw]) -> None:
    hint = "only models whose every layer keeps K and V, or the latent, of all tokens have blocks that are all alike"
    for number, kind in enumerate(layout.layer_types or ()):
        if kind != "full_attention":
            raise UsageError(f"config.json: layer {number} is of type {kind[:40]!r}, not full_attention", hint=hint)
    if layout.layer_types is None and layout.sliding_window is not None and layout.use_sliding_window is not False:
        raise UsageError(f"config.json: layers keep only the last {layout.sliding_window} tokens", hint=hint)
    if layout.is_encoder_decoder:
        raise UsageError("config.json must describe a decoder-only model, got an encoder-decoder", hint=hint)
    for name in _OTHER_CACHES:
        if name in keys and bytes(keys[name]) not in (b"null", b"0", b"false", b"[]", b"{}"):
            raise UsageError(f"config.json has {name}: not every layer keeps K and V alone", hint=hint)


def plan_paged(geometry: Geometry, element_bytes: int, tokens: int, block_tokens: int, tensor_parallel: int) -> Shape:
    """Return one rank's share of a request in the blocks of vLLM and SGLang: K and V of each layer in separate blocks.

    Raises UsageError for more blocks than one request may have.
    """
    row_bytes = geometry.count_rank_heads(tensor_parallel) * geometry.head_size * element_bytes
    shape = Shape(block_tokens * row_bytes, geometry.layers, geometry.parts, -(-tokens // block_tokens))
    return _check_block_count(shape, tokens)


def plan_kvbench(
    geometry: Geometry, element_bytes: int, tokens: int, page_tokens: int, tensor_parallel: int, access: Access,
    *, stages: int = 1, requests: int = 1,
) -> Shape:  # fmt: skip
    """Return blocks as kvbench plans them (NIXL 1.5, benchmark/kvbench/models): a page of a layer, or of a stage.

    io_size = KV bytes per token and layer / TP x page [x ceil(layers / stages) with its access=block, here whole];
    batch = ceil(KV bytes per token x tokens x requests / io_size). MLA is divided by TP too, and the batch is that of
    all ranks and stages together. Raises UsageError.
    """
    per_token = geometry.bytes_per_token(element_bytes)
    layers_of_block = -(-geometry.layers // stages) if access == "whole" else 1
    block_bytes = per_token // geometry.layers * layers_of_block * page_tokens // tensor_parallel
    if not block_bytes:
        raise UsageError(f"tp={tensor_parallel} leaves no byte of a page", hint="take a smaller tp or larger blocks")
    return _check_block_count(Shape(block_bytes, 1, 1, -(-per_token * tokens * requests // block_bytes)), tokens)


def _check_block_count(shape: Shape, tokens: int) -> Shape:
    if shape.descriptors > MAX_DESCRIPTORS:
        raise UsageError(
            f"a request of {tokens} tokens would have {shape.descriptors} blocks, more than {MAX_DESCRIPTORS}",
            hint="take fewer tokens or larger block-tokens",
        )
    return shape


def scatter_blocks(shape: Shape, pool_blocks: int, seed: int) -> list[list[int]]:
    """Return the byte offsets of each group's blocks in a pool, in token order.

    One block table serves all layers, K and V alike, and draws random blocks from the pool: a paged allocator hands
    them out in the order in which other requests freed them.
    """
    table = random.Random(seed).sample(range(pool_blocks), shape.blocks)
    part_bytes = pool_blocks * shape.block_bytes
    return [
        [
            (group * shape.parts + part) * part_bytes + block * shape.block_bytes
            for part in range(shape.parts)
            for block in table
        ]
        for group in range(shape.groups)
    ]


def place_consecutively(shape: Shape) -> list[list[int]]:
    """Return the offsets of each group's blocks, one after the other as in nixlbench; see `scatter_blocks`."""
    in_group = shape.parts * shape.blocks
    return [
        [(group * in_group + block) * shape.block_bytes for block in range(in_group)] for group in range(shape.groups)
    ]
