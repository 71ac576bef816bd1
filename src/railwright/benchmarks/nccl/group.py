"""A launch of an NCCL operation: its GPUs, communicator and buffers, and the work at each size.

An NCCL rank is a process (with `ranks_in` processes) or a thread of the only process; each has one GPU. Everything here
is collective over the processes of the launch.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from railwright.benchmarks.gpu.job import find_address
from railwright.benchmarks.nccl import gpus, options
from railwright.benchmarks.nccl.evidence import algorithm_evidence, contradiction
from railwright.benchmarks.nccl.network import Network, keep_connections, read_network
from railwright.benchmarks.nccl.options import FREE, IN_PLACE, OPERATIONS, OUT_OF_PLACE, NcclRank, Size
from railwright.errors import CannotJudge
from railwright.native import cuda, nccl
from railwright.native.library import NativeError
from railwright.native.nccl_errors import NcclError
from railwright.native.nccl_library import Library
from railwright.native.nccl_log import CONNECTIONS, SwitchedLog
from railwright.results.records import Evidence
from railwright.units import format_size

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_POISON = 0xBF
"""The poison byte; four of it are a negative float, which no pattern holds."""
_NEWEST_READ = 23099
"""In NCCL 2.27.3 to 2.30.7 every multicast object is made behind `nvlsSupport`, which NCCL_NVLS_ENABLE=0 leaves 0
(ncclNvlsInit in src/transport/nvls.cc, symTeamObtain in src/dev_runtime.cc). Later sources were not read.
"""


Done = TypeVar("Done")


class Refused(Exception):
    """A request that cannot be met; has the same message on every rank."""


class Point(NamedTuple):
    """The measurements of a size in a placement, over all ranks."""

    size: Size
    placement: str
    seconds: list[float]
    """Seconds per operation, as the mean over ranks, for each sample."""
    bytes_wrong: tuple[int, ...]
    """Wrong bytes on each rank."""
    evidence: tuple[Evidence, ...]


class Group:
    """The state that every process of a launch holds. Creating it loads CUDA and NCCL and connects the ranks.

    Raises Refused for requests that cannot be met, NativeError for faults.
    """

    def __init__(self, operation: str, rank: NcclRank, comm: Intracomm | None = None) -> None:
        """Connect the ranks of `comm`, by default all. `comm` is None if all ranks are in this process."""
        self.operation, self.rank, self.job, self._comm = operation, rank, rank.job, comm
        case = rank.job.case
        self.threads = case.uses_threads
        self.graph = case.launched == "graph"
        self.buffers = cast("nccl.Buffers", case.buffers)
        self.algorithm, self.protocol = case.algorithm or FREE, case.protocol or FREE
        self.largest_bytes = self.least_bytes = 0
        self.allocated_by = ""
        self.cpus = gpus.bind_near_gpu(self.job, None if self.threads else rank.index)
        self.told_apart = gpus.tell_hosts_apart(self.job, rank.index)
        devices, self.library = self._run_on_all(self._open)
        self._wants_evidence = self.job.options.evidence
        self._log = SwitchedLog(self.library, rank.scratch, rank.index)
        self._connected = ""
        with self._log_connections():
            self.team = self._connect(devices)

    def _gather(self, value: Any) -> list[Any]:  # noqa: ANN401 - whatever the processes tell each other
        """Return every process's value, in order."""
        return [value] if self._comm is None else self._comm.allgather(value)

    @property
    def leads(self) -> bool:
        """Whether this process has the group's first rank."""
        return self._comm is None or self._comm.rank == 0

    def _run_on_all(self, work: Callable[[], Done]) -> Done:
        """Run this process's part of the work. Raises Refused in all processes if one was refused. Collective."""
        done, refusal = [], ""
        try:
            done.append(work())
        except CannotJudge as error:
            refusal = self._refusal(error)
        reason = next((one for one in self._gather(refusal) if one), "")
        if reason:
            raise Refused(reason)
        return done[0]

    def _open(self) -> tuple[list[cuda.Device], Library]:
        """Open this process's GPUs and NCCL."""
        self.rank.step("CUDA")
        index = self.rank.index
        mine = [gpu.address for gpu in self.job.gpus] if self.threads else [find_address(self.job, index)]
        devices = [cuda.Device(address) for address in mine]
        self.rank.step("load NCCL")
        return devices, Library(self.job.options.library)

    def _connect(self, devices: list[cuda.Device]) -> nccl.Team:
        self.rank.step("ncclCommInitRank")
        unique_id = self._gather(self.library.unique_id() if self.leads else b"")[0]
        return self._run_on_all(lambda: nccl.Team(self.library, devices, self.operation, unique_id, comm=self._comm))

    def _refusal(self, error: CannotJudge) -> str:
        """Return NCCL's refusal of a forced setting as text; raises the error itself for faults."""
        forced = (self.algorithm, self.protocol, self.buffers) != (FREE, FREE, "plain")
        if isinstance(error, NativeError) and not (forced and isinstance(error, NcclError) and error.refused):
            raise error
        return error.message

    def free_bytes(self) -> int:
        """Return the free memory of the GPU with the least."""
        return int(min(self._gather(min(device.free_bytes() for device in self.team.devices))))

    def allocate(self, sizes: tuple[Size, ...], most_bytes: int) -> None:
        """Allocate buffers for the largest size, as nccl-tests does. Raises Refused."""
        asked = [size for size in self.job.options.sizes if size <= most_bytes]
        self.least_bytes = min([*asked, sizes[0].size_bytes])
        self.largest_bytes = max([*asked, *(size.size_bytes for size in sizes)])
        self.rank.step(f"allocate 2 x {format_size(self.largest_bytes)}")
        self.allocated_by = self._run_on_all(self._allocate)

    def _allocate(self) -> str:
        if self.buffers == "symmetric" and gpus.nvls_is_off() and self.library.code > _NEWEST_READ:
            raise CannotJudge(f"windows of NCCL {self.library.version} are not known to leave NVLS off")
        return self.team.allocate(self.largest_bytes, self.buffers)

    @contextlib.contextmanager
    def _log_connections(self) -> Iterator[None]:
        """Keep the log of what is connected within the context, if the ranks are on several hosts."""
        if not (self._wants_evidence and self.job.hosts):
            yield
            return
        with self._log.written(CONNECTIONS):
            yield
        self._connected += "" if self._log.problem else keep_connections(self._log.text())

    def find_network(self) -> Network:
        """Return what NCCL's log tells of the connections between the ranks. Collective; call it after `warm`."""
        if not (self._wants_evidence and self.job.hosts):
            return Network()
        logs = self._gather(self._connected)
        return read_network("\n".join(logs), problem=self._log.problem) if self.leads else Network()

    def warm(self) -> None:
        """Warm up with an operation of each power of two times the minimum size, out of place.

        NCCL makes connections when the first operation needs them.
        """
        with self._log_connections():
            self._warm_all()

    def _warm_all(self) -> None:
        size_bytes = self.least_bytes
        while size_bytes <= self.largest_bytes:
            self.rank.step(f"warm up {format_size(size_bytes)}")
            size = options.round_size(self.operation, size_bytes, self.team.ranks)
            if size.size_bytes <= self.largest_bytes:
                with contextlib.suppress(Refused):
                    self._run_on_all(functools.partial(self.team.warm, self._make_operation(size, OUT_OF_PLACE)))
            size_bytes *= 2

    def measure(self, size: Size, placement: str) -> Point:
        """Check the data, collect evidence, and then time the samples. Raises Refused for this size."""
        what = self._make_operation(size, placement)
        self._prepare(what)
        with self._log.written() if self._wants_evidence else contextlib.nullcontext():
            self._run_on_all(lambda: self.team.once(what))
        wrong = self._count_wrong(what)
        evidence = self._evidence()
        samples = options.count_samples(size.size_bytes)
        mine = self.team.time(what, samples)
        everyone = [each for process in self._gather(list(zip(mine, wrong, strict=True))) for each in process]
        times = [seconds for seconds, _ in everyone]
        mean = [sum(one) / len(everyone) for one in zip(*times, strict=True)]
        return Point(size, placement, mean, tuple(count for _, count in everyone), evidence)

    def _make_operation(self, size: Size, placement: str) -> nccl.Operation:
        return self.team.describe_operation(
            size.floats,
            (size.sent_bytes, size.received_bytes, self.largest_bytes),
            in_place=placement == IN_PLACE,
            graph=self.graph,
            operations=OPERATIONS,
        )

    def _prepare(self, what: nccl.Operation) -> None:
        """Fill each rank's send buffer with its pattern and its receive buffer with poison."""
        for index, device in enumerate(self.team.devices):
            out, into = self.team.places(what, index)
            nccl.Borrowed(device, into, what.received_bytes).set_bytes(_POISON)
            rank = self.team.members[index].rank
            grid = 4 * device.multiprocessors
            cuda.launch(device, "collective_fill", grid, cuda.COMPUTE_THREADS, out, what.sent_bytes // 4, rank, 0)
            device.synchronize()

    def _count_wrong(self, what: nccl.Operation) -> list[int]:
        """Count the wrong bytes on each rank of this process; a wrong float counts as four."""
        found = []
        for index, device in enumerate(self.team.devices):
            into = self.team.places(what, index)[1]
            rank = self.team.members[index].rank
            wrong = device.count("collective_wrong", into, what.kind, what.count, rank, self.team.ranks)
            found.append(wrong * 4)
        return found

    def _evidence(self) -> tuple[Evidence, ...]:
        """Return the evidence of rank 0's log. Raises Refused if NCCL did not run the forced choice."""
        if not self._wants_evidence:
            return ()
        sends_only = self.operation in options.OF_SENDS
        text = "" if self._log.problem else self._log.text()
        seen = algorithm_evidence(text, sends_only=sends_only, problem=self._log.problem)
        seen = self._gather(seen)[0]
        differs = contradiction(seen, self.algorithm, self.protocol)
        if differs:
            raise Refused(differs)
        return (seen,)

    def close(self) -> None:
        """Destroy the communicator."""
        self.rank.step("ncclCommDestroy")
        self.team.close()
