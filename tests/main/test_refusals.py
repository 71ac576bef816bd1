"""Invalid requests are refused with a clear message, the next step and the right status, and change nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.benchmarks.jobs import job_of

from railwright.benchmarks.registry import find
from railwright.topology.expand import expand

QUICK = ("run", "memory_copy", "-o", "sizes=4K", "-o", "threads=one", "--force")


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("prov",), "there is no command named 'prov'", "did you mean prove?"),
        (("run", "mpi_latncy"), "there is no benchmark named 'mpi_latncy'", "did you mean mpi_latency"),
        (("run", "quux"), "there is no benchmark named 'quux'", "known: core_latency"),
        (("run", "memory_copy", "-o", "size=4K"), "named 'size'", "did you mean sizes"),
        (("run", "memory_copy", "-o", "mpi_latency.sizes=4K"), "in this run named 'mpi_latency'", "known: memory_copy"),
        (("run", "memory_copy", "-o", "sizes"), "-o must be NAME=VALUE, got 'sizes'", "NAME=VALUE"),
        (("run", "memory_copy", "-o", "sizes=abc"), "memory_copy sizes: not a size: 'abc'", "write bytes"),
        (("run", "memory_copy", "-o", "sizes=0"), "a size of 0 bytes", "give sizes of at least 1 byte"),
        (("run", "memory_copy", "-o", "sizes=8:1T:+8"), "more than 64 sizes", "a larger step"),
        (("run", "memory_copy", "-o", "sizes=8:4:x2"), "never ends or is empty", "FIRST must not exceed LAST"),
        (("run", "memory_copy", "-o", "sizes=100T"), "above 64 TiB", "fits in this machine"),
        (("run", "memory_copy", "-o", "sizes=64T"), "memory_copy would need", "choose smaller sizes"),
        (("run", "kv_transfer", "-o", "sizes=64T"), "kv_transfer would need 128 TiB", "choose smaller sizes"),
        (("run", "memory_copy", "-o", "threads=tow"), "no choice named 'tow'", "known: all, one"),
        (("run", "file_read", "-o", "depth=0"), "depth: must be a whole number from 1 to 4096, got '0'", "in flight"),
        (("run", "file_read", "-o", "depth=-3"), "must be a whole number", "in flight"),
        (("run", "file_read", "-o", "depth=100000"), "must be a whole number from 1 to 4096", "in flight"),
        (("run", "file_read", "-o", "engine=io_uring,threads"), "named 'io_uring,threads'", "did you mean io_uring"),
        (("run", "file_read", "-o", "file-size=100T"), "file_read file-size: size '100T' is above 64 TiB", "fits in"),
        (("run", "file_read", "-o", "sizes=64M", "-o", "large-depth=4096"), "file_read would need 256 GiB", "smaller"),
        (("run", "memory_copy", "--launches", "0"), "0 is not in the range", "see railwright run --help"),
        (("audit", "--fix"), "requires an argument", "see railwright audit --help"),
        (("completion",), "'{bash|zsh|fish}'. Choose from: bash, zsh, fish", "see railwright completion --help"),
        (("lab", "exec"), "Missing argument", "see railwright lab exec --help"),
        (("lab", "up", "hgx-h100", "--hosts", "3"), "No such option", "see railwright lab up --help"),
        (("run", "memory_copy", "--ouput", "x"), "No such option", "see railwright run --help"),
        (("run", "mpi_latency", "--mpirun", "no/mpirun"), "must name a program, got 'no/mpirun'", "path of an mpirun"),
        (("run", "mpi_latency", "--launches", "1000", "-o", "sizes=64M"), "the plan would take about", "--force"),
    ],
)  # fmt: skip
def test_an_absurd_request_is_refused_with_the_next_step(answer, arguments, message, hint):
    done = answer(*arguments)
    assert done.status == 2, done.err
    said = done.message()
    assert message in said
    assert hint in said.partition("\nhint: ")[2], said
    assert done.out == ""
    assert list(answer.folder.iterdir()) == []


def test_a_process_of_its_own_refuses_in_the_same_words(railwright, answer):
    words = ("run", "memory_copy", "-o", "sizes=100T")
    assert railwright(*words) == answer(*words)
    assert not railwright.output.exists()


def test_a_program_that_is_no_mpirun_is_refused_before_anything_is_measured(railwright):
    done = railwright("run", "memory_copy", "mpi_latency", "--force", "--mpirun", "/bin/true")
    assert done.status == 3
    assert "/bin/true must belong to Open MPI or MPICH" in done.message()
    assert not railwright.output.exists()


def test_a_program_that_cannot_be_executed_is_refused_with_the_kernel_s_reason(railwright):
    program = railwright.folder / "mpirun"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o755)
    done = railwright("run", "mpi_latency", "--force", "--mpirun", str(program))
    assert done.status == 2
    assert f"cannot start {program}: Exec format error" in done.message()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("file-size=60T",), "free, the test file needs 60 TiB"),
        (("directory=no/such/folder",), "no/such/folder is not a folder"),
        (("sizes=1M", "file-size=512K"), "a read is larger than the test file of 512 KiB"),
        (("sizes=4K", "file-size=1000000"), "must be a multiple of 4096 bytes"),
        (("sizes=1000", "file-size=8M"), "multiples of 512 bytes"),
    ],
)
def test_reads_that_cannot_be_are_planned_as_waived_by_reason(options, why):
    given = dict(option.split("=") for option in options)
    assert why in job_plan(find("file_read"), given).waived


def job_plan(benchmark, given):
    return benchmark.plan(job_of(benchmark, expand("laptop", {}), given=given))


def test_what_is_waived_is_never_ok_and_says_why(railwright):
    done = railwright("run", "file_read", "--force", "-o", "directory=no/such/folder")
    assert done.status == 3
    (waived,) = railwright.results()
    assert (waived.outcome, waived.reason) == ("waived", "no/such/folder is not a folder")
    assert waived.reason in " ".join(done.out.split())


def test_a_dry_run_touches_nothing(railwright):
    before = sorted(str(path) for path in railwright.folder.rglob("*"))
    done = railwright("prove", "--dry-run", "-o", "file-size=8M")
    assert done.status == 0
    for name in ("memory_copy", "mpi_latency shm", "mpi_bandwidth tcp", "kv_transfer", "file_read", "in total"):
        assert name in done.err
    assert "writes a nameless file of 8 MiB in ." in done.err
    assert sorted(str(path) for path in railwright.folder.rglob("*")) == before
    railwright.expect_nothing_left()


def test_an_output_that_is_a_file_is_refused_and_kept(railwright):
    railwright.output.write_text("precious")
    done = railwright(*QUICK)
    assert done.status == 2
    assert f"cannot write results to {railwright.output}: Not a directory" in done.message()
    assert "--output" in done.message()
    assert railwright.output.read_text() == "precious"


def test_a_read_only_file_system_is_refused_by_name(railwright, small_disk):
    disk = small_disk("disk", "size=1m", "ro")
    for output in (disk, disk / "below"):
        done = railwright(*QUICK, "-O", str(output))
        assert done.status == 2
        assert f"cannot write results to {output}: Read-only file system" in done.message()
    reading = railwright("run", "file_read", "--force", "-o", "file-size=8M", "-o", f"directory={disk}")
    assert reading.status == 3
    (waived,) = railwright.results()
    assert waived.outcome == "waived"
    assert waived.reason == f"{disk} cannot be written to"


def test_a_user_without_permission_is_told_so(railwright):
    """Run as a real unprivileged user in a folder of root, since root ignores file modes."""
    folder = railwright.folder / "of-root"
    folder.mkdir(mode=0o700)
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from railwright.errors import UsageError\n"
        "from railwright.results.records import Context, Run\n"
        "from railwright.results.store import Writer, load\n"
        "from railwright.topology.expand import expand\n"
        "context, folder = Context(host='h', kernel='k'), Path(sys.argv[1])\n"
        "run = Run(railwright='0', started_at='', command=(), context=context, topology=expand('laptop', {}))\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "for attempt in (lambda: load(folder / 'results.jsonl'), lambda: Writer(folder / 'new', run)):\n"
        "    try: attempt()\n"
        "    except UsageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"cannot read {folder}/results.jsonl: Permission denied",
        "hint: name a results.jsonl or its folder",
        f"cannot write results to {folder}/new: Permission denied",
        "hint: choose another folder with --output",
    ]


def test_a_disk_that_is_full_from_the_start_costs_nothing_of_the_last_run(railwright, small_disk):
    disk = small_disk("disk", "size=16m")
    first = railwright(*QUICK, "-O", str(disk))
    assert first.status == 3, first.err
    before = (disk / "results.jsonl").read_bytes()
    with (disk / "hog").open("wb", buffering=0) as hog:
        fill(hog)
    done = railwright(*QUICK, "-O", str(disk))
    assert done.status == 2
    assert f"cannot write results to {disk}: No space left on device" in done.message()
    assert (disk / "results.jsonl").read_bytes() == before
    assert sorted(path.name for path in disk.iterdir()) == ["hog", "metrics.txt", "report.html", "results.jsonl"]


def fill(file) -> None:
    try:
        while file.write(bytes(65536)):
            pass
    except OSError:
        return


def test_a_disk_that_fills_up_while_measuring_keeps_whole_records_and_says_so(railwright, small_disk):
    """Each mpi_latency record takes about 100 KB, so that the second does not fit."""
    disk = small_disk("disk", "size=256k")
    done = railwright("run", "mpi_latency", "-o", "sizes=8:512:x2", "-o", "transports=shm", "--force", "-O", str(disk))
    assert done.status == 2
    assert f"cannot write to {disk}/results.jsonl: No space left on device" in done.message()
    assert "all results so far are kept" in done.message()
    records = railwright.records(disk)
    assert records[0].context.host == os.uname().nodename
    assert railwright.results("mpi_latency", disk)[0].outcome == "measured"
    assert "mpi_latency" in done.out, "the report on the terminal needs no disk"
    railwright.expect_nothing_left()


def test_results_measured_onto_a_disk_too_small_for_the_report_are_kept(railwright, small_disk):
    """The results are a few KB, the page is about 60."""
    disk = small_disk("disk", "size=48k")
    done = railwright(*QUICK, "-O", str(disk))
    assert done.status == 2
    assert f"cannot write {disk}/report.html: No space left on device" in done.message()
    assert "railwright judge" in done.message()
    assert sorted(path.name for path in disk.iterdir()) == ["metrics.txt", "results.jsonl"]
    elsewhere = railwright.folder / "elsewhere"
    judged = railwright("judge", str(disk), "-O", str(elsewhere))
    assert judged.status == 3
    assert (elsewhere / "report.html").exists()


def test_a_full_shared_memory_leaves_launches_to_the_temporary_folder(railwright):
    """In a separate mount namespace, /dev/shm has two pages, so that not even the job fits."""
    program = (
        "mount -t tmpfs -o size=8k none /dev/shm && head -c 8192 /dev/zero >/dev/shm/hog; "
        f'exec "{sys.executable}" -m railwright run memory_copy core_latency -o sizes=4K --force -O "$0"'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", program, str(railwright.output)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    assert {one.outcome for one in railwright.results()} == {"measured"}
    assert railwright.ends()[1].interrupted == ""
