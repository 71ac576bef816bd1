"""What a measured value is held against: the kinds of bound, and how a benchmark declares which of them is whose.

A declaration is data. `diagnosis` has a finder for each kind and knows no benchmark; a kind without a finder, or a
result that nothing was declared for, has no limit. The program hands the declarations to `diagnosis`: a results file
names none, so that a record cannot choose its own limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import msgspec

from railwright.limits.limit import Bounds, NoLimit, Quantity
from railwright.results.records import Result
from railwright.topology.devices import Scalar

Supply = Literal[
    "thread copy",
    "cache line",
    "plain socket",
    "raw device",
    "file read",
    "gpu load",
    "gpu copy",
    "awaited gpu copy",
    "dgemm",
    "fetch",
    "decode",
    "reader alone",
]
"""What a result is a measured ceiling of."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of bound."""

    ceilings: ClassVar[tuple[Supply, ...]] = ()
    """The measured ceilings of the same run that it is found from."""
    alike: ClassVar[bool] = False
    """Whether those must have been measured at the very same parameters."""


class PathLinks(Bound, frozen=True):
    """The narrowest link of the path, with the band of healthy links."""


class DriveLinks(Bound, frozen=True):
    """The narrowest link on the way to a drive: an upper limit alone, because the drive is mostly narrower."""


class MemoryChannels(Bound, frozen=True):
    """The channels of the memory that a copy reads and writes, where no cache can hold it."""


class ThreadCopies(Bound, frozen=True):
    """What one thread's memory copy of the size reached in the same run, or several of them at once."""

    ceilings: ClassVar[tuple[Supply, ...]] = ("thread copy",)

    times: int = 1
    counted_by: str = ""
    """The parameter that says how many threads copy; one without it."""
    upper_only: bool = False
    """Whether there is no expected band, because other work than copying decides."""


class CopiedBlocks(Bound, frozen=True):
    """One thread's memory copy of all the blocks of a request. A latency is the time of that copy."""

    ceilings: ClassVar[tuple[Supply, ...]] = ("thread copy",)


class SharedMessage(Bound, frozen=True):
    """A message through shared memory: one cache line from core to core, and one thread's copy of its bytes."""

    ceilings: ClassVar[tuple[Supply, ...]] = ("cache line", "thread copy")


class PlainSockets(Bound, frozen=True):
    """What a plain socket between the same two ends reached in the same run, or several of them at once."""

    ceilings: ClassVar[tuple[Supply, ...]] = ("plain socket",)
    alike: ClassVar[bool] = True
    times: int = 1


class SmallTransfer(Bound, frozen=True):
    """One cache line from core to core and one thread's copy of the bytes: the same move without a library."""

    ceilings: ClassVar[tuple[Supply, ...]] = ("cache line", "thread copy", "plain socket")


class HostCollective(Bound, frozen=True):
    """The copies that a collective of one host needs, each rank by a thread of its own; a latency in cache lines."""

    ceilings: ClassVar[tuple[Supply, ...]] = ("cache line", "thread copy")
    operation: str
    upper_only: bool = False
    """Whether there is no expected band, because other work than copying decides."""


class RawDevice(Bound, frozen=True):
    """The raw device with the same reads, measured in the same run.

    Where that is closed, the best of the run's own reads of that size, in any depth and by any engine.
    """

    ceilings: ClassVar[tuple[Supply, ...]] = ("raw device", "file read")
    alike: ClassVar[bool] = True


class GpuCopy(Bound, frozen=True):
    """The links or the memory that a copy of a GPU crosses, with the band of its engine and direction."""


class GpuTransfer(Bound, frozen=True):
    """The links or the memory that a transfer of GPU memory by a library crosses."""


class GpuLoad(Bound, frozen=True):
    """A load of the GPU's own memory, measured in the same run, times the factor of the link."""

    ceilings: ClassVar[tuple[Supply, ...]] = ("gpu load",)


class SmallGpuCopy(Bound, frozen=True):
    """A copy of a few bytes: a load of the GPU's own memory, times what healthy GPUs need of them by that clock."""

    ceilings: ClassVar[tuple[Supply, ...]] = ("gpu load",)
    clock: Literal["gpu", "host"]


class SmallGpuTransfer(Bound, frozen=True):
    """A small transfer of GPU memory by a library: the same copy without it."""

    ceilings: ClassVar[tuple[Supply, ...]] = ("gpu copy", "awaited gpu copy")


class Collective(Bound, frozen=True):
    """The maximum concurrent flow of an operation over the GPUs that took part, and its latency."""

    operation: str


