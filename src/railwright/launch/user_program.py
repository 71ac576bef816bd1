"""A rank that is a user's program: `python -m railwright.launch.user_program START`, where START is JSON.

The program runs in a new folder with its input files, on whatever host the launcher started this. Files that it wrote
its output to are printed at its end, and the folder is removed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from railwright.benchmarks.host_name import host_name
from railwright.installation import PYTHON
from railwright.process import die_with_parent
from railwright.writing import write_file

PROGRAM = (*PYTHON, "-m", "railwright.launch.user_program")
_MAX_OUTPUT_BYTES = 16 * 2**20
_CANNOT_START = 127


class Start(msgspec.Struct, frozen=True):
    """A program, its input files by name, and the files that it may write instead of standard output."""

    argv: tuple[str, ...]
    files: dict[str, str]
    outputs: tuple[str, ...]


def command(start: Start) -> list[str]:
    """Return the command line of a rank."""
    return [*PROGRAM, msgspec.json.encode(start).decode()]


def main(text: str) -> int:
    """Run the program and return its exit status. Ends by the program's own signal if one ended it."""
    start = msgspec.json.decode(text, type=Start)
    die_with_parent()
    with tempfile.TemporaryDirectory(prefix="railwright-program-") as folder:
        for name, content in start.files.items():
            write_file(Path(folder) / name, content)
        try:
            # A launcher hands descriptors to its ranks, so the program inherits them.
            child = subprocess.Popen(start.argv, cwd=folder, close_fds=False, preexec_fn=die_with_parent)
        except OSError as error:
            sys.stderr.write(f"{host_name()}: {start.argv[0]} cannot be started: {error.strerror}\n")
            return _CANNOT_START
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _frame: child.send_signal(number))
        status = child.wait()
        for name in start.outputs:
            _print_file(Path(folder) / name)
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _print_file(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("rb") as file:
        sys.stdout.buffer.write(file.read(_MAX_OUTPUT_BYTES))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
