"""What crosses between hosts, judged: each pair against the ports at its ends, and against the other pairs.

A pair that is slow may be so because of one of its hosts, which a search names as a suspect; what is left is a pair
whose ends are well with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from railwright.diagnosis.fleet.host_table import among_others
from railwright.diagnosis.localise.records import Suspect
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath, Verdict
from railwright.diagnosis.verdicts.pair import PairJudged, Standing
from railwright.diagnosis.verdicts.policy import exit_status, required_status
from railwright.diagnosis.verdicts.verdict import judge
from railwright.expected.lab_links import rate_over
from railwright.expected.messages import tcp_band
from railwright.limits.limit import Bounds, Expected, Limit, NoLimit, Quantity, no_bandwidth
from railwright.limits.path import link_limit
from railwright.results.records import Fabric
from railwright.results.statistics import quantile, summarise
from railwright.topology.changes import over_tcp
from railwright.topology.devices import Topology

BENCHMARK = "pairs"
_NEEDS_PORTS = "the ports of the hosts: --cluster FILE, or --interfaces NAME where hosts have several"
SHARED = "the hosts share CPUs, which may be what held it back"
_NEEDS_OWN = "hosts that are machines of their own"


class PairTried(msgspec.Struct, frozen=True):
    """What one host sent to another, in every round in which it did."""

    source: str
    destination: str
    values: tuple[float, ...]
    """Bytes/s; empty where it was tried and did not run."""
    share: float = 1.0
    """The part of a port's rate that was to be had where links are shared."""


class BetweenHosts(msgspec.Struct, frozen=True, kw_only=True, tag="between", tag_field="record", omit_defaults=True,
                   forbid_unknown_fields=True):  # fmt: skip
    """What was done between hosts, and whom it accuses."""

    described: str
    hosts: tuple[str, ...]
    rounds: int = 0
    """Of pairs and of the search that goes before them."""
    seconds: float = 0.0
    sent_bytes: float = 0.0
    suspects: tuple[Suspect, ...] = ()
    unjudged: tuple[str, ...] = ()
    """What was slow, and may be so for a reason that is no fault."""
    cannot_tell: tuple[str, ...] = ()
    left_out: dict[str, str] = {}
    """Hosts that did not take part, or not to the end, each with the reason."""
    not_measured: dict[str, str] = {}
    """Parts that were not measured, each with the reason."""

    @property
    def is_bad(self) -> bool:
        """Whether anything is accused."""
        return bool(self.suspects)

    @property
    def is_whole(self) -> bool:
        """Whether all hosts took part in all, and nothing is left that nobody could judge."""
        return not (self.left_out or self.not_measured or self.unjudged)


@dataclass(frozen=True)
class Joined:
    """What is known of that which joins the hosts."""

    machines: Mapping[str, Topology]
    """Each host's own topology, as it sent it, or the machine of a cluster file."""
    interfaces: Sequence[str] = ()
    """Those in use, where it is known."""
    lab: Fabric | None = None
    """The lab's own cables, which hold rather than any port."""
    compare: bool = True
    """False where hosts share CPUs: then nothing is slow and nobody behind."""

    def of_pair(self, tried: PairTried) -> Bounds:
        """The narrower port of the two, and what one flow of TCP is expected to reach of it."""
        if self.lab is not None:
            value = tried.share * self.lab.flow_bytes_per_s
            return rate_over(self.lab, value, f"one connection over {self.lab.narrowest}", tried.share)
        found = [self._port(host) for host in (tried.source, tried.destination)]
        missing = next((one for one in found if isinstance(one[0], NoLimit)), None)
        if missing is not None:
            return missing
        limit, band = min(found, key=lambda one: one[0].value if isinstance(one[0], Limit) else 0.0)
        assert isinstance(limit, Limit)
        if tried.share >= 1:
            return limit, band
        because = f"{tried.share:.2f} of {limit.because}, by the uplinks"
        shared = replace(limit, value=tried.share * limit.value, because=because)
        return shared, tcp_band(shared) if band is not None else None

    def _port(self, host: str) -> tuple[Limit | NoLimit, Expected | None]:
        """The port that a flow of a host leaves by. Where that is not known, the fastest, and nothing is expected."""
        limits = self._ports(host)
        unknown = next((one for one in limits if isinstance(one, NoLimit)), None)
        known = [one for one in limits if isinstance(one, Limit)]
        if unknown is not None or not known:
            return unknown or no_bandwidth(f"no port of {host} leads out of it as far as is known"), None
        best = max(known, key=lambda one: one.value)
        alike = min(one.value for one in known) == best.value
        return best, tcp_band(best) if alike else None

    def _ports(self, host: str) -> list[Limit | NoLimit]:
        """Of those in use, or of all."""
        machine = self.machines.get(host)
        if machine is None:
            return [no_bandwidth(f"no port of {host} is known")]
        ports = machine.ports_out
        if self.interfaces and any(nic.facts.get("netdev") for nic, _ in ports):
            ports = tuple((nic, link) for nic, link in ports if nic.facts.get("netdev") in self.interfaces)
        return [link_limit(over_tcp(link)) for _, link in ports]

    def fabric(self, hosts: Sequence[str], pairs: Iterable[PairJudged]) -> Fabric | None:
        """What collectives of these hosts are held against: all ports of each, and the slowest pair that was measured.

        None where a port's rate is not known, or a pair was not measured.
        """
        if self.lab is not None:
            return self.lab
        values = [one.value for one in pairs]
        each = [self._ports(host) for host in hosts]
        known = [[one.value for one in ports if isinstance(one, Limit)] for ports in each]
        if not values or any(len(ports) != len(all_of) or not ports for ports, all_of in zip(known, each, strict=True)):
            return None
        flows = [value for value in values if value]
        if len(flows) < len(values):
            return None
        return Fabric(name="these hosts", ports_bytes_per_s=min(map(sum, known)), flow_bytes_per_s=min(flows),
                      narrowest="the slowest pair of them", measured=True)  # fmt: skip


