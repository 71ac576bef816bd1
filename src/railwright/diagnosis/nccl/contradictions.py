"""Contradictions of NCCL's log with the machine or itself, and missed performance: one function per fault.

Every finding shows its line. A fault that could not be checked for is a finding too, so that no finding means no fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from railwright.checks.finding import Finding, LogPlace
from railwright.diagnosis.nccl.evidence import MAX_WHERE, could_not_look, log_lines, log_places
from railwright.diagnosis.nccl.networks import (
    gdr_over_cpu,
    no_gdr,
    no_peer_to_peer,
    only_sockets,
    sockets,
    unused_nics,
)
from railwright.diagnosis.nccl.paths import ConnectionPaths
from railwright.diagnosis.nccl.settings import costly_settings, differing_settings
from railwright.diagnosis.nccl.warnings import explain_warnings
from railwright.results.readers.nccl_log.model import Communicator, NcclLog, Ring
from railwright.results.readers.nccl_log.summary import Wiring
from railwright.topology.devices import Topology

_RING_PATTERN = 4
"""src/include/graph.h, NCCL_TOPO_PATTERN_RING."""


def contradictions(log: NcclLog, topology: Topology | None) -> tuple[Finding, ...]:
    """Return the findings of the log's largest communicator. The topology of one host stands for all hosts."""
    return tuple(_list_contradictions(log, topology))


def _list_contradictions(log: NcclLog, topology: Topology | None) -> Iterator[Finding]:
    yield from explain_warnings(log)
    yield from _check_versions(log)
    yield from differing_settings(log)
    yield from costly_settings(log)
    if not log.settings:
        why = "no setting is logged: none is set, or ENV is not in NCCL_DEBUG_SUBSYS"
        yield could_not_look("nccl_setting", why)
    if not log.communicators:
        why = "the log names no communicator: it ends before the set-up or begins after it"
        yield could_not_look("nccl_rings", why)
        yield from only_sockets(log, topology)
        return
    main = log.main
    ways = ConnectionPaths(log, main, topology)
    for look in (_check_ranks, _check_rings, _check_channels):
        yield from look(log, main)
    yield from sockets(log, main, topology)
    yield from unused_nics(log, main)
    for look_at_ways in (gdr_over_cpu, no_gdr, no_peer_to_peer):
        yield from look_at_ways(log, main, ways)
    if not log.choices:
        why = "no algorithm is logged: TUNING is not in NCCL_DEBUG_SUBSYS, nothing ran, or NCCL is before 2.20"
        yield could_not_look("nccl_algorithm", why)


def _check_versions(log: NcclLog) -> Iterator[Finding]:
    """Report ranks with different NCCL versions, which may build different graphs or fail to communicate."""
    versions = {version.nccl: version for version in reversed(log.versions)}
    builds = {f"{version.nccl}+cuda{version.cuda}": version for version in reversed(log.versions)}
    if len(builds) > 1:
        difference = "NCCL versions" if len(versions) > 1 else "builds of one NCCL version"
        listed = ", ".join(f"{name} on {version.host or 'rank 0'}" for name, version in sorted(builds.items())[:6])
        yield Finding(
            fault="nccl_versions_differ",
            where=tuple(LogPlace(version.host or "rank 0") for version in log.versions[:MAX_WHERE]),
            certainty="seen",
            says=f"ranks run different {difference}: {listed}",
            remedy="start all ranks from the same image or with the same LD_LIBRARY_PATH",
            evidence=log_lines(log, (version.line for version in builds.values())),
        )


