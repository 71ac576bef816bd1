"""NCCL's warnings as findings: where each occurred, its meaning, and the next command.

The cause of a failed job is usually among them, so a report shows them before everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from railwright.checks.finding import Certainty, Finding, LogPlace
from railwright.diagnosis.nccl.evidence import MAX_WHERE
from railwright.diagnosis.nccl.failure_texts import Failure, explain_failure
from railwright.groups import group_by_key
from railwright.results.readers.nccl_log.model import GdrCheck, LoggedWarning, NcclLog, Rank
from railwright.results.records import Evidence
from railwright.topology.gpus import format_runs
from railwright.units import format_list

CLAIM = "warning"
"""The claim of the evidence of these findings."""
QUOTED = "nccl_warning"
"""The fault of a warning whose text is not known: it may have ended the run or not."""
_MAX_HOSTS = 3
_MAX_QUOTED = 300
_INTERFACE = re.compile(r" (?:eth|en[op]|bond|ib\d|wl|lo)")
"""NICs of plugins for sockets, which have no GPUDirect RDMA."""
_PEERMEM = "lsmod | grep nvidia_peermem on that host (modprobe nvidia_peermem), or a kernel and driver with DMA-BUF"
_NEARER_NIC = (
    "a NIC under the PCIe switch or at least the socket of those GPUs (nvidia-smi topo -m);"
    " NCCL_NET_GDR_LEVEL=SYS for a comparison"
)


class _Known(NamedTuple):
    """A warning with its meaning, None if its text is not known, and the ranks that may have written it."""

    warning: LoggedWarning
    failure: Failure | None
    ranks: Sequence[int]


def explain_warnings(log: NcclLog) -> tuple[Finding, ...]:
    """Return the findings of all warnings: causes first, then the failures that follow from others, then the rest."""
    processes = dict(group_by_key(log.main.ranks, lambda rank: (rank.host, rank.pid))) if log.communicators else {}
    known = [
        _Known(warning, explain_failure(warning.says), _select_ranks(processes, warning)) for warning in log.warnings
    ]
    causes = [item for item in known if item.failure is not None and item.failure.is_fatal and not item.failure.follows]
    following = [item for item in known if item.failure is not None and item.failure.is_fatal and item.failure.follows]
    hints = [item for item in known if item.failure is not None and not item.failure.is_fatal]
    unknown = [item for item in known if item.failure is None]
    return (
        *_merge(log, causes),
        *_find_disabled_gpudirect(log),
        *_find_far_gpus(log),
        *_merge(log, following),
        *_merge(log, hints),
        *_quote(unknown),
    )


def is_warning(finding: Finding) -> bool:
    """Report whether a finding is one of these."""
    return any(seen.claim == CLAIM for seen in finding.evidence)


def _merge(log: NcclLog, items: Sequence[_Known]) -> Iterator[Finding]:
    """Yield a finding for each meaning, with all places where it occurred."""
    for failure, alike in group_by_key(items, lambda item: item.failure and item.failure._replace(nic="")):
        assert failure is not None
        says = failure.says + (_name_sockets(log, alike) if failure.fault == "nccl_no_verbs" else "")
        yield _build_finding(alike, failure.fault, says, failure.remedy, "seen" if failure.is_fatal else "possible")


def _quote(items: Sequence[_Known]) -> Iterator[Finding]:
    for says, alike in group_by_key(items, lambda item: item.warning.says[:_MAX_QUOTED]):
        remedy = "the lines around it, with NCCL_DEBUG=INFO, name the operation that failed"
        yield _build_finding(alike, QUOTED, f"NCCL warns: {says}", remedy, "possible")


def _build_finding(items: Sequence[_Known], fault: str, says: str, remedy: str, certainty: Certainty) -> Finding:
    first = items[0].warning
    hosts = tuple(LogPlace(host) for host in dict.fromkeys(item.warning.host for item in items) if host)
    where = _places(items)
    return Finding(
        fault=fault,
        where=hosts[:MAX_WHERE] or (LogPlace("log"),),
        certainty=certainty,
        says=f"on {where}: {says}" if where else says,
        remedy=remedy,
        evidence=(Evidence(claim=CLAIM, value=first.says[:_MAX_QUOTED], seen=f"line {first.line} of the log"),),
    )


def _places(items: Sequence[_Known]) -> str:
    """Name the places: `gpu7, local GPU 3, rank 11, mlx5_4`, and the number of further hosts."""
    words = []
    by_host = list(group_by_key(items, lambda item: item.warning.host))
    for host, alike in by_host[:_MAX_HOSTS]:
        devices = sorted({item.warning.cuda_dev for item in alike if item.warning.cuda_dev is not None})
        parts = [host] if host else []
        if host and devices and devices[0] >= 0:
            gpus = format_runs([f"GPU{device}" for device in devices]).replace("GPU", "")
            parts.append(f"local GPU{'s' if len(devices) > 1 else ''} {gpus}")
        ranks = sorted({rank for item in alike for rank in item.ranks})
        if ranks:
            parts.append(f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}")
        nics = dict.fromkeys(item.failure.nic for item in alike if item.failure is not None and item.failure.nic)
        parts += list(nics)[:8]
        words.append(", ".join(parts))
    more = len(by_host) - _MAX_HOSTS
    return "; ".join(filter(None, words)) + (f"; and {more} more hosts" if more > 0 else "")


def _select_ranks(processes: Mapping[tuple[str, int], Sequence[Rank]], warning: LoggedWarning) -> list[int]:
    """Return the ranks of the warning's process and GPU."""
    ranks = processes.get((warning.host, warning.pid), ()) if warning.pid else ()
    return [rank.rank for rank in ranks if rank.cuda_dev in (None, warning.cuda_dev)]


