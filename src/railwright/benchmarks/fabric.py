"""Whether what ranks on several hosts sent to each other left their hosts, by the counters of their interfaces.

The traffic of other programs is counted too, so only a large number of bytes is proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from railwright.benchmarks.benchmark import AnyJob
from railwright.benchmarks.evidence import INTERFACES, sent_by_interface
from railwright.benchmarks.host_name import host_name
from railwright.busbw import factor
from railwright.results.records import Evidence
from railwright.units import KIB, MIB, format_size

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

PROOF_BYTES = 4 * MIB
"""Above this, keepalives of routing protocols and similar traffic do not matter."""

WINDOW = 64
"""Messages that are sent before an answer, as OSU's bandwidth has them."""
_LARGE_BYTES = 8 * KIB
"""Above it OSU's benchmarks repeat less often."""
_TELLING_SHARE = 0.01
_SIZE_S = 3.0
"""How long the repeats of one size may take over links of a known rate."""
_LEAST_REPEATS = 3


def _affordable(job: AnyJob, repeats: tuple[int, int], bytes_each: int) -> tuple[int, int]:
    """(warm-up, timed) repeats of so many bytes, fewer where links of a known rate would make them last too long."""
    fabric = job.machine.fabric
    if fabric is None:
        return repeats
    most = int(_SIZE_S * fabric.flow_bytes_per_s / max(bytes_each, 1))
    warm, timed = repeats
    return min(warm, max(1, most // 10)), min(timed, max(_LEAST_REPEATS, most))


def pings(job: AnyJob, size: int) -> tuple[int, int]:
    """(warm-up, timed) round trips: the defaults of OSU 7.4, fewer over slow links."""
    return _affordable(job, (10, 1000) if size > _LARGE_BYTES else (100, 10_000), 2 * size)


def windows(
    job: AnyJob, size: int, small: tuple[int, int] = (10, 100), large: tuple[int, int] = (2, 20)
) -> tuple[int, int]:
    """(warm-up, timed) windows of messages up to 8 KiB and above: OSU's defaults, fewer over slow links."""
    return _affordable(job, large if size > _LARGE_BYTES else small, WINDOW * size)


def crossing_bytes(operation: str, size: int, job: AnyJob) -> int:
    """The least payload that must leave all hosts together in one collective of that size, by whatever algorithm.

    Each host counts as one rank of nccl-tests' busbw: it needs its neighbours' data once, however many ranks it has.
    In an all_to_all every rank has bytes for every other.
    """
    hosts = len(job.hosts)
    senders = job.ranks if operation == "all_to_all" else hosts
    return int(senders * factor(operation, hosts) * size)


class InterfaceMeter:
    """Counts what each interface of this rank's host sends, in the rank's own network namespace."""

    def __init__(self) -> None:
        self._start = sent_by_interface()

    def loopback_bytes(self) -> int | None:
        """What the loopback interface carried since: TCP between ranks of one host does, shared memory does not."""
        return (self._moved() or {}).get("lo")

    def evidence(self, comm: Intracomm, job: AnyJob, payload_bytes: int) -> Evidence:
        """Whether all hosts together sent that payload over their interfaces. Collective; the same on every rank."""
        comm.Barrier()
        moved = self._moved()
        sent = None if moved is None else {name: count for name, count in moved.items() if name != "lo"}
        return judge(dict(comm.allgather((host_name(), sent))), job, payload_bytes)

    def _moved(self) -> dict[str, int] | None:
        """Bytes since the start by each interface; None where that cannot be read."""
        now = sent_by_interface()
        if now is None or self._start is None:
            return None
        return {name: count - self._start.get(name, 0) for name, count in now.items()}


def judge(moved: Mapping[str, dict[str, int] | None], job: AnyJob, payload_bytes: int) -> Evidence:
    """The evidence from what each interface of each host sent."""
    hosts = ", ".join(sorted(moved))
    if len(moved) != len(job.hosts):
        seen = f"{len(job.hosts)} hosts were asked for, and the ranks are on {hosts}"
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
