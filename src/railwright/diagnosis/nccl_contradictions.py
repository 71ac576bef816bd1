"""Where NCCL's log contradicts the machine, itself, or what the run could have: one function per fault.

Every finding shows its line. A fault that could not be looked for is a finding too, so that silence means something.
"""

from __future__ import annotations

from railwright.diagnosis.nccl_evidence import could_not_look, log_lines
from railwright.diagnosis.nccl_networks import (
    no_gdr,
    no_peer_to_peer,
    receive_over_cpu,
    sockets,
    unused_nics,
)
from railwright.diagnosis.nccl_paths import Ways
from railwright.diagnosis.nccl_settings import costly_settings, differing_settings
from railwright.faults.model import Finding
from railwright.results.readers.nccl_log_model import Communicator, NcclLog, Search
from railwright.results.readers.nccl_log_summary import Wiring
from railwright.topology.model import Topology

_RING_PATTERN = 4
"""src/include/graph.h, NCCL_TOPO_PATTERN_RING."""


def contradictions(log: NcclLog, topology: Topology | None) -> tuple[Finding, ...]:
    """All that the log's largest communicator shows. The topology is one host, and stands for all of them."""
    findings: list[Finding] = [*_versions(log), *differing_settings(log), *costly_settings(log)]
    if not log.settings:
        findings.append(
            could_not_look("nccl_setting", "no setting is logged: there is none, or ENV is not in NCCL_DEBUG_SUBSYS")
        )
    if not log.communicators:
        return (
            *findings,
            could_not_look("nccl_rings", "the log names no communicator: it ends before or begins after the set-up"),
        )
    main = log.main
    ways = Ways(log, main, topology)
    findings += [*_ranks(log, main), *_rings(log, main), *_channels(log, main)]
    findings += [*sockets(log, main, topology), *unused_nics(log, main)]
    for look in (receive_over_cpu, no_gdr, no_peer_to_peer):
        findings += look(log, main, ways)
    if not log.choices:
        why = "no algorithm is logged: TUNING is not in NCCL_DEBUG_SUBSYS, nothing ran, or NCCL is before 2.20"
        findings.append(could_not_look("nccl_algorithm", why))
    return tuple(findings)


def _versions(log: NcclLog) -> tuple[Finding, ...]:
    """Ranks with different NCCL: they may build different graphs, or not understand each other."""
    versions = {one.nccl: one for one in reversed(log.versions)}
    builds = {f"{one.nccl}+cuda{one.cuda}": one for one in reversed(log.versions)}
    if len(builds) < 2:
        return ()
    what = "NCCL versions" if len(versions) > 1 else "builds of one NCCL version"
    told = ", ".join(f"{name} on {one.host or 'rank 0'}" for name, one in sorted(builds.items())[:6])
    finding = Finding(
        fault="nccl_versions_differ",
        where=tuple(one.host or "rank 0" for one in log.versions[:16]),
        certainty="seen",
        says=f"ranks run different {what}: {told}",
        remedy="start all ranks from the same image or with the same LD_LIBRARY_PATH",
        evidence=log_lines(log, (one.line for one in builds.values())),
    )
    return (finding,)


def _ranks(log: NcclLog, main: Communicator) -> tuple[Finding, ...]:
    """Ranks that began and never were ready, and ranks without a line, whose side nobody can check."""
    findings: list[Finding] = []
    stuck = [one for one in main.ranks if not one.complete]
    if stuck and len(stuck) < len(main.ranks) and any(one.bus_id for one in stuck):
        findings.append(
            Finding(
                fault="nccl_init_incomplete",
                where=tuple(f"rank {one.rank}" for one in stuck[:16]),
                certainty="likely",
                says=f"{len(stuck)} of {main.size} ranks have no Init COMPLETE line, the first is rank {stuck[0].rank}",
                remedy="look at the last lines of these ranks: the run hung there, or the log was cut",
                evidence=log_lines(log, (one.line for one in stuck)),
            )
        )
    if len(main.ranks) < main.size:
        missing = main.size - len(main.ranks)
        why = f"{missing} of {main.size} ranks wrote no line that names them"
        findings.append(could_not_look("nccl_ranks_missing", why))
    return tuple(findings)


