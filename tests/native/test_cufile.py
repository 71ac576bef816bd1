"""Files to and from GPU memory with stand-ins for libcuda and libcufile, each case in a separate process."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture

from railwright.errors import CannotJudge
from railwright.native import cufile, vendor_libraries

GPU = "0000:1b:00.0"
SIZE, BLOCK = 1 << 20, 1 << 16
SCRIPT = Path(__file__).parents[2] / "scripts/measured/gpus/try-cufile"
COUNTERS = SCRIPT.with_name("try-cufile-counters")

CHILD = """
import array, json, os, sys
from pathlib import Path
from railwright.errors import RailwrightError
from railwright.native import cufile
from railwright.native.cufile_watch import Watch
from railwright.native.cuda import Device, DeviceBuffer, PinnedBuffer
from railwright.native.memory import Buffer
import ctypes

folder, way, write = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "write"
SIZE, BLOCK, SEED = 1 << 20, 1 << 16, 7
cufile.explain_unusable = lambda: ""  # the tests must not depend on the machine
fd = os.open(folder / "file", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
with Buffer(SIZE) as host:
    host.fill(SEED if not write else SEED + 1)
    os.pwrite(fd, (ctypes.c_char * SIZE).from_address(host.address), 0)
offsets = array.array("q", reversed(range(0, SIZE, BLOCK)))
try:
    with Device("0000:1b:00.0") as device, DeviceBuffer(device, SIZE) as buffer:
        buffer.fill(SEED if write else SEED + 2)
        through = PinnedBuffer(device, 3 * BLOCK) if way == "bounce" else cufile.CuFile(folder, way, fd, buffer)
        with through:
            watch = None if way == "bounce" else Watch(folder, write=write)
            cpus = [min(os.sched_getaffinity(0))] * 3
            done = cufile.gpu_pass((fd,), buffer, through, offsets, BLOCK, cpus, write=write)
            look = watch.end(len(offsets), SIZE) if watch else None
            properties = None if way == "bounce" else cufile.properties()
        wrong = buffer.count_wrong(SEED)
    if write:
        with Buffer(SIZE) as host:
            os.preadv(fd, [(ctypes.c_char * SIZE).from_address(host.address)], 0)
            wrong = host.count_wrong(SEED)
    print(json.dumps({"wrong": wrong, "count": len(done.latencies_s), "elapsed": done.elapsed_s, "cpu": done.cpu_s,
                      "least": min(done.latencies_s), "seen": look and look.counted,
                      "uncounted": look and look.uncounted, "called": look and look.called_bytes,
                      "properties": properties,
                      "settings": json.loads(Path(folder, "cufile.json").read_text()) if properties else None}))
except RailwrightError as error:
    print(json.dumps({"error": error.message}))
"""


@pytest.fixture
def moved(stand_ins, tmp_path):
    """Run a child that moves a file to or from the GPU's memory, and return its output."""

    def run(way, verb="read", **faults):
        argv = [sys.executable, "-c", CHILD, str(tmp_path), way, verb]
        done = subprocess.run(
            argv,
            env=os.environ | environment(stand_ins, GPU, **faults),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize("verb", ["read", "write"])
@pytest.mark.parametrize("way", ["gds", "cufile compat", "bounce"])
def test_every_way_moves_every_byte_to_its_place(moved, way, verb):
    said = moved(way, verb, STANDIN_CUFILE_ROUTE="nvfs")
    assert said["wrong"] == 0
    assert said["count"] == SIZE // BLOCK
    assert 0 < said["least"] <= said["elapsed"]
    assert said["cpu"] >= 0


@pytest.mark.parametrize("verb", ["read", "write"])
@pytest.mark.parametrize("way", ["gds", "bounce"])
def test_a_corrupted_byte_is_counted(moved, way, verb):
    faults = {"STANDIN_CUFILE_CORRUPT" if way == "gds" else "STANDIN_CUDA_CORRUPT": "1"}
    assert moved(way, verb, STANDIN_CUFILE_ROUTE="nvfs", **faults)["wrong"] >= 1


@pytest.mark.parametrize("old", [{}, {"STANDIN_CUFILE_OLD": "1"}])
@pytest.mark.parametrize(
    ("way", "route", "counted"),
    [
        ("gds", "nvfs", [16, 0, 16, 0, 0]),
        ("gds", "p2p", [16, 16, 0, 0, 0]),
        ("cufile compat", "nvfs", [16, 0, 0, 16, 0]),
        ("cufile compat", "posix", [16, 0, 0, 16, 0]),
    ],
)
def test_cufile_s_own_counters_say_which_way_it_took(moved, way, route, counted, old):
    for verb in ("read", "write"):
        assert moved(way, verb, STANDIN_CUFILE_ROUTE=route, **old)["seen"] == counted


def test_a_version_without_counters_is_no_error(moved):
    said = moved("cufile compat", STANDIN_CUFILE_UNCOUNTED="1")
    assert said["seen"] is None
    assert said["uncounted"] == "cannot start libcufile's statistics: an error of cuFile (cuFile error 5022)"


@pytest.mark.parametrize("verb", ["read", "write"])
def test_host_memory_is_no_gpu_s_and_the_kernel_still_counts_its_bytes(moved, verb):
    said = moved("cufile compat", verb, STANDIN_CUFILE_HOST="1")
    assert (said["seen"], said["uncounted"]) == (None, "libcufile's counters do not show the path")
    assert SIZE <= said["called"] < 1.1 * SIZE


def test_the_settings_forbid_the_fallback_for_gds_and_force_it_for_the_compatibility_mode(moved):
    gds = moved("gds", STANDIN_CUFILE_ROUTE="nvfs")
    assert gds["settings"]["properties"]["allow_compat_mode"] is False
    assert "force_compat_mode" not in gds["settings"]["properties"]
    assert gds["properties"] == ["2.26", False, 1200, False]
    assert moved("gds", STANDIN_CUFILE_ROUTE="p2p")["properties"] == ["0.0", False, 1200, True]
    compat = moved("cufile compat", STANDIN_CUFILE_ROUTE="nvfs")
    assert compat["settings"]["properties"]["force_compat_mode"] is True
    assert compat["properties"][1] is True


@pytest.mark.parametrize(
    ("way", "faults", "said"),
    [
        ("gds", {}, "cuFile driver: the nvidia-fs driver is not loaded (cuFile error 5001)"),
        ("gds", {"STANDIN_CUFILE_OPEN": "5007"}, "cuFile driver: GPUDirect Storage is not supported on this platform"),
        ("cufile compat", {"STANDIN_CUFILE_OPEN": "5999"}, "cuFile driver: an error of cuFile (cuFile error 5999)"),
        ("cufile compat", {"STANDIN_CUFILE_READ": "5030"}, "read: cuFile's internal error (cuFile error 5030)"),
        ("cufile compat", {"STANDIN_CUFILE_SHORT": "1"}, "read: No data available"),
        ("bounce", {"STANDIN_CUDA_NO_PIN": "1"}, "cannot pin 192 KiB of host memory"),
    ],
)
def test_every_error_is_told_in_words(moved, way, faults, said):
    assert moved(way, **faults)["error"].startswith(said)


def test_cufile_is_never_opened_where_it_would_hang(monkeypatch, tmp_path):
    real = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: str(path) != "/proc/modules" and real(path))
    assert "would wait for it forever" in cufile.explain_unusable()
    with pytest.raises(CannotJudge, match="cuFile cannot be used: /proc/modules does not exist"):
        cufile.CuFile(tmp_path, "gds", 0, None)
    assert "CUFILE_ENV_PATH_JSON" not in os.environ
    assert not list(tmp_path.iterdir())


def test_cufile_is_never_opened_where_it_would_close_our_standard_input(monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda _path: True)
    monkeypatch.setattr(Path, "read_text", lambda *_arguments, **_names: "nvidia_fs 299008 0 - Live 0x0\n")
    monkeypatch.setattr(Path, "glob", lambda *_arguments: iter(()))
    assert (
        cufile.explain_unusable()
        == "nvidia-fs is loaded, but there is no /dev/nvidia-fs*: the container has no access to it"
    )


def test_a_library_of_a_wheel_is_found_where_the_loader_does_not_look(tmp_path, monkeypatch):
    library = tmp_path / "nvidia/cu13/lib/libcufile.so.0"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"not a library")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert vendor_libraries.candidates("libcufile.so.0") == [str(library), "libcufile.so.0"]
    assert vendor_libraries.candidates("libcudart.so.12") == ["libcudart.so.12"]
    assert vendor_libraries.preload("libc.so.6") == ""
    assert "libnothing.so.9" in vendor_libraries.preload("libnothing.so.9")


