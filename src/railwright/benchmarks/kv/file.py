"""NIXL between memory and storage, files and objects, as when a KV cache is offloaded and restored.

Files use the POSIX backend or cuFile (GDS, GDS_MT), which also takes GPU memory; objects use OBJ. NIXL uses a
descriptor as it was opened: with O_DIRECT, or through the page cache if requested. The OBJ plugin speaks S3. Objects
keep their names from run to run, because NIXL cannot remove them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from railwright.benchmarks.benchmark import Benchmark, Plan, skip_crashed
from railwright.benchmarks.files.direct_file import find_device, folder_problem
from railwright.benchmarks.gpu import job as gpu_job
from railwright.benchmarks.gpu.file_route import route_evidence
from railwright.benchmarks.kv import file_options
from railwright.benchmarks.kv.file_options import Backend, FileCase, FileOptions, KvFileJob, KvFileRank, Store
from railwright.benchmarks.kv.services import Service, explain_unreachable
from railwright.benchmarks.kv.storage import FileTarget, ObjectTarget, Target
from railwright.benchmarks.kv.timed import combine_passes, record_timed
from railwright.benchmarks.kv.verified import Ends, Region, Seeds, transfer
from railwright.benchmarks.record import failed_if, waived
from railwright.limits.limit import Quantity
from railwright.native import cufile, nixl
from railwright.native.cuda import Device, DeviceBuffer
from railwright.native.cufile_watch import Watch
from railwright.native.library import NativeError
from railwright.native.memory import PATTERN, Buffer
from railwright.native.nixl_crew import CrewPass, time_crew
from railwright.native.nixl_memory import AnyBuffer
from railwright.results.declarations import Declaration
from railwright.results.records import Evidence, Result
from railwright.results.workload import Files
from railwright.topology.cpu_list import format_cpu_list
from railwright.units import MIB, format_size

_MOST_OBJECTS = 256
_SECTOR_BYTES = 512
_PATIENCE_S = 60.0
_ESTIMATE_BYTES_PER_S = 0.3e9
_QUEUES = {"auto": "", "aio": "use_aio", "uring": "use_uring", "posix_aio": "use_posix_aio"}
_QUANTITIES: tuple[Quantity, ...] = ("latency_s", "bandwidth_bytes_per_s")
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI")


def _backend(job: KvFileJob) -> Backend:
    return file_options.BACKENDS[job.case.backend]


def _is_on_gpu(job: KvFileJob) -> bool:
    return job.case.memory == "VRAM"


def _count_requests(job: KvFileJob, point: FileCase) -> int:
    """Return the number of requests, each at its own place, or 0 if none fits."""
    most = _backend(job).most_requests
    if job.case.backend == "OBJ":
        most = min(most, _MOST_OBJECTS // point.batch)
    return min(most, job.options.file_size // point.request_bytes)


def _plan(job: KvFileJob) -> Plan:
    backend, options = _backend(job), job.options
    counts = [(point, (1 + backend.passes) * _count_requests(job, point)) for point in file_options.points(job)]
    ways = len(options.direct) if job.case.backend == "POSIX" else 1
    moved = ways * sum(point.request_bytes * repeats for point, repeats in counts)
    calls = ways * sum(point.batch * repeats for point, repeats in counts)
    file = f"a nameless file of {format_size(options.file_size)} in {options.directory}"
    if job.case.backend == "OBJ" and options.s3 is not None:
        bucket = f"{options.s3.url}/{options.s3.path}"
        file = f"at most {_MOST_OBJECTS} objects railwright-kv/N in {bucket}, which stay there"
    return Plan(
        path=_path(job, "WRITE"),
        seconds=2 + moved / _ESTIMATE_BYTES_PER_S + calls * backend.estimate_request_s,
        memory_bytes=options.file_size + 4 * MIB,
        moved_bytes=moved,
        files=(file,),
        waived=_problem(job),
    )


def _problem(job: KvFileJob) -> str:
    """Return the reason why the options rule out this backend, or an empty string. Contacts no service."""
    name, backend, options = job.case.backend, _backend(job), job.options
    if not nixl.find_library():
        return nixl.explain_missing()
    if _is_on_gpu(job) and not backend.by_cufile:
        return f"NIXL's {name} backend moves host memory only: -o backend=GDS"
    if backend.by_cufile and (without := gpu_job.waiver_reason(job)):
        return without
    if name != "OBJ":
        odd = [size for size in options.sizes if size % _SECTOR_BYTES]
        if odd and "yes" in options.direct:
            return f"direct I/O needs multiples of {_SECTOR_BYTES} bytes, got {odd[0]}: -o direct=no"
        return folder_problem(options.directory, options.file_size)
    if options.s3 is None:
        return "no S3 bucket was given: -o s3=http://HOST:PORT/BUCKET"
    if not any(os.environ.get(variable) for variable in _CREDENTIALS):
        return (
            "no credentials for S3 in the environment: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    return ""


def _path(job: KvFileJob, operation: str, *, direct: bool = True) -> str:
    """Return the path between memory and the drive, the page cache or the object store."""
    memory = job.find_gpu(0).id if _is_on_gpu(job) and job.gpus else job.find_memory(0)
    drive = find_device(job.topology, job.options.directory) if direct else "pagecache"
    storage = "s3" if job.case.backend == "OBJ" else drive
    return f"{storage}>{memory}" if operation == "READ" else f"{memory}>{storage}"


def _run(rank: KvFileRank) -> Iterator[Result]:
    job, backend, options = rank.job, _backend(rank.job), rank.job.options
    name = job.case.backend
    rank.step(f"NIXL plugin {name}")
    refused = (cufile.explain_unusable() if backend.by_cufile else "") or nixl.plugin_problem(name)
    bucket = options.s3 if name == "OBJ" else None
    if not refused and bucket is not None and (silent := explain_unreachable(bucket)):
        refused = f"no S3 answers at {silent}"
    if refused:
        yield waived(_blank(job), f"NIXL's {name} backend: {refused}")
        return
    if name != "POSIX" or options.queue == "posix_aio":
        # All but the kernel's own queues move data in threads while ours polls; those need a CPU as well.
        os.sched_setaffinity(0, job.list_rank_cpus(0))
    with contextlib.ExitStack() as stack:
        buffer = _allocate_buffer(job, stack)
        if bucket is not None and isinstance(buffer, Buffer):
            yield from _measure_objects(rank, buffer, bucket)
        else:
            yield from _measure_files(rank, buffer)


def _blank(job: KvFileJob) -> Result:
    return replace(BENCHMARK.blank(_path(job, "WRITE"), job.case), quantity="bandwidth_bytes_per_s")


def _allocate_buffer(job: KvFileJob, stack: contextlib.ExitStack) -> AnyBuffer:
    """Allocate the memory. With cuFile a GPU's context is current, also for host memory."""
    room = job.options.file_size
    if not _backend(job).by_cufile:
        return stack.enter_context(Buffer(room))
    device = stack.enter_context(Device(job.find_gpu(0).address))
    return stack.enter_context(DeviceBuffer(device, room)) if _is_on_gpu(job) else stack.enter_context(Buffer(room))


