"""The location, configuration and errors of libnccl, and its switched log, without a GPU and without NCCL."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture

from railwright.errors import CannotJudge
from railwright.native import nccl_errors, nixl, vendor_libraries
from railwright.native.library import NativeError
from railwright.native.nccl import Operation, RankOfTeam
from railwright.native.nccl_errors import NcclError
from railwright.native.nccl_library import Config, Library
from railwright.native.vendor_libraries import candidates

ADDRESSES = ("0000:00:06.0", "0000:00:07.0")


def test_the_configuration_is_laid_out_as_in_every_nccl_from_2_18_on():
    """Offsets as a C compiler gives them for ncclConfig_t of 2.18.1, 2.28.9 and 2.30.7."""
    assert (Config.size.offset, Config.magic.offset, Config.version.offset) == (0, 8, 12)
    assert (Config.split_share.offset, Config.comm_name.offset) == (40, 48)
    assert (Config.nvlink_centric_sched.offset, Config.max_p2p_peers.offset) == (76, 88)
    assert ctypes.sizeof(Config) == 96


def test_what_travels_to_c_has_no_gap_that_c_does_not_have():
    assert ctypes.sizeof(RankOfTeam) == 48
    assert ctypes.sizeof(Operation) == 64


def test_a_named_library_comes_first_then_a_wheel_s_then_the_loader_s(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert candidates("libnccl.so.2", named="/opt/libnccl.so.2") == ["/opt/libnccl.so.2"]
    assert candidates("libnccl.so.2") == ["libnccl.so.2"]
    wheel = tmp_path / "nvidia" / "nccl" / "lib"
    wheel.mkdir(parents=True)
    (wheel / "libnccl.so.2").touch()
    assert candidates("libnccl.so.2") == [str(wheel / "libnccl.so.2"), "libnccl.so.2"]


def test_of_two_versions_every_wheel_s_comes_before_the_loader_s(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", ["", str(tmp_path)])
    wheel = tmp_path / "nvidia" / "cublas" / "lib"
    wheel.mkdir(parents=True)
    (wheel / "libcublas.so.12").touch()
    names = ("libcublas.so.13", "libcublas.so.12")
    assert candidates(*names) == [str(wheel / "libcublas.so.12"), *names]


def test_nixl_is_found_in_its_wheel_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert nixl.find_library() is None
    library = tmp_path / ".nixl_cu12.mesonpy.libs" / "libnixl_capi.so"
    library.parent.mkdir()
    library.touch()
    assert nixl.find_library() == library


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (-1020, NativeError, "loop: another rank of this process failed"),
        (-1021, NativeError, "loop: MPI_Barrier failed"),
        (-1003, NativeError, "loop: out of memory"),
        (-2005, NcclError, "loop: NCCL error 5"),
        (-2099, NcclError, "loop: NCCL error 99"),
        (-2113, NativeError, "cuBLAS loop: execution failed (cuBLAS status 13)"),
    ],
)
def test_what_a_loop_returns_is_told_in_the_words_of_the_library_that_failed(code, kind, words):
    nccl_errors.check_result("loop", 0)
    with pytest.raises(kind) as caught:
        nccl_errors.check_result("loop", code)
    assert caught.value.message == words
    assert type(caught.value) is kind


def test_c_and_python_agree_on_the_numbers_of_errors():
    header = Path(nccl_errors.__file__).with_suffix(".h").read_text()
    numbers = {int(number) for number in re.findall(r"= (-\d+)", header)}
    assert numbers == {*nccl_errors._OURS, nccl_errors._NCCL_ERROR, nccl_errors._CUBLAS_ERROR}


@pytest.mark.parametrize(
    ("result", "meaning", "refused"),
    [
        (5, "invalid usage", True),
        (4, "invalid argument", True),
        (3, "internal error: Error : no algorithm/protocol available", True),
        (3, "internal error", False),
        (1, "unhandled cuda error", False),
        (6, "remote process exited or there was a network error", False),
    ],
)
def test_a_refusal_is_told_from_what_broke(result, meaning, refused):
    error = NcclError("ncclAllReduce", result, meaning)
    assert error.refused is refused
    assert meaning in error.message


@pytest.fixture
def rank(stand_ins, tmp_path):  # noqa: F811 - a fixture
    """Return a function that runs Python code as a rank, with the stand-ins first in the library path."""

    def run(program, **faults):
        variables = os.environ | environment(stand_ins, *ADDRESSES, **faults) | {"TMPDIR": str(tmp_path)}
        head = "import ctypes\nfrom railwright.native import cuda, nccl\nfrom railwright.native.nccl_library import *\n"
        code = head + textwrap.dedent(program)
        done = subprocess.run(
            [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=300, check=False
        )
        return done.stdout.strip() or done.stderr

    return run


def test_the_library_tells_its_version_and_what_nccl_tests_asks_of_a_communicator(rank):
    said = rank(
        """
        library = Library()
        config, ring = library.config("all_reduce"), library.config("send_recv")
        print(library.version, config.version, config.nvlink_centric_sched, config.blocking, ring.max_p2p_peers)
        """
    )
    assert said == f"2.28.9 22809 1 {-(2**31)} {-(2**31)}"


def test_the_newest_nccl_is_told_no_newer_configuration_than_is_known(rank):
    said = rank(
        """
        library = Library()
        library.code = 23203
        ring = library.config("send_recv")
        print(library.version, ring.version, ring.max_p2p_peers)
        """
    )
    assert said == "2.32.3 23007 2"


def test_errors_come_in_nccl_s_own_words(rank):
    said = rank(
        """
        library = Library()
        devices = [cuda.Device("0000:00:06.0")]
        try:
            library.call("ncclCommInitRankConfig", None, 99, UniqueId(), 0, ctypes.byref(library.config("all_reduce")))
        except NcclError as error:
            print(error.message, error.refused)
        """
    )
    assert said.startswith("ncclCommInitRankConfig: an error of the stand-in")
    assert said.endswith("True")


TEAM = """
library = Library()
devices = [cuda.Device(address) for address in ("0000:00:06.0", "0000:00:07.0")]
team = nccl.Team(library, devices, "{operation}", library.unique_id())
print(team.allocate(1 << 16, "plain"), end=" ")
"""


def test_the_library_of_a_wheel_comes_before_the_loader_s_own_and_a_failure_names_it(monkeypatch):
    monkeypatch.setattr(vendor_libraries, "find_in_wheels", lambda *names: [f"/wheel/{name}" for name in names])
    with pytest.raises(CannotJudge, match=r"NCCL cannot be loaded: /wheel/libnccl\.so\.2: cannot open"):
        Library()
    with pytest.raises(CannotJudge, match=r"NCCL cannot be loaded: /named/libnccl\.so: cannot open"):
        Library("/named/libnccl.so")


def test_an_operation_beyond_its_buffers_is_refused_before_it_runs(rank):
    said = rank(
        TEAM.format(operation="all_reduce")
        + """