@pytest.mark.parametrize("name", ["cufile.log", "cufile_12702_2026-11-22.07:10:39.log"])
def test_the_first_error_of_cufile_s_log_is_told_without_its_time(tmp_path, name):
    (tmp_path / name).write_text(
        " 22-11-2026 04:45:01:123 [pid=1 tid=1] INFO  cufio:1 starting\n"
        " 22-11-2026 04:45:01:124 [pid=1 tid=1] ERROR  cufio-fs:9 no device for the file\n"
        " 22-11-2026 04:45:01:125 [pid=1 tid=1] ERROR  cufio:2 cuFileHandleRegister error\n"
    )
    assert cufile.find_refusal(tmp_path) == "; its log: cufio-fs:9 no device for the file"
    assert cufile.find_refusal(tmp_path / "nothing") == ""


def test_a_file_that_is_refused_for_want_of_udev_s_database_is_told_with_the_remedy(moved):
    said = moved("cufile compat", STANDIN_CUFILE_NO_UDEV="vda")["error"]
    assert said == (
        "cuFile on the test file: cuFile does not support this file (cuFile error 5027); udev's database lacks the "
        "file system on vda: give the container access to /run/udev"
    )


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ({}, "works: write "),
        (
            {"STANDIN_CUFILE_NO_UDEV": "vda"},
            "cuFileHandleRegister: cuFile does not support this file (cuFile error 5027)",
        ),
        ({"STANDIN_CUFILE_OPEN": "5001"}, "cuFileDriverOpen: the nvidia-fs driver is not loaded (cuFile error 5001)"),
        ({"STANDIN_CUFILE_CORRUPT": "1"}, "WRONG DATA: 8 bytes in the GPU's memory, 4 in the file"),
    ],
)
@pytest.mark.parametrize("registered", [True, False])
def test_one_variant_of_try_cufile_names_the_step_that_failed(stand_ins, tmp_path, faults, said, registered):
    variant = {"udev": False, "folder": str(tmp_path), "direct": True, "registered": registered,
               "settings": "allowed", "logs": str(tmp_path), "gpu": GPU}  # fmt: skip
    argv = [sys.executable, str(SCRIPT), "--child", json.dumps(variant)]
    variables = os.environ | environment(stand_ins, GPU, **faults)
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.startswith(said), done.stdout + done.stderr
    assert not list(tmp_path.glob(".railwright-*"))


# `explain_unusable` would inspect the machine that the tests run on.
ONE_USE = """
import runpy, sys
from railwright.native import cufile
cufile.explain_unusable = lambda: ""
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("use", "status"),
    [
        ("never", 0),
        ("level raised and lowered, started and stopped", -signal.SIGSEGV),
        ("level raised once, started and stopped", 3),
        ("level raised once, started once, read", 0),
        ("level raised and lowered, never started", 0),
    ],
)
def test_one_use_of_cufile_s_counters(stand_ins, tmp_path, use, status):
    """The stand-in crashes in the same cases as the library."""
    argv = [sys.executable, "-c", ONE_USE, str(COUNTERS), "--child", use, "--folder", str(tmp_path), "--seconds", "0.1"]
    settings = os.environ | environment(stand_ins, GPU) | {"PYTHONPATH": str(COUNTERS.parent)}
    done = subprocess.run(argv, env=settings, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stdout  # the time of each round
