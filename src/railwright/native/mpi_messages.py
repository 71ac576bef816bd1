"""Many concurrent MPI messages between any ranks, each with a follow-up action."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from railwright.native.memory import Buffer

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

Act = Callable[[int], None]
"""The action after a message was sent or received. Its argument is the number of bytes received."""


class Post:
    """The messages of one rank. `pause_s` is the sleep when no message has progressed; 0 polls."""

    def __init__(self, comm: Intracomm, pause_s: float) -> None:
        from mpi4py import MPI

        self._mpi, self._comm, self._pause_s = MPI, comm, pause_s
        self._requests: list[Request] = []
        self._acts: list[Act | None] = []

    def send(self, buffer: Buffer, size_bytes: int, rank: int, tag: int, act: Act) -> None:
        """Send the first bytes of a buffer."""
        self._add(self._comm.Isend(self._part(buffer, size_bytes), rank, tag), act)

    def receive(self, buffer: Buffer, max_bytes: int, rank: int, tag: int, act: Act) -> None:
        """Receive up to `max_bytes` into a buffer."""
        self._add(self._comm.Irecv(self._part(buffer, max_bytes), rank, tag), act)

    def deliver(self) -> None:
        """Wait until all messages and their follow-up messages are complete."""
        while any(self._acts):
            statuses = [self._mpi.Status() for _ in self._requests]
            done = self._mpi.Request.Testsome(self._requests, statuses) or []
            for place, number in enumerate(done):
                act, self._acts[number] = self._acts[number], None
                if act is not None:
                    act(statuses[place].Get_count(self._mpi.BYTE))
            if not done and self._pause_s:
                time.sleep(self._pause_s)

    def _part(self, buffer: Buffer, size_bytes: int) -> tuple[object, int, object]:
        return self._mpi.buffer.fromaddress(buffer.address, size_bytes), size_bytes, self._mpi.BYTE

    def _add(self, request: Request, act: Act) -> None:
        if None in self._acts:
            free = self._acts.index(None)
            self._requests[free], self._acts[free] = request, act
        else:
            self._requests.append(request)
            self._acts.append(act)