class Gradients(Bound, frozen=True):
    """The all-reduce of gradients: an upper limit alone, since what is expected depends on the sizes of buckets."""


class MatrixProducts(Bound, frozen=True):
    """What products of matrices by the same ranks reached in the same run: an upper limit of Linpack alone."""

    ceilings: ClassVar[tuple[Supply, ...]] = ("dgemm",)


class Linpack(Bound, frozen=True):
    """The FP64 rate of the GPUs that took part, an upper limit alone; dgemm of the same run where it is not known."""

    ceilings: ClassVar[tuple[Supply, ...]] = ("dgemm",)


class FetchAndDecode(Bound, frozen=True):
    """The slower of fetching and decoding the same bytes, each measured alone in the same run.

    Its record says how many bytes they are (`encoded_bytes`) and what becomes of them (`in_memory_bytes`).
    """

    ceilings: ClassVar[tuple[Supply, ...]] = ("fetch", "decode")


class ReadAhead(Bound, frozen=True):
    """The slower of a reader alone, measured in the same run, and of the consumers that it reads ahead for.

    Its record says how fast each of them takes samples (`pace`, per second), and what one has (`sample_bytes`).
    """

    ceilings: ClassVar[tuple[Supply, ...]] = ("reader alone",)


class MountServers(Bound, frozen=True):
    """The drives and NICs of the servers behind a mount and the NICs of the hosts that use it, from a cluster file."""


class Nothing(Bound, frozen=True):
    """No limit is known, with the reason."""

    why: str


class Declaration(msgspec.Struct, frozen=True):
    """Which results of a benchmark are held against which kind of bound. The first that covers a result counts."""

    quantity: Quantity
    bound: Bound
    when: Mapping[str, tuple[Scalar | None, ...]] = {}
    """The parameters that must have one of these values; None: that the result does not have."""
    ends: Literal["any", "same", "apart"] = "any"
    """Whether the path begins and ends at one device."""
    supplies: Supply | None = None
    """What other results are held against it."""
    is_reference: bool = False
    """Whether it is the simplest measurement of its resource, so that nothing stands above it but hardware."""

    def covers(self, result: Result) -> bool:
        """Whether this declaration is about a result."""
        source, _, target = result.path.partition(">")
        return (
            self.quantity == result.quantity
            and (self.ends == "any" or (self.ends == "same") == (source == target))
            and all(result.parameters.get(name) in values for name, values in self.when.items())
        )


Declarations = Mapping[str, tuple[Declaration, ...]]
"""The declarations of each benchmark by its name."""


def bound_by(kind: type[Bound], declarations: Declarations) -> frozenset[str]:
    """The names of the benchmarks that declare a kind of bound for any of their results."""
    return frozenset(name for name, rows in declarations.items() if any(isinstance(row.bound, kind) for row in rows))


def suppliers(supply: Supply, declarations: Declarations) -> tuple[str, ...]:
    """The names of the benchmarks that measure a ceiling."""
    return tuple(name for name, rows in declarations.items() if any(row.supplies == supply for row in rows))


def ceilings_of(name: str, declarations: Declarations) -> tuple[str, ...]:
    """The benchmarks whose ceilings a benchmark's results are held against, and what those need in turn."""
    found: dict[str, None] = {}
    wanted = [name]
    while wanted:
        rows = declarations.get(wanted.pop(), ())
        own = {row.supplies for row in rows}
        needed = dict.fromkeys(supply for row in rows for supply in row.bound.ceilings if supply not in own)
        new = [one for supply in needed for one in suppliers(supply, declarations) if one not in (name, *found)]
        found |= dict.fromkeys(new)
        wanted += new
    return tuple(one for one in declarations if one in found)


def measured_alike(name: str, ceiling: str, declarations: Declarations) -> bool:
    """Whether a ceiling of a benchmark has to be measured with that benchmark's own options."""
    supplied = {row.supplies for row in declarations.get(ceiling, ())}
    return any(row.bound.alike and supplied & set(row.bound.ceilings) for row in declarations.get(name, ()))


def declared_for(result: Result, declarations: Declarations) -> Declaration | None:
    """The first declaration of its benchmark that covers a result; None where there is none."""
    return first_covering(declarations.get(result.benchmark, ()), result)


def first_covering(declarations: Iterable[Declaration], result: Result) -> Declaration | None:
    """The first that covers a result; None where none does."""
    return next((one for one in declarations if one.covers(result)), None)


def no_limit(result: Result, why: str) -> Bounds:
    """Why a result has no limit, and nothing is expected of it."""
    return NoLimit(quantity=result.quantity, why=why), None
