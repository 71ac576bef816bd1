r"""Reader of two of NVIDIA's CUDA samples: p2pBandwidthLatencyTest, with a matrix per direction, and bandwidthTest.

    Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
       D\D     0      1
         0 2488.54 385.53
         1 386.11  2492.10

     Host to Device Bandwidth, 1 Device(s)
     PINNED Memory Transfers
       Transfer Size (Bytes)	Bandwidth(GB/s)
       32000000			55.2

A bidirectional rate is a sum, of which half is taken. GB/s is 10^9 bytes/s. The MB/s of older versions of bandwidthTest
is 2^20 bytes/s (its source). Copies inside one GPU and latencies are skipped, because no limit applies to them.
"""

from __future__ import annotations

import re

import msgspec

from railwright.results.readers.foreign_file import Draft, ForeignFile, bandwidth, collect_files
from railwright.results.readers.pasted.log_lines import Line, group_by_origin, last_row, refusal, row_ends, split_lines
from railwright.results.readers.pasted.printed_numbers import number
from railwright.results.workload import Copy
from railwright.topology.devices import Scalar

_MATRIX = re.compile(
    r"(?:(Unidirectional|Bidirectional) )?P2P=(Enabled|Disabled) (Bandwidth|Latency)"
    r"(?: \(P2P (Writes|Reads)\))? Matrix \((GB/s|us)\)"
)
_BUS_GRIND = re.compile(
    r"P2P (Bandwidth|Latency) Matrix \((?:GB/s|us)\) - (?:(Unidirectional|Bidirectional), )?P2P=(Enabled|Disabled)"
)
"""The headings of the matrices of simpleP2P and busGrind, which are older."""
_TO_HOST = re.compile(r"(Concurrent )?Host/Device Bandwidth Matrix \(GB/s\), memory=(\w{1,16})")
"""The heading of busGrind's matrices of the copies between the host and each GPU, or all GPUs at once."""
_HOST_ROWS = {"H2D": ("host_to_device", 1e9), "D2H": ("device_to_host", 1e9), "BiDir": ("host_bidirectional", 0.5e9)}
"""The test of each row, and its bytes/s: both directions at once are a sum."""
_LINE = re.compile(
    r"bandwidthTest-(H2D|D2H|D2D)(?:-(Pinned|Paged))?, Bandwidth = ([\d.]{1,16}) ([GM]B)/s, Time = [\d.]{1,16} s,"
    r" Size = (\d{1,16}) bytes, NumDevsUsed = (\d{1,4})"
)
"""The output of bandwidthTest --csv and of its mode with many sizes."""
_DEVICE = re.compile(r"Device: ?\d{1,3}, (\S.{0,60}?), pciBusID|^ ?Device \d{1,3}: (\S.{0,60}?)\s*$")
_WAY = re.compile(r"(Host|Device) to (Host|Device) Bandwidth, (\d{1,3}) Device\(s\)")
_KIND = re.compile(r"(PINNED|PAGEABLE) Memory Transfers")
_UNIT = re.compile(r"Transfer Size \(Bytes\)\s+Bandwidth\(([GM]B)/s\)")
_UNIT_BYTES = {"GB": 1e9, "MB": 2.0**20}
_MIN_PEER_SHARE = 0.8
"""Our choice: a note reports peers that reach less than this share of the rate through the host."""


class _Copies(msgspec.Struct, kw_only=True):
    """The state that the lines above a row set."""

    test: str = ""
    settings: dict[str, Scalar] = {}
    columns: list[str] = []
    source: str = ""
    target: str = ""
    devices: int = 1
    unit: str = ""


