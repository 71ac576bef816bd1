"""The storage ends of `kv_file`: a nameless file, or objects in an S3 store.

Data in a file is written and checked without NIXL, by pwrite and pread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from railwright.benchmarks.benchmark import AnyRank
from railwright.benchmarks.files.direct_file import count_wrong, reopen_named, test_file, write_pattern
from railwright.benchmarks.kv.services import Service
from railwright.errors import CannotJudge
from railwright.native import cufile, nixl
from railwright.native.memory import Buffer
from railwright.native.nixl_memory import AnyBuffer, describe_memory
from railwright.results.records import Evidence

Blocks = Sequence[tuple[int, int]]
"""(place, bytes) of each block. The place is its byte offset in the file or among the objects, and in the buffer."""

_PREFIX = "railwright-kv/"
_PATIENCE_S = 60.0


class FileTarget:
    """A nameless file, by NIXL's POSIX backend or by cuFile's. `stack` closes it."""

    def __init__(
        self, stack: contextlib.ExitStack, rank: AnyRank, buffer: AnyBuffer, backend: str, parameters: dict[str, str]
    ) -> None:
        folder, size = rank.job.options.directory, rank.job.options.file_size
        self._buffer, self._backend, self._region, self.is_direct = buffer, backend, 0, True
        self._fd = stack.enter_context(test_file(folder, size))
        if backend != "POSIX":
            cufile.write_settings(rank.scratch, None)
        self._agent = nixl.Agent("rank0", backend, progress_thread=False, parameters=parameters)
        self._agent.register(buffer)
        if backend == "POSIX":
            self._agent.register_files([(self._fd, size)])
            return
        with reopen_named(self._fd, folder) as self._fd:
            stack.callback(os.close, self._fd)
            self._agent.register_files([(self._fd, size)])

    def go_direct(self, direct: bool) -> None:
        """Switch the file between direct I/O and the page cache."""
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags & ~os.O_DIRECT)
        self.is_direct = bool(fcntl.fcntl(self._fd, fcntl.F_GETFL) & os.O_DIRECT)

    def use(self, requests: Sequence[Blocks]) -> None:
        """Make `fill` and `count_wrong` cover the places of these requests."""
        self._region = _find_end(requests)

    def request(self, operation: nixl.Operation, blocks: Blocks) -> nixl.Request:
        """Return a transfer of blocks between the buffer and their places in the file."""
        ours = [(self._buffer.address + place, size) for place, size in blocks]
        theirs = [(place, size, self._fd) for place, size in blocks]
        return self._agent.request_storage(operation, ours, "FILE", theirs, memory=describe_memory(self._buffer))

    def fill(self, seed: int) -> None:
        """Write a seed's pattern to the file by pwrite."""
        try:
            write_pattern(self._fd, seed, self._region)
        except OSError as error:
            raise CannotJudge(
                f"the test file could not be written: {error.strerror}", hint="free some space"
            ) from error

    def count_wrong(self, seed: int) -> int:
        """Count the bytes of the file that differ from the pattern, by pread."""
        return count_wrong(self._fd, seed, self._region)

    def evidence(self) -> tuple[Evidence, ...]:
        """Return the kernel's view of the descriptor and, with POSIX, the traces of NIXL's queue in this process."""
        flags = "unknown"
        with contextlib.suppress(OSError, IndexError):
            line = Path(f"/proc/self/fdinfo/{self._fd}").read_text("ascii").split("flags:")[1].split()[0]
            flags = "direct" if int(line, 8) & os.O_DIRECT else "page cache"
        io = Evidence(claim="io", value=flags, seen="the descriptor's flags in /proc/self/fdinfo")
        return (io, _identify_queue()) if self._backend == "POSIX" else (io,)


def _identify_queue() -> Evidence:
    """Identify the queue: Linux AIO maps a ring, io_uring has a descriptor, and POSIX AIO of libc has neither."""
    with contextlib.suppress(OSError):
        if any("io_uring" in str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()):
            return Evidence(claim="queue", value="uring", seen="an io_uring in /proc/self/fd")
        if "[aio]" in Path("/proc/self/maps").read_text("utf-8", "replace"):
            return Evidence(claim="queue", value="aio", seen="a ring of Linux AIO in /proc/self/maps")
        return Evidence(claim="queue", value="posix_aio", seen="neither an io_uring nor a ring of Linux AIO")
    return Evidence(claim="queue", value="unknown", seen="/proc/self cannot be read")


class ObjectTarget:
    """Objects in an S3 store, by NIXL's OBJ backend: one per block, because a write has no offset."""

    is_direct = True

    def __init__(self, bucket: Service, buffer: Buffer, most_bytes: int, most_objects: int) -> None:
        """Take credentials from the AWS_* environment, which the SDK inside NIXL reads."""
        if os.environ.get("AWS_ACCESS_KEY_ID"):  # keeps the SDK from asking the cloud for other credentials
            os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
        parameters = {"endpoint_override": bucket.url, "scheme": bucket.scheme, "bucket": bucket.path}
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self._buffer, self._service, self._requests = buffer, bucket, list[Blocks]()
        self._agent = nixl.Agent(
            "rank0", "OBJ", progress_thread=False, parameters=parameters | ({"region": region} if region else {})
        )
        self._agent.register(buffer)
        self._agent.register_objects([f"{_PREFIX}{number}" for number in range(most_objects)], most_bytes)

    def use(self, requests: Sequence[Blocks]) -> None:
        """Make `fill` and `count_wrong` cover the places of these requests."""
        self._requests = list(requests)

    def request(self, operation: nixl.Operation, blocks: Blocks) -> nixl.Request:
        """Return a transfer between blocks of the buffer and the objects with their numbers."""
        ours = [(self._buffer.address + place, size) for place, size in blocks]
        return self._agent.request_storage(
            operation, ours, "OBJECT", [(0, size, place // size) for place, size in blocks]
        )

    def fill(self, seed: int) -> None:
        """Write a seed's pattern to the objects by NIXL, through the buffer."""
        self._buffer.fill(seed, _find_end(self._requests))
        self._once("WRITE")

    def count_wrong(self, seed: int) -> int:
        """Count the bytes of the objects that differ from the pattern, by NIXL into a poisoned buffer."""
        region = _find_end(self._requests)
        self._buffer.fill(seed + 1, region)
        self._once("READ")
        return self._buffer.count_wrong(seed, region)

    def _once(self, operation: nixl.Operation) -> None:
        for blocks in self._requests:
            request = self.request(operation, blocks)
            request.time(warm=0, iterations=1, patience_s=_PATIENCE_S)
            request.release()

    def evidence(self) -> tuple[Evidence, ...]:
        """Return the objects' endpoint."""
        return (Evidence(claim="service", value=self._service.url, seen="the endpoint that NIXL was given"),)


Target = FileTarget | ObjectTarget
"""The storage end of a transfer. Filling and checking it may overwrite the buffer."""


def _find_end(requests: Sequence[Blocks]) -> int:
    """Return the end of the last request's last block."""
    place, size = requests[-1][-1]
    return place + size
