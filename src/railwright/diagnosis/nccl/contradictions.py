"""Where NCCL's log contradicts the machine, itself, or what the run could have: one function per fault.

Every finding shows its line. A fault that could not be looked for is a finding too, so that silence means something.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from railwright.checks.finding import Finding, OfLog
from railwright.diagnosis.nccl.evidence import MAX_WHERE, could_not_look, log_lines, named
from railwright.diagnosis.nccl.networks import (
    no_gdr,
    no_peer_to_peer,
    only_sockets,
    receive_over_cpu,
    sockets,
    unused_nics,
)
from railwright.diagnosis.nccl.paths import Ways
from railwright.diagnosis.nccl.settings import costly_settings, differing_settings
from railwright.results.readers.nccl_log.model import Communicator, NcclLog, Ring
from railwright.results.readers.nccl_log.summary import Wiring
from railwright.topology.devices import Topology

_RING_PATTERN = 4
"""src/include/graph.h, NCCL_TOPO_PATTERN_RING."""


def contradictions(log: NcclLog, topology: Topology | None) -> tuple[Finding, ...]:
    """All that the log's largest communicator shows. The topology is one host, and stands for all of them."""
    return tuple(_contradictions(log, topology))


def _contradictions(log: NcclLog, topology: Topology | None) -> Iterator[Finding]:
    yield from _versions(log)
    yield from differing_settings(log)
    yield from costly_settings(log)
    if not log.settings:
        why = "no setting is logged: there is none, or ENV is not in NCCL_DEBUG_SUBSYS"
        yield could_not_look("nccl_setting", why)
    if not log.communicators:
        why = "the log names no communicator: it ends before or begins after the set-up"
        yield could_not_look("nccl_rings", why)
        yield from only_sockets(log, topology)
        return
    main = log.main
    ways = Ways(log, main, topology)
    for look in (_ranks, _rings, _channels):
        yield from look(log, main)
    yield from sockets(log, main, topology)
    yield from unused_nics(log, main)
    for look_at_ways in (receive_over_cpu, no_gdr, no_peer_to_peer):
        yield from look_at_ways(log, main, ways)
    if not log.choices:
        why = "no algorithm is logged: TUNING is not in NCCL_DEBUG_SUBSYS, nothing ran, or NCCL is before 2.20"
        yield could_not_look("nccl_algorithm", why)


def _versions(log: NcclLog) -> Iterator[Finding]:
    """Ranks with different NCCL: they may build different graphs, or not understand each other."""
    versions = {one.nccl: one for one in reversed(log.versions)}
    builds = {f"{one.nccl}+cuda{one.cuda}": one for one in reversed(log.versions)}
    if len(builds) > 1:
        what = "NCCL versions" if len(versions) > 1 else "builds of one NCCL version"
        told = ", ".join(f"{name} on {one.host or 'rank 0'}" for name, one in sorted(builds.items())[:6])
        yield Finding(
            fault="nccl_versions_differ",
            where=tuple(OfLog(one.host or "rank 0") for one in log.versions[:MAX_WHERE]),
            certainty="seen",
            says=f"ranks run different {what}: {told}",
            remedy="start all ranks from the same image or with the same LD_LIBRARY_PATH",
            evidence=log_lines(log, (one.line for one in builds.values())),
        )


def _ranks(log: NcclLog, main: Communicator) -> Iterator[Finding]:
    """Ranks that began and were never ready, and ranks without a line, whose side cannot be checked."""
    stuck = [one for one in main.ranks if not one.complete]
    if stuck and len(stuck) < len(main.ranks) and any(one.bus_id for one in stuck):
        yield Finding(
            fault="nccl_init_incomplete",
            where=tuple(OfLog(f"rank {one.rank}") for one in stuck[:MAX_WHERE]),
            certainty="likely",
            says=f"{len(stuck)} of {main.size} ranks have no Init COMPLETE line, the first is rank {stuck[0].rank}",
            remedy="look at the last lines of these ranks: the run hung there, or the log was cut",
            evidence=log_lines(log, (one.line for one in stuck)),
        )
    missing = main.size - len(main.ranks)
    if missing > 0:
        why = f"{missing} of {main.size} ranks wrote no line that names them"
        yield could_not_look("nccl_ranks_missing", why)


