"""Questions that several faults ask of a case: where its collective goes, and how it runs on other machines."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.limits.case import Case
from railwright.limits.traffic import domains
from railwright.topology.cluster import ports
from railwright.topology.devices import Topology


def can_run(case: Case) -> bool:
    """Whether there is a collective at all: two GPUs, and NICs where they are not joined by NVLink."""
    cluster = case.cluster
    return cluster.ranks > 1 and (domains(cluster) < 2 or bool(ports(cluster.host)))


def over_network(case: Case) -> bool:
    """Whether a collective of that cluster crosses NICs at all."""
    return can_run(case) and domains(case.cluster) > 1


def gpus_use_pcie(case: Case) -> bool:
    """Whether GPUs send to each other, or to host memory where that counts, over PCIe inside a host."""
    gpus = case.cluster.gpus_per_host
    return (case.to_memory and gpus > 0) or (gpus > 1 and not case.cluster.host.joins_gpus)


def with_host(case: Case, host: Topology) -> Case:
    """The case with other machines: a cluster is as fast as its slowest host, so one faulty host stands for all."""
    return replace(case, cluster=replace(case.cluster, host=host))
