"""NIXL between memory and storage, as when a KV cache is put aside and taken back: files and objects.

Files go by POSIX, or by cuFile (GDS, GDS_MT) which also takes GPU memory; objects by OBJ.
NIXL reads and writes a descriptor as it was opened: here with O_DIRECT, or through the page cache where asked.
The OBJ plugin speaks S3. Objects keep their names from run to run, because NIXL cannot remove one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.after_crash import cases_behind
from railwright.benchmarks.base import Benchmark, Job, Option, Plan, Rank, Variant, choice, one_of, whole_number
from railwright.benchmarks.files.direct_file import device_of, folder_problem
from railwright.benchmarks.gpu import job as gpu_job
from railwright.benchmarks.kv.exchange import Service, parse_service, unreachable
from railwright.benchmarks.kv.storage import FileTarget, ObjectTarget, Target
from railwright.benchmarks.kv.transfer import counts
from railwright.errors import UsageError
from railwright.native import cufile, nixl
from railwright.native.cuda import Device, DeviceBuffer
from railwright.native.library import NativeError
from railwright.native.memory import PATTERN, Buffer
from railwright.native.nixl_crew import CrewPass, time_crew
from railwright.native.nixl_memory import AnyBuffer
from railwright.results.model import Evidence, Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.cpu_list import format_cpu_list
from railwright.topology.model import Scalar
from railwright.units import MIB, format_size, parse_size, parse_sizes

_BY_CUFILE = ("GDS", "GDS_MT")
_PASSES = {"POSIX": 7, "OBJ": 3, "GDS": 7, "GDS_MT": 7}
_MOST_REQUESTS = {"POSIX": 256, "OBJ": 8, "GDS": 256, "GDS_MT": 256}
_MOST_OBJECTS = 256
_MOST_BLOCKS, _MOST_BATCHES, _MOST_DEPTH = 4096, 8, 64
_MOST_BLOCK_BYTES = 2**30
_SECTOR_BYTES = 512
_PATIENCE_S = 60.0
_ESTIMATE_BYTES_PER_S = 0.3e9
_ESTIMATE_REQUEST_S = {"POSIX": 2e-4, "OBJ": 2e-2, "GDS": 2e-4, "GDS_MT": 2e-4}
_QUEUES = {"auto": "", "aio": "use_aio", "uring": "use_uring", "posix_aio": "use_posix_aio"}
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI")


class Point(NamedTuple):
    """One combination of what is varied."""

    operation: nixl.Operation
    size: int
    batch: int
    depth: int

    @property
    def request_bytes(self) -> int:
        """What one request moves."""
        return self.size * self.batch


def bucket_address(text: str) -> tuple[Service, str] | None:
    """`http://127.0.0.1:9000/bucket` as where it listens and its bucket, None for an empty text. Raises UsageError."""
    if not text:
        return None
    service = parse_service(text)
    allowed = all(letter.isalnum() or letter in ".-" for letter in service.path)
    if not 3 <= len(service.path) <= 63 or not allowed:
        raise UsageError(
            f"not the name of a bucket: {service.path[:70]!r}", hint="write http://HOST:PORT/BUCKET, 3 to 63 letters"
        )
    return service, service.path


_BATCHES = counts(_MOST_BLOCKS, _MOST_BATCHES)
_OPERATIONS = choice("WRITE", "READ")
_DIRECT = choice("yes", "no")
_MEMORIES = choice("DRAM", "VRAM")


def _points(options: Mapping[str, str]) -> list[Point]:
    return [
        Point("READ" if operation == "READ" else "WRITE", size, batch, int(options["depth"]))
        for operation in _OPERATIONS(options["operations"])
        for batch in _BATCHES(options["batches"])
        for size in parse_sizes(options["sizes"])
    ]


def _requests(backend: str, point: Point, room: int) -> int:
    """How many requests there are, each for a place of its own; 0 where not even one fits."""
    most = min(_MOST_REQUESTS[backend], _MOST_OBJECTS // point.batch) if backend == "OBJ" else _MOST_REQUESTS[backend]
    return min(most, room // point.request_bytes)


def _variants(options: Mapping[str, str]) -> tuple[Variant, ...]:
    backends, memories = choice(*_PASSES)(options["backend"]), _MEMORIES(options["memory"])
    return tuple(Variant(parameters=_varied(name, memory)) for name in backends for memory in memories)


def _varied(backend: str, memory: str) -> dict[str, Scalar]:
    """Host memory is not named, so that runs with and without the option compare."""
    return {"backend": backend, "memory": memory} if memory == "VRAM" else {"backend": backend}


def _backend(job: Job) -> str:
    return str(job.variant.parameters["backend"])


def _on_gpu(job: Job) -> bool:
    return "memory" in job.variant.parameters


def _plan(job: Job) -> Plan:
    backend, room = _backend(job), parse_size(job.options["file-size"])
    count = [(point, (1 + _PASSES[backend]) * _requests(backend, point, room)) for point in _points(job.options)]
    ways = len(_DIRECT(job.options["direct"])) if backend == "POSIX" else 1
    moved = ways * sum(point.request_bytes * repeats for point, repeats in count)
    calls = ways * sum(point.batch * repeats for point, repeats in count)
    folder = job.options["directory"]
    kept = f"at most {_MOST_OBJECTS} objects railwright-kv/N in {job.options['s3']}, which stay there"
    return Plan(
        path=_path(job, "WRITE", direct=True),
        seconds=2 + moved / _ESTIMATE_BYTES_PER_S + calls * _ESTIMATE_REQUEST_S[backend],
        memory_bytes=room + 4 * MIB,
        moved_bytes=moved,
        files=(kept if backend == "OBJ" else f"a nameless file of {format_size(room)} in {folder}",),
        waived=_problem(job),
    )


def _problem(job: Job) -> str:
    """Why this backend cannot be measured with these options, or an empty string. Asks no service."""
    if not nixl.find_library():
        return nixl.NOT_INSTALLED
    backend = _backend(job)
    if _on_gpu(job) and backend not in _BY_CUFILE:
        return f"NIXL's {backend} backend moves host memory only: -o backend=GDS"
    if backend in _BY_CUFILE and (without := gpu_job.waived(job)):
        return without
    if backend != "OBJ":
        odd = [size for size in parse_sizes(job.options["sizes"]) if size % _SECTOR_BYTES]
        if odd and "yes" in _DIRECT(job.options["direct"]):
            return f"direct I/O takes multiples of {_SECTOR_BYTES} bytes, {odd[0]} was asked for: -o direct=no"
        return folder_problem(job)
    if bucket_address(job.options["s3"]) is None:
        return "no S3 bucket was named: -o s3=http://HOST:PORT/BUCKET"
    if not any(os.environ.get(name) for name in _CREDENTIALS):
        return (
            "no credentials for S3 in the environment: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    return ""


def _path(job: Job, operation: str, *, direct: bool) -> str:
    """From memory to the drive, to the page cache, or to the object store; or back."""
    memory = job.gpu_of(0).id if _on_gpu(job) and job.gpus else job.memory_of(0)
    drive = device_of(job.topology, job.options["directory"]) if direct else "pagecache"
    storage = "s3" if _backend(job) == "OBJ" else drive
    return f"{storage}>{memory}" if operation == "READ" else f"{memory}>{storage}"


def _run(rank: Rank) -> Iterator[Result]:
    backend, options = _backend(rank.job), rank.job.options
    rank.step(f"NIXL plugin {backend}")
    refused = (cufile.unusable() if backend in _BY_CUFILE else "") or nixl.plugin_problem(backend)
    address = bucket_address(options["s3"]) if backend == "OBJ" else None
    if not refused and address is not None and (silent := unreachable(address[0])):
        refused = f"no S3 answers at {silent}"
    if refused:
        yield _waived(rank, f"NIXL's {backend} backend: {refused}", dict(rank.job.variant.parameters))
        return
    room = parse_size(options["file-size"])
    _let_threads_run(rank.job)
    with contextlib.ExitStack() as stack:
        buffer = _buffer(rank, room, stack)
        if address is not None and isinstance(buffer, Buffer):
            yield from _objects(rank, buffer, room, address)
        else:
            yield from _files(rank, buffer, room)


def _let_threads_run(job: Job) -> None:
    """All but the kernel's own queues have threads that move the data while ours polls, which needs a CPU as well."""
    if _backend(job) != "POSIX" or job.options["queue"] == "posix_aio":
        os.sched_setaffinity(0, job.cpus_beside(0))


