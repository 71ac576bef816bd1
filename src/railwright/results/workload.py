"""Workloads: the fields that decide how fast an operation can be, whichever program measured it.

A benchmark declares a workload for its results, and a reader gives one for the table of a tool. `describe` completes it
with the values of each record. `railwright.expected` computes the rate that a workload should reach on a machine; it
knows neither the benchmark nor the tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import ClassVar, Literal, TypeVar

import msgspec

from railwright.limits.limit import Quantity
from railwright.results.records import Result
from railwright.topology.devices import Scalar
from railwright.units import KIB

Baseline = Literal[
    "thread copy",
    "cache line",
    "plain socket",
    "raw device",
    "file read",
    "gpu load",
    "gpu copy",
    "awaited gpu copy",
    "dgemm",
    "fetch",
    "decode",
    "reader alone",
]
"""A simple measurement that limits other measurements of the same run."""

Transport = Literal["nccl", "library", "verbs", "sockets", "none"]
"""The layer that moves the data: NCCL, a library with its own transports (MPI, UCX, NIXL), verbs of one NIC, or TCP."""

_GPU_WORDS = ("vram", "cuda", "d", "device", "gpu")


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The fields common to all kinds of workload."""

    recorded: ClassVar[tuple[str, ...]] = ("size_bytes", "pages")
    """The fields that the parameters of a record set, by name."""
    held: ClassVar[tuple[str, ...]] = ("hosts_in_one_machine",)
    """The fields that the settings of a record set."""

    quantity: Quantity = "bandwidth_bytes_per_s"
    path: str = ""
    """The path of the data, such as `memory0>memory0`; empty if the text does not name it."""
    size_bytes: int | None = None
    ranks: int | None = 1
    """None if the text of a tool does not say."""
    hosts: int = 1
    pages: str = ""
    """The page size of buffers in host memory, `small` or `huge`; empty if unknown."""
    hosts_in_one_machine: bool = False
    """Whether the hosts are namespaces of one machine, which its ports do not connect."""
    shares_cores: bool = False
    """Whether ranks shared cores, as in a functional run. Such a run has no expected value."""
    varied: Mapping[str, Scalar] = {}
    """All parameters of the row. A baseline must have been measured with the same ones."""

    @property
    def transport(self) -> Transport:
        """The layer that moves the data; `none` for data that never leaves a device."""
        return "none"

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The baselines of the same run that limit the workload."""
        return ()

    @property
    def must_match(self) -> bool:
        """Whether the baselines must have been measured with exactly the same options."""
        return False


class Collective(Workload, frozen=True):
    """An operation of all ranks, by NCCL over GPUs or by MPI."""

    recorded: ClassVar[tuple[str, ...]] = (*Workload.recorded, "gpus", "algorithm", "protocol", "rate")
    held: ClassVar[tuple[str, ...]] = (*Workload.held, "nvls")

    operation: str
    """The operation by NCCL's name, such as `all_reduce`."""
    by: Literal["nccl", "mpi"] = "nccl"
    over: Literal["", "shm", "tcp"] = ""
    """The transport between MPI ranks in one host."""
    of_each_rank: bool = False
    """Whether the size is that of one rank's data for each peer, rather than of all data together."""
    in_buckets: bool = False
    """Whether gradients are reduced in buckets while others are computed. Only the limit is known then."""
    gpus: str = ""
    """The ids of the participating GPUs, separated by commas; empty for all up to the path's end."""
    algorithm: str = "free"
    protocol: str = "free"
    rate: str = "algbw"
    in_host_memory: bool = False
    """Whether the buffers are known to be in host memory, so that no GPU takes part."""
    nvls: str = ""
    """The state of NVLink SHARP. It begins with `off` if NCCL could not use it."""

    @property
    def transport(self) -> Transport:  # noqa: D102 - see Workload
        return "nccl" if self.by == "nccl" else "library"

    @property
    def baselines(self) -> tuple[Baseline, ...]:  # noqa: D102 - see Workload
        return ("cache line", "thread copy") if self.by == "mpi" else ()


WRITE_BYTES = 256 * KIB
"""The size of the writes by which searches and pairs of hosts use RDMA."""


