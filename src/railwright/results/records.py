"""The record of a measurement by this program or by a foreign tool.

`results.jsonl` is a `run` line, then `result` lines in the order of measurement, then an `end` line. A record holds the
varied parameters, the fixed settings, every raw sample, and the path in use with its evidence. It holds no limit and no
verdict, so an old result can be judged again at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from railwright.limits.limit import Quantity
from railwright.topology.cluster import Fabric as Switches
from railwright.topology.devices import Scalar, Topology
from railwright.units import KIB

SCHEMA_VERSION = 4
"""Version 4: messages over plain sockets name their page size (`pages`), and a run names the links between its hosts.
Version 3: MPI messages name their page size. In versions 1 and 2, messages without `pages` lie on huge pages.
Version 2: the benchmark declares the baselines of a result, for records of every version."""
READ_VERSIONS = (1, 2, 3, SCHEMA_VERSION)
RESULTS_NAME = "results.jsonl"

PAGES_DECIDE_FROM_BYTES = 64 * KIB
"""The size from which a record names the page size of its memory, if there was a choice."""

Outcome = Literal["measured", "waived", "failed"]


Point = tuple[str, str, str, tuple[tuple[str, Scalar], ...]]
"""The identity of a point over all its launches: benchmark, quantity, path, and parameters by name."""


def make_point(benchmark: str, quantity: str, path: str, parameters: Mapping[str, Scalar]) -> Point:
    """Return the point of a result, or of a verdict on several results."""
    return benchmark, quantity, path, tuple(sorted(parameters.items()))


def find_size(parameters: Mapping[str, Scalar]) -> int | None:
    """Return the size in bytes of a point, or None if it has none."""
    size = parameters.get("size_bytes")
    return size if isinstance(size, int) else None


class Summary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Order statistics of the samples, in the unit of the result. A mean alone is never kept."""

    count: int
    minimum: float
    median: float
    p99: float
    maximum: float
    median_low: float
    """The lower end of the 95 % interval of the median, by order statistics (no distribution assumed)."""
    median_high: float


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Evidence of the path in use: a claim such as `transport`, its value such as `tcp`, and the value's source."""

    claim: str
    value: str
    seen: str


class Verification(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data check: the number of bytes compared with their expected values, and the number of wrong bytes."""

    method: str
    bytes_checked: int
    bytes_wrong: int


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="result", tag_field="record",
             forbid_unknown_fields=True):  # fmt: skip
    """A measured point of a benchmark, or the reason why it has no value."""

    benchmark: str
    quantity: Quantity
    path: str
    """The path of the data, such as `memory0>memory0`; see `topology.paths`."""
    outcome: Outcome = "measured"
    reason: str = ""
    """The reason why it was waived or failed, as a sentence; empty if measured."""
    method: str = ""
    """The tool and test whose method was used, such as `OSU osu_latency 7.4`."""
    parameters: dict[str, Scalar] = {}
    """The varied parameters: `size_bytes`, `transport`, `operation`, `threads` ..."""
    settings: dict[str, Scalar] = {}
    """The fixed settings: iterations, warm-up, binding, thread level, library versions ..."""
    launch: int = 0
    """The index of the launch (a set of fresh processes), counted from 0."""
    ranks: int = 1
    hosts: int = 1
    samples: tuple[float, ...] = ()
    """All raw samples, in bytes/s, seconds or operations/s."""
    summary: Summary | None = None
    verification: Verification | None = None
    evidence: tuple[Evidence, ...] = ()

    def series(self) -> tuple[str, str, str, tuple[tuple[str, Scalar], ...]]:
        """Return the identity of the curve: everything in the point except its size."""
        varied = tuple(sorted((key, value) for key, value in self.parameters.items() if key != "size_bytes"))
        return (self.benchmark, self.quantity, self.path, varied)


class Noise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The noise of the machine, from a fixed piece of work timed repeatedly on one core."""

    quantum_s: float
    """The median time of the fixed work."""
    lost_fraction: float
    """The share of the wall time that was not spent on the work."""
    worst_s: float
    """The longest single delay."""
    quanta: int


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The host, topology, software and state in which a run was measured."""

    host: str
    kernel: str
    operating_system: str = ""
    cpu: str = ""
    cores: int = 0
    memory_bytes: int = 0
    software: dict[str, str] = {}
    """The name and version of each library in use."""
    environment: dict[str, str] = {}
    """Environment variables that change what is measured (UCX_*, NCCL_*, OMPI_*, FI_* ...)."""
    clocks: dict[str, Scalar] = {}
    """The clock settings of the machine before the run: `cpu_hz`, `cpu_governor`."""
    load_average: float = 0.0
    busy_fraction: float = 0.0
    """The share of all cores that was busy in the second before the run."""
    noise: Noise | None = None


class Fabric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The links between the hosts of a run, if their rates are known. All rates are one way."""

    name: str
    """The name of the fabric, such as `lab lab`."""
    ports_bytes_per_s: float
    """The summed rate of the ports that the ranks of a host use, for the host with the lowest sum."""
    flow_bytes_per_s: float
    """The rate of one connection between the first host and any other, set by the narrowest cable between them."""
    narrowest: str
    """The narrowest cable."""
    measured: bool = False
    """Whether the rate of a connection was measured, as that of the slowest pair while all hosts sent."""


class Run(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="record", forbid_unknown_fields=True):
    """The first line of a results file. Defaults are written too, so that every file names its schema version."""

    railwright: str
    started_at: str
    """The start time in UTC, ISO 8601."""
    command: tuple[str, ...]
    context: Context
    topology: Topology
    fabric: Fabric | None = None
    """The links between the hosts of a run, if their rates are known."""
    switches: Switches | None = None
    """The fabric of the cluster file that describes the hosts of a run."""
    schema_version: int = SCHEMA_VERSION


class Disturbed(msgspec.Struct, frozen=True, kw_only=True, tag="disturbed", tag_field="record",
                forbid_unknown_fields=True):  # fmt: skip
    """A launch during which other processes took much of this host's CPU time, recorded after the launch's results."""

    benchmark: str
    parameters: dict[str, Scalar]
    """The parameters that all results of the launch share."""
    launch: int
    others_fraction: float
    """The share of all CPU time that other processes took during the launch."""

    def concerns(self, result: Result) -> bool:
        """Report whether a result is from this launch."""
        mine = self.benchmark == result.benchmark and self.launch == result.launch
        return mine and self.parameters.items() <= result.parameters.items()


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end", tag_field="record", omit_defaults=True,
          forbid_unknown_fields=True):  # fmt: skip
    """The last record of a file. A file without it is from an interrupted run."""

    finished_at: str
    interrupted: str = ""
    """The reason why the run ended early; empty if it was complete."""
    counters_moved: dict[str, int] = {}
    """NIC, link and TCP counters that changed during the run."""


Record = Run | Result | Disturbed | End


class ResultFile(msgspec.Struct, frozen=True, kw_only=True):
    """A whole results file. `end` is None if the run was interrupted."""

    run: Run
    results: tuple[Result, ...]
    disturbed: tuple[Disturbed, ...] = ()
    end: End | None = None
