"""Options of `kv_file`: NIXL's storage backends and the amounts to move."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from railwright.benchmarks.benchmark import Rank
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.kv.services import Service, bucket_address
from railwright.benchmarks.options import Options, choice, option, single_choice, whole_number, whole_numbers
from railwright.errors import UsageError
from railwright.native import nixl
from railwright.units import format_size, parse_size, parse_sizes

_MOST_BLOCKS, _MOST_BATCHES, _MOST_DEPTH = 4096, 8, 64
_MOST_BLOCK_BYTES = 2**30


class Backend(NamedTuple):
    """The limits and costs of measuring a NIXL backend."""

    passes: int = 7
    most_requests: int = 256
    by_cufile: bool = False
    estimate_request_s: float = 2e-4


BACKENDS = {
    "POSIX": Backend(),
    "OBJ": Backend(passes=3, most_requests=8, estimate_request_s=2e-2),
    "GDS": Backend(by_cufile=True),
    "GDS_MT": Backend(by_cufile=True),
}


def _parse_folder(text: str) -> str:
    if not text or not Path(text).is_dir():
        raise UsageError(f"must be a folder, got {text[:80]!r}", hint="give one on the file system to measure")
    return text


def _parse_block_sizes(text: str) -> tuple[int, ...]:
    sizes = parse_sizes(text)
    if max(sizes) > _MOST_BLOCK_BYTES:
        raise UsageError(f"blocks must be at most 1 GiB, got {format_size(max(sizes))}", hint="give smaller blocks")
    return sizes


class FileOptions(Options, frozen=True):
    """Options of transfers to and from storage."""

    backend: tuple[str, ...] = option("POSIX", "POSIX, OBJ, GDS, GDS_MT, or several", choice(*BACKENDS))
    memory: tuple[str, ...] = option("DRAM", "DRAM, VRAM (GDS and GDS_MT only), or both", choice("DRAM", "VRAM"))
    directory: str = option(".", "the folder on the file system to measure", _parse_folder)
    file_size: int = option("64M", "size of the test file, or of all objects of one point, like 64M", parse_size)
    sizes: tuple[int, ...] = option("4K,1M", "block sizes, like 4K,1M", _parse_block_sizes)
    batches: tuple[int, ...] = option(
        "1,16", "blocks in one request, like 1,16", whole_numbers(_MOST_BLOCKS, _MOST_BATCHES)
    )
    depth: int = option("1", "requests in flight", whole_number(_MOST_DEPTH))
    operations: tuple[nixl.Operation, ...] = option("WRITE,READ", "WRITE, READ, or WRITE,READ", choice("WRITE", "READ"))
    direct: tuple[str, ...] = option("yes", "yes (O_DIRECT), no (page cache), or yes,no", choice("yes", "no"))
    queue: str = option("auto", "auto, aio, uring or posix_aio", single_choice("auto", "aio", "uring", "posix_aio"))
    s3: Service | None = option("", "an existing bucket, like http://127.0.0.1:9000/bucket", bucket_address)


class Store(Case, frozen=True, kw_only=True):
    """The parameters that a launch varies. Host memory is omitted, so that runs with and without the option compare."""

    backend: str
    memory: str = "DRAM"


class FileCase(Case, frozen=True, kw_only=True):
    """The parameters of a point in a record."""

    size_bytes: int
    operation: nixl.Operation
    backend: str
    memory: str = "DRAM"
    direct: bool | None = None
    queue: str = ""
    batch: int = 1
    depth: int = 1

    @property
    def request_bytes(self) -> int:
        """The bytes that one request moves."""
        return self.size_bytes * self.batch


KvFileJob = Job[FileOptions, Store]
KvFileRank = Rank[FileOptions, Store]


def points(job: KvFileJob) -> list[FileCase]:
    """List the points of a launch; POSIX has each choice of `direct`."""
    case, options = job.case, job.options
    return [
        FileCase(
            size_bytes=size,
            operation=operation,
            backend=case.backend,
            memory=case.memory,
            queue=options.queue if case.backend == "POSIX" else "",
            batch=batch,
            depth=options.depth,
        )
        for operation in options.operations
        for batch in options.batches
        for size in options.sizes
    ]


def launches(options: FileOptions, _machine: Machine) -> tuple[Launch[Store], ...]:
    """Return a launch for each backend and memory."""
    return tuple(
        Launch(case=Store(backend=name, memory=memory)) for name in options.backend for memory in options.memory
    )
