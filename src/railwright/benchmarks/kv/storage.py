"""What NIXL moves to and from in `kv_file`: a nameless file, or objects of an S3 store.

Data is laid down and checked beside NIXL where that is possible: a file is read with pread.
The first pass is watched and not timed, since cuFile's own counters cost time.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from railwright.benchmarks.base import Rank
from railwright.benchmarks.files.direct_file import FILL_BYTES, test_file, with_name
from railwright.benchmarks.gpu.file_route import route_evidence
from railwright.benchmarks.kv.exchange import Service
from railwright.errors import CannotJudge
from railwright.native import cufile, nixl
from railwright.native.cufile_watch import Watch
from railwright.native.memory import Buffer
from railwright.native.nixl_memory import AnyBuffer, memory_of
from railwright.results.model import Evidence
from railwright.topology.model import Scalar
from railwright.units import parse_size

Blocks = Sequence[tuple[int, int]]
"""Each (place in the file or among the objects, in bytes, which is also its place in the buffer; bytes)."""

_PREFIX = "railwright-kv/"
_PATIENCE_S = 60.0


class Target(Protocol):
    """Where blocks go to and come from."""

    def parameters(self) -> dict[str, Scalar]:
        """What sets this target apart."""

    def request(self, operation: nixl.Operation, blocks: Blocks) -> nixl.Request:
        """A transfer of blocks between the buffer and their places."""

    def lay(self, requests: Sequence[Blocks]) -> None:
        """Put what the buffer holds in the places of these requests."""

    def watch(self, one_pass: Callable[[], object], operation: nixl.Operation, requests: Sequence[Blocks]) -> None:
        """Make a pass over these requests that is not timed, and see what runs."""

    def count_wrong(self, seed: int, requests: Sequence[Blocks]) -> int:
        """How many bytes there differ from the pattern; the buffer may be used up."""

    def evidence(self) -> tuple[Evidence, ...]:
        """What really ran."""


class FileTarget:
    """A nameless file, by NIXL's POSIX backend or by cuFile's. A context manager."""

    def __init__(self, rank: Rank, buffer: AnyBuffer, backend: str, parameters: dict[str, str]) -> None:
        self._rank, self._buffer, self._backend = rank, buffer, backend
        self._size, self._queue = parse_size(rank.job.options["file-size"]), rank.job.options["queue"]
        self._parameters, self._open = parameters, contextlib.ExitStack()
        self._direct = True
        self._route: Evidence | None = None

    def __enter__(self) -> FileTarget:
        with contextlib.ExitStack() as stack:
            self._fd = stack.enter_context(test_file(self._rank.job))
            if self._backend != "POSIX":
                cufile.write_settings(self._rank.scratch, None)
            self._agent = nixl.Agent("rank0", self._backend, progress_thread=False, parameters=self._parameters)
            self._agent.register(self._buffer)
            if self._backend == "POSIX":
                self._agent.register_files([(self._fd, self._size)])
            else:
                with with_name(self._fd, self._rank.job.options["directory"]) as self._fd:
                    stack.callback(os.close, self._fd)
                    self._agent.register_files([(self._fd, self._size)])
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def go_direct(self, direct: bool) -> None:
        """Whether from now on the file is read and written past the page cache."""
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags & ~os.O_DIRECT)
        self._direct = bool(fcntl.fcntl(self._fd, fcntl.F_GETFL) & os.O_DIRECT)

    def parameters(self) -> dict[str, Scalar]:
        """What sets this target apart."""
        if self._backend == "POSIX":
            return {"backend": self._backend, "direct": self._direct, "queue": self._queue}
        return {**self._rank.job.variant.parameters, "direct": self._direct}

    def request(self, operation: nixl.Operation, blocks: Blocks) -> nixl.Request:
        """A transfer of blocks between the buffer and their places in the file."""
        ours = [(self._buffer.address + place, size) for place, size in blocks]
        theirs = [(place, size, self._fd) for place, size in blocks]
        return self._agent.request_storage(operation, ours, "FILE", theirs, memory=memory_of(self._buffer))

    def lay(self, requests: Sequence[Blocks]) -> None:
        """Write what the buffer holds into the file, by pwrite."""
        region = _region(requests)
        with Buffer(FILL_BYTES) as staging:
            for place in range(0, region, FILL_BYTES):
                length = min(FILL_BYTES, region - place)
                address = self._buffer.address + place
                if not isinstance(self._buffer, Buffer):
                    ctypes.memmove(staging.address, self._buffer.read(length, place), length)
                    address = staging.address
                if os.pwrite(self._fd, (ctypes.c_char * length).from_address(address), place) != length:
                    raise CannotJudge("the test file could not be written", hint="free some space")
        os.fsync(self._fd)

    def watch(self, one_pass: Callable[[], object], operation: nixl.Operation, requests: Sequence[Blocks]) -> None:
        """With cuFile, see which way its operations took."""
        if self._backend == "POSIX":
            one_pass()
            return
        watch = Watch(self._rank.scratch, write=operation == "WRITE", bound=cufile.attach())
        one_pass()
        self._route = route_evidence(watch.end(sum(map(len, requests)), _region(requests)))

    def count_wrong(self, seed: int, requests: Sequence[Blocks]) -> int:
        """How many bytes of the file differ from the pattern, by pread."""
        region, wrong = _region(requests), 0
        with Buffer(FILL_BYTES) as seen:
            for place in range(0, region, FILL_BYTES):
                length = min(FILL_BYTES, region - place)
                chunk = (ctypes.c_char * length).from_address(seen.address)
                if os.preadv(self._fd, [chunk], place) != length:
                    return region - place + wrong
                wrong += seen.count_wrong(seed, length, place)
        return wrong

    def evidence(self) -> tuple[Evidence, ...]:
        """How the kernel sees the descriptor, and what NIXL's queue left in this process."""
        flags = "unknown"
        with contextlib.suppress(OSError, IndexError):
            line = Path(f"/proc/self/fdinfo/{self._fd}").read_text("ascii").split("flags:")[1].split()[0]
            flags = "direct" if int(line, 8) & os.O_DIRECT else "page cache"
        io = Evidence(claim="io", value=flags, seen="the descriptor's flags in /proc/self/fdinfo")
        return (io, self._route or _queue_seen())


