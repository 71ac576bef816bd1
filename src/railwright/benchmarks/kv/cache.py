"""The KV cache of one request, moved by NIXL from a prefill to a decode process in a real model's paged blocks.

With WRITE rank 0 is prefill and pushes, with READ it is decode and pulls; rank 1 owns the other memory.
The blocks of both sides lie where a paged allocator would have put them, each side by a block table of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.base import Benchmark, Job, Option, Plan, Rank, choice, one_of, whole_number
from railwright.benchmarks.evidence import LoopbackMeter, transport_evidence, ucx_protocol_evidence
from railwright.benchmarks.kv import geometry as kv_geometry
from railwright.benchmarks.kv.geometry import GEOMETRIES, Access, Geometry, Shape
from railwright.benchmarks.kv.pair import Pair, connect, log_of, wait_for_initiator
from railwright.errors import UsageError, unknown_name
from railwright.native import blocks, nixl
from railwright.native.memory import Buffer
from railwright.native.mpi import library_version
from railwright.native.nixl_layers import time_layers
from railwright.results.model import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.model import Scalar
from railwright.topology.sources.root import read_bounded
from railwright.units import GIB, format_size

Layout = Literal["paged", "as-kvbench"]

_WARM, _FEWEST, _MOST = 1, 3, 100
_TIMED_BYTES = 2 * GIB
_MEMORY_SHARE = 0.7
"""Of the machine's memory: larger requests are waived one by one, so that a small machine still measures the rest."""
_DESCRIPTOR_BYTES = 2 * 512
"""What a block costs beside its bytes, in the lists of both sides and in NIXL's."""
_MOST_TOKENS, _MOST_TOKEN_COUNTS = 2**20, 16
_ESTIMATE_BYTES_PER_S = 4e9
_ESTIMATE_DESCRIPTOR_S = 5e-6
_PATIENCE_S, _PATIENCE_BYTES_PER_S = 20.0, 1e8


class _Asked(NamedTuple):
    """The options, parsed."""

    geometry: Geometry
    element_bytes: int
    tokens: tuple[int, ...]
    block_tokens: int
    tensor_parallel: int
    layouts: tuple[str, ...]
    accesses: tuple[str, ...]
    operations: tuple[str, ...]

    def shape(self, layout: str, access: str, tokens: int) -> Shape:
        """Raises UsageError for more blocks than one request may have."""
        if layout == "paged":
            return kv_geometry.paged(self.geometry, self.element_bytes, tokens, self.block_tokens, self.tensor_parallel)
        kind: Access = "layers" if access == "layers" else "whole"
        return kv_geometry.as_kvbench(
            self.geometry, self.element_bytes, tokens, self.block_tokens, self.tensor_parallel, kind
        )

    def points(self, tokens: int) -> Iterator[_Point]:
        """Everything that is measured with that many tokens."""
        for layout in self.layouts:
            for access in self.accesses:
                for operation in self.operations:
                    yield _Point(layout, access, operation, tokens, self.shape(layout, access, tokens))

    def pool_bytes(self, tokens: int) -> int:
        """The memory of each side that the requests of that many tokens lie in."""
        return max(point.shape.size_bytes for point in self.points(tokens))

    def memory_bytes(self, tokens: int) -> int:
        """Of both sides together, with what the descriptors cost."""
        descriptors = max(point.shape.descriptors for point in self.points(tokens))
        return 2 * self.pool_bytes(tokens) + _DESCRIPTOR_BYTES * descriptors


