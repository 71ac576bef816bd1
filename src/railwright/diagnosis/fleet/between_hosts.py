"""Judges the traffic between hosts: each pair by the ports at its ends, and in comparison with the other pairs.

A pair may be slow because of one of its hosts, which a search names as a suspect; otherwise both ends are fast with
other hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from railwright.diagnosis.fleet.host_table import rank_among_peers
from railwright.diagnosis.localise.records import Suspect
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath, Verdict
from railwright.diagnosis.verdicts.pair import PairJudged, PeerStanding
from railwright.diagnosis.verdicts.policy import exit_status, required_status
from railwright.diagnosis.verdicts.verdict import judge
from railwright.expected.bands import scale_band
from railwright.expected.expect import expect
from railwright.expected.lab_links import expect_rate
from railwright.expected.machine import Machine
from railwright.expected.messages import BOTH_WAYS_SHARE, tcp_band
from railwright.limits.limit import Bounds, Expected, Limit, NoLimit, Quantity, no_bandwidth
from railwright.limits.path import link_limit
from railwright.results.records import Fabric
from railwright.results.statistics import quantile, summarise
from railwright.results.workload import WRITE_BYTES, Message
from railwright.topology.changes import convert_to_tcp
from railwright.topology.cluster import Cluster
from railwright.topology.devices import Scalar, Topology
from railwright.topology.near_nics import name_nic, pair_ports
from railwright.units import format_bandwidth

BENCHMARK, RAILS = "pairs", "rails"
_NEEDS_PORTS = "the ports of the hosts: --cluster FILE, or --interfaces NAME if hosts have several"
SHARED = "the hosts share CPUs, which may be the cause"
_NEEDS_OWN = "hosts on separate machines"
_NEEDS_RDMA = "a launch of RDMA between the hosts: railwright locate --probe rdma"


class PairTried(msgspec.Struct, frozen=True):
    """The rates from one host to another, in all rounds of the pair."""

    source: str
    destination: str
    values: tuple[float, ...]
    """Bytes/s; empty if every try failed."""
    share: float = 1.0
    """The available share of a port's rate on shared links."""
    ports: tuple[str, str] = ("", "")
    """The RDMA ports of both hosts, as `mlx5_0+mlx5_1/2`; empty for TCP."""
    mtu_bytes: int = 0
    """The MTU of the connection by RDMA; 0 if unknown."""
    trouble: str = ""
    """The reason why no data arrived in some try, if it is known."""


class RailTried(msgspec.Struct, frozen=True):
    """The best rate from a GPU of one host to the GPU of another, `node1:gpu0` to `node2:gpu0`, by NCCL.

    Or from an RDMA port to another, `node1:mlx5_0` to `node2:mlx5_0`, by RDMA.
    """

    source: str
    destination: str
    value: float
    """Bytes/s; 0 if nothing arrived."""


class BetweenHosts(msgspec.Struct, frozen=True, kw_only=True, tag="between", tag_field="record", omit_defaults=True,
                   forbid_unknown_fields=True):  # fmt: skip
    """The measurements between hosts, and the suspects."""

    described: str
    hosts: tuple[str, ...]
    rounds: int = 0
    """The rounds of the search and of the pairs after it."""
    seconds: float = 0.0
    sent_bytes: float = 0.0
    suspects: tuple[Suspect, ...] = ()
    unjudged: tuple[str, ...] = ()
    """Slow parts that may have a cause other than a fault."""
    cannot_tell: tuple[str, ...] = ()
    left_out: dict[str, str] = {}
    """Hosts that did not take part until the end, each with the reason."""
    not_measured: dict[str, str] = {}
    """Parts that were not measured, each with the reason."""

    @property
    def is_bad(self) -> bool:
        """Whether there are suspects."""
        return bool(self.suspects)

    @property
    def is_whole(self) -> bool:
        """Whether all hosts took part until the end and everything was judged."""
        return not (self.left_out or self.not_measured or self.unjudged)


