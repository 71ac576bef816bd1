"""Counters of RDMA ports during a measurement: packets lost, repeated and paused, and the port's own bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from railwright.results.evidence import RDMA_COUNTERS
from railwright.results.records import Evidence
from railwright.topology.sources.counters import find_port_counters, read_directories, subtract_counters
from railwright.topology.sources.interface_statistics import read_statistics
from railwright.topology.sources.rdma_port import find_netdevs
from railwright.topology.sources.root import DirectoryRoot, live_root
from railwright.units import format_size

_TROUBLE = (
    "retrans", "retry", "retries", "out_of_seq", "seq_err", "timeout", "duplicate", "rnr", "cnp", "ecn_marked", "pause",
    "discard", "drop", "error", "err", "slow_restart", "link_downed", "xmit_wait", "icrc", "pfc", "xoff",
)  # fmt: skip
"""Parts of the names of counters that tell of loss, congestion or damage, in mlx5, bnxt_re, irdma, efa and rxe."""
_OF_INTERFACE = re.compile(r"pause|pfc|xoff|discard|symbol_err|crc_err")
"""Statistics of a port's interface, which all its traffic shares: only those of the link and its priorities count."""
_SENT_WORDS = "port_xmit_data"
_WORD_BYTES = 4
"""PortXmitData counts 32-bit words (InfiniBand Architecture Specification, PortCounters)."""
_MOST_SHOWN = 6


class PortMeter:
    """Reads the counters of ports like `mlx5_0:1` before and after a measurement."""

    def __init__(
        self,
        names: Iterable[str],
        root: DirectoryRoot | None = None,
        statistics: Callable[[str], Mapping[str, int]] = read_statistics,
    ) -> None:
        self._root, self._statistics = root or live_root(), statistics
        self._directories = find_port_counters(self._root, names)
        self._netdevs = {name: find_netdevs(self._root, name) for name in self._directories}
        self._before = self._read()

    def moved(self) -> dict[str, int] | None:
        """Return the counters that moved since the start, like `mlx5_0:1.out_of_sequence`; None if there are none."""
        after = self._read()
        return subtract_counters(self._before, after) if after else None

    def _read(self) -> dict[str, int]:
        found = read_directories(self._root, self._directories)
        for port, netdevs in self._netdevs.items():
            for netdev in netdevs:
                counts = self._statistics(netdev).items()
                found |= {f"{port} {netdev}.{name}": count for name, count in counts if _OF_INTERFACE.search(name)}
        return found


def judge(moved: Mapping[str, Mapping[str, int] | None]) -> Evidence:
    """Return the evidence of the counters that tell of trouble, by host: `clean`, `moved`, or `unknown`."""
    unread = [host for host, counts in moved.items() if counts is None]
    told = [
        f"{host} {port} {counter} +{count}"
        for host, counts in moved.items()
        for name, count in sorted((counts or {}).items(), key=lambda pair: -pair[1])
        for port, _, counter in (name.rpartition("."),)
        if any(part in counter for part in _TROUBLE)
    ]
    if told:
        more = f" and {len(told) - _MOST_SHOWN} more" if len(told) > _MOST_SHOWN else ""
        return Evidence(claim=RDMA_COUNTERS, value="moved", seen=f"{', '.join(told[:_MOST_SHOWN])}{more}")
    if unread:
        return Evidence(
            claim=RDMA_COUNTERS, value="unknown", seen=f"no counters of the ports can be read on {', '.join(unread)}"
        )
    return Evidence(
        claim=RDMA_COUNTERS, value="clean", seen="no counter of loss, congestion or damage moved on either side"
    )


def transport_evidence(ports: str, sent_bytes: int, moved: Mapping[str, int] | None) -> Evidence:
    """Return the transport: queue pairs are RDMA by definition, and the port's own byte counter may confirm it."""
    words = [count for name, count in (moved or {}).items() if name.endswith(f".{_SENT_WORDS}")]
    counted = f"; {_SENT_WORDS} counted {format_size(_WORD_BYTES * sum(words))}" if words else ""
    seen = f"queue pairs of {ports} sent {format_size(sent_bytes)}, and every completion was a success{counted}"
    return Evidence(claim="transport", value="rdma", seen=seen)
