"""One host proves itself and sends its records: `python -m railwright.run.screened prove WORD ...`.

It is started on each host by ssh or its like, and prints where it is, every few seconds, and the records as they come,
in frames. Whoever reads them is gone when they cannot be written, and then the measuring ends, too.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from railwright.launch.followed import Followed
from railwright.launch.frames import FrameWriter
from railwright.launch.scratch import scratch_folder
from railwright.process import Child

_STEP = "railwright-step:"
_BEAT_S = 2.0
RESULTS = "results.jsonl"


def step_of(line: str) -> str:
    """Where the host says that it is; empty for other lines."""
    return line.removeprefix(_STEP) if line.startswith(_STEP) else ""


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure, and print the records; exit status that of the verb, or 2 without any."""
    with scratch_folder() as scratch:
        folder = scratch / "out"
        argv = [sys.executable, "-P", "-m", "railwright", *sys.argv[1:], "-O", str(folder)]
        followed, writer = Followed(folder), FrameWriter()
        try:
            with Child(argv, folder=Path("/")) as child:
                while child.poll() is None:
                    time.sleep(_BEAT_S)
                    _say(_STEP + (child.output[-1][:200] if child.output else ""))
                    _send(followed, writer)
                finished = child.wait(1.0)
            if not (folder / RESULTS).exists():
                said = next((line for line in finished.output if line.startswith("railwright: ")), finished.describe())
                _say(said.removeprefix("railwright: "))
                sys.exit(2)
            _send(followed, writer)
            for line in writer.end(finished.returncode):
                _say(line)
            sys.exit(finished.returncode)
        except BrokenPipeError:
            sys.exit(2)


def _send(followed: Followed, writer: FrameWriter) -> None:
    for name, record in followed.records():
        for line in writer.lines(name, record):
            _say(line)


if __name__ == "__main__":
    main()