def _buffer(rank: Rank, room: int, stack: contextlib.ExitStack) -> AnyBuffer:
    """The memory; with cuFile a GPU's context is the current one, for host memory too."""
    if _backend(rank.job) not in _BY_CUFILE:
        return stack.enter_context(Buffer(room))
    device = stack.enter_context(Device(rank.job.gpu_of(0).address))
    return stack.enter_context(DeviceBuffer(device, room)) if _on_gpu(rank.job) else stack.enter_context(Buffer(room))


def _files(rank: Rank, buffer: AnyBuffer, room: int) -> Iterator[Result]:
    """Waived where cuFile refuses the file: most file systems and drives have no GPUDirect Storage."""
    backend, options = _backend(rank.job), rank.job.options
    target = FileTarget(rank, buffer, backend, _parameters_of_queue(options["queue"]) if backend == "POSIX" else {})
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(target)
        except NativeError as error:
            if backend not in _BY_CUFILE:
                raise
            yield _waived(rank, f"{error.message}{cufile.why(rank.scratch)}", dict(rank.job.variant.parameters))
            return
        for direct in _DIRECT(options["direct"]) if backend == "POSIX" else ("yes",):
            file.go_direct(direct == "yes")
            yield from _measure_all(rank, file, buffer, room)


def _objects(rank: Rank, buffer: Buffer, room: int, address: tuple[Service, str]) -> Iterator[Result]:
    """Also says which service refused: NIXL's own error does not."""
    service, bucket = address
    largest = max(point.size for point in _points(rank.job.options))
    try:
        yield from _measure_all(rank, ObjectTarget(service, bucket, buffer, largest, _MOST_OBJECTS), buffer, room)
    except NativeError as error:
        meaning = f"the backend failed; is the bucket {bucket} there, and may these credentials use it?"
        raise NativeError(f"NIXL with S3 at {service.url}", error.code, meaning) from error


