"""Verified transfers: lay data at the source and poison at the target, do the timed work, and check every byte.

Each point has its own pattern, drawn for this run. A transfer that moves nothing cannot pass, and neither can data from
an earlier point, launch or run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from railwright.benchmarks.benchmark import AnyRank
from railwright.benchmarks.fabric import InterfaceMeter
from railwright.benchmarks.record import draw_seed
from railwright.native import blocks, nixl
from railwright.native.nixl_memory import AnyBuffer
from railwright.results.records import Evidence, Verification

_TARGET_NAP_S = 0.002

Done = TypeVar("Done")


class End(Protocol):
    """Memory or storage at an end of a transfer."""

    def fill(self, seed: int) -> None:
        """Write a seed's pattern."""

    def count_wrong(self, seed: int) -> int:
        """Count the bytes that differ from a seed's pattern."""


class Region:
    """The first bytes of a buffer."""

    def __init__(self, buffer: AnyBuffer, size_bytes: int) -> None:
        self._buffer, self._size_bytes = buffer, size_bytes

    def fill(self, seed: int) -> None:
        """Write a seed's pattern."""
        self._buffer.fill(seed, self._size_bytes)

    def count_wrong(self, seed: int) -> int:
        """Count the bytes that differ from a seed's pattern."""
        return self._buffer.count_wrong(seed, self._size_bytes)


class Scattered:
    """Blocks of memory as (address, bytes), in the request's order."""

    def __init__(self, where: blocks.Blocks) -> None:
        self._where = where

    def fill(self, seed: int) -> None:
        """Write a seed's pattern."""
        blocks.fill(self._where, seed)

    def count_wrong(self, seed: int) -> int:
        """Count the bytes that differ from a seed's pattern."""
        return blocks.count_wrong(self._where, seed)


class Ends(NamedTuple):
    """The ends of a transfer in this process: the initiator's, and the other one if it is local."""

    ours: End | None
    theirs: End | None

    def lay(self, operation: nixl.Operation, seed: int) -> None:
        """Write data at the source and poison at the target.

        Objects come first, because they overwrite the initiator's memory.
        """
        poison = seed + 1
        for end, is_source in ((self.theirs, operation == "READ"), (self.ours, operation == "WRITE")):
            if end is not None:
                end.fill(seed if is_source else poison)

    def count_wrong(self, operation: nixl.Operation, seed: int) -> int:
        """Count the target's wrong bytes; 0 if the target is in another process."""
        target = self.theirs if operation == "WRITE" else self.ours
        return 0 if target is None else target.count_wrong(seed)


@dataclass(frozen=True)
class Outcome(Generic[Done]):
    """The outcome of a transfer."""

    done: Done
    wrong_bytes: int
    loopback_bytes: int | None
    """The bytes that the loopback interface carried meanwhile, or None if they cannot be read."""
    across: Evidence | None
    """Evidence of the interfaces between hosts; None inside one host."""

    def check(self, method: str, bytes_checked: int) -> Verification:
        """Return the data check of the target."""
        return Verification(method=method, bytes_checked=bytes_checked, bytes_wrong=self.wrong_bytes)


class Seeds:
    """New seeds for each point of a launch."""

    def __init__(self, first: int) -> None:
        self._next = first

    @classmethod
    def draw(cls, rank: AnyRank) -> Seeds:
        """Draw seeds that all ranks share and that differ in each launch. Collective."""
        drawn = draw_seed()
        return cls(rank.comm.bcast(drawn) if rank.job.ranks > 1 else drawn)

    def take(self) -> int:
        """Return the next seed; the seed after it is the poison's."""
        seed, self._next = self._next, self._next + 2
        return seed


def transfer(
    rank: AnyRank,
    ends: Ends,
    operation: nixl.Operation,
    seed: int,
    work: Callable[[], Done],
    *,
    payload_bytes: Callable[[Done], int] = lambda _done: 0,
) -> Outcome[Done] | None:
    """Lay the data, do the timed work on rank 0, and check the target. Collective; returns None on the other rank.

    `payload_bytes` is the work's total, warm-up included, which is compared with the bytes that left the hosts.
    """
    ends.lay(operation, seed)
    if rank.job.ranks == 1:
        meter = InterfaceMeter()
        done = work()
        return Outcome(done, ends.count_wrong(operation, seed), meter.loopback_bytes(), None)
    comm = rank.comm
    meter = InterfaceMeter()  # before the barrier, since the other rank may send at once behind it
    comm.barrier()
    if rank.index:
        wait_for_initiator(rank)
        if rank.job.hosts:
            meter.evidence(comm, rank.job, 0)  # rank 0 knows the number of bytes and judges
        comm.send(ends.count_wrong(operation, seed), dest=0)
        return None
    done = work()
    moved = meter.loopback_bytes()
    comm.send(None, dest=1)
    across = meter.evidence(comm, rank.job, payload_bytes(done)) if rank.job.hosts else None
    return Outcome(done, comm.recv(source=1) + ends.count_wrong(operation, seed), moved, across)


def wait_for_initiator(rank: AnyRank) -> None:
    """Wait in rank 1 for rank 0's message, asleep, because MPI would busy-poll on the progress thread's CPU."""
    done = rank.comm.irecv(source=0)
    while not done.test()[0]:
        time.sleep(_TARGET_NAP_S)
