"""What stands beside a table: `nvidia-smi topo -m` of its machine, which says where GPUs and NICs are."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from railwright.checks.check import Facts
from railwright.checks.finding import Finding
from railwright.faults import nic_across_sockets
from railwright.results.records import Evidence
from railwright.topology.cluster import Cluster
from railwright.topology.matrix import Matrix, matrix_of, topology_of
from railwright.units import count

SEEN = "nvidia-smi topo -m"
_NCCL = re.compile(r"NCCL version (\d{1,3})\.(\d{1,3})\.(\d{1,3})")
_LOOKED = (nic_across_sockets.FAULT,)
"""What the places of devices alone can show."""


class Beside(msgspec.Struct, frozen=True):
    """What a text says of the machine beside its tables."""

    matrix: Matrix | None = None
    findings: tuple[Finding, ...] = ()
    nccl: tuple[int, ...] = ()
    """The version of NCCL, empty where it is not said."""


def beside(text: str) -> Beside:
    """All that is read beside tables; findings are possible causes, since nobody says which hosts the text is of."""
    matrix, version = matrix_of(text), _nccl_of(text)
    if matrix is None:
        return Beside(nccl=version)
    facts = Facts(topology=topology_of(matrix, SEEN))
    found = (finding for check in _LOOKED for finding in check.look(facts))
    return Beside(matrix, tuple(_as_possible(one) for one in found), version)


def _nccl_of(text: str) -> tuple[int, ...]:
    found = _NCCL.search(text) if "NCCL version" in text else None
    return tuple(map(int, found.groups())) if found else ()


def _as_possible(found: Finding) -> Finding:
    evidence = tuple(Evidence(claim=SEEN, value=one.value, seen="the text") for one in found.evidence)
    return replace(found, certainty="possible", evidence=evidence)


def contradictions_beside(found: Beside, given: Cluster) -> tuple[str, ...]:
    """Where the machine given has not as many GPUs, NVLinks or NICs as the text shows."""
    return tuple(_contradictions(found.matrix, given)) if found.matrix is not None else ()


def _contradictions(matrix: Matrix, given: Cluster) -> Iterator[str]:
    gpus, nics = len(given.host.of_kind("gpu")), len(given.host.of_kind("nic"))
    shown, near = len(matrix.gpus), len(matrix.near)
    if shown and gpus != shown:
        yield f"{SEEN} beside the table shows {count(shown, 'GPU')}, the machine given has {gpus}"
    elif near and nics != near:
        yield f"{SEEN} beside the table shows {count(near, 'NIC')} near GPUs, the machine given has {nics}"
    if shown > 1 and bool(matrix.nvlinks) != given.host.joins_gpus and gpus > 1:
        has = "joined by NVLink" if matrix.nvlinks else "not joined by NVLink"
        other = "are not" if matrix.nvlinks else "are"
        yield f"{SEEN} beside the table shows GPUs {has}, those of the machine given {other}"
