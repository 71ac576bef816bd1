"""What ran: the fields that decide how fast it can be, whoever measured it.

A benchmark of ours declares a workload for its results, and a reader gives one for a tool's table. `describe` completes
it with what a record says of its own row. `railwright.expected` answers what a workload should reach on a machine; it
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
"""A simple measurement of a run that other measurements of the same run are held against."""

Transport = Literal["nccl", "library", "verbs", "sockets", "none"]
"""Who moves the data: NCCL, a library with transports of its own (MPI, UCX, NIXL), verbs of one NIC, or TCP."""

_GPU_WORDS = ("vram", "cuda", "d", "device", "gpu")


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every kind of workload has."""

    recorded: ClassVar[tuple[str, ...]] = ("size_bytes", "pages")
    """The fields that the parameters of a record set, by their names."""
    held: ClassVar[tuple[str, ...]] = ()
    """The fields that the settings of a record set."""

    quantity: Quantity = "bandwidth_bytes_per_s"
    path: str = ""
    """`memory0>memory0`; empty where the text does not say what the data crossed."""
    size_bytes: int | None = None
    ranks: int | None = 1
    """None where a tool's text does not say."""
    hosts: int = 1
    pages: str = ""
    """`small` or `huge`: the pages that buffers in host memory lie on; empty where nobody says."""
    shares_cores: bool = False
    """Whether ranks shared cores, as in a functional run: nothing is expected of it then."""
    varied: Mapping[str, Scalar] = {}
    """All parameters of the row. A baseline must have been measured at the same ones."""

    @property
    def transport(self) -> Transport:
        """Who moves the data; `none` for what never leaves a device."""
        return "none"

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The baselines of the same run that it is held against."""
        return ()

    @property
    def must_match(self) -> bool:
        """Whether those baselines must have been measured with the very same options."""
        return False


class Collective(Workload, frozen=True):
    """An operation of all ranks: by NCCL over GPUs, or by MPI."""

    recorded: ClassVar[tuple[str, ...]] = (*Workload.recorded, "gpus", "algorithm", "protocol", "rate")
    held: ClassVar[tuple[str, ...]] = ("nvls",)

    operation: str
    """As NCCL calls it: `all_reduce`."""
    by: Literal["nccl", "mpi"] = "nccl"
    over: Literal["", "shm", "tcp"] = ""
    """The transport between ranks of MPI in one host."""
    of_each_rank: bool = False
    """Whether the size is what one rank has for each other, and not that of all together."""
    in_buckets: bool = False
    """Gradients are reduced in buckets while others are computed: only the limit is known."""
    gpus: str = ""
    """The ids of the GPUs that took part, with commas between; empty: all up to the path's end."""
    algorithm: str = "free"
    protocol: str = "free"
    rate: str = "algbw"
    nvls: str = ""
    """Begins with `off` where NCCL could not use NVLink SHARP."""

    @property
    def transport(self) -> Transport:  # noqa: D102 - see Workload
        return "nccl" if self.by == "nccl" else "library"

    @property
    def baselines(self) -> tuple[Baseline, ...]:  # noqa: D102 - see Workload
        return ("cache line", "thread copy") if self.by == "mpi" else ()


class Message(Workload, frozen=True):
    """Messages from one device to another, alone or many in flight; also one request of many blocks."""

    recorded: ClassVar[tuple[str, ...]] = (
        *Workload.recorded, "threads", "pairs", "batch", "block_bytes", "layers", "until",
    )  # fmt: skip

    by: Transport = "library"
    over: Literal["", "shm", "tcp"] = ""
    """The transport inside one host, where it is known; between hosts the link decides."""
    one_sided: bool = False
    """Whether the peer's CPU takes no part, as with NIXL."""
    from_gpu: bool = False
    to_gpu: bool = False
    both_ways: bool = False
    """Whether rates are sums of both directions."""
    one_at_a_time: bool = False
    """Whether each message waits for the one before it, so that its latency is in the rate."""
    in_blocks: bool = False
    """Whether a request is many blocks of `block_bytes`, as a KV cache is."""
    threads: int = 1
    pairs: int = 1
    """Pairs of processes that send at once; rates are their sum."""
    batch: int = 1
    """Messages of one request."""
    block_bytes: int = 0
    layers: int = 0
    until: str = ""
    """`first layer` where a latency ends when that much has arrived."""

    @property
    def transport(self) -> Transport:  # noqa: D102 - see Workload
        return self.by

    @property
    def is_request(self) -> bool:
        """Whether a library is asked for each transfer, as NIXL is; verbs are posted to the NIC itself."""
        return self.one_sided and self.by == "library"

    @property
    def crosses_gpu(self) -> bool:
        """Whether an end is a GPU's memory, as the path or the tool says."""
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
    """A copy by a GPU's engine or kernel, or a load of other memory by one of its threads."""

    recorded: ClassVar[tuple[str, ...]] = (*Workload.recorded, "engine", "direction", "host", "clock")
    held: ClassVar[tuple[str, ...]] = ("engine", "direction", "host", "peer_access", "added_gpus")

    is_load: bool = False
    """Whether it is one load of a thread, and no copy."""
    engine: str = ""
    """`sm` for a kernel; else the copy engine."""
    direction: str = ""
    """`both` where the other direction is busy too."""
    host: str = ""
    """`pageable` where host memory is not pinned."""
    clock: str = ""
    """`gpu` or `host`, of a latency."""
    peer_access: bool = True
    added_gpus: int = 0
    """Of how many GPUs the rates are added up; 0: of one."""

    @property
    def baselines(self) -> tuple[Baseline, ...]:  # noqa: D102 - see Workload
        return ("gpu load",) if self.is_load or self.quantity == "latency_s" else ()


