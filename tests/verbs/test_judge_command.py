"""`railwright judge` accepts any file, and reports in one message what is wrong with it."""

from __future__ import annotations

import json
import os

import pytest

QUICK = ("run", "memory_copy", "-o", "sizes=4K,8K", "-o", "threads=one", "--force")


@pytest.fixture(scope="module")
def lines(driver_of_module):
    """The lines of a real results file."""
    done = driver_of_module(*QUICK)
    assert done.status == 3, done.err
    return (driver_of_module.output / "results.jsonl").read_bytes().splitlines(keepends=True)


def other_version(line: bytes) -> bytes:
    run = json.loads(line)
    assert run["schema_version"] == 4, "the version must be written, or a reader cannot tell"
    return json.dumps(run | {"schema_version": 99, "something_new": []}).encode() + b"\n"


CASES = {
    "empty": (lambda lines: b"", "must begin with a `run` record"),
    "garbage": (lambda lines: os.urandom(4096) + b"\n", "line 1 is not a valid record"),
    "other JSON": (lambda lines: b'{"a": 1}\n', "line 1 is not a valid record"),
    "cut first line": (lambda lines: lines[0][:300], "line 1 is not a valid record"),
    "no first line": (lambda lines: b"".join(lines[1:]), "must begin with a `run` record"),
    "a broken line within": (lambda lines: lines[0] + lines[1][:50] + b"\n" + lines[2], "line 2 is not a valid record"),
    "other version": (lambda lines: other_version(lines[0]) + lines[1], "has schema version 99"),
    "two runs": (lambda lines: b"".join(lines + lines), "must end with its `end` record, got a `run` in line"),
    "an unknown field": (lambda lines: lines[0] + lines[1].replace(b"{", b'{"x":1,', 1),
                         "line 2 is not a valid record"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_unreadable_results_file_is_one_clear_error(answer, lines, case):
    make, message = CASES[case]
    path = answer.folder / "results.jsonl"
    path.write_bytes(make(lines))
    done = answer("judge", str(path))
    assert done.status == 2
    assert message in done.message()
    assert str(path) in done.message()
    assert "\nhint: " in done.message()
    assert sorted(answer.folder.iterdir()) == [path]


def test_a_file_that_was_cut_off_within_its_last_line_is_judged_without_it(answer, lines):
    path = answer.folder / "results.jsonl"
    path.write_bytes(lines[0] + lines[1] + lines[2][:-20])
    done = answer("judge", str(path), "--json")
    assert done.status == 3
    points = [json.loads(line) for line in done.out.splitlines()]
    sizes = {point["parameters"]["size_bytes"] for point in points if "size_bytes" in point.get("parameters", {})}
    assert sizes == {4096}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", "No such file or directory"),
        ("/dev/zero", "it is not a regular file"),
        ("fifo", "it is not a regular file"),
    ],
)
def test_what_is_no_file_is_not_read(answer, path, message):
    os.mkfifo(answer.folder / "fifo")
    done = answer("judge", path)
    assert done.status == 2
    assert message in done.message()


def test_a_wrong_byte_in_the_record_makes_the_verdict_failed(answer, lines):
    record = json.loads(lines[1])
    assert record["verification"] == {
        "method": "every byte against splitmix64 of its position",
        "bytes_checked": 4096,
        "bytes_wrong": 0,
    }
    record["verification"]["bytes_wrong"] = 1
    path = answer.folder / "results.jsonl"
    path.write_bytes(b"".join([lines[0], json.dumps(record).encode() + b"\n", *lines[2:]]))
    done = answer("judge", str(path))
    assert done.status == 3
    assert "the data check found 1 wrong bytes" in " ".join(done.out.split())


def test_reports_go_nowhere_near_a_file_given_as_their_folder(answer, lines):
    path = answer.folder / "results.jsonl"
    path.write_bytes(b"".join(lines))
    done = answer("judge", str(path), "-O", str(path))
    assert done.status == 2
    assert f"cannot write reports to {path}: File exists" in done.message()
    assert path.read_bytes() == b"".join(lines)


def test_a_read_only_folder_keeps_its_results_and_says_where_to_write(railwright, lines, small_disk):
    disk = small_disk("disk", "size=1m")
    (disk / "results.jsonl").write_bytes(b"".join(lines))
    remounted = small_disk("disk", "remount,ro")
    done = railwright("judge", str(remounted))
    assert done.status == 2
    assert f"cannot write {disk}/report.html: Read-only file system" in done.message()
    assert "memory_copy" in done.out, "what could be said was said"
