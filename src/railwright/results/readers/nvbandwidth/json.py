"""Reader of the JSON of `nvbandwidth -j`: converts its matrices of strings to the lines of its text output."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from railwright.results.readers.foreign_file import decode_embedded_json

_MOST_CASES, _WIDEST = 200, 512
_WORD = 200


class _Case(msgspec.Struct):
    name: str
    matrix: list[list[str]] = msgspec.field(name="bandwidth_matrix", default_factory=list)
    description: str = msgspec.field(name="bandwidth_description", default="")
    total: float | None = msgspec.field(name="sum", default=None)


class _Body(msgspec.Struct):
    cases: list[_Case] = msgspec.field(name="testcases")
    devices: list[str] = msgspec.field(name="GPU Device list", default_factory=list)
    version: str = ""
    git_version: str = ""


class _File(msgspec.Struct):
    body: _Body = msgspec.field(name="nvbandwidth")


def recognises(text: str) -> bool:
    """Report whether the text has the keys of nvbandwidth's JSON."""
    return '"nvbandwidth"' in text and '"bandwidth_matrix"' in text


def print_matrices(text: str) -> str:
    """Convert the JSON to the text that nvbandwidth prints without `-j`. Raises UsageError for any other text."""
    file = decode_embedded_json(text, _File, "JSON file of nvbandwidth", "give the whole output of nvbandwidth -j")
    return "\n".join(_lines(file.body))


def _lines(body: _Body) -> Iterator[str]:
    yield f"nvbandwidth Version: {(body.version or body.git_version)[:_WORD]}"
    yield from (f"Device {device[:_WORD]}" for device in body.devices[:_WIDEST])
    for case in body.cases[:_MOST_CASES]:
        if not case.matrix or "GB/s" not in case.description:  # a test that did not run, or a latency
            continue
        yield f"Running {case.name[:_WORD]}."
        yield case.description[:_WORD]
        yield " ".join(str(number) for number in range(len(case.matrix[0][:_WIDEST])))
        for number, row in enumerate(case.matrix[:_WIDEST]):
            yield " ".join([str(number), *(cell.strip()[:24] for cell in row[:_WIDEST])])
        if case.total is not None:
            yield f"SUM {case.name[:_WORD]} {case.total:.2f}"
