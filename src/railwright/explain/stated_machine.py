"""Contradictions between a table and the given machine, which suggest that the table is of another machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from railwright.diagnosis.verdicts.judged import Judged
from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.explain.topology_matrix import Surroundings, matrix_contradictions
from railwright.limits.limit import Limit
from railwright.limits.network import LINUX_ROCE_BYTES, largest_rdma_mtu
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.workload import Message
from railwright.topology.cluster import Cluster, ports
from railwright.topology.devices import EthernetLink, InfinibandLink
from railwright.topology.gpu_models import is_model, is_model_of_other_memory, names_a_model
from railwright.units import format_bandwidth, format_count, format_line_rate

_HCA = "NCCL_IB_HCA"
_LINE_RATES = (10e9, 25e9, 40e9, 50e9, 56e9, 100e9, 200e9, 400e9)
_PAYLOAD_SHARES = (0.92, 0.998)
"""The payload's share of a line rate, from RoCE at MTU 1500 to InfiniBand."""
_MAX_MODELS = 8
"""The number of GPU names read from a table; a job has one or a few."""
_KINDS: dict[str, type] = {"ethernet": EthernetLink, "ib": InfinibandLink, "infiniband": InfinibandLink}
_NAMES: dict[type, str] = {EthernetLink: "Ethernet", InfinibandLink: "InfiniBand"}


def contradictions(file: ForeignFile, machine: Machine, placed: Cluster, around: Surroundings) -> tuple[str, ...]:
    """Return a sentence per contradiction between known facts. `placed` is the cluster at the table's size."""
    given = machine.cluster
    return (
        *_contradict_gpus(file, given),
        *(_contradict_hosts(file, given, placed) if machine.hosts_given else ()),
        *_contradict_nics(file, given),
        *matrix_contradictions(around, given),
    )


def _contradict_gpus(file: ForeignFile, given: Cluster) -> Iterator[str]:
    model, named = _model(given), file.gpus[:_MAX_MODELS]
    alike = any(is_model(name, model) or is_model_of_other_memory(name, model) for name in named)
    if model and named and not alike:
        yield f"the table is of {', '.join(file.gpus[:4])}, but the given machine has {model}: is it the right machine?"


def _model(given: Cluster) -> str:
    return next((gpu.name for gpu in given.host.of_kind("gpu") if names_a_model(gpu.name)), "")


def note_other_memory(file: ForeignFile, given: Cluster) -> tuple[str, ...]:
    """Report GPUs that differ from those of the given machine only in their memory."""
    model = _model(given)
    others = [name for name in file.gpus[:_MAX_MODELS] if is_model_of_other_memory(name, model)]
    return (
        (f"the table's GPUs are {', '.join(others)}, the machine's {model}: their links are alike",) if others else ()
    )


def _contradict_hosts(file: ForeignFile, given: Cluster, placed: Cluster) -> Iterator[str]:
    if placed.hosts > given.hosts and file.workload.transport != "sockets":  # their addresses give the hosts
        yield (
            f"the table has {file.ranks} ranks, so it is of {format_count(placed.hosts, 'host')} and not of "
            f"the {given.hosts} given: is it the right table?"
        )


def _contradict_nics(file: ForeignFile, given: Cluster) -> Iterator[str]:
    if file.workload.transport == "verbs" and file.results:
        yield from _contradict_links(file, given)
    named = {word.partition(":")[0] for word in file.environment.get(_HCA, "").lstrip("=").split(",") if word}
    nics = len(ports(given.host))
    exact = not file.environment.get(_HCA, "^").startswith("^") and all(word[-1:].isdigit() for word in named)
    if exact and 0 < nics < len(named):
        yield f"{_HCA} names {len(named)} NICs, but the given machine has {nics}"


def _contradict_links(file: ForeignFile, given: Cluster) -> Iterator[str]:
    settings = file.results[0].settings
    links = [link.protocol for link in given.host.links if isinstance(link.protocol, EthernetLink | InfinibandLink)]
    link_type = _KINDS.get(str(settings.get("link_type", "")).lower())
    of_type = [link for link in links if link_type is None or isinstance(link, link_type)]
    if links and link_type is not None and not of_type:
        other = _NAMES[type(links[0])]
        yield f"the table ran over {_NAMES[link_type]}, but the given machine's NICs are {other}: is it the right one?"
    mtu = settings.get("mtu_bytes")
    allowed = {_rdma_mtu(link) for link in of_type}
    smallest = min((mtu_bytes for mtu_bytes in allowed if mtu_bytes is not None), default=None)
    if isinstance(mtu, int) and smallest is not None and None not in allowed and mtu < smallest:
        yield f"the table ran with an MTU of {mtu} bytes, but the given machine has {smallest}: headers took more"


def _rdma_mtu(link: EthernetLink | InfinibandLink) -> int | None:
    """Return the largest RDMA MTU that fits the link's MTU."""
    if link.mtu_bytes is None:
        return None
    headers = LINUX_ROCE_BYTES.value if isinstance(link, EthernetLink) else 0
    return largest_rdma_mtu(link.mtu_bytes - headers) or None


def _compare_with_port(workload: Message, rate: float, given: Cluster) -> tuple[str, ...]:
    """Report the share of one port, which verbs use where a library may use several."""
    limit, _ = expect(replace(workload, by="verbs", pairs=1), Machine(cluster=given))
    if not isinstance(limit, Limit) or rate >= limit.value:
        return ()
    return (f"{format_bandwidth(rate)} is {rate / limit.value:.2f} of the {format_bandwidth(limit.value)} of one port",)


def suggest_line_rate(file: ForeignFile, rows: Sequence[Judged], given: Cluster) -> tuple[str, ...]:
    """Report that the fastest of slow messages between hosts matches the rate of a slower port."""
    rates = [row.value for row in rows if row.value and row.quantity == "bandwidth_bytes_per_s"]
    line_rates = [getattr(link.protocol, "line_rate_bits_per_s", None) or 0.0 for _, link in ports(given.host)]
    if (
        not isinstance(file.workload, Message)
        or not rates
        or not line_rates
        or not any(row.verdict.state == "slow" for row in rows)
    ):
        return ()
    bits = 8 * max(rates) / (2 if file.workload.both_ways else 1)
    fitting = [
        rate
        for rate in _LINE_RATES
        if rate < max(line_rates) and _PAYLOAD_SHARES[0] * rate <= bits <= _PAYLOAD_SHARES[1] * rate
    ]
    if not fitting and not file.workload.both_ways:
        return _compare_with_port(file.workload, max(rates), given)
    return tuple(
        f"{format_bandwidth(max(rates))} matches a port of {format_line_rate(rate)}: is it such a port, or did the link"
        f" come up at that rate? (nic-rate={rate / 1e9:g}Gb/s)"
        for rate in fitting[:1]
    )
