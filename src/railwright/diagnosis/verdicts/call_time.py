"""A fixed time per call in addition to that of the bytes, which makes small sizes slow but not large ones.

A slow link adds a time that grows with the size. If each slow size takes the same additional time instead, the call
is slow: its launch, a network plug-in, or a busy CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from railwright.diagnosis.verdicts.judged import Judged
from railwright.limits.limit import Constant, Source
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.records import find_size
from railwright.topology.cluster import Cluster
from railwright.topology.devices import InfinibandLink

_MAX_GROWTH = 1.5
"""The factor by which the time may exceed that of the smallest size; launches vary by as much."""
_MIN_SIZES = 2
_MAX_S = 5e-3
"""A longer time is a stall and not a launch or a plug-in."""
LAUNCH = Constant(
    10e-6,
    "s for each further GPU that one thread launches a collective on",
    Source("SuperBench, recorded outputs, nccl_alltoall.log", "one thread, 8 A100: 86 us a call from 32 B to 1 MiB"),
)
PLUG_IN = Constant(
    1e-3,
    "s per call through the plug-in of a network other than InfiniBand",
    Source(
        "Google Cloud cluster-toolkit, gke-a3-highgpu, multi-node-test-plan.md",
        "all_gather over GPUDirect-TCPX of 16 H100: 1.0 ms from 1 MiB to 16 MiB on a verified network",
    ),
)


class CallTime(NamedTuple):
    """The extra time of each call, the sizes that have it, and the healthy machines that are known to have it."""

    extra_s: float
    first_bytes: int
    last_bytes: int
    known_of: str = ""


def find_call_time(rows: Sequence[Judged], scale: float) -> CallTime | None:
    """Return the fixed time that explains all slow rows; None if there is none. Rates are algbw times `scale`."""
    best: dict[int, float] = {}
    for row in rows:
        size = find_size(row.parameters)
        if row.verdict.state != "slow" or not size or not row.value or row.expected is None:
            continue
        extra = size * scale * (1 / row.value - 1 / row.expected.low)
        best[size] = min(best.get(size, extra), extra)
    if len(best) < _MIN_SIZES:
        return None
    first, last = min(best), max(best)
    if max(best.values()) > min(_MAX_GROWTH * best[first], _MAX_S):
        return None
    return CallTime(max(best.values()), first, last)


def match_healthy_machines(found: CallTime | None, file: ForeignFile, cluster: Cluster) -> CallTime | None:
    """Return the call time with the healthy machines that are known to have as much; None if there are none."""
    if found is None:
        return None
    if cluster.hosts == 1:
        each = file.results[0].settings.get("gpus_per_thread", file.ranks)
        max_s = (each if isinstance(each, int) else 1) * LAUNCH.value
        known_of = "threads that launch on several GPUs one after another"
    elif any(isinstance(link.protocol, InfinibandLink) for link in cluster.host.links):
        return None
    else:
        max_s, known_of = PLUG_IN.value, "plug-ins of networks without InfiniBand"
    return found._replace(known_of=known_of) if found.extra_s <= max_s else None
