"""NCCL's single messages as facts: one function per kind of message, None where a message is not of that kind.

Formats were read in NCCL's sources from 2.4 to 2.30 (src/init.cc, src/transport, src/graph, src/enqueue.cc) and checked
with recorded logs. A number that a version does not print stays None.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from railwright.results.readers.nccl_log_model import (
    Choice,
    Connection,
    Counts,
    Direction,
    GdrCheck,
    Nic,
    Search,
    TreeNode,
)

GB_PER_S = 1e9
MAX_RANKS = 1_000_000
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")
_SPELLING = {name.replace("_", "").casefold(): name for name in (*_ALGORITHMS, *_PROTOCOLS)}

_INIT = re.compile(
    r"(?:\w{1,40} )?comm 0x[0-9a-f]{1,16} rank (?P<rank>\d{1,7}) n[rR]anks (?P<size>\d{1,7})"
    r"(?: cudaDev (?P<cuda>-?\d{1,4}))?(?: nvmlDev (?P<nvml>-?\d{1,4}))?(?: busId (?P<bus>[0-9a-f]{1,16}))?"
    r"(?P<rest>.{0,200}?)- ?(?P<what>Init START|Init COMPLETE)"
)
_COMM_ID = re.compile(r"commId (0x[0-9a-f]{1,16})")
_SPLIT = re.compile(r"(?:splitCount (\d{1,9}) )?color (-?\d{1,10})")
_NODES = re.compile(
    r"comm 0x[0-9a-f]{1,16} rank (\d{1,7}) nRanks (\d{1,7}) nNodes (\d{1,6}) localRanks (\d{1,5}) localRank (\d{1,5})"
)
_RING = re.compile(r"Channel (\d{1,3})(?:/(\d{1,3}))? :((?: {1,8}\d{1,7}){1,4096})( ?\.{1,3})?")
_STEP = re.compile(r"Ring (\d{1,3}) : (\d{1,7}) -> (\d{1,7}) -> (\d{1,7})")
_TREE = re.compile(r"\[(\d{1,3})\] (-?\d[\d/-]{0,40})->(\d{1,7})->(-?\d[\d/-]{0,40})")
_LINK = re.compile(
    r"(?:Channel|Ring) (?P<channel>\d{1,3})(?:/(?P<connection>\d{1,3}))? : (?P<source>\d{1,7})(?:\[[0-9a-f]{1,12}\])?"
    r" -> (?P<target>\d{1,7})(?:\[[0-9a-f]{1,12}\])?(?: \[(?P<direction>send|receive)\])? via (?P<via>.{1,200})"
)
_NET = re.compile(
    r"NET/(?P<network>[^/]{1,60})/(?P<nic>\d{1,5})(?:\((?P<proxy>\d{1,7})\))?"
    r"(?P<gdr>/GDRDMA(?P<pci>\(PCI\))?)?(?P<shared>/Shared)?"
)
_NIC = re.compile(r"\[(\d{1,3})\] ?([\w.-]{1,64}):(\d{1,3})/(\w{1,16})")
_SOCKET = re.compile(r"\[(\d{1,3})\]([\w.@-]{1,64}):")
_GDR_PAIR = re.compile(
    r"(?:NET/IB : )?GPU Direct RDMA (Enabled|Disabled) for (?:GPU|rank) (\w{1,12})(?:\[\w{1,12}\])?"
    r" / HCA (\w{1,12})(.{0,120})"
)
_GDR_NIC = re.compile(r"NET/[^:]{1,60}: GPU Direct RDMA (Enabled|Disabled) for HCA (\d{1,5}) '([^']{1,64})'(.{0,80})")
_SEARCH = re.compile(
    r"Pattern (\d{1,2}), crossNic (\d), nChannels (\d{1,4}), (?:bw|speed) ([\d.]{1,16})/([\d.]{1,16}),"
    r" type (\w{2,4})/(\w{2,4}), sameChannels (\d)"
)
_COUNTS = re.compile(
    r"(\d{1,4}) coll channels(?:, (\d{1,4}) collnet channels)?(?:, (\d{1,4}) nvls channels)?"
    r"(?:, (\d{1,4}) p2p channels)?(?:, (\d{1,4}) p2p channels per peer)?"
)
_CHOICE = re.compile(
    r"(?:(\w{1,30}): )?(\d{1,19}) Bytes -> Algo (\w{1,20}) proto (\w{1,20})"
    r"(?: time ([\d.]{1,20}))?(?: channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\})?"
)
_WAY = re.compile(r"\w{1,30} \[(Symmetric|Copy Engine)\]: \d{1,19} Bytes -> (?:Kernel )?(\w{1,80})")
SETTING = re.compile(r"(NCCL_\w{1,60}) set (?:by environment )?to (.{1,300})")
VERSION = re.compile(r"NCCL version (\d{1,3}(?:\.\d{1,3}){1,3})[\w.-]{0,20}(?:\+cuda(\d{1,3}\.\d{1,3}))?")


class Init(NamedTuple):
    """A rank's `Init START` or `Init COMPLETE` line; `comm` is empty where the version writes no commId."""

    rank: int
    size: int
    cuda_dev: int | None
    nvml_dev: int | None
    bus_id: str
    comm: str
    complete: bool


