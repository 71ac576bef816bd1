"""The facts in NCCL's messages. Each kind of message has one pattern and one row of a table.

The formats come from NCCL's sources, 2.4 to 2.30 (src/init.cc, src/transport, src/graph, src/enqueue.cc), and were
checked against recorded logs. A number that a version does not print stays None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar, get_type_hints

from railwright.results.readers.nccl_log import model
from railwright.results.readers.nccl_log.lines import Message

MAX_RANKS = 1_000_000
_MAX_NICS = 256
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
_SPELLING = {name.replace("_", "").casefold(): name for name in (*_ALGORITHMS, *PROTOCOLS)}

# comm 0x.. rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x.. - Init START; a function name may precede it, of
# which another process's output may have overwritten the beginning
_INIT = re.compile(
    r"(?:(?P<function>\S{1,48}) )?comm 0x[0-9a-f]{1,16} rank (?P<rank>\d{1,7}) n[rR]anks (?P<size>\d{1,7})"
    r"(?: cudaDev (?P<cuda_dev>-?\d{1,4}))?(?: nvmlDev (?P<nvml_dev>-?\d{1,4}))?"
    r"(?: busId (?P<bus_id>[0-9a-f]{1,16}))?(?P<rest>.{0,200}?)- ?Init (?:START|(?P<complete>COMPLETE))"
)
_COMM_ID = re.compile(r"commId (0x[0-9a-f]{1,16})")
_SPLIT = re.compile(r"(?:splitCount (\d{1,9}) )?color (-?\d{1,10})")
_NODES = re.compile(
    r"comm 0x[0-9a-f]{1,16} rank (?P<rank>\d{1,7}) nRanks (?P<size>\d{1,7}) nNodes (?P<nodes>\d{1,6})"
    r" localRanks \d{1,5} localRank \d{1,5}"
)
# Channel 00/24 :  0  1  2
_RING = re.compile(
    r"Channel (?P<channel>\d{1,3})(?:/\d{1,3})? :(?P<ranks>(?: {1,8}\d{1,7}){1,4096})(?P<cut> ?\.{1,3})?$"
)
# Ring 00 : 7 -> 0 -> 1
_STEP = re.compile(r"Ring (?P<channel>\d{1,3}) : \d{1,7} -> (?P<rank>\d{1,7}) -> (?P<following>\d{1,7})$")
# Trees [0] 1/4/-1->0->-1
_TREES = re.compile(r"Trees (?P<listed>.{1,4000})")
_TREE = re.compile(r"\[(\d{1,3})\] (-?\d[\d/-]{0,40})->(\d{1,7})->(-?\d[\d/-]{0,40})")
# Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/3(2)/GDRDMA
_LINK = re.compile(
    r"(?:Channel|Ring) (?P<channel>\d{1,3})(?:/(?P<connection>\d{1,3}))? :"
    r" (?P<source>\d{1,7})(?:\[[0-9a-f]{1,12}\])? -> (?P<target>\d{1,7})(?:\[[0-9a-f]{1,12}\])?"
    r"(?: \[(?P<direction>send|receive)\])? via (?P<via>.{1,200})$"
)
_NET = re.compile(
    r"NET/(?P<network>[^/]{1,60})/(?P<nic>\d{1,5})(?:\((?P<proxy>\d{1,7})\))?"
    r"(?P<gdr>/GDRDMA(?P<gdr_over_pcie>\(PCI\))?)?(?P<shared>/Shared)?"
)
_HEADS = re.compile(r"NVLS Head +\d{1,4}:(?P<ranks>(?: +\d{1,7}){1,64})")
_PXN = re.compile(r"Connected all rings, use ring PXN (?:(?P<used>1)|\d) GDR \d")
# Pattern 4, crossNic 0, nChannels 16, bw 20.0/20.0, type NVL/PIX, sameChannels 1; `speed` up to 2.12
_SEARCH = re.compile(
    r"Pattern (?P<pattern>\d{1,2}), crossNic (?P<cross_nic>\d), nChannels (?P<channels>\d{1,4}),"
    r" (?:bw|speed) (?P<intra>[\d.]{1,16})/(?P<inter>[\d.]{1,16}),"
    r" type (?P<intra_kind>\w{2,4})/(?P<inter_kind>\w{2,4}), sameChannels (?:(?P<same_channels>1)|\d)"
)
# 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer
_COUNTS = re.compile(
    r"(?P<collective>\d{1,4}) coll channels(?:, (?P<collnet>\d{1,4}) collnet channels)?"
    r"(?:, (?P<nvls>\d{1,4}) nvls channels)?(?:, (?P<p2p>\d{1,4}) p2p channels)?"
    r"(?:, (?P<p2p_per_peer>\d{1,4}) p2p channels per peer)?"
)
_VERSION = re.compile(
    r"NCCL version (?P<nccl>\d{1,3}(?:\.\d{1,3}){1,3})[\w.-]{0,20}(?:\+cuda(?P<cuda>\d{1,3}\.\d{1,3}))?"
)
_DRIVER = re.compile(r"cudaDriverVersion (?P<version>\d{4,6})$")
# NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB ..., NET/Socket : Using [0]eth0:...
_NICS = re.compile(r"NET/(?P<network>IB|Socket) : Using(?P<listed>.*)")
_NIC = re.compile(r"\[(?P<index>\d{1,3})\] ?(?P<name>[\w.-]{1,64}):(?P<port>\d{1,3})/(?P<link>\w{1,16})")
_SOCKET = re.compile(r"\[(?P<index>\d{1,3})\](?P<name>[\w.@-]{1,64}):")
_IN_USE = re.compile(r"Using network (?P<name>.{1,60})")
_NO_NIC = re.compile(r"(?=(?P<says>.{1,200}))NET/IB : No device found")
_NO_VERBS = re.compile(r"(?=(?P<says>.{1,200}))Failed to open libibverbs")
_NO_PLUGIN = re.compile(r"(?=(?P<says>.{1,200}))Failed to initialize NET plugin (?:.* )?(?P<name>[^ ]{1,60})[^ ]*$")
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is (?P<says>[^(,]{1,60})(?:.{0,80}\(found (?P<nics>\d{1,4}) nics\))?"
)
_GDR_PAIR = re.compile(
    r"(?:NET/IB : )?GPU Direct RDMA (?:(?P<enabled>Enabled)|Disabled) for (?:GPU|rank) (?P<gpu>\w{1,12})"
    r"(?:\[\w{1,12}\])? / HCA (?P<nic>\w{1,12})(?P<why>.{0,120})"
)
_GDR_NIC = re.compile(
    r"NET/[^:]{1,60}: GPU Direct RDMA (?:(?P<enabled>Enabled)|Disabled) for HCA (?P<index>\d{1,5})"
    r" '(?P<name>[^']{1,64})'(?P<why>.{0,80})"
)
# NET/IB: ncclIbConnect: NCCL Dev 0 IbDev 0 Port 1 qp_num 71 mtu 5 GID 3 (0/...); `qpn` up to 2.29, `Dev` alone to 2.18
_QUEUE_PAIR = re.compile(
    r"NET/IB: (?:\w{1,40}: )?(?:NCCL )?(?:Merged)?Dev (?P<device>\d{1,4})(?: IbDev (?P<nic>\d{1,4}))?"
    r" Port (?P<port>\d{1,3}) (?:qpn|qp_num) \d{1,10} mtu (?P<mtu>[1-5]) (?:query_ece=\{[^}]{0,200}\} )?"
    r"(?:LID (?P<lid>\d{1,6})|GID (?P<gid_index>\d{1,4}) )"
)
# The two excluded variables hold machine names, which are not needed and may be private.
_SETTING = re.compile(
    r"(?!NCCL_COMM_ID|NCCL_HOSTID)(?P<name>NCCL_\w{1,60}) set (?:by environment )?to (?P<value>.{1,300})"
)
# AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}; 2.20 to 2.23 `Algo 1 proto 0 time 12.3`
_CHOICE = re.compile(
    r"(?:(?P<operation>\w{1,30}): )?(?P<size_bytes>\d{1,19}) Bytes -> Algo (?P<algorithm>\w{1,20})"
    r" proto (?P<protocol>\w{1,20})(?: time (?P<time>[\d.]{1,20}))?"
    r"(?: channel\{Lo\.\.Hi\}=\{(?P<low>\d{1,4})\.\.(?P<high>\d{1,4})\})?"
)
_WAY = re.compile(r"\w{1,30} \[(Symmetric|Copy Engine)\]: \d{1,19} Bytes -> (?:Kernel )?(\w{1,80})")

Kind = TypeVar("Kind")


class Init(NamedTuple):
    """A rank's `Init START` or `Init COMPLETE` line; `comm` is empty if the version writes no commId."""

    rank: int
    size: int
    comm: str
    complete: bool
    cuda_dev: int | None = None
    nvml_dev: int | None = None
    bus_id: str | None = None
    is_torn: bool = False
    """Whether output of another process overwrote the beginning of the line."""


