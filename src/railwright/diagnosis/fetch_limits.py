"""What reading is held against whose parts were measured alone in the same run: fetching and decoding of encoded data,
and a reader that reads ahead for a consumer.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.diagnosis.ceilings import Ceilings
from railwright.limits.limit import Bounds, Expected, Limit
from railwright.limits.sources import SAME_RUN
from railwright.results.bounds import no_limit
from railwright.results.records import Result
from railwright.units import format_bandwidth


def fetch_and_decode(ceilings: Ceilings, point: Result) -> Bounds:
    """The slower of both parts as the limit. Who overlaps nothing still reaches the rate of one after the other."""
    fetch, decode = ceilings.of("fetch", point), ceilings.of("decode", point)
    sizes = [point.settings.get(name) for name in ("encoded_bytes", "in_memory_bytes")]
    if fetch is None or decode is None:
        missing = "fetching" if fetch is None else "decoding"
        return no_limit(point, f"{missing} the same bytes alone was not measured in this run")
    encoded, memory = (size if isinstance(size, int) and size > 0 else 0 for size in sizes)
    if not encoded or not memory:
        return no_limit(point, "its record does not say how many bytes were fetched and decoded")
    # Fetching is told in encoded bytes, decoding in those in memory: both in the unit of the point.
    own = encoded if point.parameters.get("bytes") == "encoded" else memory
    fetched, decoded = own / encoded, own / memory
    slower, value = "fetching", fetched * fetch.best
    other = f"decoding alone {format_bandwidth(decoded * decode.fastest)}"
    if decoded * decode.best < value:
        slower, value = "decoding", decoded * decode.best
        other = f"fetching alone {format_bandwidth(fetched * fetch.fastest)}"
    limit = Limit(
        quantity=point.quantity,
        value=value,
        kind="measured_ceiling",
        because=f"{slower} the same bytes alone, in this run (beside it {other})",
        sources=(SAME_RUN,),
    )
    return limit, Expected(
        quantity=point.quantity,
        low=_in_turn(fetched * fetch.fastest, decoded * decode.fastest),
        doubtful_to=_in_turn(fetched * fetch.low, decoded * decode.low),
        because="fetching and decoding one after the other",
        sources=(SAME_RUN,),
    )


def read_ahead(ceilings: Ceilings, point: Result) -> Bounds:
    """The slower of the reader alone and all consumers.

    Who reads nothing ahead still reaches the rate of one after the other.
    """
    found = ceilings.of("reader alone", replace(point, quantity="bandwidth_bytes_per_s"))
    if found is None:
        return no_limit(point, "the reader alone was not measured in this run")
    pace, size = point.parameters.get("pace"), point.settings.get("sample_bytes")
    known = isinstance(pace, int | float) and pace > 0 and isinstance(size, int | float) and size > 0
    if not known or not isinstance(pace, int | float) or not isinstance(size, int | float):
        return no_limit(point, "its record does not say how fast samples are taken, and how large they are")
    taken = pace * size * point.ranks
    unit = 1.0 if point.quantity == "bandwidth_bytes_per_s" else 1 / size
    consumers = f"{point.ranks} x {pace:g} samples/s are taken, {format_bandwidth(taken)}"
    reading = f"the reader alone, in this run, makes {format_bandwidth(found.best)}"
    by_pace = taken < found.best
    limit = Limit(
        quantity=point.quantity,
        value=min(taken, found.best) * unit,
        kind="measured_ceiling",
        because=f"{consumers} ({reading})" if by_pace else f"{reading} ({consumers})",
        sources=(SAME_RUN,),
    )
    return limit, Expected(
        quantity=point.quantity,
        low=_in_turn(found.fastest, taken) * unit,
        doubtful_to=_in_turn(found.low, taken) * unit,
        because="reading and using samples one after the other",
        sources=(SAME_RUN,),
    )


def _in_turn(fetch: float, decode: float) -> float:
    """The rate of two parts that do not overlap, in bytes/s."""
    return fetch * decode / (fetch + decode)
