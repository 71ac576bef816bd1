"""The machine facts around a table: the places of GPUs and NICs from `nvidia-smi topo -m`, and NCCL's version."""

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
from railwright.topology.matrix import Matrix, build_topology, parse_matrix
from railwright.units import format_count

SOURCE = "nvidia-smi topo -m"
_NCCL = re.compile(r"NCCL version (\d{1,3})\.(\d{1,3})\.(\d{1,3})")
_CHECKS = (nic_across_sockets.FAULT,)
"""The checks that need only the places of devices."""


class Surroundings(msgspec.Struct, frozen=True):
    """The machine facts in a text around its tables."""

    matrix: Matrix | None = None
    findings: tuple[Finding, ...] = ()
    nccl: tuple[int, ...] = ()
    """The version of NCCL, empty if unknown."""


def read_surroundings(text: str) -> Surroundings:
    """Read the machine facts around tables; findings are at most `possible`, because the text's hosts are unknown."""
    matrix, version = parse_matrix(text), _find_nccl_version(text)
    if matrix is None:
        return Surroundings(nccl=version)
    facts = Facts(topology=build_topology(matrix, SOURCE))
    checks = () if matrix.cut_gpus else _CHECKS  # where a GPU's row is missing, its NICs are not known
    found = (finding for check in checks for finding in check.look(facts))
    return Surroundings(matrix, tuple(_make_possible(finding) for finding in found), version)


def _find_nccl_version(text: str) -> tuple[int, ...]:
    found = _NCCL.search(text) if "NCCL version" in text else None
    return tuple(map(int, found.groups())) if found else ()


def _make_possible(found: Finding) -> Finding:
    evidence = tuple(Evidence(claim=SOURCE, value=item.value, seen="the text") for item in found.evidence)
    return replace(found, certainty="possible", evidence=evidence)


def matrix_contradictions(found: Surroundings, given: Cluster) -> tuple[str, ...]:
    """Report differences in the numbers of GPUs, NVLinks and NICs between the text and the given machine."""
    return tuple(_contradictions(found.matrix, given)) if found.matrix is not None else ()


def _contradictions(matrix: Matrix, given: Cluster) -> Iterator[str]:
    gpus, nics = len(given.host.of_kind("gpu")), len(given.host.of_kind("nic"))
    shown, near = len(matrix.gpus), len(matrix.nearest_nics)
    if shown and gpus != shown:
        yield f"{SOURCE} in the text shows {format_count(shown, 'GPU')}, but the given machine has {gpus}"
    elif near and nics != near:
        yield f"{SOURCE} in the text shows {format_count(near, 'NIC')} near GPUs, but the given machine has {nics}"
    if shown > 1 and bool(matrix.nvlinks) != given.host.joins_gpus and gpus > 1:
        has = "joined by NVLink" if matrix.nvlinks else "not joined by NVLink"
        other = "are not" if matrix.nvlinks else "are"
        yield f"{SOURCE} in the text shows GPUs {has}, but those of the given machine {other}"