class Nodes(NamedTuple):
    """The rank, and the numbers of ranks and hosts (2.20 and later)."""

    rank: int
    size: int
    nodes: int


class Step(NamedTuple):
    """The neighbors of a rank in the ring of one channel."""

    channel: int
    rank: int
    following: int
    line: int


class Heads(NamedTuple):
    """The ranks that lead the NVLS channels."""

    ranks: tuple[int, ...]


class Pxn(NamedTuple):
    """Whether rings use PXN (2.24 and later)."""

    used: bool


class Driver(NamedTuple):
    """The CUDA version of the driver."""

    version: int


CommunicatorFact = (
    Init | Nodes | model.Ring | Step | Heads | Pxn | model.TreeNode | model.Connection | model.Search | model.Counts
)
Fact = (
    CommunicatorFact
    | Driver
    | model.Version
    | model.Nic
    | model.Network
    | model.GdrCheck
    | model.QueuePair
    | model.Setting
    | model.Choice
)
_Reading = Callable[[re.Match[str], Message], Sequence[Fact]]


def parse_facts(message: Message) -> Sequence[Fact]:
    """Return the facts in a message whose text has no leading spaces, or none if no pattern fits."""
    text = message.text
    kinds = _KINDS.get(text.partition(" ")[0].partition("/")[0])
    if kinds is None and _MAY_BE_OTHER.match(text) is None:
        return ()
    for pattern, read in kinds or _OTHERS:
        if found := pattern.match(text):
            return read(found, message)
    return ()


