"""What was seen: one record for every measurement, ours or a foreign tool's.

`results.jsonl` is a `run` line, then `result` lines as they were measured, then an `end` line.
A record says what was varied and what was held, every raw sample, and what path really ran and how that is known.
It holds no limit and no verdict, so that an old result can be judged again at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from railwright.limits.limit import Quantity
from railwright.topology.devices import Scalar, Topology
from railwright.units import KIB

SCHEMA_VERSION = 4
"""4: messages of plain sockets name the pages that they lie on (`pages`), and a run the links between its hosts.
3: messages of MPI name their pages; those that name none, as in versions 1 and 2, lie on huge ones.
2: what a result is held against is declared by its benchmark, for the records of every version.
"""
READ_VERSIONS = (1, 2, 3, SCHEMA_VERSION)

PAGES_DECIDE_FROM_BYTES = 64 * KIB
"""From this size on a record says on which pages its memory lies, where there was a choice."""

Outcome = Literal["measured", "waived", "failed"]


Point = tuple[str, str, str, tuple[tuple[str, Scalar], ...]]
"""What all launches of one point share: benchmark, quantity, path, and what was varied, by name."""


def point_of(benchmark: str, quantity: str, path: str, parameters: Mapping[str, Scalar]) -> Point:
    """The point of a result, or of what was judged of several."""
    return benchmark, quantity, path, tuple(sorted(parameters.items()))


def size_of(parameters: Mapping[str, Scalar]) -> int | None:
    """The size in bytes that a point was measured with; None where there is none."""
    size = parameters.get("size_bytes")
    return size if isinstance(size, int) else None


class Summary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Order statistics of the samples, in the result's own unit. Never a bare mean."""

    count: int
    minimum: float
    median: float
    p99: float
    maximum: float
    median_low: float
    """Lower end of the 95 % interval of the median, by order statistics (no distribution assumed)."""
    median_high: float


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How we know what really ran: `claim` transport, `value` tcp, `seen` where that was read."""

    claim: str
    value: str
    seen: str


class Verification(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data check: how many bytes were compared with what they should be, and how many were wrong."""

    method: str
    bytes_checked: int
    bytes_wrong: int


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="result", tag_field="record",
             forbid_unknown_fields=True):  # fmt: skip
    """One measured point of one benchmark, or the reason why there is none."""

    benchmark: str
    quantity: Quantity
    path: str
    """What the data crossed, `memory0>memory0`; see `topology.paths`."""
    outcome: Outcome = "measured"
    reason: str = ""
    """Why it was waived or failed, as one sentence; empty when measured."""
    method: str = ""
    """Whose method: `OSU osu_latency 7.4`."""
    parameters: dict[str, Scalar] = {}
    """What was varied: `size_bytes`, `transport`, `operation`, `threads` ..."""
    settings: dict[str, Scalar] = {}
    """What was held: iterations, warm-up, binding, thread level, library versions ..."""
    launch: int = 0
    """Which of the repeated launches (fresh processes) this is from, counted from 0."""
    ranks: int = 1
    hosts: int = 1
    samples: tuple[float, ...] = ()
    """Every raw sample, in bytes/s, seconds or operations/s."""
    summary: Summary | None = None
    verification: Verification | None = None
    evidence: tuple[Evidence, ...] = ()

    def series(self) -> tuple[str, str, str, tuple[tuple[str, Scalar], ...]]:
        """What the points of one curve share: all but the size and the launch."""
        varied = tuple(sorted((key, value) for key, value in self.parameters.items() if key != "size_bytes"))
        return (self.benchmark, self.quantity, self.path, varied)


class Noise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the machine itself takes away: a fixed piece of work timed again and again on one core."""

    quantum_s: float
    """Median time of the fixed work."""
    lost_fraction: float
    """Share of the wall time that was not spent on the work."""
    worst_s: float
    """The longest single delay."""
    quanta: int


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where and with what it was measured."""

    host: str
    kernel: str
    operating_system: str = ""
    cpu: str = ""
    cores: int = 0
    memory_bytes: int = 0
    software: dict[str, str] = {}
    """Name and version of each library that took part."""
    environment: dict[str, str] = {}
    """Environment variables that change what is measured (UCX_*, NCCL_*, OMPI_*, FI_* ...)."""
    clocks: dict[str, Scalar] = {}
    """What the machine says of its clocks before the run: `cpu_hz`, `cpu_governor`."""
    load_average: float = 0.0
    busy_fraction: float = 0.0
    """Share of all cores that was busy in the second before the run."""
    noise: Noise | None = None


class Fabric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The links between the hosts of a run, where their rates are known. All rates are one way."""

    name: str
    """`lab lab`."""
    ports_bytes_per_s: float
    """Of all ports together that the ranks of a host use; of the host with the least."""
    flow_bytes_per_s: float
    """Of one connection between the first host and any other: of the narrowest cable on the way."""
    narrowest: str
    """Which cable that is."""
    measured: bool = False
    """Whether one connection's rate is that of the slowest pair of all hosts, measured while all of them sent."""


class Run(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="record", forbid_unknown_fields=True):
    """The first line of a results file. Defaults are written too: the schema version must be in every file."""

    railwright: str
    started_at: str
    """UTC, ISO 8601."""
    command: tuple[str, ...]
    context: Context
    topology: Topology
    fabric: Fabric | None = None
    """Of a run between hosts, where it is known."""
    schema_version: int = SCHEMA_VERSION


class Disturbed(msgspec.Struct, frozen=True, kw_only=True, tag="disturbed", tag_field="record",
                forbid_unknown_fields=True):  # fmt: skip
    """A launch during which others took much of this host's CPU time. It stands behind the launch's results."""

    benchmark: str
    parameters: dict[str, Scalar]
    """Of the launch: all that its results have in common."""
    launch: int
    others_fraction: float
    """Of all CPU time while it ran."""

    def concerns(self, result: Result) -> bool:
        """Whether that result is of this launch."""
        mine = self.benchmark == result.benchmark and self.launch == result.launch
        return mine and self.parameters.items() <= result.parameters.items()


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end", tag_field="record", omit_defaults=True,
          forbid_unknown_fields=True):  # fmt: skip
    """The last line: without it, the run was cut off."""

    finished_at: str
    interrupted: str = ""
    """Why the run ended early, empty when it ran to its end."""
    counters_moved: dict[str, int] = {}
    """NIC, link and TCP counters that changed during the run."""


Record = Run | Result | Disturbed | End


class ResultFile(msgspec.Struct, frozen=True, kw_only=True):
    """A whole results file. `end` is None when the run was cut off."""

    run: Run
    results: tuple[Result, ...]
    disturbed: tuple[Disturbed, ...] = ()
    end: End | None = None