class Order(NamedTuple):
    """A channel's ring as rank 0 lists it. `channels` is None up to 2.4; `cut` where NCCL ended it with dots."""

    channel: int
    channels: int | None
    ranks: tuple[int, ...]
    cut: bool


class Step(NamedTuple):
    """One rank's neighbours in one channel's ring."""

    channel: int
    previous: int
    rank: int
    following: int


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def init(text: str) -> Init | None:
    """`comm 0x.. rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x.. - Init START`, with or without a function."""
    found = _INIT.match(text)
    if found is None:
        return None
    rest = found.group("rest")
    comm = _COMM_ID.search(rest)
    split = None if comm else _SPLIT.search(rest)
    name = comm.group(1) if comm else f"split {split.group(1) or 0} color {split.group(2)}" if split else ""
    return Init(
        rank=int(found.group("rank")),
        size=int(found.group("size")),
        cuda_dev=_number(found.group("cuda")),
        nvml_dev=_number(found.group("nvml")),
        bus_id=found.group("bus") or "",
        comm=name,
        complete=found.group("what").endswith("COMPLETE"),
    )


def nodes(text: str) -> tuple[int, int, int] | None:
    """Rank, ranks and hosts (2.20 and later)."""
    found = _NODES.match(text)
    return (int(found.group(1)), int(found.group(2)), int(found.group(3))) if found else None


def order(text: str) -> Order | None:
    """`Channel 00/24 :  0  1  2`."""
    found = _RING.fullmatch(text.rstrip())
    if found is None:
        return None
    ranks = tuple(int(rank) for rank in found.group(3).split())
    return Order(int(found.group(1)), _number(found.group(2)), ranks, bool(found.group(4)))


def step(text: str) -> Step | None:
    """`Ring 00 : 7 -> 0 -> 1`."""
    found = _STEP.fullmatch(text.rstrip())
    return Step(*(int(part) for part in found.groups())) if found else None


def trees(text: str, line: int) -> tuple[TreeNode, ...]:
    """`Trees [0] 1/4/-1->0->-1`: children, rank, parent; 2.4 writes parent, rank, children.

    2.5 and 2.6 write a second tree after `|`, the same links the other way round: it is left out.
    """
    found = []
    for channel, left, rank, right in _TREE.findall(text[:4000]):
        down, up = (left, right) if "/" in left else (right, left)
        children = tuple(int(child) for child in down.split("/") if child.isdigit())
        if up.lstrip("-").isdigit():
            found.append(TreeNode(channel=int(channel), rank=int(rank), up=int(up), down=children, line=line))
    return tuple(found)


def connection(text: str, line: int) -> Connection | None:
    """`Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/3(2)/GDRDMA`, and what older versions wrote for it."""
    found = _LINK.fullmatch(text.rstrip())
    if found is None:
        return None
    via = found.group("via")
    direction: Direction = (
        "send" if found.group("direction") == "send" else "receive" if found.group("direction") else ""
    )
    network = _NET.match(via)
    transport, _, detail = via.partition("/")
    if via.startswith("direct shared memory"):  # up to 2.10
        transport, detail = "SHM", "direct"
    if network is None and transport not in ("P2P", "SHM"):
        return None
    return Connection(
        channel=int(found.group("channel")),
        connection=int(found.group("connection") or 0),
        source=int(found.group("source")),
        target=int(found.group("target")),
        direction=direction,
        transport="NET" if network else transport,
        detail="" if network else detail.strip(),
        network=network.group("network") if network else "",
        nic=int(network.group("nic")) if network else None,
        proxy=_number(network.group("proxy")) if network else None,
        gdr=bool(network and network.group("gdr")),
        gdr_over_pcie=bool(network and network.group("pci")),
        shared=bool(network and network.group("shared")),
        line=line,
    )


