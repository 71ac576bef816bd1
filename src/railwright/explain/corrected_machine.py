"""The machine given, as what the table says of itself changes it: what its parts can do at all."""

from __future__ import annotations

import dataclasses
import re

from msgspec.structs import replace

from railwright.diagnosis.verdicts.judged import Judged, Verdict
from railwright.expected.machine import Machine
from railwright.faults.gpudirect_off import FACT
from railwright.results.readers.foreign_file import ForeignFile
from railwright.topology.changes import with_host_facts
from railwright.topology.devices import EfaLink

_NO_EFA = re.compile(r"\b(?:T4G?|V100\S{0,24}|A10G?|M60|K80|P100\S{0,24})\b")
"""EFA has GPUDirect RDMA on P4d and later instances alone, which have A100 and newer (EC2 User Guide, Get started with
EFA and NCCL)."""
_NONE = re.compile(r"\bGeForce\b|\bTITAN\b")
"""GPUDirect RDMA needs a GPU of the data-centre or professional lines (NVIDIA GPUDirect RDMA, Overview)."""
_MOST = 8
_OF_STAGED = 0.4
"""Of the band's low end: two hosts of AWS with a T4 each reach 3.1 GB/s over EFA of 12.5, where the band through
host memory begins at 7.1 (aws-do-eks, eks-efa, EFA NCCL Test)."""
_WHY = "through host memory healthy hosts differ as much, by GPU and CPU"


def weighed_as_told(rows: tuple[Judged, ...], told: tuple[str, ...]) -> tuple[Judged, ...]:
    """The rows, where the table's own GPUs cannot do what the machine given supposes."""
    return tuple(map(_weighed, rows)) if told else rows


def _weighed(row: Judged) -> Judged:
    low = row.expected.low if row.expected is not None else 0.0
    if row.verdict.state != "slow" or not row.value or row.value < _OF_STAGED * low:
        return row
    return replace(row, verdict=Verdict(state="unknown", why=f"{row.verdict.why}, but {_WHY}"))


def as_told(file: ForeignFile, machine: Machine) -> tuple[Machine, tuple[str, ...]]:
    """The machine without what the GPUs that the table names cannot do, and sentences that say so."""
    names = file.gpus[:_MOST]
    host = machine.cluster.host
    over_efa = any(isinstance(link.protocol, EfaLink) for link in host.links)
    unable = bool(names) and all(_NONE.search(one) or (over_efa and _NO_EFA.search(one)) for one in names)
    off = any(one.facts.get(FACT) is False for one in host.of_kind("host"))
    if not unable or machine.cluster.hosts < 2 or off:
        return machine, ()
    cluster = replace(machine.cluster, host=with_host_facts(host, **{FACT: False}))
    where = " over EFA" if over_efa else ""
    note = f"{', '.join(names[:2])} has no GPUDirect RDMA{where}: held against what goes through host memory"
    return dataclasses.replace(machine, cluster=cluster), (note,)
