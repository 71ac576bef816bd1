"""Reader of perftest's `--out_json`: the options under `test_info`, and one size under `results`.

The file does not name the unit of its bandwidths. The unit is derived from messages x size.
"""

from __future__ import annotations

import re

import msgspec

from railwright.errors import UsageError
from railwright.results.readers.foreign_file import (
    Draft,
    ForeignFile,
    MeasuredValue,
    collect_files,
    decode_embedded_json,
)
from railwright.results.readers.pasted.printed_numbers import disagree
from railwright.results.workload import Message
from railwright.topology.devices import Scalar

_UNITS = {"Gb/sec": 1e9 / 8, "MiB/sec": 2.0**20}
_AGREEMENT = 0.01
_TEST = re.compile(r"(send|write|read|atomic)\w{0,16}[ _](bw|lat)", re.IGNORECASE)
_SETTINGS = {
    "Number_of_qps": "queue_pairs", "Mtu": "mtu_bytes", "Link_type": "link_type", "Device": "device",
    "Transport_type": "transport", "Connection_type": "connection", "TX_depth": "tx_depth", "GID_index": "gid_index",
}  # fmt: skip


class _Results(msgspec.Struct):
    size: int = msgspec.field(name="MsgSize")
    average: float = msgspec.field(name="BW_average")
    rate: float = msgspec.field(name="MsgRate")
    iterations: int = msgspec.field(name="n_iterations", default=0)
    peak: float = msgspec.field(name="BW_peak", default=0.0)


class _File(msgspec.Struct):
    results: _Results
    test_info: dict[str, str | int | float | bool | None] = {}


def recognises(text: str) -> bool:
    """Report whether the text has the keys of both parts."""
    return '"test_info"' in text and '"BW_average"' in text and '"MsgRate"' in text


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read the single size of a file. Raises UsageError if no known unit makes the rate agree with the messages."""
    file = decode_embedded_json(text, _File, "JSON file of perftest", "give the whole file of --out_json_file")
    found = _TEST.search(str(file.test_info.get("test", "")).replace("RDMA_", ""))
    draft = Draft(tool="perftest", test=f"ib_{found[1].lower()}_{found[2].lower()}" if found else "ib_bw", ranks=2)
    draft.notes.append("the data was not checked")
    both = "bidir" in str(file.test_info.get("test", "")).lower()
    draft.parameters["direction"] = "both" if both else "one"
    draft.workload = Message(by="verbs", one_sided="send" not in draft.test, both_ways=both)
    for key, name in _SETTINGS.items():
        value = file.test_info.get(key)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and len(str(value)) <= 32:
            draft.settings[name] = value
    result = file.results
    unit = next((unit for unit, scale in _UNITS.items() if _agrees(result, scale)), "")
    if not unit:
        raise UsageError(
            f"average {result.average} is not {result.rate} Mpps x {result.size} bytes in any unit of perftest",
            hint="give the file as perftest wrote it",
        )
    settings: dict[str, Scalar] = {"iterations": result.iterations}
    if result.peak > 0:
        settings["peak_bytes_per_s"] = result.peak * _UNITS[unit]
    values = [
        MeasuredValue("bandwidth_bytes_per_s", result.average * _UNITS[unit], f"{result.average} {unit}"),
        MeasuredValue("messages_per_s", result.rate * 1e6, f"{result.rate} Mpps"),
    ]
    draft.add(1, values, {"size_bytes": result.size}, settings)
    return collect_files(
        [draft], "perftest's file must contain a result, got none", "give the whole file of --out_json_file"
    )


def _agrees(result: _Results, scale: float) -> bool:
    printed, moved = result.average * scale, result.rate * 1e6 * result.size
    return printed > 0 and moved > 0 and not disagree(printed, moved, _AGREEMENT)