def recognises(text: str) -> bool:
    """Report whether the text has the heading of a matrix or of a copy direction."""
    if "Host/Device Bandwidth Matrix" in text and _TO_HOST.search(text) is not None:
        return True
    if "P2P=" in text and any(pattern.search(text) is not None for pattern in (_MATRIX, _BUS_GRIND)):
        return True
    if "bandwidthTest-" in text and _LINE.search(text) is not None:
        return True
    return "Memory Transfers" in text and _WAY.search(text) is not None and _UNIT.search(text) is not None


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read the lines of each origin as a run. Raises UsageError for a matrix whose rows and header differ in width."""
    return collect_files(
        map(_read_run, group_by_origin(split_lines(text))),
        "the output of p2pBandwidthLatencyTest or bandwidthTest must contain a value, got none",
        "give the output from its first heading on",
    )


def _read_run(lines: list[Line]) -> Draft:
    draft = Draft(
        tool="CUDA samples", test="bandwidthTest", workload=Copy(), last_line=last_row(lines), row_ends=row_ends(lines)
    )
    draft.notes.append("the data was not checked")
    gpus: dict[str, None] = {}
    seen = _Copies()
    for line in lines:
        words = line.text.split()
        if matrix := _parse_heading(line.text):
            draft.test, seen = "busGrind" if "host" in matrix.settings else "p2pBandwidthLatencyTest", matrix
        elif found := _LINE.search(line.text):
            _add_csv_line(draft, found, line.number)
        elif found := _DEVICE.search(line.text):
            gpus.setdefault(found[1] or found[2])
        elif found := _WAY.search(line.text):
            seen = _begin_direction(found[1], found[2], int(found[3]))
        elif found := _KIND.search(line.text):
            seen.settings["host"] = found[1].lower()
        elif found := _UNIT.search(line.text):
            seen.unit = found[1]
        elif words and words[0] in ("D\\D", "Dir\\D"):
            seen.columns = words[1:]
        elif seen.columns and words and (words[0].isdecimal() or words[0] in _HOST_ROWS):
            _read_row(draft, seen, words, line.number)
        elif seen.unit and len(words) == 2 and words[0].isdecimal():
            _add_transfer(draft, seen, words, line.number)
        elif words:
            seen.columns = []
    draft.gpus = tuple(gpus)
    draft.notes += _slower_peers(draft)
    return draft


def _parse_heading(text: str) -> _Copies | None:
    """Parse the heading of a matrix. For latencies the columns stay empty, so that no row is read."""
    if found := _TO_HOST.search(text):
        return _Copies(test="concurrent" if found[1] else "alone", settings={"host": found[2].lower()})
    if found := _MATRIX.search(text):
        both, enabled, what, how, _ = found.groups()
    elif found := _BUS_GRIND.search(text):
        what, both, enabled, how = *found.groups(), None
    else:
        return None
    if what != "Bandwidth":
        return _Copies()
    way = "read" if how == "Reads" else "write"
    ways = "bidirectional_" if both == "Bidirectional" else ""
    settings: dict[str, Scalar] = {"direction": "both" if ways else "one", "peer_access": enabled == "Enabled"}
    return _Copies(test=f"device_to_device_{ways}{way}", settings=settings)


def _begin_direction(begin: str, end: str, devices: int) -> _Copies:
    source, target = ("memory0" if one == "Host" else "gpu0" for one in (begin, end))
    test = f"{begin.lower()}_to_{end.lower()}"
    return _Copies(test=test, settings={"direction": "one"}, source=source, target=target, devices=max(1, devices))


def _add_csv_line(draft: Draft, found: re.Match[str], line: int) -> None:
    """Add a size in one direction. A copy inside a GPU counts bytes read and bytes written, and has no path."""
    way, memory, rate, unit, size, devices = found.groups()
    if way == "D2D":
        printed = number(rate, "bandwidth", line)
        if printed.value > 0:
            value = bandwidth(printed, _UNIT_BYTES[unit] / 2, f"{unit}/s")
            draft.add(line, [value], {"test": "device_local_copy", "size_bytes": int(size)})
        return
    ends = {"H": "Host", "D": "Device"}
    seen = _begin_direction(ends[way[0]], ends[way[2]], int(devices))
    seen.unit = unit
    seen.settings["host"] = "pageable" if memory == "Paged" else "pinned"
    _add_transfer(draft, seen, [size, rate], line)


def _read_row(draft: Draft, seen: _Copies, words: list[str], line: int) -> None:
    if words[0] in _HOST_ROWS:
        _read_host_row(draft, seen, words, line)
        return
    if not seen.test and (line != draft.last_line or len(words) > len(seen.columns)):
        return
    for column, word in draft.cells_of_matrix(seen.columns, words, line):
        printed = number(word, "bandwidth", line)
        if column == words[0] or printed.value <= 0:
            continue
        if not column.isdecimal():
            raise refusal(line, f"column must be a GPU number, got {column[:20]!r}")
        path = f"gpu{int(words[0])}>gpu{int(column)}"
        value = bandwidth(printed, 0.5e9 if seen.settings["direction"] == "both" else 1e9, "GB/s")
        which = seen.test if seen.settings["peer_access"] else f"{seen.test}_through_host"
        draft.add(line, [value], {"test": which, "copy": path}, seen.settings, path=path)


def _read_host_row(draft: Draft, seen: _Copies, words: list[str], line: int) -> None:
    """Add the copies between the host and each GPU. Those of all GPUs at once share links, so they have no path."""
    test, scale = _HOST_ROWS[words[0]]
    at_once = "concurrent_" if seen.test == "concurrent" else ""
    for column, word in zip(seen.columns, words[1:], strict=False):
        printed = number(word, "bandwidth", line)
        if not column.isdecimal() or printed.value <= 0:
            continue
        ends = (f"gpu{int(column)}", "memory0") if words[0] == "D2H" else ("memory0", f"gpu{int(column)}")
        path = ">".join(ends)
        settings = {**seen.settings, "direction": "both" if words[0] == "BiDir" else "one"}
        parameters: dict[str, Scalar] = {"test": f"{at_once}{test}", "copy": path}
        value = bandwidth(printed, scale, "GB/s")
        draft.add(line, [value], parameters, settings, path="" if at_once else path)


def _add_transfer(draft: Draft, seen: _Copies, words: list[str], line: int) -> None:
    printed = number(words[1], "bandwidth", line)
    if seen.source == seen.target or printed.value <= 0:
        return
    if seen.devices > 1:
        seen.settings["added_gpus"] = seen.devices
    path = f"{seen.source}>{seen.target}"
    memory = "" if seen.settings.get("host") != "pageable" else "_pageable"
    parameters: dict[str, Scalar] = {"test": f"{seen.test}{memory}", "copy": path, "size_bytes": int(words[0])}
    value = bandwidth(printed, _UNIT_BYTES[seen.unit], f"{seen.unit}/s")
    draft.add(line, [value], parameters, seen.settings, path=path)


def _slower_peers(draft: Draft) -> list[str]:
    """Report peers that are slower than a copy through host memory."""
    best: dict[bool, float] = {}
    for result in draft.results:
        if str(result.parameters["test"]).startswith("device_to_device_write"):
            peers = result.settings["peer_access"] is True
            best[peers] = max(best.get(peers, 0.0), result.samples[0])
    if best.keys() != {True, False} or best[True] >= _MIN_PEER_SHARE * best[False]:
        return []
    rates = f"{best[True] / 1e9:.3g} and {best[False] / 1e9:.3g} GB/s at best"
    note = f"GPUs are slower with peer access than through host memory ({rates}): check ACS and the IOMMU"
    return [note]