class Crossing(Workload, frozen=True):
    """Large transfers over a path, one way, whoever makes them: its links alone. A copy where both ends are one device.

    Between hosts its path is like `gpu0:gpu0@1`.
    """

    nics: int = 1
    """Of so many equally near NICs at each end at once."""


class Files(Workload, frozen=True):
    """Reading and writing files, a raw drive, or data that is decoded on its way."""

    recorded: ClassVar[tuple[str, ...]] = (*Workload.recorded, "bytes", "pace", "transfer")
    held: ClassVar[tuple[str, ...]] = (
        "encoded_bytes", "in_memory_bytes", "sample_bytes", "client_host", "storage_servers", "storage_host", "crosses",
    )  # fmt: skip

    of: Literal["drive", "files", "mount", "decoded", "read ahead"] = "files"
    """A drive at its links alone; files against the raw drive; a shared mount; encoded data; a reader that reads ahead
    for a consumer."""
    to_gpu: bool = False
    upper_only: bool = False
    """Whether the links of a drive are an upper limit alone, because the drive, or who writes to it, is narrower."""
    encoded_bytes: int = 0
    in_memory_bytes: int = 0
    bytes: str = ""
    """`encoded` where the rate counts what was fetched."""
    pace: float = 0.0
    """Samples a second that one consumer takes."""
    sample_bytes: float = 0.0
    client_host: str = ""
    storage_servers: int | None = None
    storage_host: str = ""
    crosses: str = ""
    transfer: str = ""

    @property
    def reaches_gpu(self) -> bool:
        """Whether the data goes into a GPU's memory."""
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
    """Reading, writing and copying within memory by a CPU or a GPU."""

    recorded: ClassVar[tuple[str, ...]] = (*Workload.recorded, "threads")

    copies: bool = False
    """Whether bytes are counted once and moved twice, so that caches may hold them; else as STREAM counts."""
    on_gpu: bool = False
    threads: int = 1


class Linpack(Workload, frozen=True):
    """The solution of a dense system of equations."""

    recorded: ClassVar[tuple[str, ...]] = (*Workload.recorded, "n", "p", "q")
    held: ClassVar[tuple[str, ...]] = ("cpu_share",)

    on_gpus: bool = False
    by_vendor: bool = False
    """Whether the program is the GPU vendor's own HPL, which the systems of the TOP500 ran."""
    n: int = 0
    """Rows of the matrix."""
    p: int = 0
    q: int = 0
    cpu_share: float = 1.0
    """Of the time of a rank's cores, in which it computed or polled."""

    @property
    def baselines(self) -> tuple[Baseline, ...]:  # noqa: D102 - see Workload
        return () if self.by_vendor else ("dgemm",)


class Unlimited(Workload, frozen=True):
    """What nothing limits that is known, with the reason."""

    why: str


W = TypeVar("W", bound=Workload)


def is_gpu_memory(word: object) -> bool:
    """Whether a tool's word for an end of a transfer means a GPU's memory."""
    return str(word).lower() in _GPU_WORDS


def describe(workload: W, result: Result, ranks: int | None = None) -> W:
    """The workload of one row: what is the same for all of them, and what its record says.

    `ranks` are those of a tool's table, where its rows do not say. A value of another type than the field's counts as
    absent, because records may come from anybody.
    """
    own: dict[str, object] = {}
    for names, said in ((workload.held, result.settings), (workload.recorded, result.parameters)):
        for name in names:
            if name in said and (value := _converted(said[name], _types(type(workload))[name])) is not None:
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
def _types(kind: type[Workload]) -> dict[str, object]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _converted(value: Scalar, kind: object) -> object:
    try:
        return msgspec.convert(value, type=kind)
    except msgspec.ValidationError:
        return None