@dataclass(frozen=True)
class HostNetwork:
    """The known facts about the network between the hosts."""

    machines: Mapping[str, Topology]
    """Each host's topology, as sent by the host or from a cluster file."""
    interfaces: Sequence[str] = ()
    """The interfaces in use, if known."""
    lab: Fabric | None = None
    """The lab's links, which override the ports."""
    compare: bool = True
    """False if hosts share CPUs: then nothing is reported as slow or behind."""
    own: Mapping[str, Topology] = field(default_factory=dict)
    """Each host's topology as it sent it. It knows the names of RDMA ports, as a shape in a cluster file does not."""

    def pair_bounds(self, tried: PairTried) -> Bounds:
        """Return the limit of the narrower port, and the expected rate of one TCP flow over it."""
        if self.lab is not None:
            value = tried.share * self.lab.flow_bytes_per_s
            return expect_rate(self.lab, value, f"one connection over {self.lab.narrowest}", tried.share)
        found = [self._port(host) for host in (tried.source, tried.destination)]
        missing = next((bounds for bounds in found if isinstance(bounds[0], NoLimit)), None)
        if missing is not None:
            return missing
        limit, band = min(found, key=lambda bounds: bounds[0].value if isinstance(bounds[0], Limit) else 0.0)
        assert isinstance(limit, Limit)
        if tried.share >= 1:
            return limit, band
        because = f"{tried.share:.2f} of {limit.because}, by the uplinks"
        shared = replace(limit, value=tried.share * limit.value, because=because)
        return shared, tcp_band(shared) if band is not None else None

    def rdma_bounds(self, tried: PairTried) -> Bounds:
        """Return the limit and band of writes over all ports of a pair, both ways at once: those of its narrower end.

        Ports of one name belong together, or else those in order.
        """
        names = [ports.split("+") for ports in tried.ports]
        joined = pair_ports(*names)
        found = []
        for side, host in enumerate((tried.source, tried.destination)):
            used = [names[side][places[side]] for places in joined]
            known = [one for one in (self.machines.get(host), self.own.get(host)) if one is not None]
            if not known:
                return no_bandwidth(f"no port of {host} is known"), None
            wanted = {_name_port(name) for name in used}
            machine = next((one for one in known if wanted <= {*map(name_nic, one.of_kind("nic"))}), known[0])
            found.append(
                expect(
                    _describe_writes(used, tried.mtu_bytes), Machine(cluster=Cluster(name=host, host=machine, hosts=2))
                )
            )
        missing = next((bounds for bounds in found if isinstance(bounds[0], NoLimit)), None)
        if missing is not None:
            return missing
        limit, band = min(found, key=lambda bounds: getattr(bounds[0], "value", 0.0))
        assert isinstance(limit, Limit)
        if tried.share < 1:
            because = f"{tried.share:.2f} of {limit.because}, by the uplinks"
            limit = replace(limit, value=tried.share * limit.value, because=because)
        low = tried.share * BOTH_WAYS_SHARE
        return limit, scale_band(band, low, tried.share) if band is not None else None

    def _port(self, host: str) -> tuple[Limit | NoLimit, Expected | None]:
        """Return limit and band of the port that a host's flow uses; if ports differ, the fastest's limit alone."""
        limits = self._ports(host)
        unknown = next((limit for limit in limits if isinstance(limit, NoLimit)), None)
        known = [limit for limit in limits if isinstance(limit, Limit)]
        if unknown is not None or not known:
            return unknown or no_bandwidth(f"no external port of {host} is known"), None
        best = max(known, key=lambda limit: limit.value)
        alike = min(limit.value for limit in known) == best.value
        return best, tcp_band(best) if alike else None

    def _ports(self, host: str) -> list[Limit | NoLimit]:
        """Return the limits of the ports in use, or of all ports."""
        machine = self.machines.get(host)
        if machine is None:
            return [no_bandwidth(f"no port of {host} is known")]
        ports = machine.ports_out
        if self.interfaces and any(nic.facts.get("netdev") for nic, _ in ports):
            ports = tuple((nic, link) for nic, link in ports if nic.facts.get("netdev") in self.interfaces)
        return [link_limit(convert_to_tcp(link)) for _, link in ports]

    def fabric(self, hosts: Sequence[str], pairs: Iterable[PairJudged]) -> Fabric | None:
        """Return the fabric that limits collectives of these hosts: the ports of each, and the slowest measured pair.

        None if a port's rate is unknown or a pair was not measured.
        """
        if self.lab is not None:
            return self.lab
        values = [pair.over_tcp for pair in pairs]
        each = [self._ports(host) for host in hosts]
        known = [[limit.value for limit in ports if isinstance(limit, Limit)] for ports in each]
        if not values or any(len(ports) != len(all_of) or not ports for ports, all_of in zip(known, each, strict=True)):
            return None
        flows = [value for value in values if value]
        if len(flows) < len(values):
            return None
        return Fabric(name="these hosts", ports_bytes_per_s=min(map(sum, known)), flow_bytes_per_s=min(flows),
                      narrowest="the slowest pair of them", measured=True)  # fmt: skip


