"""Notes on the shape of a table's curve: where it falls, where it ends, and the slow sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from railwright.diagnosis.verdicts.call_time import CallTime
from railwright.diagnosis.verdicts.judged import Judged
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.readers.pasted.log_lines import ENDED_BY_ERROR, ENDS_INSIDE
from railwright.results.records import find_size
from railwright.units import format_bandwidth, format_duration, format_size

_FALL_FACTOR = 2.0
"""A rate lower by this factor at a larger size is not noise."""
_LARGE = 16 * 1024 * 1024
_PLACEMENT_FACTOR = 1.25
_FLAT_SHARE = 0.95
_MIN_FLAT_SIZES = 4
"""The minimum number of sizes, each twice the previous: one rate over eight times the bytes is not by chance."""
_ENOUGH = 64 * 1024
"""Below this size the call determines the rate, and its variation means little."""


class Fall(NamedTuple):
    """A size that is much slower than the previous smaller size."""

    size_bytes: int
    before_bytes: int
    factor: float
    lasts: bool
    """Whether no larger size recovers the previous rate."""


def find_fall(rows: Sequence[Judged]) -> Fall | None:
    """Return the largest fall between two consecutive sizes; None if there is none."""
    rates = sorted(best_rates(rows).items())
    found = []
    for place, ((before, high), (size, low)) in enumerate(pairwise(rates)):
        if size >= _ENOUGH // 4 and high >= _FALL_FACTOR * low:
            rest = [rate for _, rate in rates[place + 1 :]]
            found.append(Fall(size, before, high / low, lasts=max(rest) < high))
    return max(found, key=lambda fall: fall.factor, default=None)


_SURELY_ABOVE = 1.05
_FALL = (
    "NCCL and MPI change algorithm or protocol at some size, and a slow link alone does not make a larger size slower"
    " than a smaller one"
)
_FALL_OF_FILES = (
    "a cache filled up there, or larger requests are split differently: drives are fastest with large requests"
)
_BETWEEN_GPUS = re.compile(r"gpu\d+>gpu\d+")
_MAX_PAIRS = 6


def best_rates(rows: Sequence[Judged]) -> dict[int, float]:
    """Map each size to the rate of the better placement, in bytes/s."""
    best: dict[int, float] = {}
    for row in rows:
        size = find_size(row.parameters)
        if size and row.value and row.quantity == "bandwidth_bytes_per_s":
            best[size] = max(best.get(size, 0.0), row.value)
    return best


def shape_notes(rows: Sequence[Judged], call: CallTime | None, *, of_files: bool = False) -> tuple[str, ...]:
    """Return sentences for the notes, the most significant first; `call` explains all slow sizes by a fixed time."""
    notes = []
    if of_files and any((row.fraction_of_limit or 0.0) > _SURELY_ABOVE for row in rows):
        notes.append(
            "no drive exceeds its limit: the data came from memory (the page cache, a cache of the storage), or there"
            " are more or faster drives than given"
        )
    if call is not None:
        span = f"from {format_size(call.first_bytes)} to {format_size(call.last_bytes)}"
        notes.append(
            f"{span} each call takes up to {format_duration(call.extra_s)} more than expected, regardless of size: the"
            " call is slow (launch, plug-in, CPU), not a link"
        )
    fall = find_fall(rows)
    if fall is not None:
        word = "collapses" if fall.lasts else "dips"
        notes.append(
            f"the rate {word} at {format_size(fall.size_bytes)}: 1/{fall.factor:.1f} of that at"
            f" {format_size(fall.before_bytes)}; {_FALL_OF_FILES if of_files else _FALL}"
        )
    slow = sorted({find_size(row.parameters) or 0 for row in rows if row.verdict.state == "slow"})
    judged = sorted({find_size(row.parameters) or 0 for row in rows if row.verdict.state in ("slow", "ok")})
    if slow and slow != judged and slow[-1] < judged[-1]:
        normal = next(size for size in judged if size > slow[-1])
        notes.append(
            f"slow from {format_size(slow[0])} to {format_size(slow[-1])}; normal from {format_size(normal)} on"
        )
    notes += _describe_doubts(rows)
    notes += [
        note for note in (_compare_placements(rows), _describe_plateau(rows, fall), _note_faster_pairs(rows)) if note
    ]
    return tuple(notes)


def _describe_doubts(rows: Sequence[Judged]) -> list[str]:
    """Report the sizes that are below their band for a reason that healthy machines have too, and are never slow."""
    doubted: dict[str, list[int]] = {}
    every = sorted({find_size(row.parameters) or 0 for row in rows})
    slow = {find_size(row.parameters) for row in rows if row.verdict.state == "slow"}
    for row in rows:
        size, (_, _, reason) = find_size(row.parameters), row.verdict.why.partition(", but ")
        is_doubted = row.verdict.state == "unknown" and size not in slow
        if size and is_doubted and reason and any(other.verdict.state == "ok" for other in rows):
            doubted.setdefault(reason, []).append(size)
    return [f"{_format_spans(sizes, every)}: low, but {why}" for why, sizes in doubted.items()]


def _format_spans(sizes: Sequence[int], every: Sequence[int]) -> str:
    """Format sizes as `16 MiB, 64 MiB to 1 GiB`: a span has all sizes of the table in between."""
    spans: list[list[int]] = []
    for size in sorted(set(sizes)):
        if spans and every.index(size) == every.index(spans[-1][-1]) + 1:
            spans[-1].append(size)
        else:
            spans.append([size])
    ends = ([format_size(size) for size in dict.fromkeys((span[0], span[-1]))] for span in spans)
    return ", ".join(map(" to ".join, ends))


def _compare_placements(rows: Sequence[Judged]) -> str:
    """Report a placement that is much faster at large sizes, as with an unregistered or too small buffer."""
    rates: dict[int, dict[str, float]] = {}
    for row in rows:
        size, placement = find_size(row.parameters) or 0, row.parameters.get("placement")
        if size >= _LARGE and row.value and isinstance(placement, str):
            rates.setdefault(size, {})[placement] = row.value
    pairs = {size: found for size, found in rates.items() if len(found) > 1}
    apart = [size for size, found in pairs.items() if max(found.values()) > _PLACEMENT_FACTOR * min(found.values())]
    if len(apart) < 2 or len(apart) * 2 < len(pairs):
        return ""
    last = pairs[max(apart)]
    fast, slow = (pick(last, key=last.__getitem__).replace("_", " ") for pick in (max, min))
    factor = max(last.values()) / min(last.values())
    return f"at large sizes {fast} is {factor:.1f} times as fast as {slow}: the two differ only in their buffers"


def _note_faster_pairs(rows: Sequence[Judged]) -> str:
    """Report GPU pairs that are faster than the links between them on the given machine."""
    above = [row.path for row in rows if (row.fraction_of_limit or 0.0) > _SURELY_ABOVE]
    pairs = list(dict.fromkeys(path for path in above if _BETWEEN_GPUS.fullmatch(path)))
    if not pairs:
        return ""
    more = f" and {len(pairs) - _MAX_PAIRS} more" if len(pairs) > _MAX_PAIRS else ""
    return (
        f"{', '.join(pairs[:_MAX_PAIRS])}{more} are faster than their links on the given machine: its GPUs may be"
        " numbered differently; give the output of nvidia-smi topo -m as --host FILE"
    )


def _describe_plateau(rows: Sequence[Judged], fall: Fall | None) -> str:
    """Report a slow rate that stays constant over the largest sizes, which is the rate of the narrowest link."""
    rates = sorted(best_rates(rows).items())
    slow = {find_size(row.parameters) for row in rows if row.verdict.state == "slow"}
    top = max((rate for _, rate in rates), default=0.0)
    flat = [size for size, rate in rates if rate >= _FLAT_SHARE * top]
    steady = len(flat) >= _MIN_FLAT_SIZES and flat == [size for size, _ in rates[-len(flat) :]]
    if fall is not None or not steady or flat[-1] not in slow:
        return ""
    return (
        f"from {format_size(flat[0])} on the rate stays at {format_bandwidth(top)}, regardless of size: the rate of the"
        " narrowest link on the path"
    )


def missing_sizes(file: ForeignFile) -> tuple[str, ...]:
    """Report sizes missing from the text: not measured although requested, cut off in a row, or lost to an error."""
    found = _find_unmeasured_sizes(file)
    if found is None and any(note.startswith(ENDS_INSIDE) for note in file.notes):
        found = "the text ends inside a row: it was cut off there, and the rest is unknown"
    if found is None:
        found = next((note for note in file.notes if note.startswith(ENDED_BY_ERROR)), None)
    return () if found is None else (found,)


def _find_unmeasured_sizes(file: ForeignFile) -> str | None:
    settings = file.results[0].settings if file.results else {}
    last = settings.get("last_size_bytes")
    factor, step = settings.get("step_factor"), settings.get("step_bytes")
    largest = max((find_size(result.parameters) or 0 for result in file.results), default=0)
    if not isinstance(last, int) or largest <= 0:
        return None
    following = largest * factor if isinstance(factor, int) and factor > 1 else None
    if following is None and isinstance(step, int) and step > 0:
        following = largest + step
    if following is None or following > last:
        return None
    end = format_size(largest)
    return f"the run was configured up to {format_size(last)}, but the text ends at {end}: it was cut off or died"