def _check_ranks(log: NcclLog, main: Communicator) -> Iterator[Finding]:
    """Report ranks that never finished initialization, and ranks without a line, which cannot be checked.

    That they hung is known only if something ended the run; otherwise the text may lack their lines.
    """
    stuck = [rank for rank in main.ranks if not rank.complete]
    is_some = log.unread_completes < len(stuck) < len(main.ranks)
    if is_some and any(rank.bus_id for rank in stuck):
        hung = f"; line {log.ended_at} tells of a time-out or an abort: they hung there" if log.ended_at else ""
        yield Finding(
            fault="nccl_init_incomplete",
            where=tuple(LogPlace(f"rank {rank.rank}") for rank in stuck[:MAX_WHERE]),
            certainty="likely" if hung else "possible",
            says=f"{len(stuck)} of {main.size} ranks have no Init COMPLETE line in the text, the first is rank"
            f" {stuck[0].rank}{hung}",
            remedy="check the last lines of these ranks, in the whole output",
            evidence=log_lines(log, (rank.line for rank in stuck)),
        )
    missing = main.size - len(main.ranks)
    if missing > 0:
        why = f"{missing} of {main.size} ranks wrote no line that names them"
        yield could_not_look("nccl_ranks_missing", why)


def _check_rings(log: NcclLog, main: Communicator) -> Iterator[Finding]:
    """Report rings that lack ranks or enter a host twice."""
    if not main.rings:
        yield could_not_look("nccl_rings", "no ring is logged: INIT is not in NCCL_DEBUG_SUBSYS")
        return
    lacking = [ring for ring in main.rings if ring.whole and not _has_every_rank(ring, main.size)]
    if lacking:
        ring = lacking[0]
        absent = sorted(set(range(min(main.size, 4096))) - set(ring.ranks))
        yield Finding(
            fault="nccl_ring_incomplete",
            where=_list_places(lacking),
            certainty="likely",
            says=f"ring {ring.channel} has {len(set(ring.ranks))} of {main.size} ranks, without {absent[:8]}",
            remedy="if the log line is complete, report it to NCCL: every ring must contain every rank",
            evidence=log_lines(log, (lacking_ring.line for lacking_ring in lacking)),
        )
    wiring = Wiring(main)
    crossings = {ring.channel: [hop.crosses for hop in wiring.hops(ring)] for ring in main.rings if ring.whole}
    known = {channel: hops.count(True) for channel, hops in crossings.items() if None not in hops}
    twice = [ring for ring in main.rings if known.get(ring.channel, 0) > max(len(main.hosts), 1)]
    if twice:
        ring = twice[0]
        yield Finding(
            fault="nccl_ring_reenters_host",
            where=_list_places(twice),
            certainty="seen",
            says=f"ring {ring.channel} changes host {known[ring.channel]} times, with {len(main.hosts)} hosts",
            costs="each additional crossing uses a NIC's bandwidth in both hosts again",
            remedy="number the ranks of each host consecutively, and check for NCCL_GRAPH_FILE and NCCL_HOSTID",
            evidence=log_lines(log, (lacking_ring.line for lacking_ring in twice)),
        )
    unknown = len(main.rings) - len(known)
    if unknown > 0:
        why = f"{unknown} of {len(main.rings)} rings are cut or have ranks whose host is not logged"
        yield could_not_look("nccl_ring_reenters_host", why)


def _has_every_rank(ring: Ring, size: int) -> bool:
    ranks = set(ring.ranks)
    return len(ranks) == size and max(ranks) < size


def _list_places(rings: list[Ring]) -> tuple[LogPlace, ...]:
    return tuple(LogPlace(f"channel {ring.channel}") for ring in rings[:MAX_WHERE])


def _check_channels(log: NcclLog, main: Communicator) -> Iterator[Finding]:
    """Report fewer channels than the search found: NCCL uses the minimum over all ranks."""
    found = [search for search in main.searches if search.pattern == _RING_PATTERN]
    built = main.counts.collective if main.counts else len(main.rings)
    if not found or not built:
        why = "the log does not state the number of channels"
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
            where=log_places(search.host for search in found if search.channels == least.channels)
            or log_places(["log"]),
            certainty="seen",
            says=f"{built} channels were built, but the search on {most.host or 'one rank'} found {most.channels}"
            + (fewer if least.channels < most.channels else ""),
            costs="a ring carries the bandwidth of one search result: fewer channels, fewer NICs and links in use",
            remedy="compare the machines' PCIe and NVLink (railwright topo), and check for NCCL_MAX_NCHANNELS",
            evidence=log_lines(log, (most.line, least.line, main.counts.line if main.counts else 0)),
        )
