"""NCCL over several hosts: its bounds follow from the hosts that took part, their GPUs and their fabric."""

from __future__ import annotations

from msgspec.structs import replace

from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.limits.limit import Limit, NoLimit
from railwright.results.records import Fabric as Links
from railwright.results.workload import Collective
from railwright.topology.cluster import Fabric, Tier, build_cluster
from railwright.topology.sources.load import load
from railwright.units import GIB, MIB

HGX = load("hgx-h100")
ALL = Collective(operation="all_reduce", path="gpu0@0>gpu7@3", ranks=32, hosts=4, size_bytes=GIB, rate="busbw")


def value(workload, machine):
    limit, _ = expect(workload, machine)
    assert isinstance(limit, Limit), limit
    return limit.value


def test_a_run_over_hosts_has_the_bounds_of_a_cluster_of_as_many():
    of_run = expect(ALL, Machine(cluster=build_cluster(HGX, 1)))
    of_cluster = expect(replace(ALL, path=""), Machine(cluster=build_cluster(HGX, 4)))
    assert of_run == of_cluster
    assert of_run[1] is not None


def test_a_rail_has_one_port_of_each_host_and_a_group_of_one_host_has_nvlink():
    machine = Machine(cluster=build_cluster(HGX, 1))
    rail = replace(ALL, path="gpu3@0>gpu3@3", gpus="gpu3", ranks=4)
    inside = replace(ALL, path="gpu0>gpu7", ranks=8, hosts=1)
    assert value(rail, machine) < 0.2 * value(ALL, machine)
    assert value(inside, machine) == value(replace(inside, path=""), machine)


def test_the_tiers_of_a_cluster_file_lower_the_limit_of_hosts_on_several_leaves():
    narrow = Fabric(tiers=(Tier(hosts=2, oversubscription=4), Tier(name="spine", hosts=8)))
    tapered = Machine(cluster=build_cluster(HGX, 1, narrow))
    assert value(ALL, tapered) < value(ALL, Machine(cluster=build_cluster(HGX, 1)))


def test_links_of_known_rate_bound_nccl_as_they_bound_mpi():
    links = Links(name="lab x", ports_bytes_per_s=12.5e6, flow_bytes_per_s=12.5e6, narrowest="host0-leaf0")
    machine = Machine(cluster=build_cluster(HGX, 1), links=links)
    by_nccl = replace(ALL, size_bytes=4 * MIB)
    assert expect(by_nccl, machine) == expect(replace(by_nccl, by="mpi"), machine)


def test_a_slow_pair_measured_by_tcp_does_not_bound_nccl():
    links = Links(
        name="these", ports_bytes_per_s=1e9, flow_bytes_per_s=1e9, narrowest="the slowest pair of them", measured=True
    )
    machine = Machine(cluster=build_cluster(HGX, 1), links=links)
    assert expect(ALL, machine) == expect(ALL, Machine(cluster=build_cluster(HGX, 1)))


def test_namespaces_of_one_machine_are_not_joined_by_its_ports():
    limit, band = expect(replace(ALL, hosts_in_one_machine=True), Machine(cluster=build_cluster(HGX, 1)))
    assert isinstance(limit, NoLimit)
    assert "parts of one machine" in limit.why
    assert band is None
