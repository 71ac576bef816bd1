"""measure-gpu: the programs it starts, their order and place, and the page that it writes from recorded raw files.

There is no GPU here: nvidia-smi, mpirun and railwright are stand-ins that print their arguments.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.archives import unpack
from tests.conftest import wait_until
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts/measured/gpus"
RECORDED = ROOT / "testdata" / "measured"
PUBLISHED = {
    "all_reduce | processes-plain": "0.947 (0.860 to 1.035) | 1.001 (0.985 to 1.045) | 60 of 62 | 2 void, 0 above",
    "all_reduce | processes-graph": "1.006 (0.890 to 1.041) | 0.999 (0.953 to 1.015) | 58 of 62 | 1 void, 3 above",
}
"""The figures published from these records on 2026-11-22."""
TELLS = """#!/bin/sh
echo "$(basename "$0") [$CUDA_VISIBLE_DEVICES] $*" >> "$CALLS"
"""
COMPILES = f"""#!/bin/sh
while [ "$1" != -o ]; do shift; done
cat > "$2" <<'X'
{TELLS}X
chmod +x "$2"
"""
PROGRAMS = {
    "nvidia-smi": "#!/bin/sh\necho 0; echo 1; echo 2; echo 3\n",
    "mpirun": TELLS,
    "railwright": TELLS,
}


@pytest.fixture
def parts(monkeypatch):
    """The modules of the script."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from measure_gpu import nixl_direct, page, points, sampling, session, udev_record, written

    modules = {"page": page, "points": points, "sampling": sampling, "session": session, "written": written}
    return {**modules, "udev": udev_record, "nixl_direct": nixl_direct}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with raw records of all_reduce on two H200."""
    folder = tmp_path_factory.mktemp("recorded")
    unpack(RECORDED / "collectives-2xh200.tar.xz", folder / "raw")
    return folder


def called(folder, *arguments, **environment):
    """Run the script. Returns the command lines that it started, and its output."""
    programs, calls = folder / "bin", folder / "calls"
    programs.mkdir(exist_ok=True)
    for name, text in PROGRAMS.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    calls.write_text("")
    variables = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "CALLS": str(calls), **environment}
    argv = [sys.executable, str(SCRIPTS / "measure-gpu"), *map(str, arguments)]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=300, check=False)
    return calls.read_text().splitlines(), done


def test_the_page_of_recorded_files_has_the_figures_that_were_published(recorded):
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "measure-gpu"), "--page", str(recorded)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    text = (recorded / "measured.md").read_text()
    row = re.compile(r"\| (\w+ \| processes-\w+) \| 2 \| (.* of \d+ \| \d+ void, \d+ above) \|")
    assert dict(row.findall(text)) == PUBLISHED
    assert dict(row.findall(done.stdout)) == PUBLISHED
    assert text.startswith("# 2 x NVIDIA H200 of one host\n")
    assert "| in place | 8 GiB | 24,717.25 us | 24,796.31 us | 1.003 |" in text
    assert "### NCCL's choice on 2 GPUs" in text


def test_the_curves_know_their_limit_and_their_busbw(parts, recorded):
    curves = {(one.name, one.gpus): one for one in parts["points"].curves(recorded / "raw")}
    reduced = curves["all_reduce-processes-plain", 2]
    largest = reduced.placed()[-1]
    assert largest.size == 8 << 30
    assert reduced.limits[largest.size] == 450e9
    assert 340e9 < reduced.bus(largest.size, min(largest.ours)) < 350e9
    assert all(point.placement == "out of place" for point in reduced.placed())


def test_without_matplotlib_the_page_is_whole_but_for_its_curves(parts, recorded, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = parts["page"].write(recorded)
    assert "- no curves: matplotlib is not installed" in said
    assert ".svg" not in (recorded / "measured.md").read_text()


@pytest.mark.parametrize(
    ("size", "theirs", "ours", "verdict"),
    [
        (8, [10.0, 10.0], [10.3, 10.3], "within"),
        (8, [10.0, 10.0], [10.4, 10.4], "above"),
        (8, [10.0, 10.2], [10.6, 10.6], "above"),
        (8, [9.0, 11.0], [10.4, 10.4], "void"),
        (1 << 20, [10.0, 10.0], [10.1, 10.1], "within"),
        (1 << 20, [10.0, 10.0], [10.2, 10.2], "above"),
        (1 << 20, [9.9, 10.1], [10.2, 10.2], "void"),
    ],
)
def test_a_point_is_void_only_where_nccl_tests_differs_from_itself(parts, size, theirs, ours, verdict):
    assert parts["points"].Point("in place", size, theirs, ours).verdict == verdict


def test_small_sizes_are_repeated_more_often_and_each_program_is_first_in_turn(tmp_path):
    arguments = ["--only", "processes", "--collectives", "all_gather", "--gpus", 2, 4, 8, "--nccl-tests", "tests"]
    calls, done = called(tmp_path, "--output", tmp_path, *arguments, "--rounds", 1, "--rounds-small", 3)
    assert done.returncode == 0, done.stderr
    assert "8 GPUs were asked for, the host has 4: left out" in (tmp_path / "measured.md").read_text()
    assert all("all_gather" in call for call in calls)
    warm, timed = calls[:2], calls[2:]
    assert [("-b 256M" in one, "-n 2 " in one, "-n 4 " in one) for one in warm] == [
        (True, True, False),
        (True, False, True),
    ]
    for shown, count in (("[0,1]", 2), ("[0,1,2,3]", 4)):
        mine = [call for call in timed if shown in call]
        assert [call.split()[0] for call in mine] == [
            *("mpirun", "railwright"),  # the small sizes of the first round, and the large ones
            *("mpirun", "railwright"),
            *("railwright", "mpirun"),
            *("mpirun", "railwright"),
        ]
        assert [("-b 8 -e 524288 -f 2 " in call or "sizes=8:524288:x2 " in call) for call in mine].count(True) == 6
        assert [("-b 1048576 -e " in call or "sizes=1048576:" in call) for call in mine].count(True) == 2
        assert all(f"-n {count} " in call for call in mine if call.startswith("mpirun"))
        assert all(f"gpus={count} " in call for call in mine if call.startswith("railwright"))


def test_a_second_go_into_the_same_folder_keeps_what_the_first_one_brought(tmp_path):
    arguments = ["--only", "processes", "--collectives", "broadcast", "--gpus", 2, "--rounds", 1, "--rounds-small", 0]
    for _ in range(2):
        assert called(tmp_path, "--output", tmp_path, *arguments)[1].returncode == 0
    kept = {path.name for path in (tmp_path / "raw").glob("broadcast-*")}
    assert kept == {f"broadcast-processes-plain-2gpus-large-{number}.txt" for number in range(2)}
    assert len((tmp_path / "raw" / "commands.txt").read_text().splitlines()) == 2


def test_registered_and_symmetric_buffers_are_asked_of_both_programs_and_read_back(tmp_path, parts):
    arguments = ["--only", "registered", "symmetric", "--collectives", "all_gather", "--gpus", 2, "--nccl-tests", "t"]
    calls, done = called(tmp_path, "--output", tmp_path, *arguments, "--rounds", 1, "--rounds-small", 0)
    assert done.returncode == 0, done.stderr
    theirs = [call for call in calls if "all_gather_perf" in call and "-b 256M" not in call]
    assert [re.search(r"-R (\d)", call)[1] for call in theirs] == ["1", "2"]
    assert [re.search(r"\.buffers=(\w+)", call)[1] for call in calls if "run nccl" in call] == [
        "registered",
        "symmetric",
    ]
    (kept,) = (tmp_path / "raw").glob("all_gather-processes-plain-symmetric-2gpus-large-0.txt")
    assert parts["points"]._NAME.fullmatch(kept.stem)["buffers"] == "symmetric"


def test_the_cost_of_sampling_is_measured_in_turn_within_one_process(parts, stand_ins, tmp_path):  # noqa: F811
    short = "from measure_gpu import sampling as s; s.PAIRS, s.WINDOW_S, s.SIZES = 2, 0.7, {(8, 'graph'): 5}; s.main(2)"
    variables = os.environ | environment(stand_ins, "0000:01:00.0", "0000:02:00.0") | {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        [sys.executable, "-c", short], env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "sampling-2gpus-0.txt").write_text(done.stdout)
    row = parts["sampling"].table(tmp_path)[4]
    assert re.fullmatch(r"\| 8 B \| graph \| 2 \| .* \| \d+\.\d{4} \(.* to .*\) \| 2 \|", row), row


def test_every_comparison_is_with_data_but_the_one_that_asks_what_data_costs(tmp_path):
    arguments = ["--only", "written", "processes", "--collectives", "all_gather", "--gpus", 2, "--nccl-tests", "t"]
    calls, done = called(tmp_path, "--output", tmp_path, *arguments, "--rounds", 1, "--rounds-small", 0)
    assert done.returncode == 0, done.stderr
    asked = [re.search(r"m/(\w+)_perf -b 8M -e 8G -f 4 -c (\d) ", call) for call in calls]
    assert [(one[1], one[2]) for one in asked if one] == [
        *(("alltoall", "0"), ("alltoall", "1")),
        *(("all_reduce", "0"), ("all_reduce", "1")),
        *(("all_gather", "0"), ("all_gather", "1")),
    ]
    assert all("-c 1 " in call for call in calls if call.startswith("mpirun") and "-b 8M" not in call)


def test_what_unwritten_memory_takes_is_told_beside_what_data_takes(parts, tmp_path):
    unpack(RECORDED / "written-4xh200.tar.xz", tmp_path, "/written-")
    rows = parts["written"].table(tmp_path)[4:-1]
    assert len(rows) == 6
    assert rows[3] == "| all_to_all | 4 | 512 MiB | 1.21 ms | 1.32 ms | 1.27 ms | 0.913 | 0.958 | 2, 1, 2 |"


def test_nixl_goes_over_all_pairs_and_nccl_s_log_is_kept_of_each_collective(tmp_path):
    arguments = ["--only", "logs", "nixl", "--gpus", 2, 4, "--nccl-tests", "tests"]
    calls, done = called(tmp_path, "--output", tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    pairs = [re.search(r"\[(.*)\] run kv_vram", call) for call in calls]
    assert [one[1] for one in pairs if one] == ["0,1", "0,2", "0,3", "1,2", "1,3", "2,3", "0,1", "0,1"]
    logs = {path.name for path in (tmp_path / "raw").glob("*.nccl-log.txt")}
    assert len(logs) == 12
    assert "all_to_all-4gpus.nccl-log.txt" in logs


def test_nixl_and_its_c_api_take_turns_on_the_first_two_gpus(tmp_path, monkeypatch):
    monkeypatch.setitem(PROGRAMS, "cc", COMPILES)
    calls, done = called(tmp_path, "--output", tmp_path, "--only", "nixl-direct", "--rounds", 2)
    assert done.returncode == 0, done.stderr
    assert [call.split()[0] for call in calls] == ["nixl_direct", "railwright", "railwright", "nixl_direct"]
    assert all("[0,1]" in call for call in calls)
    assert " gpus=0,1 4096 1000 100 65536 1000 100 1048576 1000 100 67108864 " in calls[0]
    assert "kv_vram.processes=2" in calls[1]
    assert "--output" in calls[1]
    assert not (tmp_path / "raw" / "nixl_direct").exists(), "a program is no record"


def test_what_nixl_takes_is_told_beside_its_c_api(parts, tmp_path):
    """The records have two rounds of the C API and a run of ours, with 4 KiB as a latency and 256 MiB as a rate."""
    for number, text in enumerate(("WRITE 4096 8e-6\nREAD 4096 9e-06\n", "a warning of UCX\nWRITE 4096 10e-6\n")):
        (tmp_path / f"nixl-direct-{number}.txt").write_text(f"{text}WRITE 268435456 0.7e-3\nREAD 8192 1\n")
    with tarfile.open(RECORDED / "written-4xh200.tar.xz") as archive:
        (member,) = [one for one in archive.getmembers() if one.name.endswith("kv_vram-0-2/results.jsonl")]
        (tmp_path / "nixl-direct-0-ours").mkdir()
        (tmp_path / "nixl-direct-0-ours" / "results.jsonl").write_bytes(archive.extractfile(member).read())
    rows = parts["nixl_direct"].table(tmp_path)[4:-1]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| WRITE", "4 KiB", "9.00 us"],
        ["| READ", "4 KiB", "9.00 us"],
        ["| WRITE", "256 MiB", "700 us"],
    ]
    assert rows[0].endswith("| 25.0% | 2, 1 |")


def test_eight_gpus_are_gone_through_within_a_call(tmp_path, monkeypatch):
    monkeypatch.setitem(PROGRAMS, "nvidia-smi", f"#!/bin/sh\n{'echo 0; ' * 8}\n")
    monkeypatch.setitem(PROGRAMS, "nvcc", COMPILES)
    arguments = ["--only", "copies", "nixl", "steps", "--gpus", 2, 8, "--rounds", 1]
    calls, done = called(tmp_path, "--output", tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert [call.rpartition("] ")[2] for call in calls if call.startswith("gpu_copy_baseline ")] == [
        f"{512 << 20} 5 neighbours"
    ]
    assert sum("gpu_copy.pairs=neighbours" in call for call in calls) == 1
    first, *others = (call for call in calls if "run kv_vram" in call)
    assert len(others) == 27
    assert "kv_vram." not in first
    assert all("kv_vram.processes=2" in call and "kv_vram.sizes=4K,256M" in call for call in others)
    *steps, large = [call for call in calls if "run train_step" in call]
    assert [re.search(r"compute=(\w+).*iterations=25.*gpus", call)[1] for call in steps] == ["torch", "gemm"] * 2
    assert all("dtypes=fp32,fp16,bf16" in call for call in steps)
    assert "model=1.5B" in large
    shown = [call.partition("]")[0].count(",") for call in (*steps, large)]
    assert shown == [7, 7, 1, 1, 7]


def test_a_curve_of_large_sizes_alone_is_drawn(parts, recorded, tmp_path):
    pytest.importorskip("matplotlib")
    from measure_gpu.curves import draw_collective

    (reduced,) = (one for one in parts["points"].curves(recorded / "raw") if one.name == "all_reduce-processes-plain")
    large = tuple(point for point in reduced.points if point.size >= 1 << 20)
    draw_collective(tmp_path / "large.svg", [reduced._replace(points=large)])
    assert "busbw, GB/s" in (tmp_path / "large.svg").read_text()


def test_all_collectives_of_one_way_are_drawn_together(parts, recorded, tmp_path):
    pytest.importorskip("matplotlib")
    from measure_gpu.curves import draw_overview

    (curve,) = (one for one in parts["points"].curves(recorded / "raw") if one.name == "all_reduce-processes-plain")
    together = parts["page"]._together([curve, curve._replace(operation="broadcast"), curve._replace(gpus=4)])
    assert [(way.name, gpus, len(every)) for (way, gpus), every in together.items()] == [("processes-plain", 2, 2)]
    (every,) = together.values()
    draw_overview(tmp_path / "together.svg", "two GPUs", every)
    text = (tmp_path / "together.svg").read_text()
    assert all(word in text for word in ("all_reduce", "broadcast", "limit", "two GPUs"))


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "give --output FOLDER to measure, or --page FOLDER"),
        (("--output", "a", "--page", "b"), 2, "give --output FOLDER to measure, or --page FOLDER"),
        (("--page", "/nowhere"), 2, "/nowhere/raw is not a folder: there are no raw records"),
    ],
)
def test_misuse_is_told(tmp_path, arguments, status, said):
    done = called(tmp_path, *arguments)[1]
    assert done.returncode == status
    assert said in done.stderr


def test_a_python_without_railwright_hands_over_to_the_one_of_make_setup(tmp_path):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    bare = subprocess.run(
        [sys._base_executable, "-I", "-S", str(SCRIPTS / "measure-gpu"), "--output", str(tmp_path)],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (bare.returncode, bare.stderr) == (3, "no GPU: nothing to measure\n")


def test_a_machine_without_a_gpu_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(PROGRAMS, "nvidia-smi", "#!/bin/sh\nexit 9\n")
    calls, done = called(tmp_path, "--output", tmp_path)
    assert (calls, done.returncode, done.stderr) == ([], 3, "no GPU: nothing to measure\n")


def test_a_program_that_does_not_end_is_ended_with_what_it_started(parts, tmp_path):
    session = parts["session"].Session(
        output=tmp_path, seconds=600, rounds=1, rounds_small=1, nccl_tests=None, sizes="8:8:x2", gpus=1, counts=()
    )
    child = "import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    assert session.run("hangs", [sys.executable, "-c", child], timeout_s=6) is None
    grandchild = int((tmp_path / "raw" / "hangs.txt").read_text())
    try:
        wait_until(lambda: not Path(f"/proc/{grandchild}/cmdline").exists() or _is_dead(grandchild), "its end")
    finally:
        if Path(f"/proc/{grandchild}").exists() and not _is_dead(grandchild):
            os.kill(grandchild, signal.SIGKILL)
    assert (tmp_path / "raw" / "notes.txt").read_text() == "hangs: ended after 6 s\n"


def _is_dead(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


MOUNTINFO = """22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
24 22 259:1 /data /mnt/a\\040b rw shared:3 - xfs /dev/nvme0n1p1 rw
"""


def test_udev_is_told_the_file_systems_of_drives_alone(parts, tmp_path):
    for number in ("254:0", "259:1"):
        (tmp_path / number).mkdir()
    found = parts["udev"].records(MOUNTINFO, tmp_path)
    assert found == {
        "b254:0": "E:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n",
        "b259:1": "E:ID_FS_TYPE=xfs\nE:ID_FS_USAGE=filesystem\n",
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have a mount namespace of its own")
def test_a_program_sees_the_record_of_its_drive_and_nobody_else_does(parts):
    lacking = parts["udev"].missing(Path("/proc/self/mountinfo").read_text())
    if not lacking:
        pytest.skip("udev's database knows all file systems of this machine")
    record, was_there = f"/run/udev/data/{lacking[0]}", Path("/run/udev").exists()
    argv = [sys.executable, str(SCRIPTS / "measure_gpu" / "udev_record.py"), "cat", record]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert "E:ID_FS_USAGE=filesystem\n" in done.stdout, done.stderr
    assert not Path(record).exists()
    if not was_there:
        Path("/run/udev").rmdir()  # only a place to mount it: empty for everybody else


def test_what_one_visit_had_no_time_for_is_left_out_only_where_no_other_visit_ran_it(tmp_path, parts):
    notes = {
        "visit1": "a-0: not run, the time was up\nb-0: not run, the time was up\n",
        "visit2": "c-0: ended after 6 s\n" + "".join(f"d-{n}: not run, the time was up\n" for n in (3, 1, 2, 7)),
    }
    for visit, text in notes.items():
        (tmp_path / "raw" / visit).mkdir(parents=True)
        (tmp_path / "raw" / visit / "notes.txt").write_text(text)
    (tmp_path / "raw" / "visit2" / "a-0.txt").write_text("it ran here")
    (tmp_path / "raw" / "visit2" / "c-0.txt").write_text("and this one was cut off")
    told = parts["page"].write(tmp_path)
    assert [line for line in told if line.startswith("- ")] == [
        "- b-0: not run, the time was up",
        "- c-0: ended after 6 s",
        "- d, rounds 1-3,7: not run, the time was up",
    ]
