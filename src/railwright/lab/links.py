"""The argument lists of `tc` that shape a lab's links. Pure."""

from __future__ import annotations

from railwright.lab.nodes import Cable

_TBF_BURST_S = 4e-3
_TBF_QUEUE_S = 10e-3
"""10 ms of queue: long enough for a single TCP flow to fill the link at the lab's round-trip times, short enough that
a full link does not delay BGP's keepalives."""


def tbf(rate_bits_per_s: float, mtu_bytes: int) -> tuple[str, ...]:
    """Return the words after `tc qdisc replace dev PORT root handle 1:` that limit a port to a rate.

    The bucket holds 4 ms of traffic, so that the timer's resolution does not lower the rate, and at least two packets.
    """
    bytes_per_s = rate_bits_per_s / 8
    burst = max(int(bytes_per_s * _TBF_BURST_S), 2 * (mtu_bytes + 14))
    queue = max(int(bytes_per_s * _TBF_QUEUE_S), 4 * (mtu_bytes + 14))
    return ("tbf", "rate", f"{rate_bits_per_s:.0f}bit", "burst", str(burst), "limit", str(burst + queue))


def shape(port: str, cable: Cable) -> tuple[str, ...]:
    """Return the arguments of `tc` that give a port the plan's rate, or the kernel's default queue without a rate."""
    if cable.rate_bits_per_s is None:
        return ("qdisc", "replace", "dev", port, "root", "noqueue")
    return ("qdisc", "replace", "dev", port, "root", "handle", "1:", *tbf(cable.rate_bits_per_s, cable.mtu_bytes))
