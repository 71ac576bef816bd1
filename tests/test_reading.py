"""Given files are opened without waiting and read within bounds; broken JSON and TOML is refused in one clause."""

from __future__ import annotations

import os
import tracemalloc
from typing import Any

import msgspec
import pytest

from railwright.errors import UsageError
from railwright.reading import (
    InvalidContent,
    UnsuitableFile,
    decode_json,
    decode_toml,
    open_given,
    read_at_most,
    read_bounded,
    read_lines,
    read_piece,
)

BROKEN_JSON = {
    "invalid UTF-8": b'{"a": "\xff\xfe"}',
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000,
    "cut": b'{"a": [1, 2',
    "not JSON": b"\x00\x01",
}
BROKEN_TOML = {
    "dotted": b"a" + b".a" * 20_000 + b" = 1",
    "dotted with spaces and quotes": b'"a"' + b" . 'a'" * 20_000 + b" = 1",
    "dotted with escaped quotes": b'"a\\"b"' + b'."c\\"d"' * 20_000 + b" = 1",
    "dotted table": b"[" + b"a." * 20_000 + b"a]",
    "dotted in a table": b"x = {" + b"a." * 20_000 + b"a = 1}",
    "long integer": b"a = " + b"9" * 5000,
    "long hexadecimal integer": b"a = [{b = 0x" + b"f" * 5000 + b"}]",
    "invalid UTF-8": b'a = "\xff"',
    "deep": b"a = " + b"[" * 100_000,
    "brackets": b"[" * 1_000_000,
    "quotes": b'"' * 999_999,
    "a word": b"a" * 1_000_000,
    "spaces": b" " * 1_000_000 + b".",
}


@pytest.mark.parametrize("name", BROKEN_JSON)
def test_broken_json_is_refused(name):
    with pytest.raises(InvalidContent) as caught:
        decode_json(BROKEN_JSON[name], dict[str, Any])
    assert len(str(caught.value)) < 250
    with pytest.raises(InvalidContent):
        decode_json(BROKEN_JSON[name], msgspec.json.Decoder(dict[str, int]))


@pytest.mark.parametrize("name", BROKEN_TOML)
def test_broken_toml_is_refused_without_much_memory(name):
    tracemalloc.start()
    try:
        with pytest.raises(InvalidContent) as caught:
            decode_toml(BROKEN_TOML[name], dict[str, Any])
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 250


def test_names_with_dots_in_strings_and_a_few_in_keys_are_read():
    text = b'a.b.c = "one.two.three.four.five.six.seven.eight.nine.ten"\nd = ["1.2.3.4.5.6.7.8.9.10", "x"]\n'
    assert decode_toml(text, dict[str, Any])["a"] == {"b": {"c": "one.two.three.four.five.six.seven.eight.nine.ten"}}


def test_only_a_regular_file_of_bounded_size_is_read_and_nothing_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    cases = {"fifo": "not a regular file", "sparse": "larger than 1 MiB", ".": "a folder"}
    for name, why in cases.items():
        with pytest.raises(UnsuitableFile, match=why):
            read_at_most(tmp_path / name, 2**20)
        with pytest.raises(UsageError, match=why):
            read_bounded(tmp_path / name, 2**20)
    with pytest.raises(UnsuitableFile, match="not a regular file"):
        open_given("/dev/zero")
    with pytest.raises(UsageError, match="none cannot be read: does not exist"):
        read_bounded(tmp_path / "none", 1)


def test_a_file_that_would_make_its_reader_wait_is_refused():
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)  # as /proc/kmsg, a regular file, answers
    with os.fdopen(ours, "rb", buffering=0) as stream, pytest.raises(BlockingIOError, match="no end"):
        read_piece(stream, 10)
    os.close(theirs)


def test_a_long_line_is_cut_at_its_bound(tmp_path):
    (tmp_path / "file").write_bytes(b"one\n" + b"x" * 100 + b"\nlast\n")
    with open_given(tmp_path / "file") as file:
        assert list(read_lines(file, 10)) == [b"one\n", b"x" * 11]
