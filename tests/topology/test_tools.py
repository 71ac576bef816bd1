"""The software of a machine from its programs: parsed from their output, kept in captures, never trusted."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.topology.machines import archive

from railwright.checks.check import Facts
from railwright.checks.outcome import look_for
from railwright.faults.every_check import EVERY_CHECK
from railwright.topology.sources import tools
from railwright.topology.sources.asked import ProbedRoot
from railwright.topology.sources.capture import capture
from railwright.topology.sources.load import load
from railwright.topology.sources.look import open_capture
from railwright.topology.sources.machine import discover
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.pollers import find_poller, find_pollers
from railwright.topology.sources.root import Unreadable
from railwright.topology.sources.tools_model import TOOLS, Poller

# Debian 12's ucx-utils 1.13.1 on a virtual machine, its lines on devices alone.
DEBIAN = """\
#
# Memory domain: self
#     Component: self
#
#      Transport: self
#         Device: memory0
#           Type: loopback
#
# Memory domain: tcp
#     Component: tcp
#
#      Transport: tcp
#         Device: lo
#           Type: network
#  System device: <unknown>
#
# Memory domain: cma
#     Component: cma
#
#      Transport: cma
#         Device: memory
#           Type: intra-node
"""
# From openucx/ucx issue 8808: an H100 server whose UCX knows GPUs and RDMA.
WITH_GPUS = """\
#      Transport: rc_verbs
#         Device: mlx5_0:1
#           Type: network
#      Transport: rc_mlx5
#         Device: mlx5_0:1
#           Type: network
#      Transport: ud_mlx5
#         Device: mlx5_1:1
#           Type: network
#      Transport: cuda_copy
#         Device: cuda
#           Type: accelerator
#      Transport: cuda_ipc
#         Device: cuda
#           Type: intra-node
"""


def test_the_output_of_ucx_info_is_parsed():
    found = tools.parse_ucx("# Version 1.13.1\n# Git branch '<unknown>', revision 0000000", DEBIAN)
    assert (found.version, found.transports, found.devices) == ("1.13.1", ("self", "tcp", "cma"), ())
    found = tools.parse_ucx("# Library version: 1.17.0\n# Library path: /usr/lib64/libucs.so.0", WITH_GPUS)
    assert found.version == "1.17.0"
    assert found.transports == ("rc_verbs", "rc_mlx5", "ud_mlx5", "cuda_copy", "cuda_ipc")
    assert found.devices == ("mlx5_0:1", "mlx5_1:1")
    # As in threads whose markdown removed the first character of each line.
    assert tools.parse_ucx("Library version: 1.9.0", WITH_GPUS.replace("#", "")) == found.__class__(
        version="1.9.0", transports=found.transports, devices=found.devices
    )
    assert tools.parse_ucx("no words of it", "") == found.__class__()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("nvidia-smi", None),
        ("nvidia-smi --query-gpu=power.draw --format=csv -l 1", 1.0),
        ("/usr/bin/nvidia-smi --loop=2", 2.0),
        ("nvidia-smi -l", 5.0),
        ("nvidia-smi -lms 100", 0.1),
        ("nvidia-smi --loop-ms=50 --query-gpu=utilization.gpu", 0.05),
        ("nvidia-smi dmon", 1.0),
        ("nvidia-smi dmon -s pucvmet -d 3", 3.0),
        ("nvidia-smi -q -d POWER", None),
        ("dcgm-exporter -f /etc/dcgm-exporter/default-counters.csv", 30.0),
        ("/usr/bin/dcgm-exporter --collect-interval=1000", 1.0),
        ("dcgm-exporter -c 250", 0.25),
        ("nvtop", 1.0),
        ("nvtop -d 5", 0.5),
        ("/usr/bin/python3 /usr/local/bin/gpustat -i", 1.0),
        ("/usr/bin/python3 /usr/local/bin/gpustat --interval 0.5", 0.5),
        ("gpustat", None),
        ("python3 train.py --log nvidia-smi", None),
        ("grep nvidia-smi", None),
        ("", None),
    ],
)
def test_a_poller_is_recognised_by_its_command_line(command, expected):
    found = find_poller(command.split())
    assert (found.interval_s if found else None) == (pytest.approx(expected) if expected else None)


def test_pollers_are_found_among_the_processes(tmp_path):
    for pid, words in {"1": "init", "20": "nvidia-smi\0-l\x001", "21": "nvidia-smi\0-l\x001", "30": "nv-hostengine\0-n",
                       "self": "nvtop", "40": ""}.items():  # fmt: skip
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_text(words)
    (tmp_path / "50").mkdir()
    assert find_pollers(tmp_path) == (Poller(program="nvidia-smi", interval_s=1.0), Poller(program="nv-hostengine"))
    assert find_pollers(tmp_path / "none") == ()


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def asked(monkeypatch, folder: Path) -> dict[str, object]:
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(tools, "find_pollers", lambda: ())
    return json.loads(tools.ask_tools())


@pytest.mark.machine
def test_a_failing_or_hanging_program_loses_only_its_own_answer(monkeypatch, tmp_path):
    (tmp_path / "listed").write_text(WITH_GPUS)
    program(tmp_path, "ucx_info", f'[ "$1" = -v ] && echo "# Library version: 1.17.0" || cat {tmp_path}/listed')
    program(tmp_path, "ompi_info", """if [ "$1" = --version ]; then echo "Open MPI v4.1.4"; else
        yes "mca:btl:base:param:noise:value:1" | head -15000
        echo "mca:mpi:base:param:mpi_built_with_cuda_support:value:true"
        yes "mca:btl:base:param:noise:value:1" | head -15000; fi""")  # fmt: skip
    found = asked(monkeypatch, tmp_path)
    assert found["ucx"]["devices"] == ["mlx5_0:1", "mlx5_1:1"]
    assert (found["mpi"], found["problems"]) == ({"name": "Open MPI 4.1.4", "cuda": True}, {})

    monkeypatch.setattr(tools, "TIMEOUT_S", 0.3)
    program(tmp_path, "ucx_info", "sleep 60")
    program(tmp_path, "ompi_info", "echo broken >&2; exit 3")
    found = asked(monkeypatch, tmp_path)
    assert (found["ucx"], found["mpi"]) == (None, None)
    assert found["problems"] == {"ucx": "ucx_info gave no answer within 0.3 s", "mpi": "ompi_info exit status 3"}


@pytest.mark.machine
def test_mpichs_configuration_tells_whether_it_supports_gpus(monkeypatch, tmp_path):
    for configured, cuda in (
        ("--prefix=/usr --with-cuda=/usr/local/cuda", True),
        ("--with-cuda=no", False),
        ("", False),
    ):
        program(tmp_path, "mpichversion", f'echo "MPICH Version:    4.2.1"; echo "MPICH configure:  {configured}"')
        monkeypatch.setattr(
            tools.shutil, "which", lambda name: f"{tmp_path}/{name}" if name == "mpichversion" else None
        )
        assert json.loads(tools.ask_tools())["mpi"] == {"name": "MPICH 4.2.1", "cuda": cuda}


DOCUMENT = {
    "format": 1, "pollers": [{"program": "nvidia-smi", "interval_s": 0.1}, {"program": "gpud"}],
    "ucx": {"version": "1.17.0", "transports": ["tcp"], "devices": []},
    "mpi": {"name": "Open MPI 5.0.8", "cuda": False}, "ports": [], "ofi_nccl": None, "problems": {},
}  # fmt: skip


def with_tools(document: object) -> ProbedRoot:
    raw = document if isinstance(document, bytes | Unreadable) else json.dumps(document).encode()
    return ProbedRoot(open_capture(archive("8xh200-probed-vm")), {TOOLS: lambda: raw})


def states(topology) -> dict[str, str]:
    return {
        check.name: look_for(check, Facts(topology=topology)).state for check in EVERY_CHECK if not check.needs_results
    }


OF_TOOLS = ("driver_polled", "mpi_without_cuda", "ucx_without_cuda")


def test_a_capture_keeps_the_programs_answers_and_checks_use_them(tmp_path):
    done = capture(with_tools(DOCUMENT), tmp_path / "there.jsonl", redact=True)
    again = load(str(tmp_path / "there.jsonl"))
    for topology in (done.topology, again):
        (host,) = topology.of_kind("host")
        assert (host.facts["driver_pollers"], host.facts["driver_polled_s"]) == ("nvidia-smi every 0.1 s, gpud", 0.1)
        assert {states(topology)[name] for name in OF_TOOLS} == {"found"}


def test_missing_answers_are_never_ok():
    problems = {"ucx": "ucx_info gave no answer within 10 s", "mpi": "x\x1b[2J"}
    for document in (Unreadable(TOOLS, "does not exist"), b"{", b"[]", b"\xff", {"pollers": 3}, {**DOCUMENT, "ucx": 1},
                     {**DOCUMENT, "ucx": None, "mpi": None, "problems": problems}):  # fmt: skip
        topology = discover(with_tools(document), "capture")
        assert {states(topology)[name] for name in OF_TOOLS[1:]} == {"could not look"}, document
        assert "\x1b" not in str(topology.unknown)
    assert states(discover(with_tools({**DOCUMENT, "ucx": None, "mpi": None}), "capture"))["ucx_without_cuda"] == (
        "does not apply"
    )


def test_hostile_words_stay_words():
    names = ["\x1b[31m", "a" * 10_000, "../..", ""]
    facts, pfc = tools.read_tools(with_tools({
        **DOCUMENT, "pollers": [{"program": name} for name in names * 1000], "ofi_nccl": "\x07" * 300,
        "ucx": {"version": "\n", "transports": names * 1000, "devices": names},
        "ports": [{"netdev": "\x1b", "lossless": [9]}]}), Notes())  # fmt: skip
    encoded = msgspec.json.encode([facts, pfc]).decode()
    assert "\\u001b" not in encoded
    assert "\\u0007" not in encoded
    assert len(encoded) < 2_000_000