def judge_pairs(tried: Sequence[PairTried], joined: Joined) -> tuple[PairJudged, ...]:
    """Every pair with its verdict, the slowest against its siblings first."""
    best = {one: max(one.values, default=0.0) / one.share for one in tried}
    standings = among_others({one: [value] if value > 0 else [] for one, value in best.items()}, compare=joined.compare)
    found = [_judged(one, joined, *standings[one]) for one in tried]
    return tuple(sorted(found, key=lambda one: (one.part or 0.0, one.source, one.destination)))


def _judged(one: PairTried, joined: Joined, part: float | None, standing: Standing) -> PairJudged:
    value = max(one.values, default=None)
    limit, expected = joined.of_pair(one)
    reason = "" if one.values else "it was tried, and nothing arrived"
    verdict = judge("measured" if one.values else "failed", reason, value, limit, expected, None, must_check=False)
    if not joined.compare:
        verdict = _doubted(verdict)
    if verdict.state == "unknown" and isinstance(limit, NoLimit):
        verdict = Verdict(state="unknown", why=verdict.why, needs=_NEEDS_PORTS)
    return PairJudged(
        source=one.source,
        destination=one.destination,
        tries=len(one.values),
        value=value,
        part=None if part is None else round(part, 4),
        limit=limit.value if isinstance(limit, Limit) else None,
        because=limit.because if isinstance(limit, Limit) else limit.why,
        verdict=verdict,
        standing=standing,
    )


_BY_RATE = ("slow", "slow or occupied", "occupied", "lossy", "stalls", "flapping")


def accused(suspects: Iterable[Suspect], *, compare: bool) -> tuple[tuple[Suspect, ...], tuple[str, ...]]:
    """The suspects, and what is none where hosts share CPUs: nobody can say there why a flow was slow."""
    every = tuple(suspects)
    if compare:
        return every, ()
    doubted = [one for one in every if one.verdict in _BY_RATE]
    words = tuple(f"{one.kind} {one.id} was at {one.capacity:.0%} of its rate: {SHARED}" for one in doubted)
    return tuple(one for one in every if one not in doubted), words


def unless_shared(diagnosis: Diagnosis, *, compare: bool) -> Diagnosis:
    """The same, with nothing slow where hosts share CPUs."""
    if compare:
        return diagnosis
    paths = tuple(replace(one, verdict=_doubted(one.verdict), causes=()) for one in diagnosis.paths)
    points = tuple(replace(one, verdict=_doubted(one.verdict)) for one in diagnosis.points)
    status = exit_status(paths, diagnosis.findings)
    if diagnosis.required:
        unmet = tuple((name, "unknown" if state == "slow" else state) for name, state in diagnosis.unmet)
        return replace(diagnosis, paths=paths, points=points, unmet=unmet, exit_status=required_status(unmet))
    return replace(diagnosis, paths=paths, points=points, exit_status=status)


def _doubted(verdict: Verdict) -> Verdict:
    if verdict.state != "slow":
        return verdict
    return Verdict(state="unknown", why=f"{verdict.why}, but {SHARED}", needs=_NEEDS_OWN)


def paths_of_hosts(pairs: Sequence[PairJudged]) -> dict[str, tuple[JudgedPath, ...]]:
    """Each host's pairs as two paths of it: what it sent to the others, and what it received."""
    found: dict[str, tuple[JudgedPath, ...]] = {}
    for name, path in (("source", "host>others"), ("destination", "others>host")):
        of_host: dict[str, list[PairJudged]] = {}
        for one in pairs:
            of_host.setdefault(getattr(one, name), []).append(one)
        for host, own in of_host.items():
            found[host] = (*found.get(host, ()), _path(path, own))
    return found


def _path(path: str, own: Sequence[PairJudged]) -> JudgedPath:
    """The pair in the middle stands for all of them; each counts as a launch, so that one bad pair accuses no host."""
    ran = sorted((one for one in own if one.value is not None), key=lambda one: one.value or 0.0)
    middle = ran[len(ran) // 2] if ran else own[0]
    values = sorted(one.value for one in own if one.value)
    quantity: Quantity = "bandwidth_bytes_per_s"
    head = Judged(
        benchmark=BENCHMARK,
        quantity=quantity,
        path=path,
        parameters={},
        outcome="measured" if values else "failed",
        value=quantile(values, 0.5) if values else None,
        launches=tuple(summarise([value]) for value in values),
        limit=NoLimit(quantity=quantity, why="each pair has its own"),
        verdict=middle.verdict,
        hosts=len(own) + 1,
    )
    return JudgedPath(
        benchmark=BENCHMARK,
        quantity=quantity,
        path=path,
        parameters={},
        headline=head,
        verdict=middle.verdict,
        points=len(own),
        measured_points=len(values),
    )
