"""What a table says of its machine, where the machine given has another: then it is another machine's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright.diagnosis.verdicts.judged import Judged
from railwright.explain.topology_matrix import Beside, contradictions_beside
from railwright.limits.network import LINUX_ROCE_BYTES, largest_rdma_mtu
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.workload import Message
from railwright.topology.cluster import Cluster, ports
from railwright.topology.devices import EthernetLink, InfinibandLink
from railwright.topology.gpu_models import is_model, names_a_model
from railwright.units import count, format_bandwidth, format_line_rate

_HCA = "NCCL_IB_HCA"
_LINE_RATES = (10e9, 25e9, 40e9, 50e9, 56e9, 100e9, 200e9, 400e9)
_FULL = (0.92, 0.998)
"""Shares of a line rate that payload takes, from RoCE at MTU 1500 to InfiniBand."""
_MOST_MODELS = 8
"""GPU names of a table that are looked at; a job has one, or a few."""
_KINDS: dict[str, type] = {"ethernet": EthernetLink, "ib": InfinibandLink, "infiniband": InfinibandLink}
_NAMES: dict[type, str] = {EthernetLink: "Ethernet", InfinibandLink: "InfiniBand"}


def contradictions(file: ForeignFile, given: Cluster, placed: Cluster, around: Beside) -> tuple[str, ...]:
    """One sentence for each contradiction; none where either side does not say. `placed` is of the table's size."""
    return (*_of_gpus(file, given, placed), *_of_nics(file, given), *contradictions_beside(around, given))


def _of_gpus(file: ForeignFile, given: Cluster, placed: Cluster) -> Iterator[str]:
    own = next((gpu.name for gpu in given.host.of_kind("gpu") if names_a_model(gpu.name)), "")
    if own and file.gpus and not any(is_model(name, own) for name in file.gpus[:_MOST_MODELS]):
        yield f"the table is of {', '.join(file.gpus[:4])}, the machine given has {own}: is it the right one?"
    if placed.hosts > given.hosts and file.workload.transport != "sockets":  # their addresses say so, and a note does
        yield (
            f"the table has {file.ranks} ranks, so it is of {count(placed.hosts, 'host')} and not of the {given.hosts}"
            " given: is it the right table?"
        )


def _of_nics(file: ForeignFile, given: Cluster) -> Iterator[str]:
    if file.workload.transport == "verbs" and file.results:
        yield from _of_links(file, given)
    named = {word.partition(":")[0] for word in file.environment.get(_HCA, "").lstrip("=").split(",") if word}
    nics = len(ports(given.host))
    exact = not file.environment.get(_HCA, "^").startswith("^") and all(word[-1:].isdigit() for word in named)
    if exact and 0 < nics < len(named):
        yield f"{_HCA} names {len(named)} NICs, the machine given has {nics}"


def _of_links(file: ForeignFile, given: Cluster) -> Iterator[str]:
    settings = file.results[0].settings
    links = [link.protocol for link in given.host.links if isinstance(link.protocol, EthernetLink | InfinibandLink)]
    said = _KINDS.get(str(settings.get("link_type", "")).lower())
    of_kind = [link for link in links if said is None or isinstance(link, said)]
    if links and said is not None and not of_kind:
        other = _NAMES[type(links[0])]
        yield f"the table ran over {_NAMES[said]}, the NICs of the machine given are {other}: is it the right one?"
    mtu = settings.get("mtu_bytes")
    allowed = {_rdma_mtu(link) for link in of_kind}
    least = min((one for one in allowed if one is not None), default=None)
    if isinstance(mtu, int) and least is not None and None not in allowed and mtu < least:
        yield f"the table ran with an MTU of {mtu} bytes, the machine given has {least}: its headers take more"


def _rdma_mtu(link: EthernetLink | InfinibandLink) -> int | None:
    """The largest MTU of RDMA that the link's own allows."""
    if link.mtu_bytes is None:
        return None
    headers = LINUX_ROCE_BYTES.value if isinstance(link, EthernetLink) else 0
    return largest_rdma_mtu(link.mtu_bytes - headers) or None


def another_rate(file: ForeignFile, rows: Sequence[Judged], given: Cluster) -> tuple[str, ...]:
    """A sentence where the fastest of slow messages between hosts is just what a port of a lower rate carries."""
    rates = [row.value for row in rows if row.value and row.quantity == "bandwidth_bytes_per_s"]
    own = [getattr(link.protocol, "line_rate_bits_per_s", None) or 0.0 for _, link in ports(given.host)]
    if (
        not isinstance(file.workload, Message)
        or not rates
        or not own
        or not any(row.verdict.state == "slow" for row in rows)
    ):
        return ()
    bits = 8 * max(rates) / (2 if file.workload.both_ways else 1)
    fitting = [rate for rate in _LINE_RATES if rate < max(own) and _FULL[0] * rate <= bits <= _FULL[1] * rate]
    return tuple(
        f"{format_bandwidth(max(rates))} is what a port of {format_line_rate(rate)} carries: is it one, or did the link"
        f" come up at that rate? (nic-rate={rate / 1e9:g}Gb/s)"
        for rate in fitting[:1]
    )
