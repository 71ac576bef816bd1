"""`railwright explain`: answers for a person with one file and no GPU, and for hostile files."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from tests.report.records_again import place_of
from tests.schemas import fits

from railwright.errors import RailwrightError
from railwright.explain.table import Explained, explain
from railwright.main import cli
from railwright.results.records import Context, Run
from railwright.results.store import Writer
from railwright.topology.sources.load import load

ROOT = Path(__file__).parents[2]
EXTERNAL = ROOT / "testdata/external"
TABLE = EXTERNAL / "nccl_tests/2.19.6-all_reduce-2xh200.txt"
SLOW = EXTERNAL / "nccl_tests/2.19.6-all_reduce-2-channels-2xh200.txt"
STREAM = EXTERNAL / "osu/7.5-bw-cuda-no-cxi-slow.txt"
LOG = EXTERNAL / "nccl-log/2.28.3-nvlink-2xh200.log"
TABLE_IN_LOG = EXTERNAL / "nccl-log/efa-p4d-2x8a100.log"
TORN_IN_LOG = EXTERNAL / "nccl-log/2.28.9-p2p-off-2xh200.log"
MIXED_IN_LOG = EXTERNAL / "nccl-log/2.23.4-ib-pxn-4x2a100.log"
"""In the first log NCCL's lines split the table's rows. The second has only two rows and one of eight device lines."""

OF_A_KIND = {
    **dict.fromkeys(("fio", "gdsio"), "laptop"),
    **dict.fromkeys(("elbencho", "hpcg", "ior", "mdtest", "stream"), "hgx-h100"),
    "hpl": "gh200 --count 8",
    **dict.fromkeys(("imb", "iperf3"), "pcie-8gpu nics=1 nic-rate=100Gb/s --count 2"),
    "nixlbench": "hgx-h200 --count 2",
    "osu": "gh200 --count 2",
    "nccl_tests": "hgx-h200",
    "nccl-log": "hgx-h100 --count 16",
}
"""The machine for each tool's outputs, if it is not the usual one. `OF_A_FILE` lists exceptions."""
USUAL = "hgx-h100 --count 2"
OF_A_FILE = {
    "2.18.0-all_reduce-2xrtx5090-socket.txt": "pcie-8gpu",
    "2.18.3-all_gather-2xgb10-healthy.txt": "gh200 nic-rate=200Gb/s --count 2",
    "2.18.3-all_gather-2xgb10-slow.txt": "gh200 nic-rate=200Gb/s --count 2",
    "2.18.3-alltoall-16xrtx6000d-slow.txt": "rtx-pro-6000-8gpu --count 2",
    **dict.fromkeys(("2.3-4ranks.txt", "2.0-hpcc-2ranks.txt"), "laptop"),
    "before-2.10-all_gather-2xrtx2080ti-part.txt": "pcie-8gpu",
    "before-2.13-all_reduce-4xv100-pcie.txt": "pcie-8gpu gpus=4",
    "efa-p4d-2x8a100.log": "aws-p4d --count 2",
    "since-2.13-all_reduce-nvlink-pair-and-sys.txt": "h100-pcie-8gpu-nvlink",
}
# Pasted texts are tested elsewhere, since they need not be a tool's output. Fabrics are read by `locate`.
OF_OTHERS = {"threads", "unseen", "ibnetdiscover", "subnet", "reports"}
FILES = sorted(file for file in EXTERNAL.rglob("*.*") if file.parent.name not in OF_OTHERS and file.name != "README.md")
LONGEST = 120
"""The maximum number of columns of the text."""


def machine_of(file: Path) -> list[str]:
    return ["--host", *OF_A_FILE.get(file.name, OF_A_KIND.get(file.parent.name, USUAL)).split()]


def explained(*arguments: object, text: str | bytes | None = None) -> tuple[int, Result]:
    """Run the command in this process. Returns its exit status and output, or the status and message of an error."""
    done = CliRunner().invoke(cli, ["explain", *map(str, arguments)], input=text, standalone_mode=False)
    if isinstance(done.exception, RailwrightError):
        return done.exception.exit_status, done
    assert done.exception is None, done.exception
    return done.return_value, done