class _Point(NamedTuple):
    layout: str
    access: str
    operation: str
    tokens: int
    shape: Shape

    @property
    def by_layers(self) -> bool:
        """Whether each layer is a request of its own. kvbench puts all blocks into one, however it cuts them."""
        return self.access == "layers" and self.layout == "paged"

    def iterations(self) -> int:
        """Timed requests: enough for about 2 GiB, 3 to 100."""
        return max(_FEWEST, min(_MOST, _TIMED_BYTES // self.shape.size_bytes))

    def offsets(self, pool_blocks: int, who: int) -> list[list[int]]:
        """Where the blocks lie in the memory of rank `who`, by layer."""
        if self.layout == "paged":
            return kv_geometry.scattered(self.shape, pool_blocks, seed=_table_seed(self.tokens, who))
        return kv_geometry.consecutive(self.shape)


def _table_seed(tokens: int, who: int) -> int:
    return 2 * tokens + who


def geometry_of(text: str) -> Geometry:
    """The geometry of a model's name, or of the config.json at a path or in a folder. Raises UsageError."""
    if text in GEOMETRIES:
        return GEOMETRIES[text]
    if "/" not in text and not text.endswith(".json"):
        raise unknown_name("model", text, GEOMETRIES)
    path = Path(text)
    try:
        raw = read_bounded(path / "config.json" if path.is_dir() else path, kv_geometry.MAX_CONFIG_BYTES)
    except UsageError as error:
        raise UsageError(
            error.message, hint=f"give a model's config.json, or one of {', '.join(GEOMETRIES)}"
        ) from error
    return kv_geometry.from_config(raw)


def _token_counts(text: str) -> tuple[int, ...]:
    counts = tuple(dict.fromkeys(whole_number(_MOST_TOKENS)(part.strip()) for part in text[:400].split(",")))
    if len(counts) > _MOST_TOKEN_COUNTS:
        raise UsageError(f"{len(counts)} numbers of tokens, more than {_MOST_TOKEN_COUNTS}", hint="give fewer")
    return tuple(sorted(counts))


def _asked(options: Mapping[str, str]) -> _Asked:
    """Raises UsageError, also for KV heads that cannot be split over the ranks."""
    asked = _Asked(
        geometry=geometry_of(options["model"]),
        element_bytes=kv_geometry.ELEMENT_BYTES[options["dtype"]],
        tokens=_token_counts(options["tokens"]),
        block_tokens=int(options["block-tokens"]),
        tensor_parallel=int(options["tp"]),
        layouts=choice("paged", "as-kvbench")(options["layout"]),
        accesses=choice("whole", "layers")(options["access"]),
        operations=choice("WRITE", "READ")(options["operations"]),
    )
    asked.geometry.heads_of_rank(asked.tensor_parallel)
    return asked


def _fitting(job: Job, asked: _Asked) -> tuple[tuple[int, ...], str]:
    """The numbers of tokens that fit into this machine's memory; and why the others do not, empty if all do.

    From the machine's whole memory, so that both ranks and the parent come to the same.
    """
    memories = [memory.facts.get("size_bytes") for memory in job.topology.of_kind("memory")]
    known = [size for size in memories if isinstance(size, int)]
    if not known or len(known) < len(memories):
        return asked.tokens, ""
    room = int(_MEMORY_SHARE * sum(known))
    fit = tuple(tokens for tokens in asked.tokens if asked.memory_bytes(tokens) <= room)
    least = min((tokens for tokens in asked.tokens if tokens not in fit), default=None)
    if least is None:
        return fit, ""
    needed, whole = format_size(asked.memory_bytes(least)), format_size(sum(known))
    return fit, f"{least} tokens need {needed} on both sides together, more than {_MEMORY_SHARE:g} of {whole}"


def _plan(job: Job) -> Plan:
    asked = _asked(job.options)
    fit, too_large = _fitting(job, asked)
    points = [point for tokens in fit for point in asked.points(tokens)]
    moved = sum((_WARM + point.iterations()) * point.shape.size_bytes for point in points)
    laid = 3 * sum(point.shape.size_bytes for point in points)
    passed = sum((2 + _WARM + point.iterations()) * point.shape.descriptors for point in points)
    waived = "" if nixl.find_library() else "NIXL is not installed: run `railwright setup nixl`"
    return Plan(
        path=f"{job.memory_of(0)}>{job.memory_of(1)}",
        seconds=2 + (moved + laid) / _ESTIMATE_BYTES_PER_S + passed * _ESTIMATE_DESCRIPTOR_S,
        memory_bytes=max((asked.memory_bytes(tokens) for tokens in fit), default=0),
        moved_bytes=moved,
        waived=waived or ("" if fit else too_large),
    )


def _run(rank: Rank) -> Iterator[Result]:
    comm = rank.comm
    asked = _asked(rank.job.options)
    fit, too_large = _fitting(rank.job, asked)
    if rank.index == 0:
        for tokens in sorted(set(asked.tokens) - set(fit)):
            yield from (_without(rank, asked, point, too_large) for point in asked.points(tokens))
    pool_blocks = -(-max(fit) // asked.block_tokens)
    pool_bytes = max(asked.pool_bytes(tokens) for tokens in fit)
    rank.step(f"kv_cache {format_size(pool_bytes)} of memory")
    with Buffer(pool_bytes) as buffer:
        pair = connect(rank, buffer)
        points = [point for tokens in fit for point in asked.points(tokens)]
        for number, point in enumerate(points):
            size = format_size(point.shape.size_bytes)
            rank.step(f"kv_cache laying {size} of blocks")
            sides = (2 * number, 2 * number + 1)  # seeds of the pattern: what rank 0 and what rank 1 lays down
            ours, theirs = (point.offsets(pool_blocks, who) for who in (rank.index, 1 - rank.index))
            local = _at(buffer.address, ours, point.shape)
            blocks.fill([block for group in local for block in group], sides[rank.index])
            comm.barrier()
            rank.step(f"kv_cache {point.layout} {point.access} {point.operation} {size}")
            if rank.index == 0:
                remote = _at(pair.peer_address, theirs, point.shape)
                yield from _initiate(rank, asked, point, pair, local, remote, sides[1])
            else:
                wait_for_initiator(rank)
                comm.send(_wrong(local, sides[0]) if point.operation == "WRITE" else 0, dest=0)
        comm.barrier()


Groups = list[list[tuple[int, int]]]
"""For each layer its blocks, each (address, bytes)."""


def _at(base: int, offsets: list[list[int]], shape: Shape) -> Groups:
    return [[(base + offset, shape.block_bytes) for offset in group] for group in offsets]


def _wrong(groups: Groups, seed: int) -> int:
    return blocks.count_wrong([block for group in groups for block in group], seed)


def _initiate(
    rank: Rank, asked: _Asked, point: _Point, pair: Pair, local: Groups, remote: Groups, their_seed: int
) -> Iterator[Result]:
    """Rank 0: build the requests, time them, and have every byte checked on the side where it arrived."""
    verb: nixl.Operation = "READ" if point.operation == "READ" else "WRITE"
    if not point.by_layers:
        local, remote = ([[block for group in groups for block in group]] for groups in (local, remote))
    started = time.perf_counter()
    requests = [
        pair.agent.request_blocks(verb, ours, theirs, pair.peer_name)
        for ours, theirs in zip(local, remote, strict=True)
    ]
    prepare_s = time.perf_counter() - started
    meter = LoopbackMeter()
    iterations, size = point.iterations(), point.shape.size_bytes
    patience_s = _PATIENCE_S + size / _PATIENCE_BYTES_PER_S
    posts: list[float] = []
    if point.by_layers:
        passes = time_layers(pair.agent, requests, warm=_WARM, iterations=iterations, patience_s=patience_s)
    else:
        seconds, posts = requests[0].time(warm=_WARM, iterations=iterations, patience_s=patience_s)
        passes = [[second] for second in seconds]
    moved = meter.moved_bytes()
    for request in requests:
        request.release()
    rank.comm.send(None, dest=1)
    wrong = rank.comm.recv(source=1)
    if point.operation == "READ":
        wrong = _wrong(local, their_seed)
    costs: dict[str, Scalar] = {"prepare_s": prepare_s, "metadata_exchange_s": pair.exchange_s}
    if posts:
        costs["post_median_s"] = summarise(posts).median
    common = replace(
        _record(rank, asked, point),
        verification=Verification(method=blocks.BLOCKS_PATTERN, bytes_checked=size, bytes_wrong=wrong),
        evidence=(
            ucx_protocol_evidence(log_of(rank), "get" if verb == "READ" else "put", point.shape.block_bytes),
            transport_evidence(size * (_WARM + iterations), moved, "not lo"),
        ),
    )
    yield from _as_results(replace(common, settings=common.settings | costs), passes, size)


def _as_results(common: Result, passes: list[list[float]], size: int) -> Iterator[Result]:
    """The rate of the whole request, how long it took, and by layers how long decode waits for the first one."""
    rates = tuple(size / layers[-1] for layers in passes)
    yield replace(common, quantity="bandwidth_bytes_per_s", samples=rates, summary=summarise(rates))
    waits = {"last layer": -1, "first layer": 0} if len(passes[0]) > 1 else {"whole request": -1}
    for until, layer in waits.items():
        seconds = tuple(layers[layer] for layers in passes)
        parameters = common.parameters | {"until": until}
        yield replace(common, parameters=parameters, samples=seconds, summary=summarise(seconds), quantity="latency_s")


def _without(rank: Rank, asked: _Asked, point: _Point, reason: str) -> Result:
    return replace(_record(rank, asked, point), outcome="waived", reason=reason)


def _record(rank: Rank, asked: _Asked, point: _Point) -> Result:
    """Everything about a point that is known before it is measured."""
    geometry, shape = asked.geometry, point.shape
    requests = shape.groups if point.by_layers else 1
    parameters: dict[str, Scalar] = {
        "size_bytes": shape.size_bytes,
        "model": geometry.name,
        "layout": point.layout,
        "access": point.access,
        "operation": point.operation,
        "block_bytes": shape.block_bytes,
    }
    settings: dict[str, Scalar] = {
        "tokens": point.tokens,
        "block_tokens": asked.block_tokens,
        "tensor_parallel": asked.tensor_parallel,
        "layers": geometry.layers,
        "kv_heads": geometry.kv_heads,
        "kv_heads_of_rank": geometry.heads_of_rank(asked.tensor_parallel),
        "head_size": geometry.head_size,
        "mla": geometry.mla,
        "kv_dtype": rank.job.options["dtype"],
        "bytes_per_token": geometry.bytes_per_token(asked.element_bytes),
        "descriptors": shape.descriptors,
        "requests": requests,
        "block_table": "random, each side its own" if point.layout == "paged" else "consecutive",
        "iterations": point.iterations(),
        "warm_up": _WARM,
        "metadata_by": "mpi",
        "mpi": library_version(),
        "backend": "UCX",
        "cpus": f"{rank.job.cpu_of(0)},{rank.job.cpu_of(1)}",
    }
    return Result(
        benchmark=BENCHMARK.name,
        quantity="bandwidth_bytes_per_s",
        path=f"{rank.job.memory_of(0)}>{rank.job.memory_of(1)}",
        method=BENCHMARK.method,
        parameters=parameters | ({"layers": requests} if point.by_layers else {}),
        settings=settings,
        ranks=rank.size,
    )


BENCHMARK = Benchmark(
    name="kv_cache",
    summary="the KV cache of one request in a model's paged blocks, NIXL WRITE and READ between host memories",
    method="one request of all blocks, or one per layer posted in turn, post and poll until done; blocks scattered as "
    "by a paged allocator, or as kvbench plans them; about 2 GiB, at least 3 requests",
    quantities=("bandwidth_bytes_per_s", "latency_s"),
    ranks=2,
    plan=_plan,
    run=_run,
    options=(
        Option("model", "llama-3.1-8b", "a model's name, or the path of its config.json", geometry_of),
        Option("tokens", "1024,8192,32768", "tokens of one request, like 1024,8192", _token_counts),
        Option("block-tokens", "16", "tokens of one block: 16 is vLLM's default", whole_number(4096)),
        Option("tp", "1", "tensor parallel degree; the share of one rank is moved", whole_number(1024)),
        Option("layout", "paged", "paged, as-kvbench, or paged,as-kvbench", choice("paged", "as-kvbench")),
        Option("access", "whole,layers", "whole, layers, or whole,layers", choice("whole", "layers")),
        Option("operations", "WRITE,READ", "WRITE, READ, or WRITE,READ", choice("WRITE", "READ")),
        Option("dtype", "bf16", "type of the cache's elements: bf16, fp16, fp8, int8 or fp32",
               one_of(*kv_geometry.ELEMENT_BYTES)),
    ),
    needs_mpi=True,
)  # fmt: skip
