"""A machine's topology as lines of text for another machine: `python -m railwright.topology.sources.sent`.

JSON, packed by zlib, as base64 in lines with a marker, because a login shell may print lines of its own.
"""

from __future__ import annotations

import base64
import binascii
import sys
import zlib
from collections.abc import Iterable, Iterator

from railwright.errors import UsageError
from railwright.topology.devices import Topology
from railwright.topology.sources.look import look_with_tools
from railwright.topology.sources.saved import decode_topology, encode_topology

_MARKER = "railwright-topology:"
_LINE_CHARACTERS = 3000
_MAX_BYTES = 32 * 2**20


def encode_lines(topology: Topology) -> Iterator[str]:
    """Yield the lines, each shorter than the limit of `process`."""
    packed = base64.b64encode(zlib.compress(encode_topology(topology), 9)).decode("ascii")
    for start in range(0, len(packed), _LINE_CHARACTERS):
        yield f"{_MARKER}{packed[start : start + _LINE_CHARACTERS]}"
    yield f"{_MARKER}."


def decode_lines(lines: Iterable[str]) -> Topology:
    """Decode the topology that a machine sent. Raises UsageError for other lines."""
    packed = [line.removeprefix(_MARKER) for line in lines if line.startswith(_MARKER)]
    if not packed or packed[-1] != ".":
        raise UsageError("its answer was cut off" if packed else "it sent no topology", hint="update railwright there")
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(base64.b64decode("".join(packed[:-1]), validate=True), _MAX_BYTES)
    except (zlib.error, binascii.Error, ValueError) as error:
        raise UsageError("its answer is damaged", hint="ask it again") from error
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise UsageError(f"its answer is not whole, or larger than {_MAX_BYTES // 2**20} MiB", hint="ask it again")
    return decode_topology(raw, "its answer")


def main() -> None:
    """Print the topology of this machine."""
    for line in encode_lines(look_with_tools()):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