def _measure_files(rank: KvFileRank, buffer: AnyBuffer) -> Iterator[Result]:
    """Measure files, or yield the reason if cuFile refuses them: most file systems and drives lack GPUDirect."""
    name, options = rank.job.case.backend, rank.job.options
    queue = _QUEUES[options.queue] if name == "POSIX" else ""
    with contextlib.ExitStack() as stack:
        try:
            file = FileTarget(stack, rank, buffer, name, {queue: "true"} if queue else {})
        except NativeError as error:
            if not _backend(rank.job).by_cufile:
                raise
            yield waived(_blank(rank.job), f"{error.message}{cufile.find_refusal(rank.scratch)}")
            return
        for direct in options.direct if name == "POSIX" else ("yes",):
            file.go_direct(direct == "yes")
            yield from _measure_all(rank, file, buffer, is_direct=file.is_direct)


def _measure_objects(rank: KvFileRank, buffer: Buffer, bucket: Service) -> Iterator[Result]:
    """Measure objects. Errors name the service that refused, because NIXL's own do not."""
    try:
        yield from _measure_all(rank, ObjectTarget(bucket, buffer, max(rank.job.options.sizes), _MOST_OBJECTS), buffer)
    except NativeError as error:
        meaning = f"the backend failed; is the bucket {bucket.path} there, and may these credentials use it?"
        raise NativeError(f"NIXL with S3 at {bucket.url}", error.code, meaning) from error


def _measure_all(
    rank: KvFileRank, target: Target, buffer: AnyBuffer, *, is_direct: bool | None = None
) -> Iterator[Result]:
    job, room, seeds = rank.job, rank.job.options.file_size, Seeds.draw(rank)
    for point in file_options.points(job)[job.first_case :]:
        rank.step(_name_step(job, point))
        path = _path(job, point.operation, direct=is_direct is not False)
        blank = replace(BENCHMARK.blank(path, replace(point, direct=is_direct)), quantity="bandwidth_bytes_per_s")
        if not _count_requests(job, point):
            needed = f"a request of {format_size(point.request_bytes)} is larger than {format_size(room)}"
            yield waived(blank, f"{needed}: -o file-size=")
        else:
            yield from _measure(rank, blank, target, buffer, point, seeds.take())


