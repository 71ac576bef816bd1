"""Tables of messages inside one host, held against the measured ceilings of a run of ours on the same machine.

What a message inside a host can reach no document tells, so a shape alone judges none of them.
A tool's buffers lie on the pages that its reader names, and are held against copies on the same ones.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from railwright.diagnosis.ceilings import Ceilings
from railwright.diagnosis.host_limits import HostLimits
from railwright.limits.limit import Bounds
from railwright.results.bounds import Declarations, no_limit
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.records import Result, ResultFile
from railwright.topology.paths import Graph

INSIDE = "memory0:memory0"
"""The path of a table that does not say where its two processes were."""


class OwnRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of ours, and what its benchmarks declare."""

    file: ResultFile
    declarations: Declarations

    def limits(self) -> HostLimits:
        """What its measurements leave for others."""
        topology = self.file.run.topology
        return HostLimits(topology, Graph(topology), Ceilings(self.file.results, self.declarations))


def inside_one_host(result: Result, file: ForeignFile, path: str, limits: HostLimits) -> Bounds:
    """A row of messages through shared memory: a cache line and a copy for a time, copies for a rate."""
    pages = {"pages": file.subject.pages}
    point = replace(result, path=path.replace(":", ">"), parameters=result.parameters | pages)
    if result.quantity == "latency_s":
        return limits.message(point)
    if result.quantity != "bandwidth_bytes_per_s":
        return no_limit(result, "no document gives a rate of messages")
    pairs = file.ranks // 2 if file.ranks else 1
    return limits.thread_copies(point, pairs * (1 + file.subject.both_ways))


def how_it_was_held(file: ForeignFile) -> str:
    """What the reader must know of the comparison."""
    return (
        f"held against copies on {file.subject.pages} pages, as {file.tool}'s buffers lie, of the run beside it:"
        " both processes are taken to be on that host"
    )
