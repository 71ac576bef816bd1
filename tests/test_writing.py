"""Files are written without following a link, under a random name until they are complete, and where only we may."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from railwright import writing
from railwright.writing import PUBLIC, NewFile, append, open_growing, set_value, write_file

WRITERS = {
    "whole": lambda path: write_file(path, b"ours"),
    "growing": lambda path: open_growing(path, empty=True).close(),
    "appended": lambda path: append(path, b"ours"),
    "setting": lambda path: set_value(path, "ours"),
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "victim"
    file.write_bytes(b"theirs")
    return file


@pytest.mark.parametrize("name", WRITERS)
def test_a_link_of_another_user_is_never_written_through(tmp_path, victim, name):
    (tmp_path / "out").mkdir()
    for kind in (os.symlink, os.link):
        path = tmp_path / "out" / "results.jsonl"
        path.unlink(missing_ok=True)
        kind(victim, path)
        with contextlib.suppress(OSError):
            WRITERS[name](path)
        assert victim.read_bytes() == b"theirs"
        assert name != "whole" or path.read_bytes() == b"ours"


def test_no_name_can_be_taken_before_the_file_is_made(tmp_path):
    with NewFile(tmp_path / "a") as one, NewFile(tmp_path / "a") as other:
        names = {path.name for path in tmp_path.iterdir()}
        assert len(names) == 2
        assert all(str(os.getpid()) not in name for name in names)
        one.publish()
        other.publish("before")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "before"}


def test_what_fails_leaves_the_old_content_and_nothing_else(tmp_path, victim, monkeypatch):
    monkeypatch.setattr(writing, "write_all", lambda *_: Path("/no such file").stat())
    with pytest.raises(FileNotFoundError):
        write_file(victim, b"ours")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"theirs"]


def test_records_are_private_and_pages_are_public(tmp_path):
    before = os.umask(0o022)
    try:
        write_file(tmp_path / "record", b"")
        append(tmp_path / "grown", b"")
        write_file(tmp_path / "page", "", PUBLIC)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"record": 0o600, "grown": 0o600, "page": 0o644}


def test_a_folder_in_which_any_user_may_replace_our_files_is_refused_by_name(tmp_path, monkeypatch):
    folder = tmp_path / "shared"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    for mode, allowed in ((0o755, True), (0o1777, True), (0o777, False)):
        folder.chmod(mode)
        for write in (WRITERS["whole"], WRITERS["growing"], WRITERS["appended"]):
            if allowed:
                write(folder / "file")
                continue
            with pytest.raises(PermissionError) as caught:
                write(folder / "file")
            assert str(folder) in str(caught.value)


def test_a_pipe_or_folder_in_the_place_of_a_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        for write in WRITERS.values():
            with pytest.raises(OSError, match=r"not a regular file|Is a directory|No such device"):
                write(tmp_path / name)
