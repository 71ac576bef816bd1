"""One host proves itself and sends its records: `python -m railwright.run.screened prove WORD ...`.

It is started on each host by ssh or its like, and prints marked lines: where it is, every few seconds, and the records
as they come, packed. Whoever reads them is gone when they cannot be written, and then the measuring ends, too.
"""

from __future__ import annotations

import base64
import binascii
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from railwright.launch.added_lines import added_lines
from railwright.launch.scratch import scratch_folder
from railwright.process import Child

_MARK = "railwright-records:"
_STEP = "railwright-step:"
_LINE_BYTES = 2250
"""Divisible by 3: 3,000 characters."""
MOST_LINES = 40_000
_MOST_BYTES = 512 * 2**20
_BEAT_S = 2.0
RESULTS = "results.jsonl"


class Packer:
    """Packs records line by line as they come, so that what was sent can be read whatever ends the rest."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(6)

    def lines(self, records: bytes) -> Iterator[str]:
        """The lines for some more, each shorter than `process` keeps."""
        yield from self._cut(self._packer.compress(records) + self._packer.flush(zlib.Z_SYNC_FLUSH))

    def end(self) -> Iterator[str]:
        """The last lines: without them the records are not whole."""
        yield from self._cut(self._packer.flush(zlib.Z_FINISH))
        yield f"{_MARK}."

    @staticmethod
    def _cut(packed: bytes) -> Iterator[str]:
        for start in range(0, len(packed), _LINE_BYTES):  # each line is whole base64 by itself
            yield _MARK + base64.b64encode(packed[start : start + _LINE_BYTES]).decode("ascii")


class Sent(NamedTuple):
    """What a host sent of its records."""

    records: bytes
    trouble: str = ""
    """Why they are not whole."""


def records_of(lines: Iterable[str]) -> Sent:
    """The records that a host sent, as far as they came, to the end of a line."""
    said = [line.removeprefix(_MARK) for line in filter(is_of_records, lines)]
    if not said:
        return Sent(b"", "it sent no records")
    is_whole = said[-1] == "."
    unpacker, found, trouble = zlib.decompressobj(), bytearray(), "" if is_whole else "its records were cut off"
    try:
        for line in said[: len(said) - is_whole]:
            found += unpacker.decompress(base64.b64decode(line, validate=True), _MOST_BYTES - len(found) + 1)
            if len(found) > _MOST_BYTES or unpacker.unconsumed_tail:
                trouble = f"its records are larger than {_MOST_BYTES // 2**20} MiB"
                break
    except (zlib.error, binascii.Error, ValueError):
        trouble = "its records are damaged"
    if is_whole and not trouble and not unpacker.eof:
        trouble = "its records are damaged"
    return Sent(bytes(found[: found.rfind(b"\n") + 1]), trouble)


def is_of_records(line: str) -> bool:
    """Whether a line that a host printed holds records."""
    return line.startswith(_MARK)


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
        results, packer, sent = folder / RESULTS, Packer(), 0
        try:
            with Child(argv, folder=Path("/")) as child:
                while child.poll() is None:
                    time.sleep(_BEAT_S)
                    _say(_STEP + (child.output[-1][:200] if child.output else ""))
                    sent = _send(packer, results, sent)
                finished = child.wait(1.0)
            if not results.exists():
                said = next((line for line in finished.output if line.startswith("railwright: ")), finished.describe())
                _say(said.removeprefix("railwright: "))
                sys.exit(2)
            _send(packer, results, sent)
            for line in packer.end():
                _say(line)
            sys.exit(finished.returncode)
        except BrokenPipeError:
            sys.exit(2)


def _send(packer: Packer, results: Path, sent: int) -> int:
    """Send the whole lines that were added since; how many bytes were sent by now."""
    try:
        added = added_lines(results, sent)
    except OSError:
        return sent
    if added:
        for line in packer.lines(added):
            _say(line)
    return sent + len(added)


if __name__ == "__main__":
    main()
