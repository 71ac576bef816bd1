"""Rounds of TCP flows between many hosts, each on a given path, for `railwright locate`.

In a round every rank traces the paths of several source ports hop by hop and sends from one that takes the wanted path.
A train of short packets at a small part of the rate comes first: it shows loss, which TCP hides at short round trips. A
few packets as long as the MTU follow, and then a TCP stream. Ranks wait for each other asleep on the stream to the
parent: neither MPI nor the network under test synchronises them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random

import msgspec

from railwright.benchmarks.benchmark import Plan, Rank
from railwright.benchmarks.job import Case, Job
from railwright.benchmarks.options import Options
from railwright.benchmarks.sockets.flow_end import Record, Settings, receive_tcp, receive_udp, send_tcp, send_udp, trace
from railwright.benchmarks.wanted_flow import FlowRequest, probe
from railwright.errors import CannotJudge
from railwright.results.records import Result
from railwright.results.statistics import summarise
from railwright.topology.devices import Scalar

PORT = 39_000
"""The port on which nobody listens between two rounds, so that traced packets are answered."""
FIRST_SOURCE_PORT = 40_000
PACKET_BYTES = 400
_INTERVAL_S = 0.002
_MOST_HOPS = 10
_TRACES, _TRACE_PAUSE_S = 3, 0.5
"""Traces of ports whose path is not known, and the pause before each, longer every time and different for each flow."""
_CONNECT_S = 3.0
_CONNECTIONS_BEFORE = 7
"""Connections whose first packet is timed before the stream: the fastest of 8 met no queue."""
_READY_S = 20.0

NO_WAY = "no way there"


class Flows(Case, frozen=True, kw_only=True):
    """The rounds of a launch."""

    rounds: tuple[tuple[FlowRequest, ...], ...]
    names: dict[str, str] = msgspec.field(default_factory=dict)
    """The switch or host of each address that may answer on the path; empty disables tracing."""
    source_ports: int = 12
    """The number of source ports to trace."""
    packets: int = 700
    """Packets in the train; 0 disables packets."""
    long_packets: int = 6
    long_bytes: int = 0
    """The payload that fills the MTU with the headers; 0 disables long packets."""
    long_interval_s: float = 0.01
    stream_s: float = 1.5


FlowsJob = Job[Options, Flows]
FlowsRank = Rank[Options, Flows]


def _plan(job: FlowsJob) -> Plan:
    seconds = len(job.case.rounds) * (job.case.packets * _INTERVAL_S + job.case.stream_s + 2)
    return Plan(path="fabric", seconds=seconds)


@dataclass
class _SentFlow:
    """A flow as its sender knows it."""

    flow: FlowRequest
    ways: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The names on each source port's path; `?` for a hop that did not answer."""
    port: int | None = None
    trouble: str = ""
    sent: int = 0
    refused: int = 0
    long_refused: int = 0
    round_trip_s: float | None = None
    stream: Record = field(default_factory=dict)
    """The times that the sender's kernel tells of a starved stream."""


def _run(rank: FlowsRank) -> Iterator[Result]:
    for number, flows in enumerate(rank.job.case.rounds):
        yield from _run_round(rank, number, flows)


def _run_round(rank: FlowsRank, number: int, flows: tuple[FlowRequest, ...]) -> Iterator[Result]:
    case = rank.job.case
    mine = [_SentFlow(flow) for flow in flows if flow.source == rank.index]
    addresses = sorted({flow.destination_address for flow in flows if flow.destination == rank.index})
    rank.step(f"round {number + 1}: which way each port takes")
    _run_each(mine, lambda one: _choose_port(case, one))
    rank.meet()
    sending = [one for one in mine if one.port is not None]
    with _Receiver(receive_udp, addresses, case) as packets, _Receiver(receive_tcp, addresses, case) as streams:
        rank.meet()
        if case.packets:
            rank.step(f"round {number + 1}: packets")
            _run_each(sending, lambda one: _send_packets(case, one))
            rank.meet()
        rank.step(f"round {number + 1}: streams")
        _run_each(sending, lambda one: _send_stream(case, one))
        rank.meet()
    rank.meet()  # an open listener would not answer traces of the next round
    for one in mine:
        yield _record(number, "sent", (), _describe(one))
    heard: dict[tuple[str, str, int], Record] = {}
    for address, record in [*packets.records(), *streams.records()]:
        heard.setdefault((address, record["source_address"], record["source_port"]), {}).update(record)
    for (address, source, port), record in heard.items():
        long = record.get("sizes", {}).get(case.long_bytes, 0)
        settings: dict[str, Scalar] = {
            "destination_address": address,
            "source_address": source,
            "source_port": port,
            "received": record.get("received", 0) - long,
            "long_received": long,
            "unread": record.get("unread", 0),
            "received_bytes": record.get("received_bytes", 0),
            "waited_s": record.get("waited_s", 0.0),
        }
        rate = record.get("bandwidth_bytes_per_s")
        yield _record(number, "received", () if rate is None else (rate,), settings)


def _describe(one: _SentFlow) -> dict[str, Scalar]:
    ways = ";".join(f"{port}={','.join(names)}" for port, names in one.ways.items())
    return {
        "flow": one.flow.number,
        "source_port": -1 if one.port is None else one.port,
        "trouble": one.trouble,
        "packets_sent": one.sent,
        "packets_refused": one.refused,
        "long_refused": one.long_refused,
        "ways": ways,
        **({} if one.round_trip_s is None else {"round_trip_s": one.round_trip_s}),
        **one.stream,
    }


