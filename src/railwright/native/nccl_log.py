"""NCCL's log of its start and its choices, enabled for untimed work and disabled before anything is timed.

NCCL reads NCCL_DEBUG once per process. Since 2.24 it exports a function that makes it read the variable again (see
`nccl_library.SWITCHED_LOG`), so the timed communicator itself reports its choice, and no timed operation writes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from railwright.native.library import environment, flush_c_streams
from railwright.native.nccl_library import SWITCHED_LOG, Library

CHOICES = "TUNING"
CONNECTIONS = "INIT,ENV,GRAPH,NET,P2P,SHM"
"""The subsystems whose messages tell how ranks are connected."""

_FILE_VARIABLE = "NCCL_DEBUG_FILE"
_MOST_BYTES = 1 << 20


class SwitchedLog:
    """The log of this process in a file of `folder`; `problem` is the reason why there is none, or empty."""

    def __init__(self, library: Library, folder: Path, rank: int) -> None:
        self._library = library
        self._file = folder / f"nccl-{rank}.log"
        self.problem = ""
        if not library.has(SWITCHED_LOG):
            self.problem = f"NCCL {library.version} cannot enable its log while it runs"
        elif _FILE_VARIABLE in os.environ:
            self.problem = f"{_FILE_VARIABLE} is set, so the log belongs to the user"
        elif "%" in str(self._file):
            self.problem = "the folder for NCCL's log must not have a % in its name, which NCCL replaces"

    @contextlib.contextmanager
    def written(self, subsystems: str = CHOICES) -> Iterator[None]:
        """Log what NCCL does within the context. Restores the variables afterwards."""
        if self.problem:
            yield
            return
        ours = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": subsystems, _FILE_VARIABLE: str(self._file)}
        try:
            with environment(ours):
                self._library.read_environment_again()
                yield
        finally:
            self._library.read_environment_again()

    def text(self) -> str:
        """Return the text of the last log, at most 1 MiB."""
        flush_c_streams()
        try:
            with self._file.open("rb") as file:
                return file.read(_MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