def judge_pairs(tried: Sequence[PairTried], joined: HostNetwork) -> tuple[PairJudged, ...]:
    """Judge every pair; the pair furthest below the others comes first."""
    best = {pair: max(pair.values, default=0.0) / pair.share for pair in tried}
    standings = rank_among_peers(
        {pair: [value] if value > 0 else [] for pair, value in best.items()}, compare=joined.compare
    )
    found = [_judge_pair(pair, joined, *standings[pair]) for pair in tried]
    return tuple(sorted(found, key=lambda pair: (pair.part or 0.0, pair.source, pair.destination)))


def _judge_pair(pair: PairTried, joined: HostNetwork, part: float | None, standing: PeerStanding) -> PairJudged:
    value = max(pair.values, default=None)
    is_rdma = any(pair.ports)
    limit, expected = joined.rdma_bounds(pair) if is_rdma else joined.pair_bounds(pair)
    reason = "no data arrived by RDMA" if is_rdma else "no data arrived"
    if pair.trouble:
        reason += f"{' in some tries' if pair.values else ''}: {pair.trouble}"
    reason = "" if pair.values and not pair.trouble else reason
    verdict = judge("failed" if reason else "measured", reason, value, limit, expected, None, must_check=False)
    if not joined.compare:
        verdict = _doubt(verdict)
    if verdict.state == "unknown" and isinstance(limit, NoLimit):
        verdict = Verdict(state="unknown", why=verdict.why, needs=_NEEDS_PORTS)
    return PairJudged(
        source=pair.source,
        destination=pair.destination,
        tries=len(pair.values),
        value=value,
        part=None if part is None else round(part, 4),
        limit=limit.value if isinstance(limit, Limit) else None,
        because=limit.because if isinstance(limit, Limit) else limit.why,
        verdict=verdict,
        standing=standing,
        by="rdma" if is_rdma else "tcp",
    )


def _describe_writes(ports: Sequence[str], mtu_bytes: int) -> Message:
    """Describe the writes of a pair over ports that a search names, like `mlx5_0` and `mlx5_1/2`."""
    return Message(by="verbs", one_sided=True, quantity="bandwidth_bytes_per_s", size_bytes=WRITE_BYTES,
                   path="memory0@0>memory0@1", nics="+".join(map(_name_port, ports)), connection="RC",
                   mtu_bytes=mtu_bytes)  # fmt: skip


def _name_port(name: str) -> str:
    return name.replace("/", ":") if "/" in name else f"{name}:1"


def judge_by_both(
    by_tcp: Sequence[PairTried], by_rdma: Sequence[PairTried], joined: HostNetwork, not_tried: str = ""
) -> tuple[PairJudged, ...]:
    """Judge every pair: by RDMA if it was tried, with TCP beside it, or else by TCP.

    RDMA that brought nothing has failed, whatever TCP brought. `not_tried` is the reason why RDMA could not be tried
    at all, which leaves its pairs unknown.
    """
    tcp = judge_pairs(by_tcp, joined)
    beside = {(pair.source, pair.destination): pair.value for pair in tcp}
    found = []
    for pair in judge_pairs(by_rdma, joined):
        ends = pair.source, pair.destination
        verdict = pair.verdict
        if verdict.state == "failed" and beside.get(ends):
            verdict = replace(verdict, why=f"{verdict.why}; TCP moved {format_bandwidth(beside[ends] or 0.0)}")
        if not_tried:
            verdict = Verdict(state="unknown", why=f"RDMA was not tried: {not_tried}", needs=_NEEDS_RDMA)
        found.append(replace(pair, verdict=verdict, tcp_value=beside.get(ends)))
    done = {(pair.source, pair.destination) for pair in found}
    found += [pair for pair in tcp if (pair.source, pair.destination) not in done]
    return tuple(sorted(found, key=lambda pair: (pair.part or 0.0, pair.source, pair.destination)))