def _name_sockets(log: NcclLog, items: Sequence[_Known]) -> str:
    """Name the interfaces that carry the data instead."""
    hosts = {item.warning.host for item in items}
    names = dict.fromkeys(nic.name for nic in log.nics if nic.network == "Socket" and nic.host in hosts)
    return f"; it uses TCP sockets over {format_list(list(names))}" if names else ""


def _find_disabled_gpudirect(log: NcclLog) -> Iterator[Finding]:
    """Report NICs for which NCCL switched GPUDirect RDMA off, unless a connection uses it nevertheless."""
    used = any(connection.gdr for communicator in log.communicators for connection in communicator.connections)
    checks = [check for check in log.gdr if not check.gpu and not _INTERFACE.search(check.nic)]
    off = [] if used else [check for check in checks if not check.enabled]
    silent = sorted({nic.host for nic in log.nics if nic.network == "IB"} - {check.host for check in checks} - {""})
    for (_, why), alike in group_by_key(off, lambda check: (check.host, check.why.strip(" ()"))):
        reason = "no peer-memory module" if why == "no module" else why or "NCCL prints no reason"
        nics = format_list([check.nic.partition(" ")[2] or check.nic for check in alike])
        unknown = f"; {format_list(silent)} {'is' if len(silent) == 1 else 'are'} not known" if silent else ""
        says = f"{nics}: {reason}{unknown}"
        yield _gpudirect_is_off(log, alike[0], says, "all data between hosts goes through host memory", _PEERMEM)


def _find_far_gpus(log: NcclLog) -> Iterator[Finding]:
    """Report GPUs that, by every line of the log about them, have GPUDirect RDMA with no NIC; the path is too long."""
    if any(connection.gdr for communicator in log.communicators for connection in communicator.connections):
        return
    pairs = [check for check in log.gdr if check.gpu]
    for _, checks in group_by_key(pairs, lambda check: check.host):
        near = {check.gpu for check in checks if check.enabled}
        far = [check for check in checks if check.gpu not in near]
        if not far:
            continue
        first = log.excerpts.get(far[0].line, "")
        gpus = list(dict.fromkeys(check.gpu for check in far))
        noun = f"{'rank' if ' for rank ' in first else 'GPU'}{'s' if len(gpus) > 1 else ''}"
        reasons = [reason for reason in dict.fromkeys(check.why.strip(" ()") for check in far) if reason]
        why = f" ({format_list(reasons[:4])})" if reasons else ""
        others = f"; {format_list(sorted(near))} {'have' if len(near) > 1 else 'has'} it" if near else ""
        says = f"{noun} {format_list(gpus)} with every NIC in the log{why}{others}"
        yield _gpudirect_is_off(log, far[0], says, "their data between hosts goes through host memory", _NEARER_NIC)


def _gpudirect_is_off(log: NcclLog, check: GdrCheck, says: str, costs: str, remedy: str) -> Finding:
    """Return the finding that GPUDirect RDMA is off on the host of a check, whose line is the evidence."""
    return Finding(
        fault="nccl_gpudirect_disabled",
        where=(LogPlace(check.host or "log"),),
        certainty="seen",
        says=f"GPUDirect RDMA is off{f' on {check.host}' if check.host else ''} for {says}",
        costs=costs,
        remedy=remedy,
        evidence=(Evidence(claim=CLAIM, value=log.excerpts.get(check.line, ""), seen=f"line {check.line} of the log"),),
    )
