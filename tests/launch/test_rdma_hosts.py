"""RDMA between network namespaces over a stand-in for libibverbs: proofs, searches, GPU memory, a host that dies."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.benchmarks.test_rdma import verbs  # noqa: F401 - a fixture
from tests.benchmarks.test_rdma_plan import machine as with_rdma
from tests.launch.bridged import Bridged, bridged
from tests.schemas import fits
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture

from railwright.topology.changes import add_gpu_addresses, remove_devices
from railwright.topology.sources.saved import encode_topology

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root")]

SUBNETS = Path(__file__).parents[2] / "testdata/external/subnet"
OPERATIONS = ("write", "read", "send")
PORTS = ("mlx5_0:1", "mlx5_1:1", "mlx5_0:1+mlx5_1:1")
FEW = ("sizes=8,64K", "iterations=20")


@pytest.fixture(scope="module")
def four() -> Iterator[Bridged]:
    with bridged(4) as found:
        yield found


@pytest.fixture
def cluster(tmp_path: Path) -> Callable[..., str]:
    """Writes a cluster file of hosts with two near NICs."""

    def write(*, gpus: bool = False) -> str:
        machine = add_gpu_addresses(with_rdma())
        gone = {nic.id for nic in machine.of_kind("nic")[2:]} | {gpu.id for gpu in machine.of_kind("gpu") if not gpus}
        machine = remove_devices(machine, gone)
        (tmp_path / "machine.json").write_bytes(encode_topology(machine))
        (tmp_path / "cluster.toml").write_text('hosts = 4\nhost = "machine.json"\n')
        return str(tmp_path / "cluster.toml")

    return write


@pytest.fixture
def nics(verbs: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of ranks that see two NICs, whose GIDs are the addresses of their host's interface."""
    return {
        "LD_LIBRARY_PATH": str(verbs),
        "STANDIN_VERBS": str(tmp_path / "verbs"),
        "STANDIN_VERBS_DEVICES": "mlx5_0 mlx5_1",
        "STANDIN_VERBS_NETDEVS": "mlx5_0=net1 mlx5_1=net1",
    }


def test_a_proof_measures_hosts_over_each_port_and_over_both(railwright, four, cluster, nics):
    names = four.names[:2]
    options = [word for name in OPERATIONS for text in FEW for word in ("-o", f"rdma_{name}.{text}")]
    hosts = ",".join(f"netns:{name}" for name in names)
    words = ("--parts", "rails,rdma", "--launches", "1", "--cluster", cluster(), "--json", "--force", *options)
    done = railwright("prove", "--hosts", hosts, *words, environment=nics | {"STANDIN_VERBS_RATE": "100e6"})
    records = [msgspec.json.decode(line) for line in done.out.splitlines()]
    for record in records:
        fits(record, "hosts")
    (said,) = [one for one in records if one["record"] == "between"]
    assert "not_measured" not in said, done.err
    columns = {one["path"] for one in records if one["record"] == "column"}
    assert columns == {"mlx5_0>others", "others>mlx5_0", "mlx5_1>others", "others>mlx5_1"}
    results = railwright.results(folder=railwright.output / "between")
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    seen = {(one.benchmark, one.parameters["nics"]) for one in results}
    assert seen == {(f"rdma_{name}", port) for name in OPERATIONS for port in PORTS}
    for one in results:
        assert one.verification.bytes_wrong == 0
        assert one.settings["gid"] == "0 (RoCE v2, IPv4)"
        assert {item.claim: item.value for item in one.evidence}["transport"] == "rdma"
    assert done.status == 3, done.out  # hosts that share CPUs are not judged
    railwright.expect_nothing_left()


def prove_pairs(railwright, four, cluster, environment):
    """Prove the pairs of three hosts, and return the records by kind, with the exit status and the messages."""
    hosts = ",".join(f"netns:{name}" for name in four.names[:3])
    words = ("--parts", "pairs", "--cluster", cluster(), "--json", "--force")
    done = railwright("prove", "--hosts", hosts, *words, environment=environment)
    records = [msgspec.json.decode(line) for line in done.out.splitlines()]
    for record in records:
        fits(record, "hosts")
    pairs = {(one["source"], one["destination"]): one for one in records if one["record"] == "pair"}
    (said,) = [one for one in records if one["record"] == "between"]
    return pairs, said, done


def test_pairs_are_measured_by_rdma_over_both_ports_with_tcp_beside(railwright, four, cluster, nics):
    pairs, said, done = prove_pairs(railwright, four, cluster, nics | {"STANDIN_VERBS_RATE": "100e6"})
    assert "not_measured" not in said, done.err
    assert len(pairs) == 6
    for one in pairs.values():
        assert one["by"] == "rdma", done.err
        assert one["value"] > 0
        assert one["tcp_value"] > 0
        assert one["limit"] == pytest.approx(2 * 400e9 / 8, rel=0.05)
    assert done.status == 3, done.out  # hosts that share CPUs are not judged
    assert (railwright.output / "between" / "rdma-pairs.jsonl").exists()
    railwright.expect_nothing_left()