def _rings(log: NcclLog, main: Communicator) -> tuple[Finding, ...]:
    """Rings that lack ranks, or come to one host twice."""
    if not main.rings:
        return (could_not_look("nccl_rings", "no ring is logged: INIT is not in NCCL_DEBUG_SUBSYS"),)
    findings: list[Finding] = []
    lacking = [ring for ring in main.rings if ring.whole and set(ring.ranks) != set(range(main.size))]
    if lacking:
        ring = lacking[0]
        absent = sorted(set(range(min(main.size, 4096))) - set(ring.ranks))
        findings.append(
            Finding(
                fault="nccl_ring_incomplete",
                where=tuple(f"channel {one.channel}" for one in lacking[:16]),
                certainty="likely",
                says=f"ring {ring.channel} has {len(set(ring.ranks))} of {main.size} ranks, without {absent[:8]}",
                remedy="if the log did not cut the line, report it to NCCL: every ring must pass every rank",
                evidence=log_lines(log, (one.line for one in lacking)),
            )
        )
    wiring = Wiring(main)
    crossings = {ring.channel: [hop.crosses for hop in wiring.hops(ring)] for ring in main.rings if ring.whole}
    known = {channel: hops.count(True) for channel, hops in crossings.items() if None not in hops}
    twice = [ring for ring in main.rings if known.get(ring.channel, 0) > max(len(main.hosts), 1)]
    if twice:
        ring = twice[0]
        findings.append(
            Finding(
                fault="nccl_ring_reenters_host",
                where=tuple(f"channel {one.channel}" for one in twice[:16]),
                certainty="seen",
                says=f"ring {ring.channel} changes host {known[ring.channel]} times, with {len(main.hosts)} hosts",
                costs="each crossing more takes a NIC's bandwidth in both hosts once more",
                remedy="number the ranks of one host in sequence, and look for NCCL_GRAPH_FILE and NCCL_HOSTID",
                evidence=log_lines(log, (one.line for one in twice)),
            )
        )
    if len(known) < len(main.rings):
        why = (
            f"{len(main.rings) - len(known)} of {len(main.rings)} rings have ranks whose host is not logged, or are cut"
        )
        findings.append(could_not_look("nccl_ring_reenters_host", why))
    return tuple(findings)


def _channels(log: NcclLog, main: Communicator) -> tuple[Finding, ...]:
    """Fewer channels than the search found: some rank found fewer, and NCCL takes the least of all."""
    found = [one for one in main.searches if one.pattern == _RING_PATTERN]
    built = main.counts.collective if main.counts else len(main.rings)
    if not found:
        return (could_not_look("nccl_channels", "no graph search is logged: GRAPH is not in NCCL_DEBUG_SUBSYS"),)
    if not built:
        return (could_not_look("nccl_channels", "the log does not say how many channels were built"),)
    most, least = max(found, key=_found), min(found, key=_found)
    if built >= most.channels:
        return ()
    because = f", {least.host or 'another rank'} found only {least.channels}" if least.channels < most.channels else ""
    finding = Finding(
        fault="nccl_channels",
        where=tuple(dict.fromkeys(one.host for one in found if one.channels == least.channels)) or ("log",),
        certainty="seen",
        says=f"{built} channels were built, the search on {most.host or 'one rank'} found {most.channels}{because}",
        costs="a ring carries the bandwidth of one search result: fewer channels, fewer NICs and links in use",
        remedy="compare the machines' PCIe and NVLink (railwright topo), and look for NCCL_MAX_NCHANNELS",
        evidence=log_lines(log, (most.line, least.line, main.counts.line if main.counts else 0)),
    )
    return (finding,)


def _found(one: Search) -> int:
    return one.channels