def decimal(text: str) -> float:
    """Parse a number as NCCL prints it; 0 for text like `1.2.3`, which two mixed lines produce."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def rate(text: str) -> float:
    """Convert NCCL's GB/s to bytes/s."""
    return decimal(text) * 1e9


def normalize_name(word: str, names: tuple[str, ...] = (*_ALGORITHMS, *PROTOCOLS)) -> str:
    """Normalize the spelling of all versions: `RING`, `Ring` and `1` become Ring. Unknown words are unchanged."""
    if word.isascii() and word.isdigit():
        return names[int(word)] if int(word) < len(names) else word
    return _SPELLING.get(word.replace("_", "").casefold(), word)


def parse_choice(message: Message) -> model.Choice | None:
    """Parse NCCL's choice for an operation, or None if the message has none."""
    found = _CHOICE.match(message.text)
    return _choice(found, message)[0] if found else None


def parse_method(text: str) -> tuple[str, str] | None:
    """Parse the method and the kernel of an operation without an algorithm.

    `AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512` (2.27), and since 2.29
    `AllGather [Copy Engine]: 8 Bytes -> cudaMemcpy`.
    """
    found = _WAY.match(text)
    return (found[1], found[2]) if found else None


_MADE_BY: dict[Any, Callable[[str], object]] = {
    int: int,
    int | None: int,
    tuple[int, ...]: lambda text: tuple(int(part) for part in text.split()),
}


