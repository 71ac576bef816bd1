"""The test file of the direct benchmarks, and its drive.

The file has no name (O_TMPFILE, or unlinked at once), so that nothing remains however the run ends: the kernel frees it
when the last process that holds it exits, and the file system does so when it is mounted after a power cut.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from railwright.benchmarks.benchmark import AnyRank
from railwright.benchmarks.files.mounted import query_mount
from railwright.benchmarks.record import waived
from railwright.errors import CannotJudge
from railwright.native.memory import Buffer
from railwright.results.records import Result
from railwright.topology.devices import Topology
from railwright.units import MIB, format_size
from railwright.writing import open_to_write

SEED = 20
SPARE_BYTES = 64 * MIB
"""Space to leave free on the file system."""
FILL_BYTES = 4 * MIB
"""The size of the buffer that fills the file."""
FILE_MULTIPLE_BYTES = 4096
_PREFIX, _NAMED_PREFIX = ".railwright-", ".railwright-test-file-"
_CANNOT = (errno.EINVAL, errno.EOPNOTSUPP, errno.EROFS, errno.EACCES, errno.EPERM)


class NoDirectFile(CannotJudge):
    """The file system refuses direct files, so nothing can be measured there; this is not a fault."""


def find_device(topology: Topology, folder: str) -> str:
    """Return the id of a folder's drive: the topology's device, or else the kernel's device number."""
    try:
        number = query_mount(folder, lambda: Path(folder).stat().st_dev)
    except (OSError, CannotJudge):
        return "drive?"
    link = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    names = [link.resolve().name, link.resolve().parent.name] if link.exists() else []
    found = next((name for name in names if topology.device(name) is not None), None)
    return found or (names[0] if names else f"dev{os.major(number)}:{os.minor(number)}")


def folder_problem(directory: str, wanted: int) -> str:
    """Return the reason why the folder cannot hold a test file of `wanted` bytes, or an empty string.

    Has no side effects.
    """
    if wanted % FILE_MULTIPLE_BYTES:
        return f"the test file must be a multiple of {FILE_MULTIPLE_BYTES} bytes, got {wanted}"
    return room_problem(directory, wanted)


def room_problem(directory: str, wanted: int) -> str:
    """Return the reason why `wanted` bytes cannot be written to a folder, or an empty string. Has no side effects."""
    try:
        return query_mount(directory, lambda: _room_problem(Path(directory), wanted))
    except CannotJudge as error:
        return error.message


def _room_problem(folder: Path, wanted: int) -> str:
    if not folder.is_dir():
        return f"{folder} is not a folder"
    if not os.access(folder, os.W_OK):
        return f"{folder} cannot be written to"
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize < wanted + SPARE_BYTES:
        has = format_size(free.f_bavail * free.f_frsize)
        return f"{folder} has {has} free, the test file needs {format_size(wanted)} and 64 MiB to spare"
    return ""


@contextlib.contextmanager
def test_file(folder: str, size: int, start: int = 0) -> Iterator[int]:  # noqa: PT028 - no test
    """Make a nameless, synced file with the pattern from byte `start` (a multiple of 8), open with O_DIRECT.

    Raises NoDirectFile if the file system refuses one, CannotJudge for all other errors (full disk, quota ...).
    """
    try:
        fd = open_nameless(folder)
    except OSError as error:
        kind = NoDirectFile if error.errno in _CANNOT else CannotJudge
        reason = f"cannot create a test file with O_DIRECT in {folder}: {error.strerror}"
        raise kind(reason, hint="choose another directory=...") from error
    try:
        write_pattern(fd, SEED, size, start)
        yield fd
    except OSError as error:
        reason = f"writing the test file in {folder}: {error.strerror}"
        raise CannotJudge(reason, hint="free some space, or choose another directory=...") from error
    finally:
        os.close(fd)


def write_pattern(fd: int, seed: int, size: int, start: int = 0) -> None:
    """Fill the file with the pattern that starts at byte `start`, and sync it. Raises OSError."""
    with Buffer(FILL_BYTES) as buffer:
        for position in range(0, size, FILL_BYTES):
            buffer.fill(seed, position=start + position)
            chunk = (ctypes.c_char * min(FILL_BYTES, size - position)).from_address(buffer.address)
            _write_all(fd, memoryview(chunk), position)
    os.fsync(fd)


def count_wrong(fd: int, seed: int, region_bytes: int, start: int = 0) -> int:
    """Count the bytes in the file's first `region_bytes` that differ from the pattern at byte `start`, by pread."""
    wrong = 0
    with Buffer(FILL_BYTES) as seen:
        for place in range(0, region_bytes, FILL_BYTES):
            length = min(FILL_BYTES, region_bytes - place)
            chunk = (ctypes.c_char * length).from_address(seen.address)
            if os.preadv(fd, [chunk], place) != length:
                return wrong + region_bytes - place
            wrong += seen.count_wrong(seed, length, start + place)
    return wrong


def measure_test_file(rank: AnyRank, blank: Result, measure: Callable[[int], Iterator[Result]]) -> Iterator[Result]:
    """Yield the results of `measure` on a test file, or `blank` as waived if the file system refuses one."""
    rank.step("writing the test file")
    try:
        with test_file(rank.job.options.directory, rank.job.options.file_size) as fd:
            yield from measure(fd)
    except NoDirectFile as error:
        yield waived(blank, error.message)


def _write_all(fd: int, chunk: memoryview, position: int) -> None:
    """Write all of the chunk. A nearly full disk writes a part and reports the error on the next write."""
    while written := os.pwrite(fd, chunk, position):
        chunk, position = chunk[written:], position + written
        if not chunk:
            return
    raise OSError(errno.EIO, "the disk accepts no more data")


def open_nameless(folder: str, *, direct: bool = True) -> int:
    """Open an empty, nameless file in a folder for reading and writing. Raises OSError."""
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
    with contextlib.suppress(OSError):
        return os.open(folder, flags | os.O_TMPFILE, 0o600)
    sweep(folder)
    path = Path(folder, f"{_PREFIX}{os.getpid()}")
    try:
        return open_to_write(path, flags | os.O_CREAT | os.O_EXCL)
    finally:
        path.unlink(missing_ok=True)  # a file system without O_DIRECT creates the file and then refuses to open it


@contextlib.contextmanager
def reopen_named(fd: int, folder: str) -> Iterator[int]:
    """Give the nameless file a temporary name and reopen it: cuFile refuses flags that include O_TMPFILE.

    The caller closes the result. Returns the same descriptor if the file system cannot name a nameless file.
    """
    sweep(folder)
    path = Path(folder, f"{_NAMED_PREFIX}{os.getpid()}")
    try:
        descriptors = os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY)
        try:  # Python follows the link only if a folder's descriptor is given
            os.link(str(fd), path, src_dir_fd=descriptors, follow_symlinks=True)
        finally:
            os.close(descriptors)
    except OSError:
        yield os.dup(fd)
        return
    try:
        yield open_to_write(path, os.O_RDWR | os.O_DIRECT)
    finally:
        path.unlink(missing_ok=True)


def sweep(folder: str) -> None:
    """Remove files of a run that was killed while its file had a name.

    Removes only the benchmark's own files that are empty, or that have a full file's name and whose process has exited.
    A running benchmark does not need the name.
    """
    for path in Path(folder).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found, owner = path.lstat(), path.name.removeprefix(_NAMED_PREFIX)
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            is_left = owner.isdecimal() and not Path("/proc", owner).exists()
            is_empty = found.st_size == 0 and path.name.removeprefix(_PREFIX).isdecimal()
            if ours and (is_empty or is_left):
                path.unlink()