@pytest.mark.long
def test_pairs_of_a_host_whose_rdma_dies_have_failed_although_tcp_works(railwright, four, cluster, nics):
    gone = four.names[1]
    dies = {"STANDIN_VERBS_RATE": "40e6", "STANDIN_VERBS_KILL": f"{gone}:post_send"}
    pairs, said, done = prove_pairs(railwright, four, cluster, nics | dies)
    for ends, one in pairs.items():
        assert one["by"] == "rdma"
        assert one["tcp_value"] > 0
        if gone not in ends:
            assert one["value"] > 0, done.err
            continue
        assert (one["value"], one["verdict"]["state"]) == (None, "failed"), done.err
        assert one["verdict"]["why"].startswith("no data arrived by RDMA: ")
        assert "; TCP moved " in one["verdict"]["why"]
    assert len(pairs) == 6
    assert gone in [one["id"] for one in said["suspects"]]
    assert done.status != 0


@pytest.mark.long
def test_locate_names_the_port_that_sends_slowly_by_rdma(railwright, four, nics):
    slow = nics | {"STANDIN_VERBS_RATE": "40e6", "STANDIN_VERBS_SLOW": f"{four.names[2]}=10e6"}
    for _ in range(3):  # a busy machine slows other hosts as well
        done = railwright("locate", "--hosts", four.words, "--probe", "rdma", "--json", "--force", environment=slow)
        if done.status == 1:
            break
    (found,) = (msgspec.json.decode(line) for line in done.out.splitlines())
    named = [(one["id"], one["direction"], one["verdict"]) for one in found["suspects"]]
    assert named == [(f"{four.names[2]}:net1", "up", "slow")], done.err
    assert found["probe"] == "rdma"


@pytest.mark.long
def test_locate_below_the_switches_of_a_subnet_sends_over_its_ports(railwright, four, nics, tmp_path):
    cables = (SUBNETS / "ftree.cables.txt").read_text(encoding="utf-8")
    for name, recorded in zip(four.names, ("host0", "host4", "host8", "host12"), strict=True):
        cables = cables.replace(f'"{recorded}"', f'"{name} mlx5_1"')
    (tmp_path / "fabric.txt").write_text(cables)
    subnet = ("--cabling", tmp_path / "fabric.txt", "--forwarding", SUBNETS / "ftree.tables.txt")
    slow = nics | {"STANDIN_VERBS_RATE": "40e6", "STANDIN_VERBS_SLOW": f"{four.names[2]}=10e6"}
    words = ("locate", "--hosts", four.words, "--probe", "rdma", *subnet, "--json", "--force")
    for _ in range(3):  # a busy machine slows other hosts as well
        done = railwright(*words, environment=slow)
        if done.status == 1:
            break
    (found,) = (msgspec.json.decode(line) for line in done.out.splitlines())
    named = [(one["id"], one["direction"], one["verdict"]) for one in found["suspects"]]
    assert named == [(f"{four.names[2]}:mlx5_1", "up", "slow")], done.err
    assert {one["source"].partition(":")[2] for one in found["pairs"]} == {"mlx5_1"}


@pytest.mark.long
def test_a_host_that_dies_in_a_search_by_rdma_is_named(railwright, four, nics):
    gone = four.names[1]
    words = ("locate", "--hosts", four.words, "--probe", "rdma", "--json", "--force")
    dies = {"STANDIN_VERBS_RATE": "40e6", "STANDIN_VERBS_KILL": f"{gone}:post_send"}
    done = railwright(*words, environment=nics | dies)
    (found,) = (msgspec.json.decode(line) for line in done.out.splitlines())
    assert [(one["id"], one["verdict"]) for one in found["suspects"]] == [(gone, "silent")], done.err
    railwright.expect_nothing_left()


@pytest.mark.long
def test_gpu_memory_of_hosts_is_registered_both_ways(railwright, four, cluster, nics, stand_ins):
    gpus = environment(stand_ins, *(f"0000:{place:02x}:00.0" for place in range(1, 9)))
    gpus |= nics | {"LD_LIBRARY_PATH": f"{nics['LD_LIBRARY_PATH']}:{gpus['LD_LIBRARY_PATH']}"}
    hosts = ",".join(f"netns:{name}" for name in four.names[:2])
    words = ("-o", "memory=gpu", "-o", "sizes=64K", "-o", "iterations=50", "--cluster", cluster(gpus=True), "--force")
    done = railwright("run", "rdma_read", "--hosts", hosts, *words, environment=gpus | {"STANDIN_VERBS_PEERMEM": "1"})
    results = railwright.results("rdma_read")
    assert {one.parameters["registration"] for one in results} == {"dmabuf", "peermem"}, done.err
    for one in results:
        assert (one.outcome, one.path) == ("measured", "gpu0@0>gpu1@1"), one.reason
        assert {item.claim: item.value for item in one.evidence}["gpu_registration"] == "dma-buf and peermem"
        assert (one.verification.bytes_checked > 0, one.verification.bytes_wrong) == (True, 0)
