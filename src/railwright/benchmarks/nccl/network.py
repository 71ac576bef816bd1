"""The connections between NCCL's ranks, from its log of the launch: transports, NICs, GPUDirect RDMA, PXN, SHARP."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from railwright.errors import UsageError
from railwright.results.evidence import NETWORK, RDMA_DEVICES
from railwright.results.readers.nccl_log import log as nccl_log
from railwright.results.readers.nccl_log.model import Communicator, Connection, NcclLog
from railwright.results.records import Evidence
from railwright.topology.devices import Scalar
from railwright.units import format_count

UNKNOWN = "unknown"
_TRAFFIC_CLASS = "NCCL_IB_TC"

_KEPT = re.compile(
    r"NCCL INFO +(?:\w* ?comm 0x.*Init |.* via |NET/|Using network|GPU Direct|.* coll channels|NCCL_\w+ set |"
    r"Connected all rings|Failed to (?:open|init))"
)
_MOST_BYTES = 96 * 1024
"""The most that a rank sends to the first of its group."""
_MOST_CHARACTERS = 300
_MOST_NAMED = 12


class Network(NamedTuple):
    """The evidence of the connections, and the settings of NCCL that decide them."""

    evidence: tuple[Evidence, ...] = ()
    settings: dict[str, Scalar] = {}  # noqa: RUF012 - a NamedTuple's default, never changed


def keep_connections(log: str) -> str:
    """Return the lines of a rank's log that tell of connections and their settings, bounded."""
    kept, size = [], 0
    for line in log.splitlines():
        if _KEPT.search(line) and size + len(line) < _MOST_BYTES:
            kept.append(line)
            size += len(line) + 1
    return "\n".join(kept) + "\n" if kept else ""


def read_network(text: str, *, problem: str = "") -> Network:
    """Read the logs of all ranks. The evidence says `unknown` with the reason if there is nothing to read."""
    try:
        log = nccl_log.read(text) if not problem else None
    except UsageError as error:
        log, problem = None, f"NCCL's log cannot be read: {error.message}"
    if log is None or not log.communicators or not log.main.connections:
        seen = problem or "NCCL's log of the launch names no connection between ranks"
        return Network((Evidence(claim=NETWORK, value=UNKNOWN, seen=seen),))
    return Network(tuple(_list_evidence(log)), _read_settings(log))


def _list_evidence(log: NcclLog) -> Iterator[Evidence]:
    main = log.main
    inside, between = _split_by_host(main)
    names = {(nic.host, nic.network, nic.index): nic.name for nic in log.nics}
    host_of = main.host_by_rank
    networks = Counter(f"NET/{one.network}" if one.network else one.transport for one in between)
    used = sorted({_name_nic(one, host_of, names) for one in between if one.nic is not None})
    seen = f"NCCL's log: {_count(networks)} between hosts"
    seen += f"; {_count(Counter(_name_transport(one) for one in inside))} inside" if inside else ""
    yield _evidence(NETWORK, " and ".join(sorted(networks)) or "none between hosts", seen)
    yield _evidence("connections", _list_pairs(main.connections), f"NCCL's log of {format_count(main.size, 'rank')}")
    if used:
        yield _evidence("nics", _shorten(used), f"{format_count(len(used), 'NIC')} in the connections of NCCL's log")
    if devices := sorted({nic.name for nic in log.nics if nic.network == "IB"}):
        yield _evidence(RDMA_DEVICES, _shorten(devices), "NCCL's log: NET/IB : Using ...")
    direct = sum(one.gdr for one in between)
    refused = next((f": {log.excerpts.get(one.line, '')}" for one in log.gdr if not one.enabled), "")
    share = "all" if direct == len(between) else "some" if direct else "none"
    over = "" if any(one.network != "Socket" for one in between) else ": TCP sockets have none"
    if between:
        seen = f"GDRDMA in {direct} of {format_count(len(between), 'connection')}{over or refused * (share != 'all')}"
        yield _evidence("gpudirect_rdma", share, seen)
        proxied = sum(one.proxy is not None for one in between)
        yield _evidence("pxn", "yes" if proxied else "no", f"{proxied} connections name another rank's NIC")
    yield from _list_addresses(log, names)
    if main.counts is not None:
        counts = log.excerpts.get(main.counts.line, "")
        yield _evidence("channels", str(main.counts.collective), counts)
        yield _evidence("sharp", "yes" if any(one.transport == "COLLNET" for one in main.connections) else "no",
                        "COLLNET connections of NCCL's log")  # fmt: skip


