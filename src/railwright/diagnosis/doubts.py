"""Where a row is below its band, but not beyond doubt: what healthy machines of one kind differ by.

A doubt is no excuse for a whole table: it turns a row into `unknown` with the reason, never into `ok`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from railwright.diagnosis.call_time import CallTime
from railwright.diagnosis.judged import Judged, Verdict
from railwright.limits.limit import Bounds, Expected, Limit, NoLimit
from railwright.limits.traffic import domains
from railwright.results.readers.subject import Subject
from railwright.results.records import size_of
from railwright.topology.cluster import Cluster
from railwright.topology.devices import NvlinkLink, PcieLink
from railwright.units import format_duration

RENDEZVOUS_ENDS = 1024 * 1024
"""Up to this size a message over MPI or UCX may cost a handshake that it does not hide."""
_OF_SMALL = 0.5
_OF_MPI = 0.85
_OF_MPI_BOTH_WAYS = 0.7
_OF_VERBS = 0.95
_OF_COPIES = 0.8
"""Of the low end over PCIe: eight RTX 4090 of one host read its memory at 23.9 to 26.4 GB/s, and six A6000 each other's
at 21.8 to 26.4 (NVIDIA nvbandwidth issues 15 and 50)."""
_OF_SWITCH = 0.5
"""Where NCCL changes its protocol: eight A100 reach 0.67 of the band at 8 MiB, 0.45 to 0.7 about it, and
all of it above (SuperBench, recorded outputs, nccl_reducescatter.log)."""
_OF_OLD = 0.8
"""Of the low end with NCCL of 2020: 0.91 at 1 GiB on p4d with 2.8.3, 0.99 and less below (AWS, Getting started with EFA
on EKS)."""
OLD_NCCL = (2, 9)
_OF_A_CALL = 0.4
_OF_BYTES = 0.75
_CALL_DECIDES = 0.1
"""Of the limit: where a band ends below this share of it, the time is that of the call."""
_BYTES_DECIDE = 0.5
"""From this share of the largest size's rate on, bytes decide the time more than the call does."""
_HALF = 0.5
_OF_FILES = 0.9
COPY_CALL_S = 10e-6
"""What a message between GPUs of one host costs beside its bytes where MPI or UCX copies it by calls of CUDA's: 6.5 us
at 64 KiB with osu_bw on GH200 (CSCS documentation, MPICH); half as much again for others."""
_SINGLE_MESSAGE_S, SINGLE_MESSAGES_FROM = 12e-6, 2**20
"""What a message costs beside its bytes where it waits for the one before it: 10.3 us at 256 KiB of PingPong over FDR
InfiniBand (openhpc/ohpc, issue 207), some more for others; below 1 MiB that is most of the time."""
_ONE_LEAF = 32
"""Hosts of one leaf of a non-blocking fabric: half of the 64 ports of 400 Gb/s (NVIDIA QM9700, Spectrum-4 SN5600)."""
_TAPER = 1 / 3
"""Three links down for one up, which is common between leaf and spine; all_reduce over 1,440 GB200 reaches half of what
it does over 144 at 16 GiB, and 0.44 at 4 GiB (CoreWeave, nccl-tests README)."""

_OF_TCP = 0.5
"""Of the low end over GPUDirect-TCPX: all_gather of 16 H100 on A3 High reached 71 GB/s at 512 MiB on one network that
was found healthy and 50 GB/s from 128 MiB to 8 GiB on another (Google Cloud, GKE and cluster documentation)."""
_OF_PCIE_3 = 0.8
"""Four V100 PCIe below one root complex, kept as a sound installation, reach 0.83 of the low end (9.4 GB/s)."""
_PCIE_3 = 8.0
"""GT/s."""

_WHY_SMALL = "how soon messages of this size reach the rate differs by protocol and handshake"
_WHY_MPI = "MPI reaches some percent less than the link, by version and settings"
_WHY_VERBS = "headers and MTU take some percent more or less"
_WHY_CALL = "the fixed time of a call differs as much between healthy hosts, plug-ins and containers, and large sizes"
_WHY_CALLS = "at these sizes a call decides, whose time differs as much between healthy hosts, versions and containers"
_WHY_RING = "within what NCCL's ring reaches, which it may have taken or been told to take"
_WHY_FABRIC = (
    "what joins so many hosts is not described (--cluster FILE does): a taper of 2:1 or 3:1 takes half or more"
)
_WHY_TCP = "networks that were found healthy differ as much over GPUDirect-TCPX"
_WHY_PCIE_3 = "what GPUs reach over PCIe 3.0 differs as much between healthy hosts"
_WHY_EXCHANGE = "healthy MPI libraries differ by as much: each chooses algorithms of its own"
_WHY_MEMORY = "it takes a thread for each core, on every socket, and arrays that no cache holds"
_WHY_SOCKETS = "one flow of TCP is held back by a core: several (iperf3 -P 8) and an MTU of 9000 reach more"
_WHY_COPIES = (
    "what CPUs give to copies over PCIe differs as much between healthy hosts, and which GPUs share a switch is the"
    " shape's word where no nvidia-smi topo -m was given"
)
_WHY_SWITCH = "NCCL changes its protocol about this size, which a version may do too early or too late, and larger ones"
_WHY_FILES = "healthy drives and file systems differ too much"


