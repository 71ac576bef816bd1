"""The program that measures one host and sends its records: `python -m railwright.run.screened prove WORD ...`.

It is started on each host by ssh or a similar agent. Every few seconds it prints its step, and it prints the records as
frames as they come. A broken pipe means that the reader is gone, and ends the measurement.
"""

from __future__ import annotations

import sys
from pathlib import Path

from railwright.installation import PYTHON
from railwright.launch.followed import print_lines, send_records
from railwright.launch.frames import FrameWriter
from railwright.launch.scratch import scratch_folder
from railwright.process import Child

_STEP = "railwright-step:"
_BEAT_S = 2.0
RESULTS = "results.jsonl"


def parse_step(line: str) -> str | None:
    """Extract the step from a host's line of output; empty before the first step. None for other lines."""
    return line.removeprefix(_STEP) if line.startswith(_STEP) else None


def main() -> None:
    """Measure and print the records. Exits with the status of the verb, or with 2 if there are no records."""
    with scratch_folder() as scratch:
        folder, writer = scratch / "out", FrameWriter()
        argv = [*PYTHON, "-m", "railwright", *sys.argv[1:], "-O", str(folder)]
        try:
            with Child(argv, folder=Path("/")) as child:

                def tell() -> None:
                    print_lines([_STEP + (child.output[-1][:200] if child.output else "")])

                finished = send_records(child, folder, writer, _BEAT_S, tell)
            if (folder / RESULTS).exists():
                print_lines(writer.end(finished.returncode))
                sys.exit(finished.returncode)
            message = next((line for line in finished.output if line.startswith("railwright: ")), finished.describe())
            print_lines([message.removeprefix("railwright: ")])
            sys.exit(2)
        except BrokenPipeError:
            sys.exit(2)


if __name__ == "__main__":
    main()
