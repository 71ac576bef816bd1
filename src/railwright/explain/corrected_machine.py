"""Corrections to the given machine from facts in the table, such as GPUs without GPUDirect RDMA."""

from __future__ import annotations

import dataclasses
import re

from msgspec.structs import replace

from railwright.diagnosis.verdicts.judged import Judged, Verdict
from railwright.expected.machine import Machine
from railwright.faults.gpudirect_off import FACT
from railwright.results.readers.foreign_file import ForeignFile
from railwright.topology.changes import add_host_facts
from railwright.topology.devices import EfaLink

_NO_EFA = re.compile(r"\b(?:T4G?|V100\S{0,24}|A10G?|M60|K80|P100\S{0,24})\b")
"""EFA supports GPUDirect RDMA only on P4d and later instances, which have A100 and newer (EC2 User Guide, Get
started with EFA and NCCL)."""
_NO_GPUDIRECT = re.compile(r"\bGeForce\b|\bTITAN\b")
"""GPUDirect RDMA needs a GPU of the data-centre or professional lines (NVIDIA GPUDirect RDMA, Overview)."""
_MAX_NAMES = 8
_STAGED_SHARE = 0.4
"""Share of the band's low end: two AWS hosts with a T4 each reach 3.1 of 12.5 GB/s over EFA, where the band through
host memory begins at 7.1 (aws-do-eks, eks-efa, EFA NCCL Test)."""
_WHY = "rates through host memory vary as much between healthy hosts, by GPU and CPU"


def doubt_corrected_rows(rows: tuple[Judged, ...], told: tuple[str, ...]) -> tuple[Judged, ...]:
    """Turn slow rows that reach `_STAGED_SHARE` of their band into unknown ones if `told` is not empty."""
    return tuple(map(_doubt_slow_row, rows)) if told else rows


def _doubt_slow_row(row: Judged) -> Judged:
    low = row.expected.low if row.expected is not None else 0.0
    if row.verdict.state != "slow" or not row.value or row.value < _STAGED_SHARE * low:
        return row
    return replace(row, verdict=Verdict(state="unknown", why=f"{row.verdict.why}, but {_WHY}"))


def correct_machine(file: ForeignFile, machine: Machine) -> tuple[Machine, tuple[str, ...]]:
    """Return the machine without features that the table's GPUs lack, and a note for each correction."""
    names = file.gpus[:_MAX_NAMES]
    host = machine.cluster.host
    over_efa = any(isinstance(link.protocol, EfaLink) for link in host.links)
    unable = bool(names) and all(_NO_GPUDIRECT.search(name) or (over_efa and _NO_EFA.search(name)) for name in names)
    off = any(device.facts.get(FACT) is False for device in host.of_kind("host"))
    if not unable or machine.cluster.hosts < 2 or off:
        return machine, ()
    cluster = replace(machine.cluster, host=add_host_facts(host, **{FACT: False}))
    where = " over EFA" if over_efa else ""
    note = f"{', '.join(names[:2])} has no GPUDirect RDMA{where}: compared with transfers through host memory"
    return dataclasses.replace(machine, cluster=cluster), (note,)
