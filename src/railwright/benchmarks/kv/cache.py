"""The KV cache of one request, moved by NIXL from a prefill to a decode process in a real model's paged blocks.

With WRITE rank 0 is prefill and pushes, with READ it is decode and pulls; rank 1 owns the other memory. Each side's
blocks are placed by its own block table, as a paged allocator would place them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Plan, Rank
from railwright.benchmarks.evidence import transport_evidence, ucx_protocol_evidence
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.kv import agents, between_hosts, geometry
from railwright.benchmarks.kv.agents import Connection
from railwright.benchmarks.kv.between_hosts import MetadataOptions, NicCase
from railwright.benchmarks.kv.geometry import GEOMETRIES, Access, Geometry, Shape
from railwright.benchmarks.kv.verified import Ends, Outcome, Scattered, Seeds, transfer
from railwright.benchmarks.options import choice, option, single_choice, whole_number
from railwright.benchmarks.record import complete, waived
from railwright.benchmarks.together import waive_unavailable
from railwright.errors import UsageError, unknown_name
from railwright.native import blocks, nixl
from railwright.native.memory import Buffer
from railwright.native.mpi import library_version
from railwright.native.nixl_layers import time_layers
from railwright.reading import read_bounded
from railwright.results.declarations import Declaration
from railwright.results.records import Result
from railwright.results.statistics import summarise
from railwright.results.workload import Message
from railwright.topology.devices import Scalar
from railwright.units import GIB, format_size

_WARM, _FEWEST, _MOST = 1, 3, 100
_TIMED_BYTES = 2 * GIB
_MEMORY_SHARE = 0.7
"""The share of the machine's memory that a request may use.

Larger ones are waived individually, so that a small machine still measures the rest.
"""
_DESCRIPTOR_BYTES = 2 * 512
"""The overhead of a block in both sides' lists and in NIXL's."""
_MOST_TOKENS, _MOST_TOKEN_COUNTS = 2**20, 16
_ESTIMATE_BYTES_PER_S = 4e9
_ESTIMATE_DESCRIPTOR_S = 5e-6
_PATIENCE_S, _PATIENCE_BYTES_PER_S = 20.0, 1e8


def parse_geometry(text: str) -> Geometry:
    """Return the geometry of a named model, or of the config.json at a path or in a folder. Raises UsageError."""
    if text in GEOMETRIES:
        return GEOMETRIES[text]
    if "/" not in text and not text.endswith(".json"):
        raise unknown_name("model", text, GEOMETRIES)
    path = Path(text)
    try:
        raw = read_bounded(path / "config.json" if path.is_dir() else path, geometry.MAX_CONFIG_BYTES)
    except UsageError as error:
        raise UsageError(
            error.message, hint=f"give a model's config.json, or one of {', '.join(GEOMETRIES)}"
        ) from error
    return geometry.parse_config(raw)


def _parse_token_counts(text: str) -> tuple[int, ...]:
    counts = tuple(dict.fromkeys(whole_number(_MOST_TOKENS)(part.strip()) for part in text[:400].split(",")))
    if len(counts) > _MOST_TOKEN_COUNTS:
        raise UsageError(f"{len(counts)} numbers of tokens, more than {_MOST_TOKEN_COUNTS}", hint="give fewer")
    return tuple(sorted(counts))


class CacheOptions(MetadataOptions, frozen=True):
    """Options of requests."""

    model: Geometry = option("llama-3.1-8b", "a model's name, or the path of its config.json", parse_geometry)
    tokens: tuple[int, ...] = option("1024,8192,32768", "tokens of one request, like 1024,8192", _parse_token_counts)
    block_tokens: int = option("16", "tokens of one block: 16 is vLLM's default", whole_number(4096))
    tp: int = option("1", "tensor parallel degree; the share of one rank is moved", whole_number(1024))
    layout: tuple[str, ...] = option("paged", "paged, as-kvbench, or paged,as-kvbench", choice("paged", "as-kvbench"))
    access: tuple[Access, ...] = option("whole,layers", "whole, layers, or whole,layers", choice("whole", "layers"))
    operations: tuple[nixl.Operation, ...] = option("WRITE,READ", "WRITE, READ, or WRITE,READ", choice("WRITE", "READ"))
    dtype: str = option(
        "bf16", "type of the cache's elements: bf16, fp16, fp8, int8 or fp32", single_choice(*geometry.ELEMENT_BYTES)
    )

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of the cache."""
        return geometry.ELEMENT_BYTES[self.dtype]

    def shape(self, layout: str, access: Access, tokens: int) -> Shape:
        """Return the blocks of one request. Raises UsageError for more blocks than a request may have."""
        model = (self.model, self.element_bytes, tokens, self.block_tokens, self.tp)
        return geometry.plan_paged(*model) if layout == "paged" else geometry.plan_kvbench(*model, access)

    def points(self, tokens: int) -> list[_Point]:
        """List all points with this number of tokens."""
        return [
            _Point(layout, access, operation, tokens, self.shape(layout, access, tokens))
            for layout in self.layout
            for access in self.access
            for operation in self.operations
        ]

    def pool_bytes(self, tokens: int) -> int:
        """Return the memory on each side for the requests of this number of tokens."""
        return max(point.shape.size_bytes for point in self.points(tokens))

    def memory_bytes(self, tokens: int) -> int:
        """Return the memory of both sides together, with the descriptors' overhead."""
        descriptors = max(point.shape.descriptors for point in self.points(tokens))
        return 2 * self.pool_bytes(tokens) + _DESCRIPTOR_BYTES * descriptors


