"""The limit of reads whose parts were measured alone in the same run: fetching and decoding of encoded data, and
reading ahead of a consumer.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.expected.baselines import Baselines
from railwright.limits.limit import Bounds, Expected, Limit
from railwright.limits.sources import SAME_RUN
from railwright.results.declarations import no_limit
from railwright.results.workload import Files
from railwright.units import format_bandwidth


def bound_fetch_and_decode(baselines: Baselines, workload: Files) -> Bounds:
    """Return the rate of the slower part as the limit. The band begins at the rate of both parts in turn, which a
    reader without overlap reaches.
    """
    fetch, decode = baselines.find("fetch", workload), baselines.find("decode", workload)
    if fetch is None or decode is None:
        missing = "fetching" if fetch is None else "decoding"
        return no_limit(workload, f"{missing} the same bytes alone was not measured in this run")
    encoded, memory = workload.encoded_bytes, workload.in_memory_bytes
    if encoded <= 0 or memory <= 0:
        return no_limit(workload, "the record lacks the numbers of bytes fetched and decoded")
    # Fetching counts encoded bytes, decoding counts bytes in memory: convert both to the workload's unit.
    unit_bytes = encoded if workload.bytes == "encoded" else memory
    fetched, decoded = unit_bytes / encoded, unit_bytes / memory
    slower, value = "fetching", fetched * fetch.best
    other = f"decoding alone {format_bandwidth(decoded * decode.fastest)}"
    if decoded * decode.best < value:
        slower, value = "decoding", decoded * decode.best
        other = f"fetching alone {format_bandwidth(fetched * fetch.fastest)}"
    limit = Limit(
        quantity=workload.quantity,
        value=value,
        kind="measured_ceiling",
        because=f"{slower} the same bytes alone, in this run ({other})",
        sources=(SAME_RUN,),
    )
    return limit, Expected(
        quantity=workload.quantity,
        low=_sequential_rate(fetched * fetch.fastest, decoded * decode.fastest),
        doubtful_to=_sequential_rate(fetched * fetch.low, decoded * decode.low),
        because="fetching and decoding one after the other",
        sources=(SAME_RUN,),
    )


def bound_read_ahead(baselines: Baselines, workload: Files) -> Bounds:
    """Return the rate of the reader alone or of all consumers, whichever is slower, as the limit.

    The band begins at the rate of both in turn, which a reader that reads nothing ahead reaches.
    """
    found = baselines.find("reader alone", replace(workload, quantity="bandwidth_bytes_per_s"))
    if found is None:
        return no_limit(workload, "the reader alone was not measured in this run")
    pace, size, ranks = workload.pace, workload.sample_bytes, workload.ranks or 1
    if pace <= 0 or size <= 0:
        return no_limit(workload, "the record lacks the rate and size of the samples")
    taken = pace * size * ranks
    unit = 1.0 if workload.quantity == "bandwidth_bytes_per_s" else 1 / size
    consumers = f"{ranks} x {pace:g} samples/s are consumed, {format_bandwidth(taken)}"
    reading = f"the reader alone reaches {format_bandwidth(found.best)} in this run"
    by_pace = taken < found.best
    limit = Limit(
        quantity=workload.quantity,
        value=min(taken, found.best) * unit,
        kind="measured_ceiling",
        because=f"{consumers} ({reading})" if by_pace else f"{reading} ({consumers})",
        sources=(SAME_RUN,),
    )
    return limit, Expected(
        quantity=workload.quantity,
        low=_sequential_rate(found.fastest, taken) * unit,
        doubtful_to=_sequential_rate(found.low, taken) * unit,
        because="reading and using samples one after the other",
        sources=(SAME_RUN,),
    )


def _sequential_rate(fetch: float, decode: float) -> float:
    """Return the rate of two parts that do not overlap, in bytes/s."""
    return fetch * decode / (fetch + decode)
