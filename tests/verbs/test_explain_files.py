"""Input of `explain` other than one text: several files, logs of any length, captures and truncated records."""

from __future__ import annotations

import gzip
import lzma
import re
import tracemalloc
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from tests.verbs.test_explain_command import ROOT, TABLE, TABLE_IN_LOG, TORN_IN_LOG, explained

from railwright.errors import UsageError
from railwright.explain.paste import read_paste
from railwright.main import cli
from railwright.results.readers import registry
from railwright.results.readers.nccl_log import log as nccl_log
from railwright.results.readers.pasted.long_text import read_long

LOG = ROOT / "testdata/external/nccl-log/2.28.3-nvlink-2xh200.log"
CUT_VERBS = (
    ("topo", "--from"),
    ("audit", "--from"),
    ("limits", "--from"),
    ("whatif", "--count", "2", "--host"),
    ("explain", TABLE, "--host"),
)


@pytest.mark.parametrize("words", CUT_VERBS, ids=lambda words: words[0])
def test_every_verb_names_a_capture_that_was_cut_off(tmp_path, words):
    part = tmp_path / "part.jsonl"
    part.write_bytes((ROOT / "testdata/hosts/8xh100-8nic/machine.jsonl").read_bytes()[:30_000])
    done = CliRunner().invoke(cli, [*map(str, words), str(part)], standalone_mode=False)
    assert re.search(r"railwright: part is not a whole capture: line \d+ is not a line of a capture", done.output)


def test_a_results_file_that_lost_its_first_line_says_so(tmp_path):
    file = tmp_path / "results.jsonl"
    file.write_text('{"record":"end","finished_at":"now"}\n')
    status, done = explained(file)
    assert status == 2
    assert "must begin with a `run` record" in done.exception.message


def test_a_table_and_the_logs_of_its_processes_are_read_together(tmp_path):
    lines = LOG.read_text(encoding="utf-8").splitlines()
    parts = []
    for number in range(2):
        parts.append(tmp_path / f"nccl.{number}.log")
        parts[-1].write_text("\n".join(lines[number * len(lines) // 2 : (number + 1) * len(lines) // 2]))
    status, done = explained(TABLE, *parts, "--host", "hgx-h200", "gpus=2")
    alone = explained(LOG, "--host", "hgx-h200", "gpus=2")[1].stdout
    assert status == 0
    assert "verdict   ok" in done.stdout
    assert next(line for line in alone.splitlines() if "rings" in line) in done.stdout


def test_standard_input_is_given_alone():
    status, done = explained("-", TABLE)
    assert (status, done.exception.message) == (2, "standard input cannot be combined with other files")


@pytest.mark.parametrize("file", [TABLE_IN_LOG, TORN_IN_LOG, TABLE, LOG], ids=lambda file: file.name)
@pytest.mark.parametrize("size", [7, 100_000])
def test_what_is_read_in_pieces_says_the_same(file, size):
    raw = file.read_bytes()
    text = raw.decode()
    found = read_long([("it", (raw[start : start + size] for start in range(0, len(raw), size)))])
    if nccl_log.recognises(text):
        assert found.log == nccl_log.read(text)
    if registry.has_table(text):
        assert registry.read(found.texts[0]) == registry.read(text)


def pieces(end: bytes, count: int) -> Iterator[bytes]:
    """Yield a log: the given number of pieces of 64 KiB, then `end`."""
    say = b"node0:1:2 [0] NCCL INFO AllReduce: opCount %d sendbuff 0x7f recvbuff 0x7f count 1 datatype 7\n"
    for number in range(count):
        yield b"".join(say % (number * 1000 + line) for line in range(2**16 // len(say)))
    yield end


def test_a_long_log_is_read_without_being_held():
    end = LOG.read_bytes() + TABLE.read_bytes()
    most = []
    for count in (4, 32):
        tracemalloc.start()
        found = read_long([("it", pieces(end, count))])
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] < 1.5 * most[0]
    (one,) = read_paste(found, None).files
    (bare,) = registry.read(TABLE.read_text(encoding="utf-8"))
    assert [row.samples for row in one.results] == [row.samples for row in bare.results]
    lines = sum(piece.count(b"\n") for piece in pieces(LOG.read_bytes(), 32))
    assert one.results[0].settings["line"] == lines + bare.results[0].settings["line"]


def test_too_much_besides_a_log_is_refused_and_a_packed_file_is_read(tmp_path):
    with pytest.raises(UsageError, match="of tool output besides NCCL's log"):
        read_long([("it", (b"1 2 3\n" * 100_000 for _ in range(3)))])
    for pack, end in ((gzip.compress, "gz"), (lzma.compress, "xz")):
        file = tmp_path / f"table.{end}"
        file.write_bytes(pack(TABLE.read_bytes()))
        assert explained(file, "--host", "hgx-h200", "gpus=2")[0] == 0
        file.write_bytes(pack(TABLE.read_bytes())[:-20])
        assert isinstance(explained(file)[1].exception, UsageError)
