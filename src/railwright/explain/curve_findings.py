"""Findings from a table, its machine and its settings that need no predicted curve of a fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright.checks.finding import Finding, Place
from railwright.checks.parts import rdma_ports
from railwright.diagnosis.verdicts.judged import Judged
from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.explain.curve_shape import find_fall
from railwright.faults import nic_unused, p2p_disabled, uplinks_shared
from railwright.limits.limit import Limit
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.workload import Copy, Crossing
from railwright.units import format_bandwidth, format_size

_HCA = "NCCL_IB_HCA"
_COLLAPSE = 3.0


def find_in_curve(file: ForeignFile, machine: Machine, rows: Sequence[Judged]) -> tuple[Finding, ...]:
    """Return all findings."""
    return tuple(_find_all(file, machine, rows))


def _find_all(file: ForeignFile, machine: Machine, rows: Sequence[Judged]) -> Iterator[Finding]:
    yield from _find_too_few_nics(file, machine)
    yield from _find_copies_without_nvlink(file, machine, rows)
    fall = find_fall(rows)
    slow = any(row.verdict.state == "slow" for row in rows)
    between = machine.cluster.hosts > 1 and file.workload.transport == "nccl"
    if fall and slow and between and fall.lasts and fall.factor >= _COLLAPSE:
        at, before = format_size(fall.size_bytes), format_size(fall.before_bytes)
        yield uplinks_shared.FAULT.finding(
            (Place("network"),),
            f"from {at} on the rate is 1/{fall.factor:.1f} of that at {before}: flows collide in the"
            " network once messages are long, as on shared uplinks; a slow link would have limited smaller sizes too",
            ("curve", f"1/{fall.factor:.1f} at {at}", "the table"),
            certainty="possible",
            remedy="the same test with hosts of one leaf only; the counters of discards, pauses and ECN"
            " marks on the switches between them",
        )


def _find_copies_without_nvlink(file: ForeignFile, machine: Machine, rows: Sequence[Judged]) -> Iterator[Finding]:
    """Find copies between NVLink-joined GPUs that are all within the rate of PCIe."""
    host = machine.cluster.host
    pairs = [row for row in rows if row.value and _is_between_gpus(row.path)] if isinstance(file.workload, Copy) else []
    if not host.joins_gpus or not pairs or any(row.verdict.state != "slow" for row in pairs):
        return
    fastest = max(row.value or 0.0 for row in pairs)
    over_pcie, _ = expect(Crossing(path="gpu0:memory0"), machine)
    if isinstance(over_pcie, Limit) and fastest <= over_pcie.value:
        rate, pcie = format_bandwidth(fastest), format_bandwidth(over_pcie.value)
        yield p2p_disabled.FAULT.finding(
            (Place("GPUs"),),
            f"no copy between GPUs is faster than {rate}, a rate of PCIe ({pcie}) and not of NVLink",
            ("curve", rate, "the table"),
            certainty="possible",
            remedy="nvidia-smi topo -p2p r and nvidia-smi nvlink -s; systemctl status nvidia-fabricmanager",
        )


def _is_between_gpus(path: str) -> bool:
    source, _, target = path.partition(">")
    return source.startswith("gpu") and target.startswith("gpu") and source != target


def _find_too_few_nics(file: ForeignFile, machine: Machine) -> Iterator[Finding]:
    """Find an NCCL_IB_HCA that names fewer NICs than the host has, and fewer than its GPUs in the job."""
    value = file.environment.get(_HCA, "")
    named = [word for word in value.lstrip("=").split(",") if word]
    ports = len(rdma_ports(machine.cluster.host))
    gpus = file.ranks // machine.cluster.hosts if file.ranks else 0
    exact = value and not value.startswith("^") and all(word.rstrip(":0123456789") != word for word in named)
    if exact and len(named) < min(ports, gpus):
        yield nic_unused.FAULT.finding(
            (Place("environment"),),
            f"{_HCA}={value[:80]} names {len(named)} of the {ports} NICs of each host, for {gpus} GPUs",
            ("setting", f"{_HCA}={value[:80]}", "environment of the run"),
            costs="",
            remedy=f"unset {_HCA}, or name one NIC for each GPU (NCCL User Guide, Environment Variables)",
        )
