"""Counters of RDMA ports during a measurement: packets lost, repeated and paused, and the port's own bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from railwright.results.evidence import RDMA_COUNTERS
from railwright.results.records import Evidence
from railwright.topology.sources.counters import subtract_counters
from railwright.units import format_size

DEVICES = Path("/sys/class/infiniband")
_FOLDERS = ("counters", "hw_counters")
_TROUBLE = (
    "retrans", "retry", "retries", "out_of_seq", "seq_err", "timeout", "duplicate", "rnr", "cnp", "ecn_marked", "pause",
    "discard", "drop", "error", "err", "slow_restart", "link_downed", "xmit_wait", "icrc",
)  # fmt: skip
"""Parts of the names of counters that tell of loss, congestion or damage, in mlx5, bnxt_re, irdma, efa and rxe."""
_SENT_WORDS = "port_xmit_data"
_WORD_BYTES = 4
"""PortXmitData counts 32-bit words (InfiniBand Architecture Specification, PortCounters)."""
_MOST_SHOWN = 6


def read_ports(names: Iterable[str]) -> dict[str, int]:
    """Return the counters of ports like `mlx5_0:1`, by names like `mlx5_0:1 out_of_sequence`."""
    found = {}
    for name in names:
        device, _, port = name.partition(":")
        for folder in (DEVICES / device / "ports" / port / one for one in _FOLDERS):
            try:
                files = sorted(folder.iterdir())
            except OSError:
                continue
            for file in files:
                value = _read(file)
                if value is not None and file.name != "lifespan":
                    found[f"{name} {file.name}"] = value
    return found


def _read(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdecimal() and len(text) <= 20 else None


class PortMeter:
    """Reads the counters of ports before and after a measurement."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._before = read_ports(self._names)

    def moved(self) -> dict[str, int] | None:
        """Return the counters that moved since the start; None if the ports show none."""
        after = read_ports(self._names)
        return subtract_counters(self._before, after) if after else None


def judge(moved: Mapping[str, Mapping[str, int] | None]) -> Evidence:
    """Return the evidence of the counters that tell of trouble, by host: `clean`, `moved`, or `unknown`."""
    unread = [host for host, counts in moved.items() if counts is None]
    told = [
        f"{host} {name} +{count}"
        for host, counts in moved.items()
        for name, count in sorted((counts or {}).items(), key=lambda pair: -pair[1])
        if any(part in name.partition(" ")[2] for part in _TROUBLE)
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
    words = [count for name, count in (moved or {}).items() if name.endswith(f" {_SENT_WORDS}")]
    counted = f"; {_SENT_WORDS} counted {format_size(_WORD_BYTES * sum(words))}" if words else ""
    seen = f"queue pairs of {ports} sent {format_size(sent_bytes)}, and every completion was a success{counted}"
    return Evidence(claim="transport", value="rdma", seen=seen)
