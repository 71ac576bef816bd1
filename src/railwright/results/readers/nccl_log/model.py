"""The facts in NCCL's log of a run: the ranks, the hardware, the channels, and NCCL's choices.

Every fact keeps its line number, so that a finding can show its evidence.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from railwright.topology.devices import PathKind

Direction = Literal["send", "receive", ""]
"""The side of a connection that wrote the line; empty if one line describes both sides (P2P, SHM)."""

MARKS = ("NCCL INFO ", "NCCL WARN ")
"""The marks of NCCL's lines. Every line has one of them."""


class Rank(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A rank of a communicator, as described by its own lines."""

    rank: int
    host: str = ""
    pid: int = 0
    cuda_dev: int | None = None
    nvml_dev: int | None = None
    """NVML's index of the GPU. It is physical, unlike `cuda_dev`, which CUDA_VISIBLE_DEVICES renumbers."""
    bus_id: str = ""
    """The PCI address as NCCL writes it, hexadecimal without separators: `901c0` is 0000:90:1c.0."""
    complete: bool = False
    """Whether the log has its `Init COMPLETE` line."""
    line: int = 0


class Ring(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The ring of a channel."""

    channel: int
    ranks: tuple[int, ...]
    whole: bool = True
    """False if the line was truncated, by NCCL (20 ranks up to 2.22, 128 characters later) or in the log."""
    line: int = 0


class TreeNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The position of a rank in the tree of a channel; `up` is -1 at the root."""

    channel: int
    rank: int
    up: int
    down: tuple[int, ...] = ()
    line: int = 0


class Connection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A line such as `Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/3(2)/GDRDMA`."""

    channel: int
    source: int
    target: int
    transport: str
    """`P2P`, `SHM`, `NET` or `COLLNET`."""
    detail: str = ""
    """The rest of the line: `CUMEM/read`, `IPC`, `direct/direct`, `indirect/2[2]`."""
    direction: Direction = ""
    connection: int = 0
    """0 for rings and trees; others are for send and receive operations (NCCL 2.12 and later write it)."""
    network: str = ""
    """`IB`, `Socket`, `AWS Libfabric`, `IBext_v8` ...; empty if `transport` is not a network."""
    nic: int | None = None
    """NCCL's index of the NIC on that host."""
    proxy: int | None = None
    """The rank whose proxy and NIC send this data (PXN); None if the sender uses its own."""
    gdr: bool = False
    gdr_over_pcie: bool = False
    """Whether the line has `GDRDMA(PCI)`: on a C2C machine, the NIC reaches the GPU over PCIe nevertheless (2.26 and
    later)."""
    shared: bool = False
    line: int = 0


class Nic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A NIC that NCCL listed; `link` is `IB` or `RoCE`, empty for sockets."""

    host: str
    network: str
    index: int
    name: str
    port: int = 0
    link: str = ""
    line: int = 0


class Network(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The state of a network on a host: in use, absent, failed, or a plugin with its provider."""

    host: str
    name: str
    state: Literal["used", "absent", "failed", "plugin"]
    says: str = ""
    nics: int | None = None
    """The number of NICs that the plugin found, if it says so (aws-ofi-nccl)."""
    line: int = 0


class GdrCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """NCCL's decision about GPUDirect RDMA for a NIC (`gpu` empty) or for a GPU and a NIC."""

    host: str
    nic: str
    enabled: bool
    gpu: str = ""
    """The bus id before NCCL 2.25, a rank since."""
    why: str = ""
    line: int = 0


class QueuePair(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The address of a queue pair that NCCL made on a NIC: a GID in RoCE, a LID in InfiniBand."""

    host: str
    nic: int
    """NCCL's index of the NIC on that host."""
    port: int
    mtu: int
    """The code of the verbs: 1 is 256 bytes, 5 is 4096."""
    gid_index: int | None = None
    lid: int | None = None
    line: int = 0

    @property
    def mtu_bytes(self) -> int:
        """The MTU of the path in bytes."""
        return 128 << self.mtu


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An environment variable that NCCL used, with the host and process."""

    host: str
    pid: int
    name: str
    value: str
    line: int


class Search(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of the graph search for one pattern. Bandwidths are NCCL's planning figures per channel."""

    host: str
    pattern: int
    cross_nic: int
    channels: int
    intra_bytes_per_s: float
    inter_bytes_per_s: float
    intra_kind: str
    inter_kind: str
    same_channels: bool
    line: int


class SystemPath(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cell of NCCL's table of paths. A path from a GPU to a NIC may be PXN; the reverse path never is."""

    source: str
    target: str
    kind: PathKind
    bandwidth_bytes_per_s: float
    line: int


class SystemNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of NCCL's tree: a node, and the link to the node one level above it."""

    depth: int
    node: str
    link: str
    bandwidth_bytes_per_s: float | None


class System(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A host as NCCL sees it, with NCCL's planning bandwidths."""

    host: str
    max_bytes_per_s: float
    total_bytes_per_s: float
    nodes: tuple[SystemNode, ...] = ()
    paths: tuple[SystemPath, ...] = ()
    line: int = 0


class Tuning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NCCL's estimate for an operation, algorithm and protocol, as algbw; 0 if NCCL will not use it."""

    operation: str
    algorithm: str
    protocol: str
    latency_s: float
    bandwidth_bytes_per_s: float
    line: int


class Choice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """NCCL's choice for an operation and size. Before 2.23 the log does not name the operation."""

    size_bytes: int
    algorithm: str
    protocol: str
    operation: str = ""
    channels: int | None = None
    estimate_s: float | None = None
    times: int = 1
    line: int = 0


class LoggedWarning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A WARN line."""

    host: str
    says: str
    line: int
    pid: int = 0
    cuda_dev: int | None = None
    """The GPU of the process that wrote it."""


class Counts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The number of channels for each use; None if that version of NCCL does not print it."""

    collective: int
    collnet: int | None = None
    nvls: int | None = None
    p2p: int | None = None
    p2p_per_peer: int | None = None
    line: int = 0


class Communicator(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A communicator; `id` is empty before NCCL 2.16, `size` is its number of ranks."""

    id: str
    size: int
    nodes: int | None = None
    ranks: tuple[Rank, ...] = ()
    rings: tuple[Ring, ...] = ()
    trees: tuple[TreeNode, ...] = ()
    nvls_heads: tuple[tuple[int, ...], ...] = ()
    connections: tuple[Connection, ...] = ()
    searches: tuple[Search, ...] = ()
    counts: Counts | None = None
    pxn: bool | None = None
    """Whether rings use PXN, if NCCL says so (2.24 and later)."""
    line: int = 0

    @property
    def host_by_rank(self) -> dict[int, str]:
        """The host of every rank that has lines of its own in the log."""
        return {one.rank: one.host for one in self.ranks}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of its ranks, in rank order."""
        return tuple(dict.fromkeys(one.host for one in self.ranks if one.host))


class Version(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A version line; `cuda` is the version that NCCL was built with.

    The host is empty for the bare line before 2.23.
    """

    nccl: str
    cuda: str = ""
    host: str = ""
    line: int = 0


class NcclLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A whole log. `communicators` begins with the largest."""

    lines: int
    messages: int
    communicators: tuple[Communicator, ...]
    versions: tuple[Version, ...] = ()
    driver: int | None = None
    """The CUDA version of the driver: 13000 is 13.0."""
    nics: tuple[Nic, ...] = ()
    networks: tuple[Network, ...] = ()
    gdr: tuple[GdrCheck, ...] = ()
    queue_pairs: tuple[QueuePair, ...] = ()
    """A queue pair for each NIC and address."""
    settings: tuple[Setting, ...] = ()
    systems: tuple[System, ...] = ()
    tuning: tuple[Tuning, ...] = ()
    choices: tuple[Choice, ...] = ()
    warnings: tuple[LoggedWarning, ...] = ()
    excerpts: dict[int, str] = {}
    """The text of the lines with these facts, by line number."""
    torn: dict[int, str] = {}
    """The lines that output of another process tore, with the fact that was read from each."""
    unread_completes: int = 0
    """The number of `Init COMPLETE` lines that were torn too far to be read."""
    ended_at: int = 0
    """The first line that tells of a time-out, an abort or a watchdog; 0 if there is none."""

    @property
    def main(self) -> Communicator:
        """The largest communicator, which the summary describes."""
        return self.communicators[0]
