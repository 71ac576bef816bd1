"""One transfer of a round between two hosts of a search: as every kind of probe is told it, and tells of it."""

from __future__ import annotations

import msgspec

from railwright.benchmarks.benchmark import AnyBenchmark
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.topology.devices import Scalar


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One flow of a round."""

    number: int
    """In its round."""
    source: int
    """The rank that sends."""
    destination: int
    source_address: str
    destination_address: str
    over: tuple[str, ...] = ()
    """The names of the switches that it should cross; empty: whatever way it takes."""


def sent(benchmark: AnyBenchmark, number: int, flow: Wanted) -> Result:
    """That a flow of a round was sent, by a library that chooses its own way: see `received`."""
    told: dict[str, Scalar] = {"flow": flow.number, "trouble": "", "packets_sent": 0, "long_refused": 0, "ways": ""}
    return _record(benchmark, number, flow, "sent", told)


def received(
    benchmark: AnyBenchmark,
    number: int,
    flow: Wanted,
    rates: tuple[float, ...],
    check: Verification,
    told: dict[str, Scalar],
) -> Result:
    """What came of it, with its rate in bytes/s, where there is one, and the data check."""
    found = _record(benchmark, number, flow, "received", told)
    summary = summarise(rates) if rates else None
    return msgspec.structs.replace(found, samples=rates, summary=summary, verification=check)


def _record(benchmark: AnyBenchmark, number: int, flow: Wanted, end: str, told: dict[str, Scalar]) -> Result:
    ends = {"source_address": flow.source_address, "destination_address": flow.destination_address, "source_port": 0}
    return benchmark.blank("fabric", settings={"round": number, "end": end, **ends, **told})