def _list_addresses(log: NcclLog, names: dict[tuple[str, str, int], str]) -> Iterator[Evidence]:
    """Yield the GIDs or LIDs that NCCL chose, and the traffic class of its packets."""
    pairs = log.queue_pairs
    for claim, values in (
        ("gid_index", [(one, one.gid_index) for one in pairs if one.gid_index is not None]),
        ("lid", [(one, one.lid) for one in pairs if one.lid is not None]),
    ):
        if values:
            seen = (
                f"{one.host}:{names.get((one.host, 'IB', one.nic), f'NIC {one.nic}')} {value} (MTU {one.mtu_bytes})"
                for one, value in values
            )
            told = " and ".join(map(str, sorted({value for _, value in values})))
            yield _evidence(claim, told, f"NCCL's log of its queue pairs: {', '.join(seen)}")
    if pairs:
        given = sorted({one.value for one in log.settings if one.name == _TRAFFIC_CLASS})
        source = f"{_TRAFFIC_CLASS} in NCCL's log" if given else f"{_TRAFFIC_CLASS} is not set: NCCL's default"
        yield _evidence("traffic_class", " and ".join(given) or "0", source)


def _split_by_host(main: Communicator) -> tuple[list[Connection], list[Connection]]:
    """Return the connections inside hosts and between them. A network connection counts once, at its sender."""
    hosts, inside, between = main.host_by_rank, list[Connection](), list[Connection]()
    has_sends = any(one.direction == "send" for one in main.connections)
    for one in main.connections:
        if one.direction == "receive" and has_sends:
            continue
        crosses = hosts.get(one.source, "") != hosts.get(one.target, "")
        (between if crosses else inside).append(one)
    return inside, between


def _name_transport(one: Connection) -> str:
    return f"NET/{one.network}" if one.network else one.transport


def _name_nic(one: Connection, host_of: dict[int, str], names: dict[tuple[str, str, int], str]) -> str:
    host = host_of.get(one.source, "")
    name = names.get((host, one.network, one.nic or 0), f"NIC {one.nic}")
    return f"{host}:{name}" if host else name


def _list_pairs(connections: Iterable[Connection]) -> str:
    """Return the transport of each pair of ranks, by transport: `NET/Socket: 0>1, 1>0; P2P: 2>3`."""
    pairs: dict[str, set[tuple[int, int]]] = {}
    for one in connections:
        pairs.setdefault(_name_transport(one), set()).add((one.source, one.target))
    return "; ".join(
        f"{name}: {_shorten([f'{source}>{target}' for source, target in sorted(found)])}"
        for name, found in sorted(pairs.items())
    )


def _shorten(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _count(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "no connection"


def _evidence(claim: str, value: str, seen: str) -> Evidence:
    return Evidence(claim=claim, value=value[:_MOST_CHARACTERS], seen=seen[:_MOST_CHARACTERS])


def _read_settings(log: NcclLog) -> dict[str, Scalar]:
    """Return the variables that NCCL reports, each with all its values over the hosts."""
    values: dict[str, dict[str, None]] = {}
    for one in log.settings:
        if not one.name.startswith("NCCL_DEBUG"):
            values.setdefault(one.name, {})[one.value] = None
    if not values:
        return {}
    listed = " ".join(f"{name}={' or '.join(found)}" for name, found in sorted(values.items()))
    return {"nccl_settings": listed[:_MOST_CHARACTERS]}