def _parameters_of_queue(queue: str) -> dict[str, str]:
    return {_QUEUES[queue]: "true"} if _QUEUES[queue] else {}


def _waived(rank: Rank, reason: str, parameters: dict[str, Scalar]) -> Result:
    return Result(
        benchmark=BENCHMARK.name,
        quantity="bandwidth_bytes_per_s",
        path=_path(rank.job, "WRITE", direct=True),
        method=BENCHMARK.method,
        parameters=parameters,
        outcome="waived",
        reason=reason,
    )


def _measure_all(rank: Rank, target: Target, buffer: AnyBuffer, room: int) -> Iterator[Result]:
    backend = _backend(rank.job)
    for point in _points(rank.job.options)[rank.job.first_case :]:
        parameters = _parameters(target, point)
        count = _requests(backend, point, room)
        rank.step(_step(backend, point))
        if count == 0:
            reason = (
                f"a request of {format_size(point.request_bytes)} is larger than {format_size(room)}: -o file-size="
            )
            yield _waived(rank, reason, parameters)
        else:
            yield from _measure(rank, target, buffer, point, count)


def _step(backend: str, point: Point) -> str:
    return f"kv_file {backend} {point.operation} {format_size(point.size)} x {point.batch}"


def _after_crash(job: Job, results: Sequence[Result]) -> Job | None:
    """The cases behind the one in which NIXL or cuFile crashed; None where it was none of them, or the last one."""
    points, backend = _points(job.options), _backend(job)
    if backend not in _BY_CUFILE:
        return None
    steps = [_step(backend, point) for point in points]
    return cases_behind(job, results, steps, keys=("operation", "size_bytes", "batch"))


def _parameters(target: Target, point: Point) -> dict[str, Scalar]:
    many = {"batch": point.batch, "depth": point.depth}
    varied: dict[str, Scalar] = {"size_bytes": point.size, "operation": point.operation, **target.parameters()}
    return varied | {name: value for name, value in many.items() if value != 1}