def _record(number: int, end: str, samples: tuple[float, ...], told: dict[str, Scalar]) -> Result:
    blank = BENCHMARK.blank("fabric", settings={"round": number, "end": end, **told})
    summary = summarise(samples) if samples else None
    return msgspec.structs.replace(blank, samples=samples, summary=summary)


def _run_each(flows: list[_SentFlow], work: Callable[[_SentFlow], None]) -> None:
    with ThreadPoolExecutor(max(1, len(flows))) as executor:
        list(executor.map(work, flows))


def _settings(one: _SentFlow, ports: list[int], **more: float) -> Settings:
    flow = one.flow
    ends = {"source": flow.source_address, "destination": flow.destination_address, "port": PORT}
    return {**ends, "source_ports": ports, **more}


def _choose_port(case: Flows, one: _SentFlow) -> None:
    """Find a source port that takes the wanted path. Switches limit their answers, so silent ports are traced again."""
    ports = list(range(FIRST_SOURCE_PORT, FIRST_SOURCE_PORT + case.source_ports))
    if not case.names:
        one.port = ports[one.flow.number % len(ports)]
        return
    end, unknown, pauses = case.names.get(one.flow.destination_address), ports, Random(one.flow.number)
    there: dict[int, tuple[str, ...]] = {}
    for attempt in range(_TRACES):
        time.sleep(pauses.uniform(0, _TRACE_PAUSE_S * attempt))
        try:
            records = trace(_settings(one, unknown, max_hops=_MOST_HOPS))
        except OSError as error:
            one.trouble = error.strerror or str(error)
            return
        for record in records:
            one.ways[record["source_port"]] = tuple(
                "?" if hop is None else case.names.get(hop, hop) for hop in record["hops"]
            )
        there = {port: names[:-1] for port, names in one.ways.items() if names and names[-1] == end}
        one.port = next((port for port, names in there.items() if not one.flow.over or names == one.flow.over), None)
        unknown = [port for port in ports if "?" in there.get(port, "?")]
        if one.port is not None or not unknown:
            break
    if one.port is None:
        one.trouble = "no port takes this path" if there else NO_WAY


def _send_packets(case: Flows, one: _SentFlow) -> None:
    assert one.port is not None
    try:
        train = {"packets": case.packets, "size_bytes": PACKET_BYTES, "interval_s": _INTERVAL_S}
        (sent,) = send_udp(_settings(one, [one.port], **train))
        one.sent, one.refused = sent["sent"], sent["refused"]
        if case.long_bytes:
            long = {"packets": case.long_packets, "size_bytes": case.long_bytes, "interval_s": case.long_interval_s}
            (sent,) = send_udp(_settings(one, [one.port], **long))
            one.long_refused = sent["refused"]
    except OSError as error:
        one.trouble = error.strerror or str(error)


def _send_stream(case: Flows, one: _SentFlow) -> None:
    assert one.port is not None
    stream = {"duration_s": case.stream_s, "connect_timeout_s": _CONNECT_S, "connections_before": _CONNECTIONS_BEFORE}
    (sent,) = send_tcp(_settings(one, [one.port], **stream))
    one.round_trip_s, one.stream = sent.get("round_trip_s"), sent.get("stream", {})
    one.trouble = one.trouble or sent.get("error", "")


class _Receiver:
    """Threads that receive at some addresses inside the context. Raises CannotJudge if one cannot listen."""

    def __init__(
        self,
        receive: Callable[[Settings, threading.Event, Callable[[], None]], list[Record]],
        addresses: list[str],
        case: Flows,
    ) -> None:
        self._receive, self._addresses, self._case = receive, addresses, case
        self._stop = threading.Event()
        self._found: dict[str, list[Record]] = {}
        self._troubles: list[str] = []

    def __enter__(self) -> _Receiver:
        started = [threading.Event() for _ in self._addresses]
        self._threads = [
            threading.Thread(target=self._work, args=(address, event), daemon=True)
            for address, event in zip(self._addresses, started, strict=True)
        ]
        for thread in self._threads:
            thread.start()
        for event in started:
            event.wait(_READY_S)
        if self._troubles:
            self._stop.set()
            raise CannotJudge(f"cannot listen on {self._troubles[0]}", hint="is another search running there?")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self, address: str, ready: threading.Event) -> None:
        settings: Settings = {"destination": address, "port": PORT, "duration_s": self._case.stream_s}
        try:
            self._found[address] = self._receive(settings, self._stop, ready.set)
        except OSError as error:
            self._troubles.append(f"{address}: {error.strerror or error}")
        ready.set()

    def records(self) -> Iterator[tuple[str, Record]]:
        """Yield each address and the data from each source port. Call it after leaving the context."""
        for address, records in self._found.items():
            for record in records:
                yield address, record


BENCHMARK = probe(
    "pinned_flows",
    "TCP between pairs of many hosts at the same time, each flow on a path of its own",
    "one TCP stream for each flow, from a source port that was seen to take the wanted path",
    words="railwright locate --hosts host0,host1",
    case=Flows,
    plan=_plan,
    run=_run,
)
