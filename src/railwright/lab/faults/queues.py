"""The queue of a port under faults: a lower rate, and slower classes for single source-destination pairs.

Pure: lines for `tc -batch`. A port without a fault gets the queue that the build gave it (`lab.links`). The lines use
only tbf, htb and pfifo, which every distribution's kernel has; netem is often missing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from railwright.lab.links import shape
from railwright.lab.nodes import Cable

_ETHERNET_BYTES = 14
_BURST_S = 4e-3
_QUEUE_S = 25e-3
_MIN_QUEUE_PACKETS = 16
_MAX_QUEUE_PACKETS = 10_000
_OTHERS_CLASS = 1
_FIRST_PAIR_CLASS = 16
# For other traffic on a port without a rate that has a slow pair: more than a veth carries.
_UNLIMITED_BITS_PER_S = 100e9


def queue_commands(
    port: str, cable: Cable, rate_bits_per_s: float | None, pair_rates_bits_per_s: Sequence[float]
) -> list[tuple[str, ...]]:
    """Return the arguments of `tc` that give a port exactly this queue, regardless of its previous one.

    The packets of pair i must carry the priority `pair_priority(i)`: htb selects the class whose number equals the
    packet's priority.
    """
    # tc cannot replace a queue by one of another kind under the same handle, so pfifo goes in first.
    commands: list[tuple[str, ...]] = [("qdisc", "replace", "dev", port, "root", "pfifo")]
    if not pair_rates_bits_per_s:
        return [*commands, shape(port, msgspec.structs.replace(cable, rate_bits_per_s=rate_bits_per_s))]
    commands.append(("qdisc", "replace", "dev", port, "root", "handle", "1:", "htb", "default", f"{_OTHERS_CLASS:x}"))
    commands += _class(port, _OTHERS_CLASS, rate_bits_per_s or _UNLIMITED_BITS_PER_S, cable.mtu_bytes)
    for index, rate in enumerate(pair_rates_bits_per_s):
        commands += _class(port, _FIRST_PAIR_CLASS + index, rate, cable.mtu_bytes)
    return commands


def pair_priority(index: int) -> str:
    """Return the priority of the packets of pair `index` of a port, as nft and tc write it: `1:10`."""
    return f"1:{_FIRST_PAIR_CLASS + index:x}"


def _class(port: str, number: int, rate_bits_per_s: float, mtu_bytes: int) -> list[tuple[str, ...]]:
    packet_bytes = mtu_bytes + _ETHERNET_BYTES
    name, rate = f"1:{number:x}", f"{rate_bits_per_s:.0f}bit"
    burst = str(max(int(rate_bits_per_s * _BURST_S / 8), 2 * packet_bytes))
    packets = int(rate_bits_per_s * _QUEUE_S / 8 / packet_bytes)
    limit = str(min(max(packets, _MIN_QUEUE_PACKETS), _MAX_QUEUE_PACKETS))
    words = ("rate", rate, "ceil", rate, "burst", burst, "cburst", burst, "quantum", str(2 * packet_bytes))
    return [
        ("class", "replace", "dev", port, "parent", "1:", "classid", name, "htb", *words),
        ("qdisc", "replace", "dev", port, "parent", name, "pfifo", "limit", limit),
    ]