def of_messages(bounds: Bounds, subject: Subject, size: int) -> Bounds:
    """The bounds of a stream of messages, with how far below the band nothing can be said."""
    limit, expected = bounds
    if expected is None:
        return bounds
    if subject.transport == "verbs":
        share = _OF_VERBS
    elif size < RENDEZVOUS_ENDS:
        share = _OF_SMALL
    else:
        share = _OF_MPI_BOTH_WAYS if subject.both_ways else _OF_MPI
    return limit, replace(expected, doubtful_to=min(expected.low * share, expected.doubtful_to or expected.low))


def of_copied_messages(bounds: Bounds, size: int) -> Bounds:
    """The bounds of messages between GPUs of one host, each of which costs a call beside its bytes."""
    limit, expected = bounds
    if expected is None or size <= 0:
        return limit, None
    low = size / (COPY_CALL_S + size / expected.low)
    because = f"{expected.because}; less {COPY_CALL_S * 1e6:.0f} us for the call of each message"
    return limit, replace(expected, low=low, doubtful_to=low * _OF_SMALL, because=because)


def of_single_messages(bounds: Bounds, size: int) -> Bounds:
    """The bounds of messages that wait for each other: each has its way there and its handshake to itself."""
    limit, expected = bounds
    if expected is None or size < SINGLE_MESSAGES_FROM:
        return limit, None
    low = size / (_SINGLE_MESSAGE_S + size / expected.low)
    because = f"{expected.because}; less {_SINGLE_MESSAGE_S * 1e6:.0f} us for each message, which waits for the last"
    return limit, replace(expected, low=low, doubtful_to=low * _OF_SMALL, because=because)


def of_many_hosts(expected: Expected, cluster: Cluster) -> Expected:
    """The band of a collective between more hosts than one leaf joins, where nothing is known of the fabric."""
    if not over_unknown_fabric(cluster):
        return expected
    return replace(expected, doubtful_to=min(expected.low * _TAPER, expected.doubtful_to or expected.low))


def of_old_links(expected: Expected, cluster: Cluster) -> Expected:
    """The band of a collective over TCP in GPU memory, or inside a host over PCIe 3.0 alone."""
    share = _OF_TCP if _over_tcp(cluster) else _OF_PCIE_3 if _over_pcie_3(cluster) else 1.0
    return replace(expected, doubtful_to=min(expected.low * share, expected.doubtful_to or expected.low))


def _over_tcp(cluster: Cluster) -> bool:
    """Whether hosts meet by a plugin that takes TCP to GPU memory (GPUDirect-TCPX)."""
    nics = cluster.host.of_kind("nic")
    return cluster.hosts > 1 and any(nic.facts.get("gpudirect_tcp") is True for nic in nics)


def _over_pcie_3(cluster: Cluster) -> bool:
    """Whether the GPUs of one host reach each other over PCIe 3.0 or older, and nothing else."""
    gpus = {gpu.id for gpu in cluster.host.of_kind("gpu")}
    slots = [link.protocol for link in cluster.host.links if gpus & {link.a, link.b}]
    rates = [one.gt_per_s for one in slots if isinstance(one, PcieLink) and one.gt_per_s]
    has_nvlink = any(isinstance(link.protocol, NvlinkLink) for link in cluster.host.links)
    return cluster.hosts == 1 and not has_nvlink and bool(rates) and max(rates) <= _PCIE_3


def over_unknown_fabric(cluster: Cluster) -> bool:
    """Whether the hosts are more than one leaf joins, and what joins them is not described."""
    return cluster.hosts > _ONE_LEAF and not cluster.fabric.tiers and domains(cluster) > 1


def of_a_link(limit: Limit | NoLimit) -> Expected | None:
    """What can be said of a link for which no document tells what healthy ones reach: no header takes half of it."""
    if not isinstance(limit, Limit):
        return None
    return Expected(
        quantity=limit.quantity,
        low=limit.value * _HALF,
        because="half of the limit: no overhead of packets takes as much",
        sources=limit.sources,
    )


def of_pcie_copies(expected: Expected) -> Expected:
    """The band of a copy over PCIe by the engines of GPUs."""
    low = expected.low * _OF_COPIES
    return replace(expected, doubtful_to=min(low, expected.doubtful_to or low))


def of_files(limit: Limit | NoLimit) -> Expected | None:
    """At 0.9 of the limit and more all is well; below it nothing is known."""
    if not isinstance(limit, Limit):
        return None
    low = limit.value * _OF_FILES
    because = "0.9 of the limit: nothing is left to be won"
    return Expected(quantity=limit.quantity, low=low, doubtful_to=0.0, because=because, sources=limit.sources)


