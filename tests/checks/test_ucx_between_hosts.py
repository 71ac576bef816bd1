"""UCX's choice between hosts: TCP and emulation beside RDMA ports, and a NIC far from the memory."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.benchmarks.jobs import job_of, jobs_of
from tests.topology.machines import archive

from railwright.benchmarks.kv.between_hosts import FAR, NEAR, explain_no_nic, find_nic
from railwright.benchmarks.registry import find
from railwright.checks import rma_emulated, ucx_nic_far, ucx_over_tcp
from railwright.checks.check import Facts
from railwright.checks.ucx_over_tcp import explain_ucx
from railwright.results.records import Evidence, Result
from railwright.topology.devices import Topology
from railwright.topology.expand import expand
from railwright.topology.sources.load import load

NICS = 8


@pytest.fixture(scope="module")
def named() -> Topology:
    """A server with eight NICs that have names."""
    machine = load("hgx-h100")
    numbers = {nic.id: number for number, (nic, _) in enumerate(machine.ports_out)}
    devices = tuple(
        replace(one, facts=one.facts | {"rdma_device": f"mlx5_{numbers[one.id]}"}) if one.id in numbers else one
        for one in machine.devices
    )
    assert len(numbers) == NICS
    return replace(machine, devices=devices)


def result_with(value: str, path: str = "gpu0@0>gpu0@1", **more) -> Result:
    evidence = (Evidence(claim="ucx_protocol", value=value, seen="UCX_PROTO_INFO: ucp_put by zero-copy"),)
    fields = {"benchmark": "kv_vram", "quantity": "bandwidth_bytes_per_s", "hosts": 2, "ranks": 2}
    parameters = {"size_bytes": 2**20, "operation": "WRITE", "initiator": "gpu0@0"}
    return Result(path=path, evidence=evidence, parameters=parameters, **fields | more)


@pytest.mark.parametrize("value", ["tcp/eth0", "52% on tcp/eth0 and 48% on tcp/eth1", "software emulation over tcp/x"])
def test_tcp_and_emulation_beside_rdma_ports_are_never_ok(named, value):
    result = result_with(value)
    why = explain_ucx(result, named)
    assert why == f"UCX moved data between hosts by {value}, although a host has 8 RDMA ports"
    facts = Facts(topology=named, results=(result,))
    found = [*ucx_over_tcp.CHECK.look(facts), *rma_emulated.CHECK.look(facts)]
    assert len(found) == 1, "one finding for each cause"
    assert found[0].where[:2] == ("kv_vram", "gpu0@0>gpu0@1")


def test_tcp_is_right_without_rdma_inside_a_host_and_between_namespaces(named):
    assert explain_ucx(result_with("tcp/eth0"), expand("laptop", {})) == ""
    assert explain_ucx(result_with("tcp/eth0", hosts=1), named) == ""
    assert explain_ucx(result_with("tcp/net1", settings={"hosts_in_one_machine": True}), named) == ""
    assert explain_ucx(result_with("rc_mlx5/mlx5_0:1"), named) == ""


def test_emulation_between_hosts_has_its_own_remedy(named):
    facts = Facts(topology=named, results=(result_with("software emulation over rc_mlx5/x"),))
    (found,) = rma_emulated.CHECK.look(facts)
    assert found.says.startswith("Between two hosts UCX moved data by software emulation")
    assert "nvidia-peermem" in found.remedy


@pytest.mark.parametrize("number", range(1, NICS))
def test_every_nic_farther_than_the_nearest_is_named_with_both(named, number):
    (found,) = ucx_nic_far.CHECK.look(Facts(topology=named, results=(result_with(f"rc_mlx5/mlx5_{number}:1"),)))
    assert found.where == ("kv_vram", "gpu0@0>gpu0@1", "gpu0")
    assert found.says.startswith(f"UCX moved the data of gpu0 by mlx5_{number}:1 (")
    assert found.says.endswith(") is nearer")
    assert "although mlx5_0:1 (" in found.says


def test_the_near_nic_alone_or_among_several_is_no_finding(named):
    for value in ("rc_mlx5/mlx5_0:1", "50% on rc_mlx5/mlx5_0:1 and 50% on rc_mlx5/mlx5_7:1", "unknown", "tcp/eth0"):
        assert ucx_nic_far.CHECK.look(Facts(topology=named, results=(result_with(value),))) == ()


def test_near_and_far_nics_are_launches_of_their_own(named):
    hosts = {"hosts": ("a", "b")}
    job = job_of(find("kv_vram"), named, given={"nics": "far", "pairs": "first"}, **hosts)
    assert job.case.parameters() == {"nic": FAR}
    assert explain_no_nic(job, "gpu0", "gpu0") == ""
    assert (find_nic(named, "gpu0", NEAR), find_nic(named, "gpu7", NEAR)) == ("mlx5_0:1", "mlx5_7:1")
    assert find_nic(named, "gpu0", FAR) in {f"mlx5_{number}:1" for number in range(4, NICS)}
    bare = job_of(find("kv_cache"), expand("laptop", {}), given={"nics": "far"}, **hosts)
    assert "no NIC" in find("kv_cache").plan(bare).waived


def test_each_gpu_is_paired_with_the_one_in_its_place_and_more_hosts_name_their_pair(named):
    jobs = jobs_of(find("kv_vram"), load(str(archive("8xh200-probed-vm"))), hosts=("a", "b"))
    assert [job.launch.gpus for job in jobs] == [(f"gpu{number}",) * 2 for number in range(8)]
    assert find("kv_vram").plan(jobs[0]).path == "gpu0@0>gpu0@1"
    (one,) = jobs_of(find("kv_cache"), named, hosts=("a", "b"), paired=True)
    assert one.case.parameters() == {"between": "a,b"}
