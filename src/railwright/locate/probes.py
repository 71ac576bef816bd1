"""Measures the phases of a search by ranks on the hosts, with a launch for each phase.

A host whose rank dies or keeps the others waiting is set aside, and the phase is repeated without it. If hosts wait for
each other, it is first repeated with them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, nan

import msgspec

from railwright.benchmarks.benchmark import Plan
from railwright.benchmarks.job import Job, Machine
from railwright.benchmarks.options import Options
from railwright.benchmarks.sockets.pinned_flows import NO_WAY
from railwright.benchmarks.wanted_flow import FlowRequest
from railwright.diagnosis.localise.fabric import Path
from railwright.diagnosis.localise.flows import Flow, Round
from railwright.diagnosis.localise.procedure import Phase
from railwright.errors import CannotJudge
from railwright.launch.session import PlannedLaunch, Session
from railwright.locate.lab_fabric import find_path
from railwright.locate.place import Place
from railwright.locate.signs import Crossings, Sign, is_marked
from railwright.locate.starved import carried_bytes_per_s
from railwright.locate.ways import LONG_PACKETS, STREAM_S, ProbeKind
from railwright.results.records import Result
from railwright.topology.devices import Topology

_SILENCE_S = 25.0
_STEP_S = 10.0
_FASTEST = 0.9
"""The quantile of the first phase's flows that counts as the rate if none is known."""
_MAX_SET_ASIDE = 0.5
"""If a larger share of the hosts is silent, the fault is not in the hosts."""
NOT_ASKED = "an end was set aside"


class FlowResult(msgspec.Struct, kw_only=True):
    """The results of a flow in a round."""

    port: int | None = None
    """The source port; None if no tried port takes the wanted path."""
    ways: list[Path] = []
    """The paths that the tried ports take, as far as they lie in this fabric."""
    sent: int = 0
    received: int = 0
    long_lost: int | None = None
    """The number of lost packets, of 6 at the full MTU; None if none was sent."""
    bandwidth_bytes_per_s: float | None = None
    round_trip_s: float | None = None
    """The round trip of a packet on the idle path, the fastest of a few."""
    trouble: str = ""
    reached: bool = True
    """True if the destination answered, as far as the probe itself tells."""
    mtu_bytes: int | None = None
    """The MTU of a connection by RDMA."""

    def sign(self, flow: Flow) -> Sign:
        """Return the signs of the flow besides its rate."""
        reached = self.reached and self.trouble not in (NO_WAY, NOT_ASKED)
        why = "" if self.reached else self.trouble
        return Sign(flow, reached, self.sent, self.received, self.long_lost, why)


_ROUND = re.compile(r"round (\d{1,6})")


class PhaseResult(msgspec.Struct, kw_only=True):
    """The results of a launch, as stored in a journal."""

    rounds: list[list[FlowResult]]
    set_aside: dict[str, str] = {}
    """The hosts that were silent by the end of the launch, with the reason."""
    unsure: tuple[str, ...] = ()
    """Those of them that waited for each other, so that some may be healthy."""