def _rings(log: NcclLog, main: Communicator) -> Iterator[Finding]:
    """Rings that lack ranks, or come to one host twice."""
    if not main.rings:
        yield could_not_look("nccl_rings", "no ring is logged: INIT is not in NCCL_DEBUG_SUBSYS")
        return
    lacking = [ring for ring in main.rings if ring.whole and set(ring.ranks) != set(range(main.size))]
    if lacking:
        ring = lacking[0]
        absent = sorted(set(range(min(main.size, 4096))) - set(ring.ranks))
        yield Finding(
            fault="nccl_ring_incomplete",
            where=_channels_of(lacking),
            certainty="likely",
            says=f"ring {ring.channel} has {len(set(ring.ranks))} of {main.size} ranks, without {absent[:8]}",
            remedy="if the log did not cut the line, report it to NCCL: every ring must pass every rank",
            evidence=log_lines(log, (one.line for one in lacking)),
        )
    wiring = Wiring(main)
    crossings = {ring.channel: [hop.crosses for hop in wiring.hops(ring)] for ring in main.rings if ring.whole}
    known = {channel: hops.count(True) for channel, hops in crossings.items() if None not in hops}
    twice = [ring for ring in main.rings if known.get(ring.channel, 0) > max(len(main.hosts), 1)]
    if twice:
        ring = twice[0]
        yield Finding(
            fault="nccl_ring_reenters_host",
            where=_channels_of(twice),
            certainty="seen",
            says=f"ring {ring.channel} changes host {known[ring.channel]} times, with {len(main.hosts)} hosts",
            costs="each crossing more takes a NIC's bandwidth in both hosts once more",
            remedy="number the ranks of one host in sequence, and look for NCCL_GRAPH_FILE and NCCL_HOSTID",
            evidence=log_lines(log, (one.line for one in twice)),
        )
    unknown = len(main.rings) - len(known)
    if unknown > 0:
        why = f"{unknown} of {len(main.rings)} rings have ranks whose host is not logged, or are cut"
        yield could_not_look("nccl_ring_reenters_host", why)


def _channels_of(rings: list[Ring]) -> tuple[OfLog, ...]:
    return tuple(OfLog(f"channel {one.channel}") for one in rings[:MAX_WHERE])


def _channels(log: NcclLog, main: Communicator) -> Iterator[Finding]:
    """Fewer channels than the search found: some rank found fewer, and NCCL takes the least of all."""
    found = [one for one in main.searches if one.pattern == _RING_PATTERN]
    built = main.counts.collective if main.counts else len(main.rings)
    if not found or not built:
        why = "the log does not say how many channels were built"
        why = why if found else "no graph search is logged: GRAPH is not in NCCL_DEBUG_SUBSYS"
        yield could_not_look("nccl_channels", why)
        return
    by_channels = attrgetter("channels")
    most, least = max(found, key=by_channels), min(found, key=by_channels)
    if built < most.channels:
        fewer = (
            f", {least.host or 'another rank'} found only {least.channels}" if least.channels < most.channels else ""
        )
        yield Finding(
            fault="nccl_channels",
            where=named(one.host for one in found if one.channels == least.channels) or named(["log"]),
            certainty="seen",
            says=f"{built} channels were built, the search on {most.host or 'one rank'} found {most.channels}"
            + (fewer if least.channels < most.channels else ""),
            costs="a ring carries the bandwidth of one search result: fewer channels, fewer NICs and links in use",
            remedy="compare the machines' PCIe and NVLink (railwright topo), and look for NCCL_MAX_NCHANNELS",
            evidence=log_lines(log, (most.line, least.line, main.counts.line if main.counts else 0)),
        )