class _Point(NamedTuple):
    layout: str
    access: Access
    operation: nixl.Operation
    tokens: int
    shape: Shape

    @property
    def is_layered(self) -> bool:
        """Whether each layer is a separate request. kvbench puts all blocks into one request, however it cuts them."""
        return self.access == "layers" and self.layout == "paged"

    def iterations(self) -> int:
        """Timed requests: enough for about 2 GiB, 3 to 100."""
        return max(_FEWEST, min(_MOST, _TIMED_BYTES // self.shape.size_bytes))

    def blocks(self, base: int, pool_blocks: int, who: int) -> Groups:
        """Return the blocks in the memory of rank `who`, which begins at `base`."""
        if self.layout == "paged":  # each side has its own block table
            offsets = geometry.scatter_blocks(self.shape, pool_blocks, seed=2 * self.tokens + who)
        else:
            offsets = geometry.place_consecutively(self.shape)
        return [[(base + offset, self.shape.block_bytes) for offset in group] for group in offsets]


Groups = list[list[tuple[int, int]]]
"""The blocks of each layer as (address, bytes)."""

CacheJob = Job[CacheOptions, NicCase]
CacheRank = Rank[CacheOptions, NicCase]


class CacheCase(Case, frozen=True, kw_only=True):
    """The parameters of a point in a record."""

    size_bytes: int
    model: str
    layout: str
    access: str
    operation: str
    block_bytes: int
    layers: int = 0
    """Requests, one per layer; omitted if all blocks are one request."""


def _launches(options: CacheOptions, machine: Machine) -> tuple[Launch[NicCase], ...]:
    """Return the launches. Raises UsageError for KV heads that the ranks cannot split, and for too many blocks."""
    options.model.count_rank_heads(options.tp)
    for tokens in options.tokens:
        options.points(tokens)
    return between_hosts.launch_pair(options, machine)


def _find_fitting_tokens(job: CacheJob) -> tuple[tuple[int, ...], str]:
    """Return the numbers of tokens that fit into memory, and the reason why others do not, or an empty string.

    Uses the machine's total memory, so that both ranks and the parent get the same answer.
    """
    options = job.options
    memories = [memory.facts.get("size_bytes") for memory in job.topology.of_kind("memory")]
    known = [size for size in memories if isinstance(size, int)]
    if not known or len(known) < len(memories):
        return options.tokens, ""
    room = int(_MEMORY_SHARE * sum(known))
    fit = tuple(tokens for tokens in options.tokens if options.memory_bytes(tokens) <= room)
    smallest = min((tokens for tokens in options.tokens if tokens not in fit), default=None)
    if smallest is None:
        return fit, ""
    needed, whole = format_size(options.memory_bytes(smallest)), format_size(sum(known))
    return fit, f"{smallest} tokens need {needed} on both sides together, more than {_MEMORY_SHARE:g} of {whole}"


def _plan(job: CacheJob) -> Plan:
    fit, too_large = _find_fitting_tokens(job)
    points = [point for tokens in fit for point in job.options.points(tokens)]
    moved = sum((_WARM + point.iterations()) * point.shape.size_bytes for point in points)
    laid = 3 * sum(point.shape.size_bytes for point in points)
    passed = sum((2 + _WARM + point.iterations()) * point.shape.descriptors for point in points)
    return Plan(
        path=job.rank_path(),
        seconds=2 + (moved + laid) / _ESTIMATE_BYTES_PER_S + passed * _ESTIMATE_DESCRIPTOR_S,
        memory_bytes=max((job.options.memory_bytes(tokens) for tokens in fit), default=0),
        moved_bytes=moved,
        waived=("" if nixl.find_library() else nixl.explain_missing())
        or ("" if fit else too_large)
        or between_hosts.explain_no_nic(job, *between_hosts.list_memories(job)),
    )


def _run(rank: CacheRank) -> Iterator[Result]:
    blank = BENCHMARK.blank(rank.job.rank_path(), rank.job.case, ranks=rank.job.ranks)
    yield from waive_unavailable(rank, blank, _run_points(rank))


def _run_points(rank: CacheRank) -> Iterator[Result]:
    agents.write_log(rank)
    chosen = between_hosts.choose_transports(rank, between_hosts.list_memories(rank.job)[rank.index])
    between_hosts.require_metadata(rank)
    options = rank.job.options
    fit, too_large = _find_fitting_tokens(rank.job)
    if rank.index == 0:
        for tokens in sorted(set(options.tokens) - set(fit)):
            yield from (waived(_blank(rank, point), too_large) for point in options.points(tokens))
    pool_blocks = -(-max(fit) // options.block_tokens)
    pool_bytes = max(options.pool_bytes(tokens) for tokens in fit)
    seeds = Seeds.draw(rank)
    rank.step(f"kv_cache {format_size(pool_bytes)} of memory")
    with Buffer(pool_bytes) as buffer:
        pair = agents.join(rank, {"": buffer}, options.metadata, etcd=options.etcd)
        for point in (point for tokens in fit for point in options.points(tokens)):
            for result in _measure(rank, pair, buffer, point, pool_blocks, seeds.take()):
                yield replace(result, settings=result.settings | chosen)
        rank.comm.barrier()
        agents.withdraw(pair)


def _measure(
    rank: CacheRank, pair: Connection, buffer: Buffer, point: _Point, pool_blocks: int, seed: int
) -> Iterator[Result]:
    """Measure one point. Collective; rank 0 yields."""
    local = point.blocks(buffer.address, pool_blocks, rank.index)
    remote = point.blocks(pair.places[""].address, pool_blocks, 1 - rank.index)
    size = format_size(point.shape.size_bytes)
    rank.step(f"kv_cache {point.layout} {point.access} {point.operation} {size}")
    mine = Scattered([block for group in local for block in group])
    ends = Ends(None, mine) if rank.index else Ends(mine, None)
    payload = point.shape.size_bytes * (_WARM + point.iterations())
    seen = transfer(
        rank,
        ends,
        point.operation,
        seed,
        lambda: _time_requests(pair, point, local, remote),
        payload_bytes=lambda _done: payload,
    )
    if seen is not None:
        yield from _results(rank, pair, point, seen, seed)


class _RequestTimes(NamedTuple):
    """The times of a point's requests."""

    prepare_s: float
    """The time to prepare the requests."""
    passes: list[list[float]]
    """Seconds until each layer, or the whole request, was done."""
    posts: list[float]
    """The time of the post call alone, for whole requests."""


def _time_requests(pair: Connection, point: _Point, local: Groups, remote: Groups) -> _RequestTimes:
    if not point.is_layered:
        local, remote = ([[block for group in groups for block in group]] for groups in (local, remote))
    started = time.perf_counter()
    requests = [
        pair.agent.request_blocks(point.operation, ours, theirs, pair.peer)
        for ours, theirs in zip(local, remote, strict=True)
    ]
    prepare_s = time.perf_counter() - started
    patience_s = _PATIENCE_S + point.shape.size_bytes / _PATIENCE_BYTES_PER_S
    posts: list[float] = []
    if point.is_layered:
        passes = time_layers(pair.agent, requests, warm=_WARM, iterations=point.iterations(), patience_s=patience_s)
    else:
        seconds, posts = requests[0].time(warm=_WARM, iterations=point.iterations(), patience_s=patience_s)
        passes = [[second] for second in seconds]
    for request in requests:
        request.release()
    return _RequestTimes(prepare_s, passes, posts)


def _results(
    rank: CacheRank, pair: Connection, point: _Point, seen: Outcome[_RequestTimes], seed: int
) -> Iterator[Result]:
    """Yield the whole request's rate and time and, by layers, decode's wait for the first layer."""
    size, (prepare_s, passes, posts) = point.shape.size_bytes, seen.done
    costs: dict[str, Scalar] = {
        "prepare_s": prepare_s,
        "metadata_by": pair.way,
        "metadata_exchange_s": summarise(pair.seconds).median,
        "pattern_seed": seed,
    }
    if posts:
        costs["post_median_s"] = summarise(posts).median
    blank = _blank(rank, point)
    blank = replace(
        blank,
        settings=blank.settings | costs,
        verification=seen.check(blocks.BLOCKS_PATTERN, size),
        evidence=(
            ucx_protocol_evidence(agents.find_log(rank), point.operation, point.shape.block_bytes),
            seen.across or transport_evidence(size * (_WARM + point.iterations()), seen.loopback_bytes, "not lo"),
        ),
    )
    yield complete(blank, [size / layers[-1] for layers in passes])
    waits = {"last layer": -1, "first layer": 0} if len(passes[0]) > 1 else {"whole request": -1}
    for until, layer in waits.items():
        yield complete(blank, [layers[layer] for layers in passes], "latency_s", {"until": until})


def _blank(rank: CacheRank, point: _Point) -> Result:
    """Return a point's record before its measurement."""
    options, shape = rank.job.options, point.shape
    model, requests = options.model, shape.groups if point.is_layered else 1
    case = CacheCase(
        size_bytes=shape.size_bytes,
        model=model.name,
        layout=point.layout,
        access=point.access,
        operation=point.operation,
        block_bytes=shape.block_bytes,
        layers=requests if point.is_layered else 0,
    )
    settings: dict[str, Scalar] = {
        "tokens": point.tokens,
        "block_tokens": options.block_tokens,
        "tensor_parallel": options.tp,
        "layers": model.layers,
        "kv_heads": model.kv_heads,
        "kv_heads_of_rank": model.count_rank_heads(options.tp),
        "head_size": model.head_size,
        "mla": model.mla,
        "kv_dtype": options.dtype,
        "bytes_per_token": model.bytes_per_token(options.element_bytes),
        "descriptors": shape.descriptors,
        "requests": requests,
        "block_table": "random, each side its own" if point.layout == "paged" else "consecutive",
        "iterations": point.iterations(),
        "warm_up": _WARM,
        "mpi": library_version(),
        "backend": "UCX",
        "cpus": f"{rank.job.find_cpu(0)},{rank.job.find_cpu(1)}",
    }
    blank = BENCHMARK.blank(rank.job.rank_path(), case, settings=settings, ranks=rank.size)
    return replace(blank, parameters=blank.parameters | rank.job.case.parameters())


BENCHMARK = Benchmark(
    name="kv_cache",
    summary="the KV cache of one request in a model's paged blocks, NIXL WRITE and READ between host memories",
    method="one request of all blocks, or one per layer posted in turn, post and poll until done; blocks scattered as "
    "by a paged allocator, or as kvbench plans them; about 2 GiB, at least 3 requests",
    results=(
        Declaration("bandwidth_bytes_per_s", Message(one_sided=True, in_blocks=True)),
        Declaration("latency_s", Message(one_sided=True, in_blocks=True)),
    ),
    options=CacheOptions,
    case=NicCase,
    launches=_launches,
    plan=_plan,
    run=_run,
    spans_hosts=True,
    in_pairs=True,
)
