"""The argument lists of `ip` and `tc` that make a lab's links. Pure: nothing is run here."""

from __future__ import annotations

from railwright.lab.nodes import Cable

_TBF_BURST_S = 4e-3
_TBF_QUEUE_S = 10e-3
"""A queue of 10 ms: long enough that one TCP flow fills the link over the lab's round trips, short enough that a
full link does not hold BGP's keepalives back."""


def tbf(rate_bits_per_s: float, mtu_bytes: int) -> tuple[str, ...]:
    """The words after `tc qdisc replace dev PORT root handle 1:` that hold a port to a rate.

    The bucket holds what goes out in 4 ms, so that the timer's grain costs no rate, and at least two packets.
    """
    bytes_per_s = rate_bits_per_s / 8
    burst = max(int(bytes_per_s * _TBF_BURST_S), 2 * (mtu_bytes + 14))
    queue = max(int(bytes_per_s * _TBF_QUEUE_S), 4 * (mtu_bytes + 14))
    return ("tbf", "rate", f"{rate_bits_per_s:.0f}bit", "burst", str(burst), "limit", str(burst + queue))


def shape(port: str, cable: Cable) -> tuple[str, ...]:
    """The arguments of `tc` that give a port the plan's rate; for a link without a rate, the kernel's own default."""
    if cable.rate_bits_per_s is None:
        return ("qdisc", "replace", "dev", port, "root", "noqueue")
    return ("qdisc", "replace", "dev", port, "root", "handle", "1:", *tbf(cable.rate_bits_per_s, cable.mtu_bytes))