def _queue_seen() -> Evidence:
    """Linux AIO maps a ring, io_uring has a descriptor, and POSIX AIO of the C library neither."""
    with contextlib.suppress(OSError):
        if any("io_uring" in str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()):
            return Evidence(claim="queue", value="uring", seen="an io_uring in /proc/self/fd")
        if "[aio]" in Path("/proc/self/maps").read_text("utf-8", "replace"):
            return Evidence(claim="queue", value="aio", seen="a ring of Linux AIO in /proc/self/maps")
        return Evidence(claim="queue", value="posix_aio", seen="neither an io_uring nor a ring of Linux AIO")
    return Evidence(claim="queue", value="unknown", seen="/proc/self cannot be read")


class ObjectTarget:
    """Objects of an S3 store, by NIXL's OBJ backend: one object for each block, since a write has no offset."""

    def __init__(self, service: Service, bucket: str, buffer: Buffer, most_bytes: int, most_objects: int) -> None:
        """Credentials are those of the AWS_* environment, which the SDK inside NIXL reads."""
        if os.environ.get("AWS_ACCESS_KEY_ID"):  # nobody need ask the cloud for others
            os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
        parameters = {"endpoint_override": service.url, "scheme": service.scheme, "bucket": bucket}
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self._buffer, self._service = buffer, service
        self._agent = nixl.Agent(
            "rank0", "OBJ", progress_thread=False, parameters=parameters | ({"region": region} if region else {})
        )
        self._agent.register(buffer)
        self._agent.register_objects([f"{_PREFIX}{number}" for number in range(most_objects)], most_bytes)

    def parameters(self) -> dict[str, Scalar]:
        """What sets this target apart."""
        return {"backend": "OBJ"}

    def request(self, operation: nixl.Operation, blocks: Blocks) -> nixl.Request:
        """A transfer of blocks between the buffer and an object each, the one of that number."""
        ours = [(self._buffer.address + place, size) for place, size in blocks]
        return self._agent.request_storage(
            operation, ours, "OBJECT", [(0, size, place // size) for place, size in blocks]
        )

    def lay(self, requests: Sequence[Blocks]) -> None:
        """Write what the buffer holds into the objects, by NIXL."""
        self._once("WRITE", requests)

    def watch(self, one_pass: Callable[[], object], operation: nixl.Operation, requests: Sequence[Blocks]) -> None:
        """There is nothing more to be seen."""
        del operation, requests
        one_pass()

    def count_wrong(self, seed: int, requests: Sequence[Blocks]) -> int:
        """How many bytes of the objects differ from the pattern, by NIXL into a poisoned buffer."""
        region = _region(requests)
        self._buffer.fill(seed + 1, region)
        self._once("READ", requests)
        return self._buffer.count_wrong(seed, region)

    def _once(self, operation: nixl.Operation, requests: Sequence[Blocks]) -> None:
        for blocks in requests:
            request = self.request(operation, blocks)
            request.time(warm=0, iterations=1, patience_s=_PATIENCE_S)
            request.release()

    def evidence(self) -> tuple[Evidence, ...]:
        """Where the objects are."""
        return (Evidence(claim="service", value=self._service.url, seen="the endpoint that NIXL was given"),)


def _region(requests: Sequence[Blocks]) -> int:
    place, size = requests[-1][-1]
    return place + size