def _fact(kind: Callable[..., Kind], message: Message, *found: re.Match[str], **known: object) -> Kind:
    """Build a fact from patterns whose groups are named like its fields.

    A `bool` field reports whether its group matched.

    Host, process and line come from the message if the fact has such fields.
    """
    values = {name: getattr(message, name) for name in _find_origins(kind)}
    for match in found:
        groups = match.groups()
        for place, name, make in _find_fields(kind, match.re):
            text = groups[place]
            if make is None:
                values[name] = text is not None
            elif text is not None:
                values[name] = make(text)
    return kind(**{**values, **known})


@cache
def _find_origins(kind: Callable[..., object]) -> tuple[str, ...]:
    """Return the fields of a fact that the message around it fills."""
    return tuple(name for name in ("host", "pid", "line") if name in get_type_hints(kind))


@cache
def _find_fields(
    kind: Callable[..., object], pattern: re.Pattern[str]
) -> tuple[tuple[int, str, Callable[[str], object] | None], ...]:
    """Return the groups of a pattern that are fields of a fact: the place, the name and the conversion.

    None in place of the conversion stands for whether the group matched.
    """
    types = get_type_hints(kind)
    return tuple(
        (group - 1, name, None if types[name] is bool else _MADE_BY.get(types[name], str.strip))
        for name, group in pattern.groupindex.items()
        if name in types
    )


def _read_one(kind: Callable[..., Fact], **known: object) -> _Reading:
    """Return a reader of messages that are one fact, from the groups of the pattern and the known fields."""
    return lambda found, message: [_fact(kind, message, found, **known)]


def _init(found: re.Match[str], message: Message) -> Sequence[Init]:
    """Build the Init fact.

    A communicator has a commId; one that was split off another has a count and a color instead.
    """
    comm, split = _COMM_ID.search(found["rest"]), _SPLIT.search(found["rest"])
    name = comm[1] if comm else f"split {split[1] or 0} color {split[2]}" if split else ""
    is_torn = found["function"] is not None and not found["function"].startswith("nccl")
    return [_fact(Init, message, found, comm=name, is_torn=is_torn)]


def _ring(found: re.Match[str], message: Message) -> Sequence[model.Ring]:
    """Build the ring. If NCCL ended the line with dots, the last number may be truncated."""
    ranks = tuple(int(rank) for rank in found["ranks"].split())
    cut = found["cut"] is not None
    return [_fact(model.Ring, message, found, ranks=ranks[:-1] if cut else ranks, whole=not cut)]


def _trees(found: re.Match[str], message: Message) -> Sequence[model.TreeNode]:
    """Build the tree nodes from children, rank and parent; 2.4 writes parent, rank, children.

    Versions 2.5 and 2.6 write a second tree after `|`, with the same links reversed. It is ignored.
    """
    nodes = []
    for channel, left, rank, right in _TREE.findall(found["listed"]):
        down, up = (left, right) if "/" in left else (right, left)
        children = tuple(int(child) for child in down.split("/") if child.isdecimal())
        if up.lstrip("-").isdecimal():
            nodes.append(
                model.TreeNode(channel=int(channel), rank=int(rank), up=int(up), down=children, line=message.line)
            )
    return nodes


def _connection(found: re.Match[str], message: Message) -> Sequence[model.Connection]:
    if network := _NET.match(found["via"]):
        return [_fact(model.Connection, message, found, network, transport="NET")]
    transport, _, detail = found["via"].partition("/")
    if found["via"].startswith("direct shared memory"):  # up to 2.10
        transport, detail = "SHM", "direct"
    if transport not in ("P2P", "SHM"):
        return []
    return [_fact(model.Connection, message, found, transport=transport, detail=detail.strip())]


