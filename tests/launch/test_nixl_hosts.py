"""NIXL between network namespaces: GPU memory of stand-ins, a KV cache, each way of metadata, and a far interface.

The NIXL is real, and is told that the memory of a stand-in GPU is host memory, as it is.
"""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.benchmarks.test_kv_vram import SITE
from tests.conftest import running, wait_until
from tests.launch.bridged import Bridged, bridged
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture
from tests.topology.machines import archive

from railwright.topology.sources.load import load
from railwright.topology.sources.saved import encode_topology

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root")]

ADDRESSES = ("0000:00:06.0", "0000:00:07.0")


@pytest.fixture(scope="module")
def three() -> Iterator[Bridged]:
    with bridged(3) as found:
        yield found


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    """A cluster file of hosts with two GPUs."""
    (tmp_path / "machine.json").write_bytes(encode_topology(load(str(archive("2xh200-firecracker-vm")))))
    (tmp_path / "cluster.toml").write_text('hosts = 2\nhost = "machine.json"\n')
    return str(tmp_path / "cluster.toml")


@pytest.fixture
def gpus(stand_ins: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of ranks with two stand-in GPUs, whose memory NIXL takes for host memory."""
    # Without libnvidia-ml UCX's CUDA module is not loaded: it would call what a stand-in does not have.
    folder = tmp_path / "cuda alone"
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(stand_ins / "libcuda.so.1")
    (folder / "sitecustomize.py").write_text(SITE)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return environment(folder, *ADDRESSES) | {"PYTHONPATH": path}


def test_gpu_memory_crosses_the_hosts_both_ways_and_every_byte_arrives(railwright, three, cluster, gpus):
    hosts = ",".join(three.words.split(",")[:2])
    words = ("kv_vram", "--cluster", cluster, "-o", "sizes=4K,1M", "--hosts", hosts, "--force")
    done = railwright("run", *words, environment=gpus)
    assert done.status == 3, done.err  # the links between namespaces are unknown
    results = railwright.results("kv_vram")
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    seen = {(one.path, one.parameters["operation"], one.parameters["initiator"]) for one in results}
    assert seen == {
        ("gpu0@0>gpu1@1", "WRITE", "gpu0@0"), ("gpu1@1>gpu0@0", "READ", "gpu0@0"),
        ("gpu0@0>memory0@1", "WRITE", "gpu0@0"), ("memory0@1>gpu0@0", "READ", "gpu0@0"),
        ("memory0@0>gpu1@1", "WRITE", "memory0@0"), ("gpu1@1>memory0@0", "READ", "memory0@0"),
    }  # fmt: skip
    for one in results:
        assert (one.hosts, one.verification.bytes_wrong) == (2, 0)
        # UCX takes the stand-in's memory for host memory, so that its log has no transfer of GPU memory.
        assert {item.claim: item.value for item in one.evidence}["transport"] == "tcp"
        assert one.settings["hosts_in_one_machine"] is True
    railwright.expect_nothing_left()


@pytest.fixture
def etcd(three: Bridged, tmp_path: Path) -> Iterator[str]:
    """The address of an etcd on the first host."""
    url = "http://198.51.100.1:2379"
    where = ("ip", "netns", "exec", three.names[0])
    own = ("--data-dir", str(tmp_path / "etcd"), "--listen-peer-urls", "http://127.0.0.1:2380")
    client = ("--listen-client-urls", url, "--advertise-client-urls", url)
    with running([*where, "etcd", *own, *client], stderr=subprocess.DEVNULL):
        ask = [*where, sys.executable, "-c", "import socket; socket.create_connection(('198.51.100.1', 2379), 1)"]
        wait_until(lambda: subprocess.run(ask, capture_output=True).returncode == 0, "an answer of etcd")
        yield url


@pytest.mark.parametrize("way", [pytest.param("mpi", marks=pytest.mark.long), "socket", "etcd"])
def test_a_cache_goes_from_prefill_to_decode_on_another_host(railwright, three, request, way):
    hosts = ",".join(three.words.split(",")[:2])
    given = ["tokens=64", "access=whole", f"metadata={way}"]
    if way == "etcd":
        given.append(f"etcd={request.getfixturevalue('etcd')}")
    words = [word for text in given for word in ("-o", text)]
    done = railwright("run", "kv_cache", *words, "--hosts", hosts, "--force")
    assert done.status == 3, done.err
    results = railwright.results("kv_cache")
    assert {one.parameters["operation"] for one in results} == {"WRITE", "READ"}
    for one in results:
        assert (one.outcome, one.hosts, one.path) == ("measured", 2, "memory0@0>memory0@1"), one.reason
        assert one.verification.bytes_wrong == 0
        assert one.settings["metadata_by"] == way
        assert {item.claim: item.value for item in one.evidence} == {"ucx_protocol": "tcp/net1", "transport": "tcp"}


def test_a_host_that_cannot_reach_the_store_is_told_and_both_ranks_end(railwright, three):
    hosts = ",".join(three.words.split(",")[:2])
    words = ("-o", "metadata=etcd", "-o", "etcd=http://127.0.0.1:9")
    railwright("run", "kv_cache", *words, "--hosts", hosts, "--force")
    assert {(one.outcome, one.reason) for one in railwright.results("kv_cache")} == {
        ("waived", "no etcd answers at http://127.0.0.1:9: Connection refused")
    }


@pytest.mark.long
def test_prove_measures_nixl_between_pairs_of_hosts(railwright, three, cluster, gpus):
    words = ("--parts", "kv", "--launches", "1", "--cluster", cluster, "--json", "--force",
             "-o", "kv_vram.sizes=4K", "-o", "kv_cache.tokens=64")  # fmt: skip
    done = railwright("prove", "--hosts", three.words, *words, environment=gpus)
    assert "kv: kv_vram, kv_cache between hosts in pairs, 1 launch each" in done.err
    records = [msgspec.json.decode(line) for line in done.out.splitlines()]
    (said,) = [one for one in records if one["record"] == "between"]
    assert "left_out" not in said, said
    results = railwright.results(folder=railwright.output / "between")
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    first, second, third = three.names
    found = {(one.benchmark, one.parameters["between"]) for one in results}
    assert found == {
        (name, pair) for name in ("kv_vram", "kv_cache") for pair in (f"{first},{second}", f"{third},{first}")
    }