def _suppress_repeats(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Wrap `tell` so that it passes each text once: every rank reports the same steps."""
    passed: set[str] = set()

    def tell_once(text: str) -> None:
        if text not in passed:
            passed.add(text)
            tell(text)

    return tell_once


@dataclass
class RankProbes:
    """The phases of a search, measured by launches of ranks, with all results."""

    place: Place
    way: ProbeKind
    tell: Callable[[str], None]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    rounds: list[Round] = field(default_factory=list)
    seen: list[list[FlowResult]] = field(default_factory=list)
    set_aside: dict[str, str] = field(default_factory=dict)
    unsure: tuple[str, ...] = ()
    """The hosts set aside that waited for each other, so that some may be healthy."""
    _rate_bytes_per_s: float | None = None

    def measure(self, phase: Phase) -> PhaseResult:
        """Launch until no host is silent. Raises CannotJudge if too many are, or if a launch fails otherwise."""
        repeated = False
        while True:
            found, blamed, why, is_cause_open = self._launch(phase)
            if not why:
                return PhaseResult(rounds=found, set_aside=self.set_aside, unsure=self.unsure)
            if is_cause_open and not repeated:
                repeated = True
                self.tell(f"again: {why}")
                continue
            before, hosts = len(self.set_aside), self.place.fabric.hosts
            self.set_aside |= dict.fromkeys(blamed, why)
            self.unsure += blamed if is_cause_open else ()
            if len(self.set_aside) == before or len(self.set_aside) > _MAX_SET_ASIDE * len(hosts):
                raise CannotJudge(
                    why, hint="check that the hosts reach each other: railwright run tcp_stream --hosts HOST,HOST"
                )
            self.tell(f"without {', '.join(blamed)}: {why}")

    def take(self, phase: Phase, found: PhaseResult) -> None:
        """Enter the results of a phase: the ratio of each flow, and the flows with other signs."""
        self.set_aside |= found.set_aside
        self.unsure = found.unsure
        for one, flows in zip(phase, found.rounds, strict=True):
            one.ratio = [self._ratio(flow, seen, found) for flow, seen in zip(one.flows, flows, strict=True)]
            signs = [seen.sign(flow) for flow, seen in zip(one.flows, flows, strict=True)]
            one.marked = {number for number, sign in enumerate(signs) if is_marked(sign)}
            self.rounds.append(one)
            self.seen.append(flows)

    @property
    def bytes_sent(self) -> float:
        """The approximate number of bytes that the streams sent."""
        return sum(STREAM_S * (seen.bandwidth_bytes_per_s or 0.0) for one in self.seen for seen in one)

    def signs(self) -> list[list[Sign]]:
        """Return the signs of all flows by round."""
        return [
            [seen.sign(flow) for flow, seen in zip(one.flows, flows, strict=True)]
            for one, flows in zip(self.rounds, self.seen, strict=True)
        ]

    def crossings(self) -> list[Crossings]:
        """Return, by round, the classes that the paths of all tried ports crossed."""
        return [self._crossings(one, flows) for one, flows in zip(self.rounds, self.seen, strict=True)]

    def _crossings(self, one: Round, flows: list[FlowResult]) -> Crossings:
        counts, leaf_of = Crossings({}, []), self.place.fabric.leaf_of
        for flow, seen in zip(one.flows, flows, strict=True):
            for path in seen.ways:
                for number in path[1:-1]:
                    counts.crossed[number] = counts.crossed.get(number, 0) + 1
            if len(flow.path) >= 4:
                counts.asked.append((leaf_of(flow.source), leaf_of(flow.destination), len(seen.ways)))
        return counts

    def _ratio(self, flow: Flow, seen: FlowResult, phase: PhaseResult) -> float:
        if seen.port is None:
            return nan
        if self._rate_bytes_per_s is None:
            self._rate_bytes_per_s = self._rate(phase)
        return (seen.bandwidth_bytes_per_s or 0.0) / (flow.share * self._rate_bytes_per_s)

    def _rate(self, phase: PhaseResult) -> float:
        """Return the rate of a NIC port: the known rate, or that of the fastest flows."""
        if self.place.rate_bits_per_s is not None:
            return self.place.rate_bits_per_s / 8
        rates = sorted(seen.bandwidth_bytes_per_s or 0.0 for one in phase.rounds for seen in one)
        return max(rates[ceil(_FASTEST * len(rates)) - 1], 1.0) if rates else 1.0

    def _launch(self, phase: Phase) -> tuple[list[list[FlowResult]], tuple[str, ...], str, bool]:
        """Run a launch. Returns the results, the silent hosts, the reason of a failure, and if its cause is open."""
        fabric = self.place.fabric
        ranks = tuple(host for host in fabric.hosts if host not in self.set_aside)
        place_of = {fabric.hosts.index(host): rank for rank, host in enumerate(ranks)}
        found = [[FlowResult(trouble=NOT_ASKED) for _ in one.flows] for one in phase]
        rounds = [tuple(self._request_flows(one, place_of)) for one in phase]
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        topology = Topology(name="fabric", source="live", devices=(), links=())
        reach = self.place.reach
        each = self.way.ranks_per_host
        machine = Machine(topology=topology, cpus=cpus, hosts=ranks, ranks_per_host=each,
                          hosts_share_cpus=reach.shares_files, hosts_share_gpus=reach.shares_files,
                          reached_by=reach.name)  # fmt: skip
        launch = self.way.launch(tuple(rounds), phase[0].purpose, len(ranks) * each)
        job = Job(benchmark=self.way.benchmark.name, options=Options(), launch=launch, machine=machine)
        planned = PlannedLaunch(self.way.benchmark, job, Plan(path="fabric", longest_step_s=_STEP_S))
        session = Session(
            planned=planned,
            launcher=self.way.launcher(ranks),
            base_environment=dict(self.environment),
            silence_s=_SILENCE_S,
            on_step=_suppress_repeats(lambda text: self.tell(self._number_round(text, phase))),
        )
        results, why = [], ""
        for result in session.results():
            if result.outcome == "failed":
                why = result.reason
            results.append(result)
        if not why:
            self._read(results, rounds, found)
        silent = tuple(dict.fromkeys(ranks[number // each] for number in sorted(session.blamed)))
        return found, silent, why, session.is_cause_open

    def _number_round(self, step: str, phase: Phase) -> str:
        """Rewrite a rank's `round 1: packets`, counted in its launch, as `round 5 (confirm): packets` of the search."""
        found = _ROUND.match(step)
        if found is None:
            return step
        purpose = "" if phase[0].purpose == "screen" else f" ({phase[0].purpose})"
        return f"round {len(self.rounds) + int(found[1])}{purpose}{step[found.end() :]}"

    def _request_flows(self, one: Round, place_of: dict[int, int]) -> list[FlowRequest]:
        fabric, addresses = self.place.fabric, self.place.addresses
        found = []
        for number, flow in enumerate(one.flows):
            ends = [self._rank(place_of, nic) for nic in (flow.source, flow.destination)]
            if ends[0] is None or ends[1] is None:
                continue
            found.append(
                FlowRequest(
                    number=number,
                    source=ends[0],
                    destination=ends[1],
                    source_address=addresses[flow.source],
                    destination_address=addresses[flow.destination],
                    over=fabric.switches_of(flow.path),
                )
            )
        return found

    def _rank(self, place_of: dict[int, int], nic: int) -> int | None:
        """Return the rank of a port; None if its host is set aside."""
        host, each = self.place.fabric.nic_host[nic], self.way.ranks_per_host
        place = place_of.get(host)
        if place is None or each == 1:
            return place
        return place * each + self.place.fabric.nics_of_host[host].index(nic)

    def _read(
        self, results: list[Result], rounds: list[tuple[FlowRequest, ...]], found: list[list[FlowResult]]
    ) -> None:
        """Combine the results from the two ends of each flow."""
        heard = {}
        for result in results:
            settings = result.settings
            if settings["end"] == "received":
                ends = (
                    settings["round"],
                    settings["source_address"],
                    settings["source_port"],
                    settings["destination_address"],
                )
                heard[ends] = result
        wanted = {(number, flow.number): flow for number, flows in enumerate(rounds) for flow in flows}
        for result in results:
            settings = result.settings
            if settings["end"] != "sent":
                continue
            number, place = int(settings["round"]), int(settings["flow"])
            flow = wanted[number, place]
            port = int(settings["source_port"])
            other = heard.get((number, flow.source_address, port, flow.destination_address))
            found[number][place] = self._combine_ends(result, other, flow)

    def _combine_ends(self, sent: Result, received: Result | None, flow: FlowRequest) -> FlowResult:
        settings = sent.settings
        got = received.settings if received is not None else {}
        seen = FlowResult(port=int(settings["source_port"]), trouble=str(settings["trouble"]),
                          reached=bool(settings.get("reached", True)))  # fmt: skip
        if seen.port == -1:
            seen.port = None
        nics = [self.place.addresses.index(address) for address in (flow.source_address, flow.destination_address)]
        for way in filter(None, str(settings["ways"]).split(";")):
            path = find_path(self.place.fabric, nics[0], nics[1], tuple(way.partition("=")[2].split(",")))
            if path is not None:
                seen.ways.append(path)
        # A receiver that did not run for too long drops packets itself: then nothing is known of loss.
        if not got.get("unread"):
            seen.sent, seen.received = int(settings["packets_sent"]), int(got.get("received", 0))
        if seen.sent and self.place.mtu_bytes is not None:
            # Packets that the sender's own port refuses are not losses: they show a setting of the sender.
            seen.long_lost = LONG_PACKETS - int(got.get("long_received", 0)) - int(settings["long_refused"])
        if "round_trip_s" in settings:
            seen.round_trip_s = float(settings["round_trip_s"])
        if received is not None and received.verification is not None and received.verification.bytes_wrong:
            ends = f"{flow.source_address} to {flow.destination_address}"
            raise CannotJudge(f"{received.verification.bytes_wrong} bytes from {ends} arrived wrong",
                              hint="the path between them corrupts data: check its error counters first")  # fmt: skip
        mtu = got.get("mtu_bytes")
        seen.mtu_bytes = int(mtu) if mtu else None
        if received is not None and received.samples:
            seen.bandwidth_bytes_per_s = max(received.samples[0], carried_bytes_per_s(settings, got))
        return seen
