"""Both ways of GPUDirect RDMA are reported as possible, missing, or unknown."""

import pytest
from tests.checks.machines import tuned, with_facts

from railwright.checks.gpudirect_ways import gpudirect_ways
from railwright.main import run_command
from railwright.topology.expand import expand
from railwright.topology.sources.saved import encode_topology


def verdicts(machine):
    return {way.way: (way.verdict, way.because) for way in gpudirect_ways(machine)}


def host(**facts):
    return with_facts(tuned(), "host", **facts)


def test_both_are_possible_where_all_is_there():
    assert verdicts(tuned()) == {"PeerDirect": ("possible", ""), "dma-buf": ("possible", "")}


@pytest.mark.parametrize(
    ("changed", "way", "verdict", "because"),
    [
        ({"modules": "nvidia mlx5_core"}, "PeerDirect", "missing", "nvidia-peermem is loaded"),
        ({"modules": None}, "PeerDirect", "cannot be told", "nvidia-peermem is loaded"),
        ({"modules": "nv_peer_mem", "ofed": "none"}, "PeerDirect", "possible", ""),
        ({"modules": "nvidia", "ofed": "none"}, "PeerDirect", "missing", "nvidia-peermem is loaded"),
        ({"peer_regions": 8}, "PeerDirect", "in use", "8 regions of GPU memory are registered now"),
        ({"peer_regions": 0}, "PeerDirect", "possible", ""),
        ({"peer_regions": "none"}, "PeerDirect", "possible", ""),
    ],
)
def test_peer_direct(changed, way, verdict, because):
    assert verdicts(host(**changed))[way] == (verdict, because)


@pytest.mark.parametrize(
    ("attribute", "changed", "verdict", "because"),
    [
        (False, {}, "missing", "the CUDA driver exports GPU memory as dma-buf"),
        (None, {}, "cannot be told", "the CUDA driver exports GPU memory as dma-buf"),
        (None, {"kernel": "5.4.0"}, "missing", "Linux 5.12 or later"),
        (None, {"nvidia_module": "proprietary"}, "missing", "NVIDIA's open kernel modules"),
        (None, {"cuda": "11.6"}, "missing", "a driver for CUDA 11.7 or later"),
        (None, {"nvidia_module": "none", "cuda": "11.6"}, "missing", "a driver for CUDA 11.7 or later"),
        (True, {"kernel": "5.4.0"}, "possible", ""),
    ],
)
def test_dma_buf(attribute, changed, verdict, because):
    machine = with_facts(host(**changed), "gpu", dma_buf=attribute)
    assert verdicts(machine)["dma-buf"] == (verdict, because)


def test_one_gpu_without_it_is_enough_to_miss_it():
    assert verdicts(with_facts(tuned(), "gpu", 3, dma_buf=False))["dma-buf"][0] == "missing"


def test_older_gpus_cannot():
    machine = with_facts(with_facts(tuned(), "gpu", dma_buf=None), "gpu", compute_capability="7.0")
    assert verdicts(machine)["dma-buf"] == ("missing", "compute capability 7.5 or later")


def test_a_description_has_no_ways():
    assert gpudirect_ways(expand("hgx-h100", {})) == ()


def test_audit_prints_them(tmp_path, capsys):
    file = tmp_path / "machine.json"
    file.write_bytes(encode_topology(host(modules="nvidia")))
    assert run_command(["audit", "--from", str(file)]) == 0
    text = capsys.readouterr().out
    assert "    PeerDirect: missing: unmet: nvidia-peermem is loaded\n" in text
    assert "      no        nvidia-peermem is loaded (/proc/modules)\n" in text
    assert "    dma-buf: possible\n" in text