def _nics(found: re.Match[str], message: Message) -> Sequence[model.Nic]:
    listed = found["listed"].partition("OOB")[0][:4000]
    each = (_NIC if found["network"] == "IB" else _SOCKET).finditer(listed)
    return [_fact(model.Nic, message, found, one) for one in islice(each, _MAX_NICS)]


def _gdr_of_nic(found: re.Match[str], message: Message) -> Sequence[model.GdrCheck]:
    """Build the fact of a NIC alone, which shows whether the kernel module is loaded."""
    return [_fact(model.GdrCheck, message, found, nic=f"{found['index']} {found['name']}")]


def _queue_pair(found: re.Match[str], message: Message) -> Sequence[model.QueuePair]:
    return [_fact(model.QueuePair, message, found, nic=int(found["nic"] or found["device"]))]


def _search(found: re.Match[str], message: Message) -> Sequence[model.Search]:
    intra, inter = rate(found["intra"]), rate(found["inter"])
    return [_fact(model.Search, message, found, intra_bytes_per_s=intra, inter_bytes_per_s=inter)]


def _setting(found: re.Match[str], message: Message) -> Sequence[model.Setting]:
    return [_fact(model.Setting, message, found, value=found["value"].strip().removesuffix("."))]


def _choice(found: re.Match[str], message: Message) -> Sequence[model.Choice]:
    low, high, time = found["low"], found["high"], found["time"]
    names = {
        "algorithm": normalize_name(found["algorithm"], _ALGORITHMS),
        "protocol": normalize_name(found["protocol"], PROTOCOLS),
    }
    channels = int(high) - int(low) + 1 if low and high else None
    estimate_s = decimal(time) * 1e-6 if time else None
    return [_fact(model.Choice, message, found, channels=channels, estimate_s=estimate_s, **names)]


_CHANNEL = [(_LINK, _connection), (_STEP, _read_one(Step)), (_RING, _ring)]
_KINDS: dict[str, list[tuple[re.Pattern[str], _Reading]]] = {
    "NCCL": [(_VERSION, _read_one(model.Version))],
    "cudaDriverVersion": [(_DRIVER, _read_one(Driver))],
    "Using": [(_IN_USE, _read_one(model.Network, state="used"))],
    "Failed": [
        (_NO_VERBS, _read_one(model.Network, name="IB", state="failed")),
        (_NO_PLUGIN, _read_one(model.Network, state="failed")),
    ],
    "NET": [
        (_GDR_NIC, _gdr_of_nic),
        (_GDR_PAIR, _read_one(model.GdrCheck)),
        (_NICS, _nics),
        (_QUEUE_PAIR, _queue_pair),
        (_NO_NIC, _read_one(model.Network, name="IB", state="absent")),
        (_PROVIDER, _read_one(model.Network, name="OFI", state="plugin")),
    ],
    "GPU": [(_GDR_PAIR, _read_one(model.GdrCheck))],
    "Pattern": [(_SEARCH, _search)],
    "Channel": _CHANNEL,
    "Ring": _CHANNEL,
    "Trees": [(_TREES, _trees)],
    "NVLS": [(_HEADS, _read_one(Heads))],
    "Connected": [(_PXN, _read_one(Pxn))],
}
"""The kinds of messages by their first word. The first matching pattern counts."""
_MAY_BE_OTHER = re.compile(r"(?:\S{1,48} )?comm 0x|NCCL_|\d{1,4} coll |(?:\w{1,30}: )?\d{1,19} Bytes -> Algo ")
"""The beginnings of `_OTHERS`. Most messages match none of them, and a log may have millions."""
_OTHERS = [
    (_INIT, _init),
    (_NODES, _read_one(Nodes)),
    (_SETTING, _setting),
    (_CHOICE, _choice),
    (_COUNTS, _read_one(model.Counts)),
]
