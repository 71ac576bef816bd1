"""Railwright from its image on an emulated aarch64, as a user that the image does not know: `make test-aarch64`.

Emulation shows whether the code works on the other architecture, not how fast: no figure from here is a measurement.
qemu-user has no io_uring, no memory policies and no TCP_INFO, and shows the processor of this machine.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.machine
TABLE = "/checkout/testdata/external/nccl_tests/2.19.6-all_reduce-p2p-off-2xh200.txt"


@pytest.fixture
def run(tmp_path):
    """Run a command to its end and return its output."""

    def start(*words: str, status: tuple[int, ...] = (0,)) -> str:
        argv = [sys.executable, "-P", "-m", "railwright", *words]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode in status, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    return start


def results(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return [{"outcome": "measured"} | line for line in lines if line["record"] == "result"]


def test_this_is_the_image_for_aarch64():
    assert platform.machine() == "aarch64"
    assert "/opt/railwright/" in sys.executable
    with pytest.raises(OSError, match="Read-only"):
        Path("/opt/railwright/x").touch()


def test_a_table_is_explained(run):
    assert "p2p_disabled" in run("explain", TABLE, "--host", "hgx-h200", "gpus=2", status=(1,))


def test_a_proof_verifies_its_data_and_names_what_emulation_lacks(run, tmp_path):
    small = (
        "memory_copy.sizes=64K",
        "memory_copy.node-sizes=1M",
        "mpi_latency.sizes=8,4K",
        "mpi_latency.transports=shm",
        "tcp_stream.sizes=8,4K",
        "file_read.file-size=4M",
        "file_read.sizes=4K",
        "file_read.pages=small",
    )
    words = [word for option in small for word in ("-o", option)]
    chosen = (
        "--benchmarks",
        "memory_copy,core_latency,mpi_latency,file_read",
        "--launches",
        "1",
        "--silence",
        "600",
        "--force",
    )
    text = run("prove", *chosen, *words, "--output", "out", status=(0, 1, 3))
    found = results(tmp_path / "out")
    measured = {one["benchmark"] for one in found if one["outcome"] == "measured"}
    assert measured >= {"memory_copy", "core_latency", "file_read"}, text
    # MPI's messages move, but their transport is not proved: qemu-user reports 4 bytes of TCP_INFO.
    failed = {one["benchmark"]: one["reason"] for one in found if one["outcome"] == "failed"}
    assert failed.keys() == {"mpi_latency", "tcp_stream"}, text
    assert "the kernel does not report the bytes that this rank's TCP carried" in failed["mpi_latency"]
    assert "TCP_INFO has 4 bytes" in failed["tcp_stream"]
    assert all(one["verification"]["bytes_wrong"] == 0 for one in found if one.get("verification"))
    engines = {said["seen"] for one in found for said in one.get("evidence", ()) if said["claim"] == "engine"}
    assert len(engines) == 1
    assert "io_uring was refused: " in engines.pop()


def test_linpack_of_mkl_is_refused_by_name(run, tmp_path):
    words = ("hpl", "--alone", "-o", "n=256", "-o", "ranks=1", "-o", "threads=1", "--force", "--output", "out")
    run("run", *words, status=(3,))
    (only,) = results(tmp_path / "out")
    assert only["outcome"] == "waived"
    assert "MKL exists for x86-64 alone, not for aarch64" in only["reason"]
