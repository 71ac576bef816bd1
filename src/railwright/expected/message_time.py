"""The time of a message: a fixed start, and its bytes over a rate.

The limit of a message is its bytes over the rate of the links. The start only moves the band.
"""

from __future__ import annotations

from typing import NamedTuple

from railwright.limits.limit import Constant, Source
from railwright.results.workload import Message
from railwright.units import KIB

_VERBS = Source("perftest in public threads", "ib_read_bw over HDR and ib_write_bw of MI355X, 8 B to 16 KiB")
_MPI = Source("OSU in public threads", "osu_bw and osu_bibw over Slingshot, HDR100, EDR, Omni-Path and EFA")
_STAGED = Source("CSCS documentation, MPICH", "osu_bw between GPUs: 10.8 us a message up to 64 B, 6.5 us in one host")
_NIXL = Source("nixlbench in public threads", "7 to 14 us a request of one block; 150 us over GPUDirect-TCPXO")
_ALONE = Source("openhpc/ohpc issue 207", "PingPong over FDR InfiniBand: 10.3 us besides the bytes of 256 KiB")
_EAGER = Source(
    "OSU in public gists", "osu_latency over EDR, Aries and InfiniBand DDR: 0.9 to 1.7 us, 5 us at 4 to 8 KiB"
)
_EFA = Source("osu_latency on c5n in public threads", "15 to 25 us up to 1 KiB over EFA")

IN_FLIGHT_BY_VERBS = Constant(0.5e-6, "s per message with many in flight, by verbs", _VERBS)
IN_FLIGHT = Constant(1.5e-6, "s per message with many in flight, by MPI or UCX from host memory", _MPI)
STAGED = Constant(12e-6, "s per small message from or to a GPU, copied by CUDA calls", _STAGED)
IN_ONE_HOST = Constant(10e-6, "s per message between GPUs of one host, copied by a CUDA call", _STAGED)
REQUEST_MIN = Constant(7e-6, "s per NIXL request, minimum", _NIXL)
REQUEST = Constant(15e-6, "s per NIXL request, whatever its number of messages", _NIXL)
ALONE_BY_VERBS = Constant(4e-6, "s per message that waits for the previous one, by verbs", _VERBS)
ALONE = Constant(12e-6, "s per message that waits for the previous one, by MPI or UCX", _ALONE)
ALONE_EAGER = Constant(6.5e-6, "s per message that waits for the previous one, sent at once from host memory", _EAGER)
ALONE_OVER_EFA = Constant(25e-6, "s per message that waits for the previous one, over EFA", _EFA)
_EAGER_UP_TO_BYTES = 8 * KIB
"""The largest message in bytes that UCX sends at once by default; it announces larger ones."""
_DOUBT_FACTOR = 4.0
"""Our choice: up to this factor times the start there is no slow verdict. Protocols, clocks and hops differ by that
factor.
"""
_REQUEST_DOUBT_FACTOR = 10.0
"""The same for requests: 150 us over GPUDirect-TCPXO is ten times their start over InfiniBand."""


class Start(NamedTuple):
    """The cost of a message besides its bytes, in seconds."""

    expected_s: float
    doubtful_s: float
    """The end of the doubtful range: from the expected time up to this one a message may be slow or not."""
    source: Source
    fastest_s: float = 0.0


def find_start(workload: Message, *, in_one_host: bool, over_efa: bool) -> Start:
    """Return the start of a workload's messages, by library, size and kind of memory."""
    if in_one_host and workload.by == "library":
        return Start(IN_ONE_HOST.value, 2 * IN_ONE_HOST.value, IN_ONE_HOST.source)
    if workload.is_request:
        each_s = IN_FLIGHT.value + REQUEST.value / max(1, workload.batch)
        fastest_s = REQUEST_MIN.value / max(1, workload.batch) if workload.threads == 1 else 0.0
        return Start(each_s, _REQUEST_DOUBT_FACTOR * each_s, REQUEST.source, fastest_s)
    is_small = (workload.size_bytes or 0) <= _EAGER_UP_TO_BYTES
    if workload.one_at_a_time or workload.quantity == "latency_s":
        by_library = ALONE_EAGER if is_small and not workload.crosses_gpu else ALONE
        known = ALONE_OVER_EFA if over_efa else ALONE_BY_VERBS if workload.by == "verbs" else by_library
    elif workload.by == "verbs":
        known = IN_FLIGHT_BY_VERBS
    else:
        known = STAGED if is_small and workload.crosses_gpu else IN_FLIGHT
    return Start(known.value, _DOUBT_FACTOR * known.value, known.source)


def add_start(size_bytes: float, rate: float, start_s: float) -> float:
    """Return the rate in bytes/s of messages of `size_bytes` that each take `start_s` besides their bytes."""
    return size_bytes / (start_s + size_bytes / rate)