def _measure(rank: Rank, target: Target, buffer: AnyBuffer, point: Point, count: int) -> Iterator[Result]:
    backend, region = _backend(rank.job), count * point.request_bytes
    good, poison = 4 * point.size + (point.operation == "READ"), 4 * point.size + 2
    blocks = [
        [(start + block * point.size, point.size) for block in range(point.batch)]
        for start in range(0, region, point.request_bytes)
    ]
    buffer.fill(good, region)
    if point.operation == "READ":
        target.lay(blocks)
        buffer.fill(poison, region)
    requests = [target.request(point.operation, one) for one in blocks]
    one_pass = partial(time_crew, [requests], [-1], depth=point.depth, iterations=count, patience_s=_PATIENCE_S)
    target.watch(one_pass, point.operation, blocks)
    passes = [one_pass() for _ in range(_PASSES[backend])]
    for request in requests:
        request.release()
    wrong = buffer.count_wrong(good, region) if point.operation == "READ" else target.count_wrong(good, blocks)
    seen = target.evidence()
    elsewhere = _other_queue(rank.job.options["queue"], seen)
    common = Result(
        benchmark=BENCHMARK.name,
        quantity="latency_s",
        outcome="failed" if elsewhere else "measured",
        reason=elsewhere,
        path=_path(rank.job, point.operation, direct=target.parameters().get("direct", True) is True),
        method=BENCHMARK.method,
        parameters=_parameters(target, point),
        settings={
            "requests_per_pass": count,
            "passes": len(passes),
            "descriptors": point.batch,
            "in_flight": point.depth,
            "order": "sequential",
            "post_median_s": summarise([post for one in passes for post in one.posts]).median,
            "cpus": format_cpu_list(os.sched_getaffinity(0)),
        },
        verification=Verification(method=PATTERN, bytes_checked=region, bytes_wrong=wrong),
        evidence=(Evidence(claim="backend", value=backend, seen="the only one this agent has"), *seen),
    )
    yield from _as_results(common, passes, region)


def _other_queue(asked: str, evidence: tuple[Evidence, ...]) -> str:
    """Which queue ran where another was asked for, or an empty string."""
    ran = next((one for one in evidence if one.claim == "queue"), None)
    if ran is None or asked == "auto" or ran.value in (asked, "unknown"):
        return ""
    return f"{asked} was asked for, but {ran.seen}: it ran over {ran.value}"


def _as_results(common: Result, passes: list[CrewPass], region: int) -> Iterator[Result]:
    seconds = [second for one in passes for second in one.seconds]
    rates = tuple(region / one.elapsed_s for one in passes)
    yield replace(common, samples=tuple(seconds), summary=summarise(seconds))
    yield replace(common, quantity="bandwidth_bytes_per_s", samples=rates, summary=summarise(rates))


def _folder(text: str) -> str:
    if not text or not Path(text).is_dir():
        raise UsageError(f"not a folder: {text[:80]!r}", hint="give one on the file system to measure")
    return text


def _block_sizes(text: str) -> tuple[int, ...]:
    sizes = parse_sizes(text)
    if max(sizes) > _MOST_BLOCK_BYTES:
        raise UsageError(f"a block of {format_size(max(sizes))} is above 1 GiB", hint="give smaller blocks")
    return sizes


BENCHMARK = Benchmark(
    name="kv_file",
    summary="NIXL WRITE and READ between host or GPU memory and files, or objects of an S3 store",
    method="nixlbench 1.4 --backend POSIX, GDS, GDS_MT or OBJ: requests of `batch` descriptors, post and poll until "
    "done, in turn over the file or the objects; 7 passes over a file, 3 over objects, after one that is not counted",
    quantities=("latency_s", "bandwidth_bytes_per_s"),
    ranks=1,
    plan=_plan,
    run=_run,
    variants=_variants,
    after_crash=_after_crash,
    options=(
        Option("backend", "POSIX", "POSIX, OBJ, GDS, GDS_MT, or several", choice(*_PASSES)),
        Option("memory", "DRAM", "DRAM, VRAM (GDS and GDS_MT only), or both", _MEMORIES),
        Option("directory", ".", "the folder on the file system to measure", _folder),
        Option("file-size", "64M", "size of the test file, or of all objects of one point, like 64M", parse_size),
        Option("sizes", "4K,1M", "block sizes, like 4K,1M", _block_sizes),
        Option("batches", "1,16", "blocks in one request, like 1,16", _BATCHES),
        Option("depth", "1", "requests in flight", whole_number(_MOST_DEPTH)),
        Option("operations", "WRITE,READ", "WRITE, READ, or WRITE,READ", _OPERATIONS),
        Option("direct", "yes", "yes (O_DIRECT), no (page cache), or yes,no", _DIRECT),
        Option("queue", "auto", "auto, aio, uring or posix_aio", one_of(*_QUEUES)),
        Option("s3", "", "a bucket that is there, like http://127.0.0.1:9000/bucket", bucket_address),
    ),
)
