"""A transfer between two hosts in a round of a search, with its records; shared by all probes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from railwright.benchmarks.benchmark import AnyBenchmark, Benchmark, Plan, Rank
from railwright.benchmarks.job import C, Case, Job, Launch, Machine
from railwright.benchmarks.options import Options
from railwright.errors import UsageError
from railwright.results.declarations import Declaration
from railwright.results.records import Result, Verification
from railwright.results.statistics import summarise
from railwright.results.workload import Unlimited
from railwright.topology.devices import Scalar


class FlowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A flow of a round."""

    number: int
    """The flow's number in its round."""
    source: int
    """The sender's rank."""
    destination: int
    source_address: str
    destination_address: str
    over: tuple[str, ...] = ()
    """The names of the switches that the flow should cross; empty means any route."""


class FlowRounds(Case, frozen=True, kw_only=True):
    """The rounds of a launch."""

    rounds: tuple[tuple[FlowRequest, ...], ...]
    stream_s: float = 1.5


FlowsJob = Job[Options, FlowRounds]
FlowsRank = Rank[Options, FlowRounds]


def plan_rounds(job: FlowsJob) -> Plan:
    """Return the cost of a launch whose ranks connect within a second of each round."""
    return Plan(path="fabric", seconds=2 + len(job.case.rounds) * (job.case.stream_s + 1))


def probe(
    name: str,
    summary: str,
    method: str,
    *,
    words: str,
    case: type[C],
    plan: Callable[[Job[Options, C]], Plan],
    run: Callable[[Rank[Options, C]], Iterator[Result]],
) -> Benchmark[Options, C]:
    """Return a benchmark that sends the flows of a search.

    `words` is the command of that search; the benchmark cannot run by itself.
    """

    def launches(_options: Options, _machine: Machine) -> tuple[Launch[C], ...]:
        raise UsageError("this benchmark runs only as part of a search, which plans its flows", hint=words)

    return Benchmark(
        name=name,
        summary=summary,
        method=method,
        results=(Declaration("bandwidth_bytes_per_s", Unlimited(why="a search compares flows with each other")),),
        options=Options,
        case=case,
        launches=launches,
        plan=plan,
        run=run,
        spans_hosts=True,
    )


def record_sent(
    benchmark: AnyBenchmark, number: int, flow: FlowRequest, trouble: str = "", *, connected: bool = True
) -> Result:
    """Record that a flow was sent by a library that chooses its own route; see `record_received`.

    A flow with a trouble brought nothing; if it was not even connected, it did not run.
    """
    settings: dict[str, Scalar] = {
        "flow": flow.number, "trouble": trouble, "packets_sent": 0, "long_refused": 0, "ways": "",
        **({"reached": False} if trouble else {}),
        **({} if connected else {"source_port": -1}),
    }  # fmt: skip
    return _record(benchmark, number, flow, "sent", settings)


def record_received(
    benchmark: AnyBenchmark,
    number: int,
    flow: FlowRequest,
    rates: tuple[float, ...],
    check: Verification,
    told: dict[str, Scalar],
) -> Result:
    """Record a received flow with its rates in bytes/s, if any, and the data check."""
    found = _record(benchmark, number, flow, "received", told)
    summary = summarise(rates) if rates else None
    return msgspec.structs.replace(found, samples=rates, summary=summary, verification=check)


def _record(benchmark: AnyBenchmark, number: int, flow: FlowRequest, end: str, told: dict[str, Scalar]) -> Result:
    ends = {"source_address": flow.source_address, "destination_address": flow.destination_address, "source_port": 0}
    return benchmark.blank("fabric", settings={"round": number, "end": end, **ends, **told})
