"""NCCL's own log of what it chose, switched on for untimed operations and off again before anything is timed.

NCCL reads NCCL_DEBUG once in a process. From 2.24 on it exports a function that makes it read it again (see
`nccl_library.SWITCHED_LOG`), so the very communicator that is timed tells its choice, and no timed operation writes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from railwright.native.library import environment, flush_c_streams
from railwright.native.nccl_library import SWITCHED_LOG, Library

_FILE_VARIABLE = "NCCL_DEBUG_FILE"
_MOST_BYTES = 1 << 20


class SwitchedLog:
    """The log of this process in a file of `folder`; `problem` says why there can be none, empty where there can."""

    def __init__(self, library: Library, folder: Path, rank: int) -> None:
        self._library = library
        self._file = folder / f"nccl-{rank}.log"
        self.problem = ""
        if not library.has(SWITCHED_LOG):
            self.problem = f"NCCL {library.version} cannot switch its log on while it runs"
        elif _FILE_VARIABLE in os.environ:
            self.problem = f"{_FILE_VARIABLE} is set: the log is yours"
        elif "%" in str(self._file):
            self.problem = "the folder for NCCL's log has a % in its name, which NCCL replaces"

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """What NCCL enqueues inside is logged; the variables are as before afterwards."""
        if self.problem:
            yield
            return
        ours = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "TUNING", _FILE_VARIABLE: str(self._file)}
        try:
            with environment(ours):
                self._library.read_environment_again()
                yield
        finally:
            self._library.read_environment_again()

    def text(self) -> str:
        """What was written the last time, at most 1 MiB of it."""
        flush_c_streams()
        try:
            with self._file.open("rb") as file:
                return file.read(_MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
