"""The matrix products of `gpu_hpl`: whole numbers, checked exactly, and random numbers for seconds.

A GPU that reaches its power limit slows down in seconds, and random numbers need more power than whole ones. So the
sustained product is what a solve is compared with.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ctypes import c_double

from msgspec.structs import replace

from railwright.benchmarks.host_name import host_name
from railwright.benchmarks.job import Case
from railwright.benchmarks.linpack import problem
from railwright.benchmarks.linpack.gpu_options import PRODUCT_ORDER, SUSTAINED_ORDER, GpuHplRank
from railwright.benchmarks.linpack.records import SUSTAINED, ProductTimes, product_case, product_record
from railwright.native import cuda, linpack
from railwright.native.gpu_matrix import Matrix, Part
from railwright.native.memory import Buffer
from railwright.native.train_load import Cublas
from railwright.results.records import Result

_WARM_UP, _SAMPLES = 1, 5
_ROUND_S = 1.0
_TOLERANCE = 64.0
"""The allowed difference of the two ways to A B v, in units of the rounding of one row."""
_METHOD = "random numbers: A B v must equal A (B v) within rounding"

Blank = Callable[[Case], Result]


def measure(
    rank: GpuHplRank, device: cuda.Device, stream: cuda.Stream, cublas: Cublas, blank: Blank
) -> Iterator[Result]:
    """Multiply on all GPUs at once; yields the records on rank 0. Collective."""
    yield from _exact(rank, device, stream, cublas, blank)
    if rank.job.options.sustain:
        yield from _sustained(rank, device, stream, cublas, blank)


def _exact(
    rank: GpuHplRank, device: cuda.Device, stream: cuda.Stream, cublas: Cublas, blank: Blank
) -> Iterator[Result]:
    comm = rank.comm
    order = min(PRODUCT_ORDER, rank.job.case.n)
    rank.step(f"gpu_hpl dgemm {order}")
    size, seconds = problem.DOUBLE_BYTES * order**2, []
    with (
        Buffer(size) as a, Buffer(size) as b, Buffer(size) as made,
        cuda.DeviceBuffer(device, size) as left, cuda.DeviceBuffer(device, size) as right,
        cuda.DeviceBuffer(device, size) as into,
    ):  # fmt: skip
        linpack.write_integers(a, order**2, 2 * comm.rank)
        linpack.write_integers(b, order**2, 2 * comm.rank + 1)
        left.copy_from(a.address, size)
        right.copy_from(b.address, size)
        for _ in range(_WARM_UP + _SAMPLES):
            device.synchronize()
            comm.Barrier()
            start = time.perf_counter()
            cublas.multiply_doubles(order, left, right, into)
            stream.synchronize()
            seconds.append(time.perf_counter() - start)
        into.copy_to(made.address, size)
        wrong = linpack.wrong_rows(order, a, b, made)
    everyone = comm.gather(ProductTimes(seconds[_WARM_UP:], wrong, host_name()))
    if everyone is not None:
        record = product_record(blank(product_case(rank.job.case)), order, {"warm_up": _WARM_UP}, everyone)
        yield _name_slowest(rank, record)


def _sustained(
    rank: GpuHplRank, device: cuda.Device, stream: cuda.Stream, cublas: Cublas, blank: Blank
) -> Iterator[Result]:
    comm, options = rank.comm, rank.job.options
    order = min(SUSTAINED_ORDER, rank.job.case.n)
    rank.step(f"gpu_hpl dgemm {order} for {options.sustain} s")
    part = Part(order, order, (1, 1), (0, 0), order, order)
    with ExitStack() as held:
        a, b = (held.enter_context(Matrix(device, part, 2 * comm.rank + more)) for more in (1, 2))
        into = held.enter_context(cuda.DeviceBuffer(device, part.size_bytes))
        for matrix in (a, b):
            matrix.generate()

        def multiply(times: int) -> float:
            comm.Barrier()
            start = time.perf_counter()
            for _ in range(times):
                cublas.multiply_doubles(order, a.buffer, b.buffer, into, lead=part.lead)
            stream.synchronize()
            return (time.perf_counter() - start) / times

        multiply(1)  # loads the kernel
        times = max(1, round(_ROUND_S / max(comm.allgather(multiply(1)))))
        begun = time.monotonic()
        seconds: list[float] = []
        while comm.bcast(not seconds or time.monotonic() - begun < options.sustain):
            seconds.append(multiply(times))
        wrong = _count_wrong(device, stream, cublas, part, (a.buffer, b.buffer, into))
    everyone = comm.gather(ProductTimes(seconds, wrong, host_name()))
    if everyone is not None:
        settings = {"products_each": times, "duration_s": sum(seconds) * times}
        case = product_case(rank.job.case, part=SUSTAINED)
        yield _name_slowest(rank, product_record(blank(case), order, settings, everyone, method=_METHOD))


def _count_wrong(
    device: cuda.Device,
    stream: cuda.Stream,
    cublas: Cublas,
    part: Part,
    matrices: tuple[cuda.DeviceBuffer, cuda.DeviceBuffer, cuda.DeviceBuffer],
) -> int:
    """Count the rows of C v that differ from A (B v) by more than rounding, for a random vector v."""
    a, b, made = matrices
    order, size = part.order, problem.DOUBLE_BYTES * part.lead
    with ExitStack() as held:
        v, once, twice, direct = (held.enter_context(cuda.DeviceBuffer(device, size)) for _ in range(4))
        v.copy_from(b.address, size)  # its first column is random enough
        for matrix, vector, into in ((b, v, once), (a, once, twice), (made, v, direct)):
            cublas.multiply_doubles(order, matrix, vector, into, columns=1, lead=part.lead)
        stream.synchronize()
        found = [(c_double * part.lead)() for _ in range(3)]
        for vector, on_host in zip((twice, direct, once), found, strict=True):
            vector.copy_to(ctypes.addressof(on_host), size)
    expected, got, inner = (list(one)[:order] for one in found)
    scale = problem.EPSILON.value * order * max(map(abs, inner), default=0.0)
    return sum(not abs(x - y) <= _TOLERANCE * scale for x, y in zip(expected, got, strict=True))


def _name_slowest(rank: GpuHplRank, record: Result) -> Result:
    slowest = record.settings.get("slowest_rank")
    if not isinstance(slowest, int):
        return record
    return replace(record, settings=record.settings | {"slowest_gpu": rank.job.find_gpu(slowest).id})