try:
    team.describe_operation(1 << 15, (1 << 17, 1 << 17, 1 << 17), in_place=False, graph=False, operations=20)
except ValueError as error:
    print(error)
"""
    )
    assert said == "ncclMemAlloc an operation of 131072 bytes exceeds buffers of 65536"


def test_in_place_each_rank_sends_or_receives_its_own_share_of_one_buffer(rank):
    said = rank(
        TEAM.format(operation="all_gather")
        + """
what = team.describe_operation(1024, (4096, 8192, 65536), in_place=True, graph=False, operations=20)
into = team.members[1].into
print(*(place - into for place in team.places(what, 1)), end=" ")
what = team.describe_operation(1024, (4096, 8192, 65536), in_place=False, graph=False, operations=20)
print(*(place == address for place, address in zip(team.places(what, 1), (team.members[1].out, into))))
"""
    )
    assert said == "ncclMemAlloc 4096 0 True True"


def test_the_log_holds_what_was_enqueued_while_it_was_on_and_leaves_the_variables_alone(rank, tmp_path):
    said = rank(
        "import os, pathlib\nfrom railwright.native.nccl_log import SwitchedLog\n"
        + TEAM.format(operation="all_reduce")
        + f"""
os.environ["NCCL_DEBUG"] = "VERSION"
log = SwitchedLog(library, pathlib.Path({str(tmp_path)!r}), 0)
what = team.describe_operation(1024, (4096, 4096, 65536), in_place=False, graph=False, operations=20)
team.once(what)
with log.written():
    team.once(what)
first = log.text()
team.time(what, 1)
print(log.problem == "", first == log.text(), first.count("Algo RING"), os.environ["NCCL_DEBUG"], end=" ")
print("NCCL_DEBUG_FILE" in os.environ)
"""
    )
    assert said == "ncclMemAlloc True True 2 VERSION False"


@pytest.mark.parametrize(
    ("before", "problem"),
    [
        ("os.environ['NCCL_DEBUG_FILE'] = '/tmp/mine'", "NCCL_DEBUG_FILE is set, so the log belongs to the user"),
        ("library.has = lambda name: False", "NCCL 2.28.9 cannot enable its log while it runs"),
        ("folder = '/tmp/100%'", "the folder for NCCL's log must not have a % in its name, which NCCL replaces"),
    ],
)
def test_where_the_log_cannot_be_had_the_reason_is_kept(rank, before, problem):
    said = rank(
        f"""
        import os, pathlib
        from railwright.native.nccl_log import SwitchedLog
        library, folder = Library(), "/tmp"
        {before}
        print(SwitchedLog(library, pathlib.Path(folder), 0).problem)
        """
    )
    assert said == problem