def nics(text: str, host: str, line: int) -> tuple[Nic, ...]:
    """`NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB ...` and `NET/Socket : Using [0]eth0:...`."""
    listed = text.partition("Using")[2].partition("OOB")[0][:4000]
    if text.startswith("NET/Socket"):
        found = _SOCKET.findall(listed)
        return tuple(Nic(host=host, network="Socket", index=int(one[0]), name=one[1], line=line) for one in found)
    return tuple(
        Nic(host=host, network="IB", index=int(index), name=name, port=int(port), link=link, line=line)
        for index, name, port, link in _NIC.findall(listed)
    )


def gdr(text: str, host: str, line: int) -> GdrCheck | None:
    """NCCL's decisions about GPUDirect RDMA; those for a NIC alone say whether the kernel module is there."""
    if found := _GDR_NIC.match(text):
        state, index, name, why = found.groups()
        return GdrCheck(host=host, nic=f"{index} {name}", enabled=state == "Enabled", why=why.strip(), line=line)
    if found := _GDR_PAIR.match(text):
        state, gpu, nic, why = found.groups()
        return GdrCheck(host=host, nic=nic, gpu=gpu, enabled=state == "Enabled", why=why.strip(), line=line)
    return None


def search(text: str, host: str, line: int) -> Search | None:
    """`Pattern 4, crossNic 0, nChannels 16, bw 20.0/20.0, type NVL/PIX, sameChannels 1` (`speed` up to 2.12)."""
    found = _SEARCH.match(text)
    if found is None:
        return None
    pattern, cross, channels, intra, inter, intra_kind, inter_kind, same = found.groups()
    return Search(
        host=host,
        pattern=int(pattern),
        cross_nic=int(cross),
        channels=int(channels),
        intra_bytes_per_s=decimal(intra) * GB_PER_S,
        inter_bytes_per_s=decimal(inter) * GB_PER_S,
        intra_kind=intra_kind,
        inter_kind=inter_kind,
        same_channels=same == "1",
        line=line,
    )


def counts(text: str, line: int) -> Counts | None:
    """`24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer`."""
    found = _COUNTS.match(text)
    if found is None:
        return None
    collective, collnet, nvls, p2p, per_peer = (_number(part) for part in found.groups())
    return Counts(collective=collective or 0, collnet=collnet, nvls=nvls, p2p=p2p, p2p_per_peer=per_peer, line=line)


def choice(text: str, line: int) -> Choice | None:
    """`AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}`; 2.20 to 2.23 `Algo 1 proto 0 time 12.3`."""
    found = _CHOICE.match(text)
    if found is None:
        return None
    operation, size, algorithm, protocol, time, low, high = found.groups()
    return Choice(
        operation=operation or "",
        size_bytes=int(size),
        algorithm=spelled(algorithm, _ALGORITHMS),
        protocol=spelled(protocol, _PROTOCOLS),
        channels=int(high) - int(low) + 1 if low and high else None,
        estimate_s=decimal(time) * 1e-6 if time else None,
        line=line,
    )


def way(text: str) -> tuple[str, str] | None:
    """The way and what ran, of an operation for which no algorithm is chosen.

    `AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512` (2.27), and since 2.29
    `AllGather [Copy Engine]: 8 Bytes -> cudaMemcpy`.
    """
    found = _WAY.match(text)
    return (found.group(1), found.group(2)) if found else None


def spelled(word: str, names: tuple[str, ...] = (*_ALGORITHMS, *_PROTOCOLS)) -> str:
    """One spelling for all versions: `RING`, `Ring` and `1` are Ring. A word that is not known stays as it is."""
    if word.isascii() and word.isdigit():
        return names[int(word)] if int(word) < len(names) else word
    return _SPELLING.get(word.replace("_", "").casefold(), word)


def decimal(text: str) -> float:
    """A number as NCCL prints it; 0 for what is none, like `1.2.3` out of two lines mixed."""
    try:
        return float(text)
    except ValueError:
        return 0.0