class Message(Workload, frozen=True):
    """Messages from one device to another, alone or many in flight, or one request of many blocks."""

    recorded: ClassVar[tuple[str, ...]] = (
        *Workload.recorded, "threads", "pairs", "batch", "block_bytes", "layers", "until", "nics",
        "queue_pairs", "connection",
    )  # fmt: skip
    held: ClassVar[tuple[str, ...]] = (*Workload.held, "mtu_bytes")

    by: Transport = "library"
    over: Literal["", "shm", "tcp"] = ""
    """The transport inside one host, if it is known. Between hosts the link decides."""
    one_sided: bool = False
    """Whether the peer's CPU is not involved, as with NIXL."""
    from_gpu: bool = False
    to_gpu: bool = False
    both_ways: bool = False
    """Whether rates are sums of both directions."""
    one_at_a_time: bool = False
    """Whether each message waits for the previous one, so that the rate includes its latency."""
    in_blocks: bool = False
    """Whether a request consists of many blocks of `block_bytes`, like a KV cache."""
    threads: int = 1
    pairs: int = 1
    """The number of process pairs that send at once. Rates are their sum."""
    batch: int = 1
    """The number of messages in a request."""
    block_bytes: int = 0
    rails: int = 0
    """The devices over which the tool's library stripes a message by default; 0 if the kind of message decides."""
    layers: int = 0
    until: str = ""
    """`first layer` if a latency ends when the first layer has arrived."""
    nics: str = ""
    """The RDMA ports of each host that send at once, joined by `+`, such as `mlx5_0:1`; empty for the nearest."""
    queue_pairs: int = 1
    """The number of queue pairs of each RDMA port."""
    connection: str = ""
    """The type of verbs' queue pairs: RC, UC, UD, DC or XRC; empty if unknown."""
    has_grh: bool = False
    """Whether packets of InfiniBand carry a global route header."""
    mtu_bytes: int = 0
    """The path MTU of verbs; 0 if unknown."""

    @property
    def transport(self) -> Transport:  # noqa: D102 - see Workload
        return self.by

    @property
    def is_request(self) -> bool:
        """Whether each transfer is a request to a library, as with NIXL. Verbs are posted to the NIC itself."""
        return self.one_sided and self.by == "library"

    @property
    def crosses_gpu(self) -> bool:
        """Whether an end is in GPU memory, according to the path or the tool."""
        return self.from_gpu or self.to_gpu or "gpu" in self.path

    @property
    def baselines(self) -> tuple[Baseline, ...]:  # noqa: D102 - see Workload
        if self.by != "library":
            return ()
        if self.from_gpu or self.to_gpu:
            return ("gpu copy", "awaited gpu copy") if self.quantity == "latency_s" else ()
        if self.over == "tcp":
            return ("plain socket",)
        if self.over == "" and self.quantity == "latency_s" and not self.in_blocks:
            return ("cache line", "thread copy", "plain socket")
        return ("thread copy",) if self.in_blocks else ("cache line", "thread copy")

    @property
    def must_match(self) -> bool:  # noqa: D102 - see Workload
        return self.over == "tcp"


class Copy(Workload, frozen=True):
    """A copy by a GPU's engine or kernel, or a load from other memory by one of its threads."""

    recorded: ClassVar[tuple[str, ...]] = (*Workload.recorded, "engine", "direction", "host", "clock")
    held: ClassVar[tuple[str, ...]] = ("engine", "direction", "host", "peer_access", "added_gpus")

    is_load: bool = False
    """Whether the operation is a single load by a thread rather than a copy."""
    engine: str = ""
    """`sm` for a kernel; otherwise the copy engine."""
    direction: str = ""
    """`both` if the other direction is busy too."""
    host: str = ""
    """`pageable` if host memory is not pinned."""
    clock: str = ""
    """The clock of a latency, `gpu` or `host`."""
    peer_access: bool = True
    added_gpus: int = 0
    """The number of GPUs whose rates are summed; 0 for a single GPU."""

    @property
    def baselines(self) -> tuple[Baseline, ...]:  # noqa: D102 - see Workload
        return ("gpu load",) if self.is_load or self.quantity == "latency_s" else ()


class Crossing(Workload, frozen=True):
    """Large transfers over a path in one direction, limited by its links alone. A copy if both ends are one device.

    The path between hosts has the form `gpu0:gpu0@1`.
    """

    nics: int = 1
    """The number of equally near NICs at each end that send at once."""


