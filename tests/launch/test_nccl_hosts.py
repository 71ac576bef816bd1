"""NCCL between network namespaces with stand-ins: records, groups, a slow port, and a host that dies in each part."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import msgspec
import pytest
from tests.conftest import wait_until
from tests.launch.bridged import Bridged, bridged
from tests.schemas import fits
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture
from tests.topology.machines import archive

from railwright.topology.sources.load import load
from railwright.topology.sources.saved import encode_topology

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root")]

SMALL = ("-o", "nccl_all_reduce.sizes=64K", "-o", "nccl_all_gather.sizes=64K")


@pytest.fixture(scope="module")
def four() -> Iterator[Bridged]:
    """Four hosts at 100 Mbit/s."""
    with bridged(4, 100) as found:
        yield found


@pytest.fixture
def cluster(tmp_path) -> str:
    """A cluster file of hosts with two GPUs."""
    machine = load(str(archive("2xh200-firecracker-vm")))
    (tmp_path / "machine.json").write_bytes(encode_topology(machine))
    (tmp_path / "cluster.toml").write_text('hosts = 4\nhost = "machine.json"\n')
    return str(tmp_path / "cluster.toml")


@pytest.fixture
def gpus(stand_ins) -> dict[str, str]:
    return environment(stand_ins, "0000:00:06.0", "0000:00:07.0")


def shape(host: str, rate: str) -> None:
    words = ["tc", "qdisc", "change", "dev", "net1", "root", "tbf", "rate", rate, "burst", "20kb", "latency", "20ms"]
    subprocess.run(["ip", "netns", "exec", host, *words], check=True)


def sent_bytes(host: str) -> int:
    """Return the bytes that a host's port has sent."""
    said = subprocess.run(["ip", "netns", "exec", host, "cat", "/proc/net/dev"], capture_output=True, text=True)
    (line,) = [line for line in said.stdout.splitlines() if line.strip().startswith("net1:")]
    return int(line.partition(":")[2].split()[8])


def test_a_collective_crosses_the_hosts_by_sockets_and_its_records_say_so(railwright, four, cluster, gpus):
    words = ("nccl_all_reduce", "--cluster", cluster, "--ranks-per-host", "2", "-o", "sizes=8,256K")
    done = railwright("run", *words, "--hosts", four.words, "--force", environment=gpus)
    assert done.status == 3, done.err  # the links between namespaces are unknown
    results = railwright.results("nccl_all_reduce")
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    for one in results:
        assert (one.hosts, one.ranks, one.path) == (4, 8, "gpu0@0>gpu1@3")
        assert one.verification.bytes_wrong == 0
        claims = {item.claim: item.value for item in one.evidence}
        assert claims["network"] == "NET/Socket"
        assert claims["connections"] == "NET/Socket: 1>2, 3>4, 5>6, 7>0; P2P: 0>1, 2>3, 4>5, 6>7"
        assert "NCCL_SOCKET_IFNAME==net1" in one.settings["environment"]
    assert "of the links between them" not in done.out
    railwright.expect_nothing_left()


def test_sockets_beside_rdma_devices_are_slow_with_the_finding(railwright, four, cluster, gpus):
    words = ("nccl_all_reduce", "--cluster", cluster, "-o", "sizes=8", "--json", "--force")
    done = railwright("run", *words, "--hosts", four.words, environment=gpus | {"STANDIN_NCCL_IB": "1"})
    assert done.status == 1, done.err
    assert "nccl_over_sockets" in done.out
    lines = [msgspec.json.decode(line) for line in done.out.splitlines()]
    states = {one["verdict"]["state"] for one in lines if one["record"] == "path"}
    assert states == {"slow"}


def search_slow_port(name, search):
    """Search with a port at a quarter of its rate, up to three times: a busy machine slows the other ports as well."""
    shape(name, "25mbit")
    try:
        for _ in range(3):
            done = search()
            if done.status == 1:
                break
    finally:
        shape(name, "100mbit")
    assert done.status == 1, done.err
    return done


def test_locate_names_the_port_that_sends_slowly_to_gpus(railwright, four, gpus):
    words = ("locate", "--hosts", four.words, "--probe", "nccl", "--json", "--force")
    done = search_slow_port(four.names[2], lambda: railwright(*words, environment=gpus))
    (found,) = (msgspec.json.decode(line) for line in done.out.splitlines())
    named = [(one["id"], one["direction"], one["verdict"]) for one in found["suspects"]]
    assert named == [(f"{four.names[2]}:gpu0", "up", "slow")]


