"""Two ranks of one launch that move memory by NIXL: rank 0 posts and polls, rank 1 owns the other memory."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from railwright.benchmarks.base import Rank
from railwright.native import nixl
from railwright.native.memory import Buffer

_TARGET_NAP_S = 0.002


class Pair(NamedTuple):
    """This rank's agent, and what it needs of the other one."""

    agent: nixl.Agent
    peer_name: str
    peer_address: int
    exchange_s: float
    """How long the exchange of metadata over MPI took, with the connection that follows it."""


def log_of(rank: Rank) -> Path:
    """Where UCX writes which protocols it chose in this rank."""
    return rank.scratch / f"ucx-{rank.index}.log"


def connect(rank: Rank, buffer: Buffer) -> Pair:
    """An agent with that buffer registered, connected to the other rank's. Metadata goes over MPI."""
    comm = rank.comm
    # Only now: the MPI library has its own UCX, which read its environment when it was loaded.
    os.environ.update({"UCX_PROTO_INFO": "y", "UCX_LOG_FILE": str(log_of(rank))})
    rank.step("NIXL agent")
    agent = nixl.Agent(f"rank{rank.index}", progress_thread=rank.index == 1)
    agent.register(buffer)
    rank.step("NIXL metadata over MPI")
    started = time.perf_counter()
    metadata, address = comm.allgather((agent.metadata(), buffer.address))[1 - rank.index]
    peer_name = agent.connect(metadata)
    exchange_s = time.perf_counter() - started
    comm.barrier()
    return Pair(agent, peer_name, address, exchange_s)


def wait_for_initiator(rank: Rank) -> None:
    """Rank 1: until rank 0 sends a word. It sleeps, for MPI would busy-poll on the progress thread's CPU."""
    done = rank.comm.irecv(source=0)
    while not done.test()[0]:
        time.sleep(_TARGET_NAP_S)