def _name_step(job: KvFileJob, point: FileCase) -> str:
    return f"kv_file {job.case.backend} {point.operation} {format_size(point.size_bytes)} x {point.batch}"


def _skip_crashed(job: KvFileJob, results: Sequence[Result]) -> KvFileJob | None:
    """Return a job with the cases after NIXL's or cuFile's crash, or None if no case crashed or none is left."""
    if not _backend(job).by_cufile:
        return None
    steps = [_name_step(job, point) for point in file_options.points(job)]
    return skip_crashed(job, results, steps, keys=("operation", "size_bytes", "batch"))


class _PointPasses(NamedTuple):
    """The timed passes of a point, and the evidence from a pass before them."""

    passes: list[CrewPass]
    evidence: tuple[Evidence, ...]


def _measure(
    rank: KvFileRank, blank: Result, target: Target, buffer: AnyBuffer, point: FileCase, seed: int
) -> Iterator[Result]:
    job, count = rank.job, _count_requests(rank.job, point)
    region = count * point.request_bytes
    blocks = [
        [(start + block * point.size_bytes, point.size_bytes) for block in range(point.batch)]
        for start in range(0, region, point.request_bytes)
    ]
    target.use(blocks)
    work = partial(_run_passes, rank, target, point, blocks)
    seen = transfer(rank, Ends(Region(buffer, region), target), point.operation, seed, work)
    assert seen is not None
    passes, evidence = seen.done
    timed = combine_passes(passes, region)
    posted = timed.settings()
    blank = replace(
        blank,
        settings={
            "requests_per_pass": count,
            "passes": len(passes),
            "descriptors": point.batch,
            "in_flight": job.options.depth,
            "order": "sequential",
            "post_median_s": posted["post_median_s"],
            "pattern_seed": seed,
            "cpus": format_cpu_list(os.sched_getaffinity(0)),
        },
        verification=seen.check(PATTERN, region),
        evidence=(Evidence(claim="backend", value=job.case.backend, seen="the only one this agent has"), *evidence),
    )
    yield from record_timed(
        failed_if(blank, _explain_other_queue(job.options.queue, evidence)), timed, point.size_bytes, both=True
    )


def _run_passes(rank: KvFileRank, target: Target, point: FileCase, blocks: list[list[tuple[int, int]]]) -> _PointPasses:
    """Make one observed, untimed pass, since cuFile's own counters cost time, and then the timed ones."""
    requests = [target.request(point.operation, one) for one in blocks]
    one_pass = partial(
        time_crew,
        [requests],
        [-1],
        depth=rank.job.options.depth,
        iterations=len(requests),
        patience_s=_PATIENCE_S,
    )
    route = _observe_route(rank, one_pass, point, len(blocks))
    passes = [one_pass() for _ in range(_backend(rank.job).passes)]
    for request in requests:
        request.release()
    return _PointPasses(passes, (*target.evidence(), *route))


def _observe_route(
    rank: KvFileRank, one_pass: Callable[[], CrewPass], point: FileCase, count: int
) -> tuple[Evidence, ...]:
    """Make an untimed pass, and return evidence of cuFile's route; nothing for other backends."""
    if not _backend(rank.job).by_cufile:
        one_pass()
        return ()
    watch = Watch(rank.scratch, write=point.operation == "WRITE", bound=cufile.attach())
    one_pass()
    return (route_evidence(watch.end(count * point.batch, count * point.request_bytes)),)


def _explain_other_queue(wanted: str, evidence: tuple[Evidence, ...]) -> str:
    """Return the reason if another queue ran than the requested one, or an empty string."""
    ran = next((one for one in evidence if one.claim == "queue"), None)
    if ran is None or wanted == "auto" or ran.value in (wanted, "unknown"):
        return ""
    return f"{wanted} was requested, but {ran.seen}: it ran over {ran.value}"


BENCHMARK = Benchmark(
    name="kv_file",
    summary="NIXL WRITE and READ between host or GPU memory and files, or objects of an S3 store",
    method="nixlbench 1.4 --backend POSIX, GDS, GDS_MT or OBJ: requests of `batch` descriptors, post and poll until "
    "done, in turn over the file or the objects; 7 passes over a file, 3 over objects, after one that is not counted",
    results=tuple(
        Declaration(quantity, workload, when)
        for quantity in _QUANTITIES
        for workload, when in (
            (Files(of="drive", upper_only=True), {"memory": ("VRAM",)}),
            (Files(of="drive", upper_only=True), {"operation": ("WRITE", None)}),
            (Files(), {}),
        )
    ),
    options=FileOptions,
    case=Store,
    launches=file_options.launches,
    plan=_plan,
    run=_run,
    after_crash=_skip_crashed,
)