def test_groups_grow_with_all_gpus_of_each_host(railwright, four, cluster, gpus):
    words = ("-o", "sizes=64K", "-o", "placements=out of place", "-o", "among=growing", "--ranks-per-host", "2")
    where = ("--cluster", cluster, "--hosts", four.words)
    done = railwright("run", "nccl_all_reduce", *where, *words, "--force", environment=gpus)
    results = railwright.results("nccl_all_reduce")
    assert {one.outcome for one in results} == {"measured"}, done.err
    groups = {(one.parameters["group_hosts"], one.ranks, one.path) for one in results}
    assert groups == {(1, 2, "gpu0>gpu1"), (2, 4, "gpu0@0>gpu1@1"), (4, 8, "gpu0@0>gpu1@3")}


@pytest.mark.parametrize("sign", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
def test_a_host_that_dies_or_stops_in_the_search_of_rails_loses_its_rows_alone(railwright, four, cluster, gpus, sign):
    gone = four.names[3]
    words = ("--parts", "rails", "--benchmarks", "nccl_all_reduce", "--launches", "1", "--cluster", cluster, "--json",
             "--force", *SMALL[:2])  # fmt: skip
    before = sent_bytes(gone)
    process = railwright.start("prove", "--hosts", four.words, *words, environment=gpus)
    wait_until(lambda: sent_bytes(gone) > before + 2**20 or process.poll() is not None, "a flow of the search")
    for pid in four.ranks(gone):
        os.kill(pid, sign)
    done = railwright.finish(process)
    records = [msgspec.json.decode(line) for line in done.out.splitlines()]
    (said,) = [one for one in records if one["record"] == "between"]
    assert set(said["left_out"]) == {gone}, done.err
    measured = {one["name"] for one in records if one["record"] == "host" and one["cells"]}
    assert measured == set(four.names) - {gone}
    railwright.expect_nothing_left()


@pytest.mark.long
def test_prove_names_the_port_that_sends_slowly_although_hosts_share_cpus(railwright, four, cluster, gpus):
    words = ("--parts", "rails", "--benchmarks", "nccl_all_reduce", "--launches", "1", "--cluster", cluster, "--json",
             "--force", *SMALL[:2])  # fmt: skip
    prove = ("prove", "--hosts", four.words, *words)
    done = search_slow_port(four.names[1], lambda: railwright(*prove, environment=gpus))
    (said,) = (one for one in map(msgspec.json.decode, done.out.splitlines()) if one["record"] == "between")
    assert [(one["id"], one["direction"]) for one in said["suspects"]] == [(f"{four.names[1]}:gpu0", "up")], said


def test_prove_measures_rails_and_collectives_and_goes_on_without_a_host_that_dies(railwright, four, cluster, gpus):
    gone = four.names[1]
    words = ("--parts", "rails,collectives", "--launches", "1", "--cluster", cluster, "--json", "--force", *SMALL,
             "--benchmarks", "nccl_all_reduce,nccl_all_gather")  # fmt: skip
    process = railwright.start("prove", "--hosts", four.words, *words, environment=gpus)
    between = railwright.output / "between"
    wait_until(lambda: railwright.results(folder=between) or process.poll() is not None, "a result of a collective")
    four.kill(gone)
    done = railwright.finish(process)
    records: dict[str, list[dict]] = {}
    for line in done.out.splitlines():
        record = msgspec.json.decode(line)
        fits(record, "hosts")
        records.setdefault(record["record"], []).append(record)
    (said,) = records["between"]
    assert set(said["left_out"]) == {gone}, done.err
    assert "suspects" not in said
    results = railwright.results(folder=between)
    assert {one.benchmark for one in results if one.outcome == "measured"} == {"nccl_all_reduce", "nccl_all_gather"}
    assert [one.outcome for one in results].count("failed") == 1
    left = [one for one in results if one.outcome == "measured" and gone not in one.settings["hosts"].split(",")]
    assert {one.parameters.get("among", "all") for one in left} >= {"all", "growing"}
    railwright.expect_nothing_left()
    again = railwright("prove", "--hosts", four.words, *words, "--resume", environment=gpus)
    assert "rails: phase" not in again.err
