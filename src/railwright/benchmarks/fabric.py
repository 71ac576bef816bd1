"""Evidence that data between ranks on several hosts left the hosts, from interface counters.

Other programs' traffic is counted as well, so only a large number of bytes is proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from railwright.benchmarks.benchmark import AnyJob
from railwright.benchmarks.evidence import INTERFACES, sent_by_interface
from railwright.benchmarks.host_name import host_name
from railwright.busbw import busbw_factor
from railwright.results.records import Evidence
from railwright.units import KIB, MIB, format_size

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

PROOF_BYTES = 4 * MIB
"""The number of bytes above which keepalives of routing protocols and similar traffic do not matter."""

WINDOW = 64
"""Messages sent before an answer, as in OSU's bandwidth test."""
_LARGE_BYTES = 8 * KIB
"""OSU's benchmarks repeat less often above this size."""
_TELLING_SHARE = 0.01
_SIZE_S = 3.0
"""The time limit for the repeats of one size over links of known rate."""
_MINIMUM_REPEATS = 3


def _limit_repeats(job: AnyJob, repeats: tuple[int, int], bytes_each: int) -> tuple[int, int]:
    """Return (warm-up, timed) repeats, reduced so that they end in time on links of known rate."""
    fabric = job.machine.fabric
    if fabric is None:
        return repeats
    most = int(_SIZE_S * fabric.flow_bytes_per_s / max(bytes_each, 1))
    warm, timed = repeats
    return min(warm, max(1, most // 10)), min(timed, max(_MINIMUM_REPEATS, most))


def pings(job: AnyJob, size: int) -> tuple[int, int]:
    """Return (warm-up, timed) round trips: the defaults of OSU 7.4, fewer over slow links."""
    return _limit_repeats(job, (10, 1000) if size > _LARGE_BYTES else (100, 10_000), 2 * size)


def windows(
    job: AnyJob, size: int, small: tuple[int, int] = (10, 100), large: tuple[int, int] = (2, 20)
) -> tuple[int, int]:
    """Return (warm-up, timed) windows, `small` up to 8 KiB and `large` above: OSU's defaults, fewer over slow links."""
    return _limit_repeats(job, large if size > _LARGE_BYTES else small, WINDOW * size)


def crossing_bytes(operation: str, size: int, job: AnyJob) -> int:
    """Return the minimum payload that leaves all hosts together in one collective of this size, whatever the algorithm.

    Each host counts as one rank of nccl-tests' busbw: it needs the other hosts' data once, however many ranks it has.
    In an all_to_all every rank has different bytes for every other.
    """
    hosts = len(job.hosts)
    senders = job.ranks if operation == "all_to_all" else hosts
    return int(senders * busbw_factor(operation, hosts) * size)


class InterfaceMeter:
    """Counts the bytes that the interfaces of this rank's network namespace send."""

    def __init__(self) -> None:
        self._start = sent_by_interface()

    def loopback_bytes(self) -> int | None:
        """Return the bytes sent over loopback since the start.

        TCP between ranks of one host uses it; shared memory does not.
        """
        return (self._count_moved() or {}).get("lo")

    def evidence(self, comm: Intracomm, job: AnyJob, payload_bytes: int) -> Evidence:
        """Report whether all hosts together sent the payload over their interfaces.

        Collective; every rank gets the same result.
        """
        comm.Barrier()
        moved = self._count_moved()
        sent = None if moved is None else {name: count for name, count in moved.items() if name != "lo"}
        return judge(dict(comm.allgather((host_name(), sent))), job, payload_bytes)

    def _count_moved(self) -> dict[str, int] | None:
        """Return the bytes sent since the start by interface, or None if they cannot be read."""
        now = sent_by_interface()
        if now is None or self._start is None:
            return None
        return {name: count - self._start.get(name, 0) for name, count in now.items()}


def judge(moved: Mapping[str, dict[str, int] | None], job: AnyJob, payload_bytes: int) -> Evidence:
    """Judge the payload against the bytes that each host's interfaces sent."""
    hosts = ", ".join(sorted(moved))
    if len(moved) != len(job.hosts):
        seen = f"{len(job.hosts)} hosts were requested, but the ranks run on {hosts}"
        return Evidence(claim="transport", value="unknown", seen=seen)
    total = 0
    carriers: dict[str, int] = {}
    for host, counts in sorted(moved.items()):
        if counts is None:
            seen = f"{INTERFACES} cannot be read on {host}"
            return Evidence(claim="transport", value="unknown", seen=seen)
        total += sum(counts.values())
        for name, count in counts.items():
            carriers[name] = carriers.get(name, 0) + count
    names = [name for name, count in sorted(carriers.items()) if count > _TELLING_SHARE * max(payload_bytes, 1)]
    what = f"{' and '.join(names) or 'no interface'} of {hosts}"
    seen = f"{what} sent {format_size(total)} while {format_size(payload_bytes)} had to leave the hosts"
    if total >= payload_bytes:
        return Evidence(claim="transport", value="tcp", seen=seen)
    return Evidence(claim="transport", value="mixed" if total > payload_bytes / 2 else "not tcp", seen=seen)
