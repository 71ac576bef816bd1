"""The rate of a connection is at most its bytes in flight divided by the time of a step, regardless of line rate.

NCCL issue 2409: 128 KiB in flight and steps of 10 to 12 us give 13 GB/s on a port where perftest reaches line rate.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.checks.settings import Cause, Settings, is_below
from railwright.faults.cases import crosses_network
from railwright.faults.fault import ONLY_NCCL, Fault, Hypotheses
from railwright.limits.case import Case
from railwright.limits.limit import Constant, Limit
from railwright.limits.path import link_limit
from railwright.limits.sources import NCCL_2409, NCCL_BUFFSIZE
from railwright.topology.cluster import ports
from railwright.topology.devices import Link

_CEILING = Constant(13e9, "bytes/s of one connection, 128 KiB in flight", NCCL_2409)
_BUFFER = Constant(4 * 2**20, "bytes, default of NCCL_BUFFSIZE", NCCL_BUFFSIZE)
_CHUNK = Constant(128 * 1024, "bytes, default of NCCL_P2P_NET_CHUNKSIZE (src/init.cc)", NCCL_2409)
_TWO_CONNECTIONS = 2
"""The minimum number of channels for two connections."""


def _hypotheses(case: Case) -> Hypotheses:
    """Yield the ceiling as a hypothesis if a port is faster than one connection."""
    if not crosses_network(case) or case.port_cap_bytes_per_s <= _CEILING.value:
        return
    if any(_link_rate(link) > _CEILING.value for _, link in ports(case.cluster.host)):
        yield FAULT.supposed(
            "each NIC carries one connection with 128 KiB in flight",
            replace(case, port_cap_bytes_per_s=_CEILING.value),
            "ib_write_bw -d mlx5_N -q 4 --report_gbits reaches line rate while NCCL does not, and"
            " NCCL_NCHANNELS_PER_NET_PEER=4 NCCL_IB_QPS_PER_CONNECTION=4 raises NCCL's rate",
        )


def _link_rate(link: Link) -> float:
    limit = link_limit(link)
    return limit.value if isinstance(limit, Limit) else 0.0


FAULT = Fault(
    name="connection_ceiling",
    summary="too few bytes in flight for the line rate",
    right="enough bytes are in flight for the line rate",
    settings=Settings(
        {
            "NCCL_BUFFSIZE": Cause(
                is_below(int(_BUFFER.value)), "is below the default of 4 MiB and puts fewer bytes in flight"
            ),
            "NCCL_P2P_NET_CHUNKSIZE": Cause(is_below(int(_CHUNK.value)), "is below the default of 128 KiB"),
            "NCCL_NCHANNELS_PER_NET_PEER": Cause(
                is_below(_TWO_CONNECTIONS), "leaves one channel and so one connection per peer"
            ),
        },
        costs="rate <= bytes in flight / time of a step: 13 GB/s with 128 KiB and 10 us (NCCL issue 2409)",
        remedy="unset it, or raise NCCL_NCHANNELS_PER_NET_PEER and NCCL_P2P_NET_CHUNKSIZE (NCCL User Guide)",
    ),
    needs_results=True,
    transports=ONLY_NCCL,
    ways=_hypotheses,
)
