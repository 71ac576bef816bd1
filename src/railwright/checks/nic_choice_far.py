"""A selection of NICs in the environment that excludes a GPU's nearest NIC, so that its traffic takes a longer path.

`NCCL_IB_HCA` (prefixes; `=` for full names, `^` for all others) and `UCX_NET_DEVICES` (`device:port`).
"""

from __future__ import annotations

from collections.abc import Iterable

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.parts import rdma_nics
from railwright.checks.settings import short
from railwright.topology.changes import remove_devices
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import format_runs
from railwright.topology.paths import KIND_ORDER, Affinity

_MAX_NAMES = 64


def _signs(facts: Facts) -> Findings:
    topology = facts.topology
    nics = [nic for nic in rdma_nics(topology) if nic.facts.get("rdma_device")]
    for name, chosen in (("NCCL_IB_HCA", _select_for_nccl), ("UCX_NET_DEVICES", _select_for_ucx)):
        value = facts.environment.get(name, "").strip()
        taken = chosen(value, nics) if value else []
        if not taken or len(taken) == len(nics) or not topology.of_kind("gpu"):
            continue
        far = _find_longer_paths(topology, {nic.id for nic in nics}, {nic.id for nic in taken})
        for way, gpus in far.items():
            yield CHECK.finding(
                gpus,
                f"{name}={short(value)} leaves out the nearest NIC of {format_runs(gpus)}: {way}",
                ("setting", f"{name}={short(value)}", "environment"),
                remedy=f"unset {name}, or name the NICs of all GPUs: railwright topo shows the nearest NIC of each",
            )


def _select_for_nccl(value: str, nics: Iterable[Device]) -> list[Device]:
    inverted, exact = value.startswith("^"), value.lstrip("^").startswith("=")
    names = [word.partition(":")[0].strip() for word in value.lstrip("^=").split(",")[:_MAX_NAMES]]

    def named(device: str) -> bool:
        return any(device == name if exact else bool(name) and device.startswith(name) for name in names)

    return [nic for nic in nics if named(str(nic.facts["rdma_device"])) != inverted]


def _select_for_ucx(value: str, nics: Iterable[Device]) -> list[Device]:
    """Select NICs as UCX does; empty for `all` and for patterns, which are not evaluated."""
    if value == "all" or set("*[^") & set(value):
        return []
    names = {word.partition(":")[0].strip() for word in value.split(",")[:_MAX_NAMES]}
    return [nic for nic in nics if str(nic.facts["rdma_device"]) in names]


def _find_longer_paths(topology: Topology, usable: set[str], taken: set[str]) -> dict[str, list[str]]:
    """Map a degradation such as `SYS instead of PIX` to the affected GPUs."""
    others = {nic.id for nic in topology.of_kind("nic")}
    best, now = (Affinity(remove_devices(topology, others - kept)) for kept in (usable, taken))
    found: dict[str, list[str]] = {}
    for gpu in topology.of_kind("gpu"):
        near, chosen = best.nearest(gpu.id)[:1], now.nearest(gpu.id)[:1]
        kinds = [side.kind(gpu.id, nic[0]) if nic else None for side, nic in ((best, near), (now, chosen))]
        if kinds[0] and kinds[1] and KIND_ORDER.index(kinds[1]) > KIND_ORDER.index(kinds[0]):
            found.setdefault(f"{kinds[1]} instead of {kinds[0]}", []).append(gpu.id)
    return found


CHECK = Check(
    name="nic_choice_far",
    summary="the selected NICs exclude those near GPUs",
    right="the selected NICs include those near GPUs",
    certainty="likely",
    costs="their traffic takes a longer path and shares the remaining NICs",
    signs=_signs,
    needs_results=True,
)
