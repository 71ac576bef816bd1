"""UCX moved the data of a GPU or a memory by a NIC farther away than another, by its own log of the run."""

from __future__ import annotations

import re

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import BenchmarkPlace, PathPlace
from railwright.results.evidence import UCX_PROTOCOL, find_claim
from railwright.results.records import Evidence, Result
from railwright.topology.devices import Device, Topology
from railwright.topology.near_nics import name_nic, rank_nics
from railwright.topology.paths import KIND_ORDER

_DEVICE = re.compile(r"\b\w+/([\w.:-]+)")


def _find_far(result: Result, topology: Topology) -> tuple[str, str]:
    """Return the device whose data took a far NIC and a description, or two empty strings."""
    value = find_claim(result, UCX_PROTOCOL)
    posting = str(result.parameters.get("initiator") or result.path.partition(">")[0]).partition("@")[0]
    nics = rank_nics(topology, posting) if result.hosts > 1 else []
    named = set(_DEVICE.findall(value))
    used: list[tuple[int, Device]] = [(rank, nic) for rank, nic in nics if name_nic(nic) in named]
    if not used or used[0][0] == nics[0][0]:
        return "", ""
    (rank, nic), (best, nearest) = used[0], nics[0]
    return posting, (
        f"UCX moved the data of {posting} by {name_nic(nic)} ({KIND_ORDER[rank]}), although {name_nic(nearest)}"
        f" ({KIND_ORDER[best]}) is nearer"
    )


def _signs(facts: Facts) -> Findings:
    found: dict[tuple[str, str, str], dict[PathPlace, Evidence]] = {}
    for result in facts.results:
        device, why = _find_far(result, facts.topology)
        if why:
            item = next(item for item in result.evidence if item.claim == UCX_PROTOCOL)
            found.setdefault((result.benchmark, device, why), {})[PathPlace(result.path)] = item
    for (benchmark, device, why), points in found.items():
        yield CHECK.finding((BenchmarkPlace(benchmark), *points, device), why, *dict.fromkeys(points.values()))


CHECK = Check(
    name="ucx_nic_far",
    summary="UCX uses a NIC far from the memory",
    costs="140 of 400 Gb/s between a GPU and a NIC of different sockets (GKE A3 Ultra, ib_write_bw)",
    remedy="name the NIC near each rank's GPU in UCX_NET_DEVICES, as mlx5_0:1; railwright topo shows it",
    right="UCX uses the NIC nearest to each GPU and memory",
    signs=_signs,
    needs_results=True,
)
