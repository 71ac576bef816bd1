"""The registry of benchmarks, in run order: those that measure limits come before those that need them.

`prove` runs BENCHMARKS. Those ON_REQUEST run only by `run NAME`, because they take long or wear out a drive.
"""

from __future__ import annotations

from railwright.benchmarks.benchmark import AnyBenchmark
from railwright.benchmarks.files import device_read, read, shared, write
from railwright.benchmarks.gpu import copy as gpu_copy
from railwright.benchmarks.gpu import file_read as gpu_file_read
from railwright.benchmarks.gpu import file_write as gpu_file_write
from railwright.benchmarks.gpu import latency as gpu_latency
from railwright.benchmarks.kv import cache, file, transfer, vram
from railwright.benchmarks.linpack import gpu as gpu_hpl
from railwright.benchmarks.linpack import hpl
from railwright.benchmarks.memory import copy, core_latency, stream
from railwright.benchmarks.mpi import collective as mpi_collective
from railwright.benchmarks.mpi import latency, pairs, windows
from railwright.benchmarks.nccl import collective as nccl_collective
from railwright.benchmarks.probes import list_probes
from railwright.benchmarks.rdma import messages as rdma
from railwright.benchmarks.samples import deepcam
from railwright.benchmarks.sockets import tcp_stream
from railwright.benchmarks.tables import read as table_read
from railwright.benchmarks.train import step
from railwright.errors import unknown_name
from railwright.results.declarations import Declarations

BENCHMARKS: tuple[AnyBenchmark, ...] = (
    stream.BENCHMARK,
    copy.BENCHMARK,
    core_latency.BENCHMARK,
    gpu_copy.BENCHMARK,
    gpu_latency.BENCHMARK,
    tcp_stream.BENCHMARK,
    latency.BENCHMARK,
    windows.BANDWIDTH,
    transfer.BENCHMARK,
    vram.BENCHMARK,
    device_read.BENCHMARK,
    read.BENCHMARK,
    *nccl_collective.COLLECTIVES,
)

ON_REQUEST: tuple[AnyBenchmark, ...] = (
    rdma.WRITE,
    rdma.READ,
    rdma.SEND,
    windows.MESSAGE_RATE,
    windows.BIDIRECTIONAL,
    pairs.BENCHMARK,
    *mpi_collective.COLLECTIVES,
    cache.BENCHMARK,
    file.BENCHMARK,
    write.BENCHMARK,
    shared.BENCHMARK,
    table_read.BENCHMARK,
    deepcam.BENCHMARK,
    gpu_file_read.BENCHMARK,
    gpu_file_write.BENCHMARK,
    *nccl_collective.ON_REQUEST,
    step.BENCHMARK,
    hpl.BENCHMARK,
    gpu_hpl.BENCHMARK,
)

EVERY = BENCHMARKS + ON_REQUEST

QUICK: dict[str, dict[str, str]] = {
    "memory_copy": {"sizes": "1M,2M,64M", "threads": "one", "pages": "huge"},
    "core_latency": {},
    "gpu_copy": {"engines": "ce", "directions": "one", "paths": "host,peer", "sizes": "64M", "samples": "2"},
    "mpi_latency": {"transports": "shm", "sizes": "8"},
    "mpi_bandwidth": {"transports": "shm", "sizes": "2M", "pages": "huge"},
    "nccl_all_reduce": {"sizes": "128M", "placements": "out of place"},
}
"""The benchmarks of `prove --quick`, with their options: a point of each kind of link, and the baselines of these.

A collective of 128 MiB tells 21 of the 22 faults in the recorded tables of two H200 from a healthy machine; a sweep
tells no more.
"""

DECLARATIONS: Declarations = {benchmark.name: benchmark.results for benchmark in EVERY}


def find(name: str) -> AnyBenchmark:
    """Find a benchmark by name. Raises UsageError with the nearest names."""
    for benchmark in EVERY + list_probes():
        if benchmark.name == name:
            return benchmark
    raise unknown_name("benchmark", name, [benchmark.name for benchmark in EVERY])