def printable(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


def remember_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """An explanation that was derived for text is not derived again for JSON."""
    known: dict[str, Explained] = {}

    def remembered(*asked: object) -> Explained:
        key = repr(asked)
        if key not in known:
            known[key] = explain(*asked)
        return known[key]

    monkeypatch.setattr("railwright.explain.paste.explain", remembered)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_every_recorded_output_is_explained_with_and_without_a_machine(file: Path, monkeypatch) -> None:
    remember_explained(monkeypatch)
    for machine in ([], machine_of(file)):
        status, done = explained(file, *machine)
        assert status in (0, 1, 3), done.exception
        assert done.exception is None
        assert printable(done.output)
        assert status != 0 or machine, "without a machine nothing is ok"
        assert max(map(len, done.stdout.splitlines())) <= LONGEST
        if file.parent.name != "nccl-log":
            assert done.stdout.splitlines()[2].startswith(("verdict   ", "but       "))
        is_table = "verdict   unknown: no machine was given" in done.stdout
        assert ("no machine was given" in done.stderr) == (not machine and is_table)
        expect_records_of_the_schema(file, machine)


def expect_records_of_the_schema(file: Path, machine: list[str]) -> None:
    status, done = explained(file, "--json", *machine)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert records
    for record in records:
        if record["record"] == "nccl_log":
            fits(record["log"], "nccl-log")
            assert set(record) == {"record", "log", "findings"}
            continue
        if record["record"] == "noted":
            fits(record, "noted")
            continue
        fits(record, "explained")
        found = msgspec.convert(record, Explained, dec_hook=place_of)
        assert len(found.rows) == len(found.shown) > 0
        assert found.status == status or len(records) > 1


def test_the_first_lines_answer_what_is_asked_first(railwright) -> None:
    done = railwright("explain", str(SLOW), "--host", "hgx-h200")
    assert done.status == 1
    assert done.err == ""
    title, _, verdict, likely, following, *_ = done.out.splitlines()
    assert title == "nccl-tests 2.19.6 all_reduce, 2 ranks on 1 host, compared with hgx-h200, 2 GPUs"
    assert re.match(r"verdict   slow: 1 GiB in place: 41\.7 GB/s is below the expected \d", verdict)
    assert likely.startswith("likely    few_channels: NCCL has 2 channels (within a factor of 1.")
    assert following.startswith("next      NCCL_DEBUG=INFO")


def test_a_healthy_table_ends_with_status_0_and_names_no_fault(answer) -> None:
    done = answer("explain", str(TABLE), "--host", "hgx-h200")
    assert done.status == 0
    assert "verdict   ok: " in done.out
    assert "likely" not in done.out
    assert "what would give" not in done.out
    assert not re.search(r" (slow|suspicious|failed)$", done.out, re.MULTILINE)


def test_the_machine_is_asked_for_before_the_rows_that_need_it() -> None:
    done = CliRunner().invoke(cli, ["explain", str(SLOW)], standalone_mode=False)
    assert done.output.index("which one is it?") < done.output.index("--host hgx-h200") < done.output.index("verdict")
    assert done.return_value == 3


def test_without_a_machine_the_next_command_is_said_with_the_shapes_of_that_gpu(answer) -> None:
    folder = answer.folder / "a folder"
    folder.mkdir()
    file = folder / "it's.txt"
    file.write_bytes(TABLE.read_bytes())
    done = answer("explain", str(file))
    assert done.status == 3
    (hint,) = re.findall(r"^hint: railwright (.*)$", done.err, re.MULTILINE)
    assert shlex.split(hint) == ["explain", str(file), "--host", "hgx-h200"]
    assert "the same GPU is in dgx-h200" in done.err
    again = answer(*shlex.split(hint))
    assert again.status == 0
    assert "of limit" not in done.out
    unknown = answer("explain", str(STREAM))
    assert "--host SHAPE" in unknown.err
    two = answer("explain", str(EXTERNAL / "nccl_tests/2.18.3-alltoall-16xrtx6000d-slow.txt"))
    assert "--host SHAPE --count 2" in two.err


def test_settings_with_the_same_cost_and_remedy_say_them_once(answer) -> None:
    table = str(EXTERNAL / "nccl_tests/2.18.3-alltoall-16xrtx6000d-slow.txt")
    _, _, settings = answer("explain", table, "--host", "rtx-pro-6000-8gpu").out.partition("settings recorded")
    assert settings.count("seen      p2p_disabled: NCCL_") == 2
    assert settings.count("costs: ") == settings.count("remedy: ") == 1


def test_a_setting_that_was_seen_comes_before_what_a_curve_suggests() -> None:
    text = "mpirun -x NCCL_MAX_NCHANNELS=4 -x NCCL_ALGO=Ring all_reduce_perf\n" + SLOW.read_text(encoding="utf-8")
    status, done = explained("-", "--host", "hgx-h200", text=text)
    assert status == 1
    assert done.stdout.splitlines()[3].startswith("seen      ")
    assert "NCCL_MAX_NCHANNELS=4" in done.stdout
    assert "NCCL_ALGO=Ring" in done.stdout
    assert "settings recorded with the table" in done.stdout
    assert "likely" not in done.stdout


def test_a_log_is_shown_with_its_contradictions_and_drawn(answer) -> None:
    picture = answer.folder / "rings.svg"
    for machine in ((), ("--host", "hgx-h200"), ("--host", "hgx-h100", "--count", "16")):
        done = answer("explain", str(LOG), *machine, "--svg", str(picture))
        assert done.status == 1, done.err
        assert "NCCL_NVLS_ENABLE=0 turns NVLink SHARP off" in done.out
        assert picture.read_text(encoding="utf-8").startswith("<svg")
        picture.unlink()


def test_a_log_with_a_table_in_it_shows_both(answer) -> None:
    done = answer("explain", str(TABLE_IN_LOG), "--host", "aws-p4d", "--count", "2")
    assert done.status in (0, 1, 3)
    assert done.out.startswith("NCCL log\n")
    assert "nccl-tests all_reduce, 16 ranks on 2 hosts, compared with aws-p4d, 16 GPUs" in done.out
    records = [json.loads(line) for line in explained(TABLE_IN_LOG, "--json")[1].stdout.splitlines()]
    assert [record["record"] for record in records] == ["nccl_log", "explained"]


def test_a_table_that_cannot_be_judged_takes_nothing_from_its_log(answer) -> None:
    done = answer("explain", str(TABLE_IN_LOG), "--host", "hgx-a100", "gpus=4", "--count", "2")
    assert done.status in (1, 3)
    assert "NCCL log" in done.out
    assert "the table in the log could not be judged: the table has 16 ranks on 2 hosts" in done.err


def test_a_table_whose_device_lines_were_cut_has_the_ranks_of_its_log(answer) -> None:
    done = answer("explain", str(MIXED_IN_LOG), "--host", "hgx-a100", "gpus=2", "--count", "4")
    assert (done.status, done.err) == (1, "")
    assert done.out.startswith("NCCL log\n")
    assert "nccl-tests all_reduce, 8 ranks" in done.out
    assert "verdict   slow: 4 GiB" in done.out
    assert "only 1 of 8 device lines are in the text: the number of hosts is unknown" in done.out


def test_a_table_that_its_log_cut_apart_is_judged(answer) -> None:
    done = answer("explain", str(TORN_IN_LOG), "--host", "hgx-h200", "gpus=2")
    assert (done.status, done.err) == (1, "")
    assert "verdict   slow: 4 MiB out of place: 22.6 GB/s is below the expected" in done.out
    assert "the text lacks the in-place half of 3" in done.out


def results(folder: Path) -> Path:
    """A results.jsonl without any result cannot be judged ok."""
    context = Context(host="h", kernel="k")
    writer = Writer(folder, Run(railwright="0", started_at="", command=(), context=context, topology=load("laptop")))
    writer.close()
    return folder / "results.jsonl"


def test_our_own_records_are_judged_and_nothing_is_written(answer) -> None:
    file = results(answer.output)
    before = sorted(answer.output.iterdir())
    judged = answer("judge", str(file), "--json", "-O", str(answer.folder / "elsewhere"))
    for name in (file, answer.output):
        done = answer("explain", str(name), "--json")
        assert (done.status, done.out) == (judged.status, judged.out)
    assert sorted(answer.output.iterdir()) == before
    for options in (("--host", "laptop"), ("--svg", "x.svg")):
        refused = answer("explain", str(file), *options)
        assert refused.status == 2
        assert "railwright's records" in refused.message()
    assert not (answer.folder / "x.svg").exists()


@pytest.mark.parametrize("name", ["text", "CRLF", "byte order mark", "colours", "prefixed"])
def test_how_a_table_came_makes_no_difference(name: str) -> None:
    text = TABLE.read_text(encoding="utf-8")
    changed = {
        "text": text,
        "CRLF": text.replace("\n", "\r\n"),
        "byte order mark": "\ufeff" + text,
        "colours": "".join(f"\x1b[1m{line}\x1b[0m\n" for line in text.splitlines()),
        "prefixed": "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines()),
    }[name]
    _, plain = explained(TABLE, "--host", "hgx-h200")
    status, done = explained("-", "--host", "hgx-h200", text=changed.encode())
    assert status == 0
    assert done.stdout == plain.stdout


def test_a_pipe_of_the_shell_is_read_once_and_whole(railwright) -> None:
    """`<(command)` is a pipe, which can be read only once."""
    command = f"exec {shlex.quote(str(ROOT / '.venv/bin/railwright'))} explain <(cat {shlex.quote(str(TABLE))})"
    command += " --host hgx-h200"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == railwright("explain", str(TABLE), "--host", "hgx-h200").out


def test_several_runs_are_explained_one_after_the_other_and_a_misfit_is_named_by_its_number() -> None:
    tables = [file.read_text(encoding="utf-8") for file in (TABLE, SLOW)]
    status, done = explained("-", "--host", "hgx-h200", text="\n".join(tables))
    assert status == 1
    assert [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("verdict")] == [
        "verdict   ok",
        "verdict   slow",
    ]
    large = (EXTERNAL / "nccl_tests/2.18.3-alltoall-16xrtx6000d-slow.txt").read_text(encoding="utf-8")
    status, done = explained("-", "--host", "hgx-h200", "gpus=4", text="\n".join([tables[0], large]))
    assert status == 2
    assert isinstance(done.exception, RailwrightError)
    assert done.exception.message.startswith("run 2 of 2: the table has 16 ranks on 2 hosts")


def test_a_file_of_very_many_runs_is_refused_before_any_is_judged() -> None:
    status, done = explained("-", "--host", "hgx-h200", text=TABLE.read_text(encoding="utf-8") * 101)
    assert status == 2
    assert isinstance(done.exception, RailwrightError)
    assert done.exception.message == "a file must have at most 100 runs, got more"


@pytest.mark.machine
def test_a_closed_standard_input_is_a_clear_error() -> None:
    command = f"{shlex.quote(str(ROOT / '.venv/bin/railwright'))} explain - <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert done.stderr.startswith("railwright: cannot read standard input: it is closed\nhint: ")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> dict[str, tuple[Path, str]]:
    """Return each case by name, with its file and the expected message."""
    folder = tmp_path_factory.mktemp("hostile")
    table = TABLE.read_bytes()
    noise = random.Random(7).randbytes(3 * 2**20)
    contents = {
        "empty": (b"", "is empty"),
        "blank": (b" \n\t\n" * 1000, "is empty"),
        "gzip": (gzip.compress(table)[:-9], "cannot be unpacked"),
        "binary": (b"\x7fELF" + noise, "must be text, got a NUL"),
        "NUL": (table + b"\0\0", f"must be text, got a NUL at byte {len(table)}"),
        "UTF-16": (table.decode().encode("utf-16"), "must be UTF-8, got UTF-16"),
        "large": (b"x" * (17 * 2**20), "matches no known tool"),
        "garbage": (noise.hex().encode() + b"\n" + noise[:10].hex().encode(), "matches no known tool"),
        "one long line": (b"algbw busbw " + b"9 " * 2**22, "matches no known tool"),
        "many lines": (b"# size algbw busbw\n" * 1_000_000, "lines of tool output"),
        "words": (b"hello, world\n", "matches no known tool"),
        "braces": (b"[" * 10**6, "matches no known tool"),
        "JSON": (b'{"a":' * 10**5, "matches no known tool"),
    }
    found = {}
    for name, (content, said) in contents.items():
        file = folder / name
        file.write_bytes(content)
        found[name] = (file, said)
    os.mkfifo(folder / "pipe")
    found |= {
        "pipe": (folder / "pipe", "it is not a regular file"),
        "folder": (folder, "must contain results.jsonl"),
        "missing": (folder / "none\x1b[31m\n", "No such file"),
        "long name": (folder / ("x" * 5000), "File name too long"),
        "device": (Path("/dev/zero"), "it is not a regular file"),
    }
    return found


def test_what_is_no_output_of_a_tool_is_refused_at_once(hostile) -> None:
    for name, (file, said) in hostile.items():
        for machine in ([], ["--host", "hgx-h200"]):
            status, done = explained(file, *machine)
            assert status == 2, name
            assert isinstance(done.exception, RailwrightError)
            assert said in done.exception.message, name
            assert done.exception.hint, name
            assert printable(done.exception.message + done.exception.hint), name
            assert len(done.exception.message) < 800, name
            assert done.stdout == ""


def test_the_command_itself_refuses_them_with_one_message(answer, hostile) -> None:
    for name in ("garbage", "pipe", "NUL", "missing"):
        file, said = hostile[name]
        done = answer("explain", str(file))
        assert done.status == 2, name
        assert said in done.message(), name
        assert done.out == "", name


def test_nothing_of_a_file_reaches_the_terminal_unescaped() -> None:
    attack = "\x1b]0;owned\x07\x9b31m\u202e"
    text = TABLE.read_text(encoding="utf-8").replace("NVIDIA H200", f"NVIDIA {attack}H200").replace("node0", attack)
    text = f"mpirun -x NCCL_ALGO={attack} -x NCCL_P2P_DISABLE=1 all_reduce_perf\n" + text
    for machine in ([], ["--host", "hgx-h200"]):
        status, done = explained("-", *machine, text=text.encode())
        assert status == (0 if machine else 1)
        assert printable(done.stdout + done.stderr)
    log = LOG.read_text(encoding="utf-8").replace("NCCL_NVLS_ENABLE", f"NCCL_{attack}NVLS")
    _, done = explained("-", text=log.replace(" Socket", f" {attack}Socket").encode())
    assert printable(done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("file", "options", "message", "hint"),
    [
        (TABLE, ("--host", "hgx-h200 gpus=1"), "2 per host, but hgx-h200 gpus=1 has 1 GPU", "the shape that it ran on"),
        (TABLE, ("--host", "laptop"), "laptop has 0 GPUs", "the shape that it ran on"),
        (TABLE, ("--host", "hgx-h2000"), "named 'hgx-h2000'", "did you mean hgx-h200"),
        (TABLE, ("--count", "2"), "--count requires a machine", "--host SHAPE"),
        (TABLE, ("--path", "gpu0:gpu1"), "--path requires a machine", "--host SHAPE"),
        (TABLE, ("--host", "hgx-h200", "--count", "0"), "hosts must be 1 to 1000000, got 0", "correct the number"),
        (TABLE, ("--host", "hgx-h200", "--count", "-1"), "hosts must be 1 to 1000000, got -1", "correct the number"),
        (
            TABLE,
            ("--host", "hgx-h200", "--count", "1000000000"),
            "hosts must be 1 to 1000000, got 1000000000",
            "correct the number",
        ),
        (TABLE, ("--host", "hgx-h200", "--cluster", "c.toml"), "--cluster and --host exclude each other", "give one"),
        (TABLE, ("--cluster", "none.toml"), "none.toml cannot be read", "cluster-file"),
        (
            TABLE,
            ("--host", "hgx-h200", "--path", "gpu0:gpu1"),
            "needs a test between two devices, got all_reduce",
            "omit",
        ),
        (TABLE, ("--svg", "x.svg"), "only an NCCL log has rings", "leave --svg out"),
        (STREAM, ("--host", "gh200", "--count", "2", "--path", "nonsense"), "not a path: 'nonsense'", "gpu0:gpu0@2"),
        (STREAM, ("--host", "gh200", "--count", "2", "--path", "gpu0:gpu0@9"), "no host '9'", "0 to 1"),
        (STREAM, ("--host", "gh200", "--path", "gpu0:gpu0@1"), "there is only one host", "--count 2"),
        (STREAM, ("--host", "gh200", "--count", "2", "--path", "gpu0:gpu0"), "both ends of", "two devices"),
        (LOG, ("--host", "hgx-h200", "--path", "gpu0:gpu1"), "the text is a log without one", "omit --path"),
        (LOG, ("--svg", "/nonexistent/x.svg"), "cannot write /nonexistent/x.svg", "another file"),
    ],
)
def test_a_machine_or_an_option_that_cannot_be_is_refused(file, options, message, hint) -> None:
    status, done = explained(file, *options)
    assert status == 2
    assert isinstance(done.exception, RailwrightError)
    assert message in done.exception.message
    assert hint in done.exception.hint


@pytest.mark.parametrize(("count", "is_told"), [((), False), (("--count", "1"), True), (("--count", "2"), False)])
def test_the_number_of_hosts_contradicts_only_if_it_was_given(answer, count, is_told) -> None:
    table = str(EXTERNAL / "nccl_tests/2.18.3-alltoall-16xrtx6000d-slow.txt")
    done = answer("explain", table, "--host", "rtx-pro-6000-8gpu", *count)
    assert ("of 2 hosts and not of the 1 given" in done.out) == is_told
