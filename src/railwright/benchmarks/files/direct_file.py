"""The test file of the direct benchmarks, and the drive that it lies on.

The file has no name (O_TMPFILE, or unlinked at once), so that nothing is left behind whatever ends the run: the kernel
frees it when the last process that holds it is gone, and after a power cut the file system does so when it is mounted.
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
from railwright.benchmarks.files.mounted import answered
from railwright.benchmarks.record import waived
from railwright.errors import CannotJudge
from railwright.native.memory import Buffer
from railwright.results.records import Result
from railwright.topology.devices import Topology
from railwright.units import MIB, format_size

SEED = 20
SPARE_BYTES = 64 * MIB
"""What must stay free beside the test file."""
FILL_BYTES = 4 * MIB
"""The buffer that the file is filled from."""
FILE_MULTIPLE_BYTES = 4096
_PREFIX, _NAMED_PREFIX = ".railwright-", ".railwright-test-file-"
_CANNOT = (errno.EINVAL, errno.EOPNOTSUPP, errno.EROFS, errno.EACCES, errno.EPERM)


class NoDirectFile(CannotJudge):
    """The file system refuses a direct file outright: nothing can be measured there, and nothing is broken."""


def device_of(topology: Topology, folder: str) -> str:
    """The id of the drive that a folder lies on: the topology's device, or the kernel's device number."""
    try:
        number = answered(folder, lambda: Path(folder).stat().st_dev)
    except (OSError, CannotJudge):
        return "drive?"
    link = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    names = [link.resolve().name, link.resolve().parent.name] if link.exists() else []
    found = next((name for name in names if topology.device(name) is not None), None)
    return found or (names[0] if names else f"dev{os.major(number)}:{os.minor(number)}")


def folder_problem(directory: str, wanted: int) -> str:
    """Why no test file of so many bytes can be made in a folder, or an empty string. Touches nothing."""
    if wanted % FILE_MULTIPLE_BYTES:
        return f"the test file must be a multiple of {FILE_MULTIPLE_BYTES} bytes, not {wanted}"
    return room_problem(directory, wanted)


def room_problem(directory: str, wanted: int) -> str:
    """Why so many bytes cannot be written to a folder, or an empty string. Touches nothing."""
    try:
        return answered(directory, lambda: _room_problem(Path(directory), wanted))
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
    """A nameless file full of the pattern that starts at byte `start` (a multiple of 8), synced, open with O_DIRECT.

    Raises NoDirectFile where the file system refuses one, CannotJudge for all else (full disk, quota ...).
    """
    try:
        fd = open_nameless(folder)
    except OSError as error:
        kind = NoDirectFile if error.errno in _CANNOT else CannotJudge
        reason = f"cannot make a direct test file in {folder}: {error.strerror}"
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


def wrong_in_file(fd: int, seed: int, region_bytes: int, start: int = 0) -> int:
    """How many of the file's first bytes differ from the pattern that starts at byte `start`, by pread."""
    wrong = 0
    with Buffer(FILL_BYTES) as seen:
        for place in range(0, region_bytes, FILL_BYTES):
            length = min(FILL_BYTES, region_bytes - place)
            chunk = (ctypes.c_char * length).from_address(seen.address)
            if os.preadv(fd, [chunk], place) != length:
                return wrong + region_bytes - place
            wrong += seen.count_wrong(seed, length, start + place)
    return wrong


def over_test_file(rank: AnyRank, blank: Result, measure: Callable[[int], Iterator[Result]]) -> Iterator[Result]:
    """What `measure` yields for a test file; `blank` waived with the reason where the file system refuses one."""
    rank.step("writing the test file")
    try:
        with test_file(rank.job.options.directory, rank.job.options.file_size) as fd:
            yield from measure(fd)
    except NoDirectFile as error:
        yield waived(blank, error.message)


def _write_all(fd: int, chunk: memoryview, position: int) -> None:
    """A nearly full disk takes a part, and says why only when it is asked for the rest."""
    while written := os.pwrite(fd, chunk, position):
        chunk, position = chunk[written:], position + written
        if not chunk:
            return
    raise OSError(errno.EIO, "the disk takes no more")


def open_nameless(folder: str, *, direct: bool = True) -> int:
    """A file of nobody's name in a folder, empty, to read and write. Raises OSError."""
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
    with contextlib.suppress(OSError):
        return os.open(folder, flags | os.O_TMPFILE, 0o600)
    sweep(folder)
    path = Path(folder, f"{_PREFIX}{os.getpid()}")
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    finally:
        path.unlink(missing_ok=True)  # a file system without O_DIRECT makes the file and then refuses to open it


@contextlib.contextmanager
def with_name(fd: int, folder: str) -> Iterator[int]:
    """The nameless file under a name for a moment, opened by it: cuFile refuses flags that still say O_TMPFILE.

    The caller closes what it gets.

    The same descriptor again where the file system gives no name to a nameless file.
    """
    sweep(folder)
    path = Path(folder, f"{_NAMED_PREFIX}{os.getpid()}")
    try:
        descriptors = os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY)
        try:  # with a folder's descriptor, for only then does Python have the link followed
            os.link(str(fd), path, src_dir_fd=descriptors, follow_symlinks=True)
        finally:
            os.close(descriptors)
    except OSError:
        yield os.dup(fd)
        return
    try:
        yield os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    finally:
        path.unlink(missing_ok=True)


def sweep(folder: str) -> None:
    """Remove what a run left that was killed while its file had a name.

    Only files of ours that are empty, or under the name of a full one whose process is gone. To lose the name harms no
    living run.
    """
    for path in Path(folder).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found, owner = path.lstat(), path.name.removeprefix(_NAMED_PREFIX)
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            is_left = owner.isdecimal() and not Path("/proc", owner).exists()
            is_empty = found.st_size == 0 and path.name.removeprefix(_PREFIX).isdecimal()
            if ours and (is_empty or is_left):
                path.unlink()
