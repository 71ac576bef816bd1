"""Queries about a case that several faults share: the path of its collective, and its machines."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.limits.case import Case
from railwright.limits.traffic import domains
from railwright.topology.cluster import ports
from railwright.topology.devices import Topology


def can_run(case: Case) -> bool:
    """Report whether a collective can run: at least two GPUs, joined by NVLink or with NICs."""
    cluster = case.cluster
    return cluster.ranks > 1 and (domains(cluster) < 2 or bool(ports(cluster.host)))


def crosses_network(case: Case) -> bool:
    """Report whether a collective of the cluster crosses NICs."""
    return can_run(case) and domains(case.cluster) > 1


def gpus_use_pcie(case: Case) -> bool:
    """Report whether GPUs send over PCIe inside a host, to each other or, if the case is to memory, to host memory."""
    gpus = case.cluster.gpus_per_host
    return (case.to_memory and gpus > 0) or (gpus > 1 and not case.cluster.host.joins_gpus)


def replace_host(case: Case, host: Topology) -> Case:
    """Replace the host of the case. A cluster is as fast as its slowest host, so one faulty host stands for all."""
    return replace(case, cluster=replace(case.cluster, host=host))