def doubt_shared(diagnosis: Diagnosis, *, compare: bool) -> Diagnosis:
    """Turn slow verdicts into unknown ones if hosts share CPUs."""
    if compare:
        return diagnosis
    paths = tuple(replace(path, verdict=_doubt(path.verdict), causes=()) for path in diagnosis.paths)
    points = tuple(replace(point, verdict=_doubt(point.verdict)) for point in diagnosis.points)
    status = exit_status(paths, diagnosis.findings)
    if diagnosis.required:
        unmet = tuple((name, "unknown" if state == "slow" else state) for name, state in diagnosis.unmet)
        return replace(diagnosis, paths=paths, points=points, unmet=unmet, exit_status=required_status(unmet))
    return replace(diagnosis, paths=paths, points=points, exit_status=status)


def _doubt(verdict: Verdict) -> Verdict:
    if verdict.state != "slow":
        return verdict
    return Verdict(state="unknown", why=f"{verdict.why}, but {SHARED}", needs=_NEEDS_OWN)


def summarize_hosts(pairs: Sequence[PairJudged]) -> dict[str, tuple[JudgedPath, ...]]:
    """Summarize each host's pairs as two paths: sent to the others, and received from them."""
    found: dict[str, tuple[JudgedPath, ...]] = {}
    for name, path in (("source", "host>others"), ("destination", "others>host")):
        by_host: dict[tuple[str, str], list[PairJudged]] = {}
        for pair in pairs:
            by_host.setdefault((getattr(pair, name), pair.by), []).append(pair)
        for (host, by), host_pairs in by_host.items():
            ran = sorted((pair for pair in host_pairs if pair.value is not None), key=lambda pair: pair.value or 0.0)
            verdict = (ran[len(ran) // 2] if ran else host_pairs[0]).verdict
            values = [pair.value or 0.0 for pair in host_pairs]
            summary = _summarize(BENCHMARK, path, values, verdict, "each pair has its own limit", by=by)
            found[host] = (*found.get(host, ()), summary)
    return found


def summarize_rails(rails: Sequence[RailTried]) -> dict[str, tuple[JudgedPath, ...]]:
    """Summarize the flows of each host's GPUs and RDMA ports as paths: each to the others of its rail, and from them.

    Only the comparison of hosts judges them.
    """
    found: dict[str, tuple[JudgedPath, ...]] = {}
    for name, path in (("source", "{}>others"), ("destination", "others>{}")):
        by_end: dict[str, list[float]] = {}
        for flow in rails:
            by_end.setdefault(getattr(flow, name), []).append(flow.value)
        for end, values in sorted(by_end.items()):
            host, _, part = end.rpartition(":")
            why = f"each {'GPU' if part.startswith('gpu') else 'port'} is compared with the others of its rail"
            summary = _summarize(RAILS, path.format(part), values, Verdict(state="reference", why=why), why)
            found[host] = (*found.get(host, ()), summary)
    return found


def _summarize(
    benchmark: str, path: str, flows: Sequence[float], verdict: Verdict, why: str, by: str = "tcp"
) -> JudgedPath:
    """Summarize flows by their median; 0 is a flow that failed. RDMA's have columns of their own.

    Each flow counts as a launch, so that one bad flow accuses no host.
    """
    quantity: Quantity = "bandwidth_bytes_per_s"
    parameters: dict[str, Scalar] = {"by": by} if by != "tcp" else {}
    values = sorted(value for value in flows if value)
    head = Judged(
        benchmark=benchmark,
        quantity=quantity,
        path=path,
        parameters=parameters,
        outcome="measured" if values else "failed",
        value=quantile(values, 0.5) if values else None,
        launches=tuple(summarise([value]) for value in values),
        limit=NoLimit(quantity=quantity, why=why),
        verdict=verdict,
        hosts=len(flows) + 1,
    )
    return JudgedPath(
        benchmark=benchmark,
        quantity=quantity,
        path=path,
        parameters=parameters,
        headline=head,
        verdict=verdict,
        points=len(flows),
        measured_points=len(values),
    )
