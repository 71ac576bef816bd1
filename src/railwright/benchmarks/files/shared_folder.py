"""The folder of a run on a shared mount: named after its owner, created for the run, and removed by all ranks.

Its files have names, unlike other test files: creating, finding and removing names is part of the measurement.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path

from railwright.benchmarks.benchmark import AnyRank
from railwright.benchmarks.files.mounted import query_mount
from railwright.benchmarks.job import Case, Launch
from railwright.benchmarks.together import open_on_all_ranks
from railwright.errors import CannotJudge

LAUNCH_VARIABLE = "RAILWRIGHT_SHARED_FOLDER"
"""The environment variable with the launch's token, by which ranks and the parent know their folder."""
_PREFIX = ".railwright-shared-"
_NAME = re.compile(r"\.railwright-shared-(?P<host>[A-Za-z0-9._-]{1,200}?)-(?P<pid>\d{1,10})-[0-9a-f]{16}")
_FILE = re.compile(r"f\d{1,12}")
_STOPPING_S, _TICK_S = 5.0, 0.05
_RANK = re.compile(r"rank\d{1,9}")


def _host_label() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", platform.node())[:200] or "host"


@contextlib.contextmanager
def shared_folder(rank: AnyRank, directory: str) -> Iterator[int]:
    """Open this rank's own folder inside the one that rank 0 makes and removes. Collective.

    Raises CannotJudge on all ranks if one of them cannot make its folder, or does not see rank 0's: then the mount is
    not shared.
    """
    name = rank.comm.bcast(f"{_PREFIX}{_host_label()}-{os.getpid()}-{os.environ[LAUNCH_VARIABLE]}")
    top = Path(directory, name)
    made: list[Path] = []
    try:
        open_on_all_ranks(rank, lambda: _make_top(top, made) if rank.index == 0 else top)
        fd = open_on_all_ranks(rank, lambda: _make_rank_folder(top / f"rank{rank.index}", top, made))
        try:
            yield fd
        finally:
            os.close(fd)
        _remove_rank_folder(made[-1])
        rank.comm.Barrier()
    finally:  # after an error do not wait for ranks that may be gone
        _remove(top, made)


def _make_top(top: Path, made: list[Path]) -> Path:
    sweep(str(top.parent))
    return _make_folder(top, made)


def _make_folder(folder: Path, made: list[Path]) -> Path:
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise CannotJudge(
            f"cannot make a folder in {folder.parent}: {error.strerror}", hint="choose another directory=..."
        ) from error
    made.append(folder)
    return folder


def _make_rank_folder(own: Path, top: Path, made: list[Path]) -> int:
    if not top.is_dir():
        raise CannotJudge(f"{top.parent} is not shared: {platform.node()} does not see the first rank's folder there",
                          hint="mount the same file system on every host")  # fmt: skip
    _make_folder(own, made)
    try:
        return os.open(own, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CannotJudge(f"{own} cannot be opened: {error.strerror}") from error


def _remove(top: Path, made: list[Path]) -> None:
    """Remove the folders that this rank made; rank 0 also removes those of ranks that are about to stop."""
    for folder in made:
        if folder != top:
            _remove_rank_folder(folder)
    if top in made:
        _remove_stopping(top)


def _remove_stopping(top: Path) -> None:
    """Remove the folder, and retry while ranks are still stopping."""
    deadline = time.monotonic() + _STOPPING_S
    while not _remove_tree(top) and time.monotonic() < deadline:
        time.sleep(_TICK_S)


def _remove_tree(top: Path) -> bool:
    """Remove the folder's tree and report whether it is gone."""
    with contextlib.suppress(OSError):
        for folder in top.iterdir():
            if _RANK.fullmatch(folder.name):
                _remove_rank_folder(folder)
        top.rmdir()
    return not top.exists()


def _remove_rank_folder(folder: Path) -> None:
    """Remove the files that have the benchmark's names, and then the folder unless it has others."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _FILE.fullmatch(path.name):
                path.unlink(missing_ok=True)
        folder.rmdir()


def remove_folder(directory: str, token: str) -> None:
    """Remove the folder of a launch whose ranks are gone."""
    with contextlib.suppress(OSError):
        for path in Path(directory).glob(f"{_PREFIX}*-{token}"):
            if _NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                _remove_stopping(path)


def remove_launch_folder(directory: str, launch: Launch[Case]) -> None:
    """Remove a launch's folder in the parent, wherever the ranks ran; does nothing if this host's mount stalls."""
    with contextlib.suppress(CannotJudge):
        query_mount(directory, lambda: remove_folder(directory, launch.environment.get(LAUNCH_VARIABLE, "")))


def sweep(directory: str) -> None:
    """Remove this user's folders of runs whose first rank ran on this host and no longer exists."""
    with contextlib.suppress(OSError):
        for path in Path(directory).glob(f"{_PREFIX}*"):
            name = _NAME.fullmatch(path.name)
            if name is None or name["host"] != _host_label() or Path("/proc", name["pid"]).exists():
                continue
            found = path.lstat()
            if not path.is_symlink() and path.is_dir() and found.st_uid == os.geteuid():
                _remove_tree(path)
