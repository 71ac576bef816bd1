"""The network's rate in a stream whose processes did not run all the time, as on a busy machine."""

from __future__ import annotations

from collections.abc import Mapping

from railwright.benchmarks.sockets.flow_end import STARVED
from railwright.topology.devices import Scalar

_LEAST = 0.25
"""The share of a stream's time that is enough to tell a rate."""


def carried_bytes_per_s(sent: Mapping[str, Scalar], received: Mapping[str, Scalar]) -> float:
    """Return the rate of the time in which a starved stream was sent and read; 0 if it was not starved, or too much.

    The sender's kernel tells by TCP_INFO how long it had data to send, and how long the receiver had no room. The
    latter is left out only if the receiver did not run meanwhile: a window that is too small is a fault to be found.
    """
    if "busy_s" not in sent:
        return 0.0
    lasted_s, used_s = float(sent["lasted_s"]), float(sent["busy_s"])
    if float(received.get("waited_s", 0.0)) > STARVED * lasted_s:
        used_s -= float(sent["full_s"])
    if not _LEAST < used_s / lasted_s < 1 - STARVED:
        return 0.0
    return float(sent["acked_bytes"]) / used_s
