"""One host proves itself and sends its records: `python -m railwright.launch.screened prove WORD ...`.

It is started on each host by ssh or its like, and prints marked lines: where it is, every few seconds, and the records
at the end, packed. Whoever reads them is gone when they cannot be written, and then the measuring ends, too.
"""

from __future__ import annotations

import base64
import binascii
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from railwright.errors import UsageError
from railwright.launch.scratch import scratch_folder
from railwright.process import Child

_MARK = "railwright-records:"
_STEP = "railwright-step:"
_LINE = 3000
MOST_LINES = 40_000
_MOST_BYTES = 512 * 2**20
_BEAT_S = 2.0
RESULTS = "results.jsonl"


def lines_of(records: bytes) -> Iterator[str]:
    """The lines, each shorter than `process` keeps."""
    packed = base64.b64encode(zlib.compress(records, 6)).decode("ascii")
    for start in range(0, len(packed), _LINE):
        yield f"{_MARK}{packed[start : start + _LINE]}"
    yield f"{_MARK}."


def records_of(lines: Iterable[str]) -> bytes:
    """The records that a host sent. Raises UsageError for what no host sends."""
    said = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    if not said or said[-1] != ".":
        raise UsageError("its records were cut off" if said else "it sent no records")
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(base64.b64decode("".join(said[:-1]), validate=True), _MOST_BYTES)
    except (zlib.error, binascii.Error, ValueError) as error:
        raise UsageError("its records are damaged") from error
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise UsageError(f"its records are not whole, or larger than {_MOST_BYTES // 2**20} MiB")
    return found


def step_of(line: str) -> str:
    """Where the host says that it is; empty for other lines."""
    return line.removeprefix(_STEP) if line.startswith(_STEP) else ""


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure, and print the records; exit status that of the verb, or 2 without any."""
    words = sys.argv[1:]
    with scratch_folder() as scratch:
        folder = scratch / "out"
        argv = [sys.executable, "-P", "-m", "railwright", *words, "-O", str(folder)]
        try:
            with Child(argv, folder=Path("/")) as child:
                while child.poll() is None:
                    time.sleep(_BEAT_S)
                    _say(_STEP + (child.output[-1][:200] if child.output else ""))
                finished = child.wait(1.0)
            results = folder / RESULTS
            if not results.exists():
                said = next((line for line in finished.output if line.startswith("railwright: ")), finished.describe())
                _say(said.removeprefix("railwright: "))
                sys.exit(2)
            for line in lines_of(results.read_bytes()):
                _say(line)
            sys.exit(finished.returncode)
        except BrokenPipeError:
            sys.exit(2)


if __name__ == "__main__":
    main()
