"""A /dev/shm of a few MiB, the default in containers: NCCL, MPI and data loaders keep shared buffers there.

Docker's default is 64 MiB. NCCL's User Guide (Troubleshooting, Docker) recommends 1 GiB.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Command, Facts, Findings
from railwright.checks.host_settings import nonnegative_integer, require_read, setting
from railwright.topology.devices import Topology
from railwright.topology.settings import NONE

_FACT = "dev_shm_bytes"
_ENOUGH_BYTES = 2**30


def _signs(facts: Facts) -> Findings:
    size = setting(facts.topology, _FACT)
    size_bytes = 0 if size == NONE else nonnegative_integer(size)
    if size_bytes is None or size_bytes >= _ENOUGH_BYTES or needs.two_gpus(facts.topology):
        return
    state = "does not exist" if size == NONE else f"holds {size_bytes / 2**20:.0f} MiB"
    yield CHECK.host_finding(
        facts,
        f"the file system /dev/shm {state}: processes of one host share buffers there",
        ("size of /dev/shm", str(size), "/proc/self/mounts"),
    )


def _build_commands(topology: Topology) -> tuple[Command, ...]:
    """Return the command that enlarges a mounted /dev/shm."""
    size_bytes = nonnegative_integer(setting(topology, _FACT))
    if not size_bytes:
        return ()
    return (Command(words=_remount(_ENOUGH_BYTES), undo=_remount(size_bytes)),)


def _remount(size_bytes: int) -> tuple[str, ...]:
    return "mount", "-o", f"remount,size={size_bytes}", "/dev/shm"  # noqa: S108 - no file is made there


CHECK = Check(
    name="shared_memory_small",
    summary="shared memory (/dev/shm) is too small",
    right="shared memory (/dev/shm) is large enough",
    certainty="likely",
    costs="NCCL fails with `No space left on device`, or ranks use sockets (NCCL User Guide, Troubleshooting)",
    remedy="docker run --shm-size=1g or --ipc=host; in Kubernetes mount an emptyDir of medium Memory at /dev/shm",
    signs=_signs,
    needs=(needs.settings, needs.two_gpus),
    asks=(require_read(_FACT),),
    change=_build_commands,
)