def why_doubtful(subject: Subject, size: int, cluster: Cluster) -> str:
    """The reason of a doubt, as a clause."""
    if subject.kind == "collective":
        return _why_of_collective(cluster)
    if subject.kind == "exchange":
        return _WHY_EXCHANGE
    if subject.kind == "copies":
        return _WHY_COPIES
    if subject.kind in ("files", "memory"):
        return _WHY_FILES if subject.kind == "files" else _WHY_MEMORY
    if subject.transport == "sockets":
        return _WHY_SOCKETS
    if size < RENDEZVOUS_ENDS and subject.transport != "verbs":
        return _WHY_SMALL
    return _WHY_VERBS if subject.transport == "verbs" else _WHY_MPI


def _why_of_collective(cluster: Cluster) -> str:
    if _over_tcp(cluster):
        return _WHY_TCP
    if _over_pcie_3(cluster):
        return _WHY_PCIE_3
    return _WHY_FABRIC if over_unknown_fabric(cluster) else _WHY_RING


def of_old_nccl(rows: Sequence[Judged], headline: int, hosts: int, version: tuple[int, ...]) -> tuple[Judged, ...]:
    """The rows between hosts by an NCCL that is older than what the bands were taken from.

    Where its largest size is little below the band, smaller ones are in doubt as below a size that is in it.
    """
    if hosts < 2 or not version or version[:2] >= OLD_NCCL or _share(rows[headline]) < _OF_OLD:
        return tuple(rows)
    why = f"NCCL {'.'.join(map(str, version))} reaches less than later ones, which the band is of"
    return _near_in_doubt(rows, why)


def _near_in_doubt(rows: Sequence[Judged], why: str) -> tuple[Judged, ...]:
    """The rows; those that are slow are in doubt where they have a part of their band that a call may cost."""
    return tuple(_doubted(row, why) if _is_slow(row) and _share(row) >= _OF_A_CALL else row for row in rows)


def _is_slow(row: Judged) -> bool:
    return row.verdict.state == "slow"


def weighed(rows: Sequence[Judged], headline: int | None, hosts: int, call: CallTime | None) -> tuple[Judged, ...]:
    """The rows of a collective, where a doubt is about the whole table.

    A fault of a link takes its rate from the largest size too, and slows a size in both of its placements. So where
    the largest size is in its band, a smaller one is slow only if both placements are, and far below the band.
    Between hosts that holds for every size, since what a network plug-in does to middle sizes is not published; inside
    one host only where the call decides. `call` is a fixed time that such machines may have: then nothing is slow.
    A table that ends before bytes count has no such size: its call may take as long on a healthy machine.
    """
    if headline is None:
        return tuple(rows)
    if rows[headline].verdict.state != "ok":
        return _near_in_doubt(rows, _WHY_CALLS) if _is_of_a_call(rows[headline]) else tuple(rows)
    if call is not None:
        return tuple(_of_call(row, call) if row.verdict.state == "slow" else row for row in rows)
    top = rows[headline].expected
    best: dict[int, float] = {}
    for row in rows:
        best[_size(row)] = max(best.get(_size(row), 0.0), _share(row))
    found = tuple(
        _in_words(row, _WHY_CALL) if _is_slow(row) and _in_doubt(row, best[_size(row)], top, hosts) else row
        for row in rows
    )
    still = {_size(row) for row in found if _is_slow(row)}
    if len(still) == 1 and best[min(still)] >= _OF_SWITCH:
        return tuple(_in_words(row, _WHY_SWITCH) if _is_slow(row) else row for row in found)
    return found


def _is_of_a_call(row: Judged) -> bool:
    """Whether bytes decide nothing at the largest size: its band ends far below what the links carry."""
    high = row.expected.high if row.expected is not None else None
    return isinstance(row.limit, Limit) and high is not None and high < _CALL_DECIDES * row.limit.value


def _size(row: Judged) -> int:
    return size_of(row.parameters) or 0


def _of_call(row: Judged, call: CallTime) -> Judged:
    time = format_duration(call.extra_s)
    return _in_words(row, f"a fixed time of {time} a call explains it, as {call.known_of} have; large sizes")


def _in_doubt(row: Judged, best: float, top: Expected | None, hosts: int) -> bool:
    """Whether a row below its band is not beyond doubt; `best` is the better placement's share of the low end."""
    highs = [band.high for band in (row.expected, top) if band is not None and band.high]
    if hosts == 1 and len(highs) > 1 and highs[0] >= _BYTES_DECIDE * highs[1]:
        return _share(row) >= _OF_BYTES
    return best >= _OF_A_CALL


def _share(row: Judged) -> float:
    return row.value / row.expected.low if row.value and row.expected and row.expected.low else 0.0


def _in_words(row: Judged, why: str) -> Judged:
    return _doubted(row, f"{why} are in their band")


def _doubted(row: Judged, why: str) -> Judged:
    return replace(row, verdict=Verdict(state="unknown", why=f"{row.verdict.why}, but {why}"))
