"""A process that may not run on the CPUs beside a GPU or a NIC: a cpuset of its container, or its launcher's pinning.

Linux Documentation/admin-guide/cgroup-v1/cpusets.rst; `Cpus_allowed_list` says what is left after all of them.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import OfPart
from railwright.checks.host_settings import read, read_of, setting
from railwright.checks.parts import rdma_nics
from railwright.results.records import Evidence
from railwright.topology.cpu_list import parse_cpu_list
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import runs

_FACT = "cpus_allowed"


def _signs(facts: Facts) -> Findings:
    topology = facts.topology
    allowed = setting(topology, _FACT)
    if not isinstance(allowed, str):
        return
    mine = parse_cpu_list(allowed)
    closed = {cpu.numa for cpu in topology.of_kind("cpu") if not _cpus(cpu) & mine and _cpus(cpu)}
    away = [one.id for one in _users(topology) if one.numa in closed]
    if away and mine:
        yield CHECK.finding(
            map(OfPart, away),
            f"this process may run on CPUs {allowed[:80]} alone, of which none is beside {runs(away)}",
            Evidence(claim="CPUs allowed", value=allowed[:80], seen="/proc/self/status"),
            # One process for each GPU is meant to see a part of the CPUs alone.
            certainty="possible",
            costs="what serves these devices runs across sockets: copies, interrupts and small messages",
            remedy="give the container or the rank CPUs of their node: docker run --cpuset-cpus, numactl --cpunodebind,"
            " mpirun --map-by ppr:1:numa; taskset -pc PID shows what it has",
        )


def _cpus(cpu: Device) -> set[int]:
    return parse_cpu_list(str(cpu.facts.get("cpu_list", "")))


def _users(topology: Topology) -> tuple[Device, ...]:
    return (*topology.of_kind("gpu"), *rdma_nics(topology))


def _lacks(topology: Topology) -> str:
    if len(topology.of_kind("cpu")) < 2:
        return "one NUMA node alone"
    return "" if _users(topology) else "no GPU and no NIC with RDMA"


CHECK = Check(
    name="cpus_withheld",
    summary="a process may not run beside a GPU or a NIC",
    signs=_signs,
    needs=(needs.settings, _lacks),
    asks=(
        read(_FACT),
        read_of("cpu", "cpu_list"),
    ),
)
