"""A /dev/shm of a few MiB, as containers get it: NCCL, MPI and data loaders put what they share there.

Docker gives 64 MiB. NCCL's User Guide (Troubleshooting, Docker) asks for 1 GiB.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import OfPart
from railwright.checks.host_settings import host_id, read, setting
from railwright.results.records import Evidence
from railwright.topology.settings import NONE

_FACT = "dev_shm_bytes"
_ENOUGH_BYTES = 2**30


def _signs(facts: Facts) -> Findings:
    size = setting(facts.topology, _FACT)
    is_number = isinstance(size, int) and not isinstance(size, bool)
    if needs.two_gpus(facts.topology) or not (size == NONE or (is_number and int(size or 0) < _ENOUGH_BYTES)):
        return
    holds = "is not there" if size == NONE else f"holds {int(size or 0) / 2**20:.0f} MiB"
    yield CHECK.finding(
        (OfPart(host_id(facts.topology)),),
        f"the file system /dev/shm {holds}: processes of one host share their buffers there",
        Evidence(claim="size of /dev/shm", value=str(size), seen="/proc/self/mounts"),
        certainty="likely",
        costs="NCCL ends with `No space left on device`, or ranks use sockets (NCCL User Guide, Troubleshooting)",
        remedy="docker run --shm-size=1g or --ipc=host; in Kubernetes an emptyDir of medium Memory at /dev/shm",
    )


CHECK = Check(
    name="shared_memory_small",
    summary="shared memory (/dev/shm) is too small for what processes share",
    signs=_signs,
    needs=(needs.settings, needs.two_gpus),
    asks=(read(_FACT),),
)