class Files(Workload, frozen=True):
    """Reading and writing files, a raw drive, or data that is decoded on its way."""

    recorded: ClassVar[tuple[str, ...]] = (*Workload.recorded, "bytes", "pace", "transfer")
    held: ClassVar[tuple[str, ...]] = (
        "encoded_bytes", "in_memory_bytes", "sample_bytes", "client_host", "storage_servers", "storage_host", "crosses",
    )  # fmt: skip

    of: Literal["drive", "files", "mount", "decoded", "read ahead"] = "files"
    """The kind of access: a drive at the rate of its links; files limited by the raw drive; a shared mount; encoded
    data; or a reader that reads ahead for a consumer."""
    to_gpu: bool = False
    upper_only: bool = False
    """Whether the links of a drive are only an upper limit, because the drive or its writer is slower."""
    encoded_bytes: int = 0
    in_memory_bytes: int = 0
    bytes: str = ""
    """`encoded` if the rate counts the bytes fetched."""
    pace: float = 0.0
    """The rate at which one consumer takes samples, in samples per second."""
    sample_bytes: float = 0.0
    client_host: str = ""
    storage_servers: int | None = None
    storage_host: str = ""
    crosses: str = ""
    transfer: str = ""

    @property
    def reaches_gpu(self) -> bool:
        """Whether the data moves to or from GPU memory."""
        return self.to_gpu or "gpu" in (self.crosses or self.transfer).lower()

    @property
    def baselines(self) -> tuple[Baseline, ...]:  # noqa: D102 - see Workload
        match self.of:
            case "files":
                return ("raw device", "file read")
            case "decoded":
                return ("fetch", "decode")
            case "read ahead":
                return ("reader alone",)
            case _:
                return ()

    @property
    def must_match(self) -> bool:  # noqa: D102 - see Workload
        return self.of == "files"


class Memory(Workload, frozen=True):
    """Reads, writes and copies within memory by a CPU or a GPU."""

    recorded: ClassVar[tuple[str, ...]] = (*Workload.recorded, "threads")

    copies: bool = False
    """Whether each byte is counted once although it is moved twice, and caches may hold it; otherwise as in STREAM."""
    on_gpu: bool = False
    threads: int = 1


class Linpack(Workload, frozen=True):
    """A solve of a dense system of linear equations."""

    recorded: ClassVar[tuple[str, ...]] = (*Workload.recorded, "n", "p", "q")
    held: ClassVar[tuple[str, ...]] = ("cpu_share", "solver")

    on_gpus: bool = False
    by_vendor: bool = False
    """Whether the program is the GPU vendor's own HPL, as run on the systems of the TOP500."""
    n: int = 0
    """The number of rows of the matrix."""
    p: int = 0
    q: int = 0
    cpu_share: float = 1.0
    """The share of the time of a rank's cores in which it computed or polled."""
    solver: str = ""
    """The solver of a record of ours; `own` on GPUs is comparable with the vendor's program."""

    @property
    def baselines(self) -> tuple[Baseline, ...]:  # noqa: D102 - see Workload
        return () if self.by_vendor else ("dgemm",)


class Unlimited(Workload, frozen=True):
    """A workload without a known limit, with the reason."""

    why: str


W = TypeVar("W", bound=Workload)


def is_gpu_memory(word: object) -> bool:
    """Report whether a tool's name for the memory at one end of a transfer means GPU memory."""
    return str(word).lower() in _GPU_WORDS


def describe(workload: W, result: Result, ranks: int | None = None) -> W:
    """Complete a workload with the parameters and settings of one record.

    `ranks` is the count from the header of a tool's table, for rows without their own. A value of the wrong type counts
    as absent, because records may come from anyone.
    """
    own: dict[str, object] = {}
    for names, recorded in ((workload.held, result.settings), (workload.recorded, result.parameters)):
        for name in names:
            if name in recorded and (value := _convert(recorded[name], _field_types(type(workload))[name])) is not None:
                own[name] = value
    return msgspec.structs.replace(
        workload,
        quantity=result.quantity,
        path=result.path or workload.path,
        ranks=ranks if ranks is not None else result.ranks,
        hosts=result.hosts,
        shares_cores=result.settings.get("functional") is True,
        varied=result.parameters,
        **own,
    )


@cache
def _field_types(kind: type[Workload]) -> dict[str, object]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _convert(value: Scalar, kind: object) -> object:
    try:
        return msgspec.convert(value, type=kind)
    except msgspec.ValidationError:
        return None
