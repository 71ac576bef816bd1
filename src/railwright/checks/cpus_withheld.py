"""A process that may not run on the CPUs near a GPU or a NIC, because of its container's cpuset or its pinning.

Linux Documentation/admin-guide/cgroup-v1/cpusets.rst; `Cpus_allowed_list` shows the CPUs that remain.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting, why_unread
from railwright.checks.parts import rdma_nics
from railwright.topology.cpu_list import parse_cpu_list
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import format_runs

_FACT = "cpus_allowed"


def _signs(facts: Facts) -> Findings:
    topology = facts.topology
    allowed = setting(topology, _FACT)
    if not isinstance(allowed, str):
        return
    mine = parse_cpu_list(allowed)
    closed = {cpu.numa for cpu in topology.of_kind("cpu") if not _cpu_numbers(cpu) & mine and _cpu_numbers(cpu)}
    away = [device.id for device in _gpus_and_nics(topology) if device.numa in closed]
    if away and mine:
        yield CHECK.finding(
            away,
            f"this process may run only on CPUs {allowed[:80]}, none of which is near {format_runs(away)}",
            ("CPUs allowed", allowed[:80], "/proc/self/status"),
        )


def _cpu_numbers(cpu: Device) -> set[int]:
    return parse_cpu_list(str(cpu.facts.get("cpu_list", "")))


def _gpus_and_nics(topology: Topology) -> tuple[Device, ...]:
    return (*topology.of_kind("gpu"), *rdma_nics(topology))


def _explain_unread(topology: Topology) -> str:
    blind = next((cpu.id for cpu in topology.of_kind("cpu") if "cpu_list" not in cpu.facts), None)
    return "" if blind is None else f"{why_unread(topology, 'cpu_list')} (of {blind})"


CHECK = Check(
    name="cpus_withheld",
    summary="a process may not run near a GPU or a NIC",
    # A process per GPU is meant to see only a part of the CPUs.
    certainty="possible",
    right="processes may run near every GPU and NIC",
    costs="copies, interrupts and small messages of these devices cross sockets",
    remedy="give the container or the rank CPUs of their node: docker run --cpuset-cpus, numactl --cpunodebind,"
    " mpirun --map-by ppr:1:numa; taskset -pc PID shows its CPUs",
    signs=_signs,
    needs=(needs.settings, needs.numa_nodes, needs.some(_gpus_and_nics, "no GPU and no RDMA NIC")),
    asks=(require_read(_FACT), _explain_unread),
)
