"""`railwright limits --collective`, `--path` and `--cluster`: answers, records and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from tests.schemas import fits

from railwright.busbw import busbw_factor
from railwright.errors import RailwrightError
from railwright.main import cli
from railwright.topology.sources.load import load
from railwright.topology.sources.saved import encode_topology

ROOT = Path(__file__).parents[2]
PROBED = ROOT / "testdata/hosts/4xh200-probed-vm/machine.jsonl"
RATE = {"limit", "expected_low", "expected_high"}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv")
THREE_TIERS = """
name = "three tiers"
hosts = 12500
host = "hgx-h100"

[fabric]
rail_optimised = true

[[fabric.tiers]]
name = "leaf"
hosts = 125

[[fabric.tiers]]
name = "spine"
hosts = 1250
oversubscription = 2.0

[[fabric.tiers]]
name = "core"
hosts = 12500
"""


def limits(*arguments: object) -> tuple[int, Result]:
    """Run the command in this process. Returns its exit status and output, or the status and message of an error."""
    done = CliRunner().invoke(cli, ["limits", *map(str, arguments)], standalone_mode=False)
    if isinstance(done.exception, RailwrightError):
        return done.exception.exit_status, done
    assert done.exception is None, done.exception
    return done.return_value, done


def record(*arguments: object) -> dict:
    status, done = limits(*arguments, "--json")
    assert status == 0, done.output
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    fits(found, "limit")
    return found


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("size", [None, "64K"])
def test_the_record_of_a_collective_has_what_a_program_needs(collective: str, size: str | None) -> None:
    sized = () if size is None else ("--size", size)
    found = record("--host", "hgx-h100", "--count", 16, "--collective", collective, *sized)
    assert (found["record"], found["collective"], found["ranks"], found["hosts"]) == ("collective", collective, 128, 16)
    share = float(busbw_factor(collective, 128))
    for name in RATE:
        assert found["busbw_bytes_per_s"][name] == pytest.approx(share * found["algbw_bytes_per_s"][name])
        assert found["algbw_bytes_per_s"][name] > 0
    rate = found["algbw_bytes_per_s"]
    assert rate["expected_low"] <= rate["expected_high"] <= rate["limit"] * 1.0001
    assert found["because"]
    assert found["bottleneck"][0]["what"]
    assert isinstance(found["software_limits"], list)
    assert found["sources"]
    assert ("time_s" in found) == (size is not None)


def test_software_limits_are_there_even_where_there_is_none() -> None:
    assert record("--host", "hgx-h100", "-c", "all_reduce")["software_limits"] == []
    some = record("--host", "hgx-h100", "nics=4", "--count", 16, "-c", "all_to_all")["software_limits"]
    assert any("PXN" in sentence for sentence in some)


def test_the_text_fits_a_terminal_and_begins_with_the_answer(railwright) -> None:
    done = railwright("limits", "--host", "hgx-h100", "nics=4", "--count", "16", "--collective", "all_to_all")
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0] == "all_to_all on 16 hosts of hgx-h100 nics=4, 128 GPUs, large sizes"
    assert lines[3].startswith("busbw ")
    assert lines[4].startswith("algbw ")
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(
    ("arguments", "scale"),
    [
        (("GB200 NVL72",), "1 host of gb200-nvl72, 4 GPUs of a rack of 72 (--gpus 72)"),
        (("GB200 NVL72", "--gpus", 72), "18 hosts of gb200-nvl72, 72 GPUs (1 rack)"),
        (("gb200-nvl72", "--count", 20), "20 hosts of gb200-nvl72, 80 GPUs (2 racks, the last with 2 hosts)"),
        (
            ("gb200-nvl72", "--gpus", 100_000),
            "25000 hosts of gb200-nvl72, 100000 GPUs (1389 racks, the last with 16 hosts)",
        ),
        (("hgx-h100", "--gpus", 128), "16 hosts of hgx-h100, 128 GPUs"),
        (("hgx-h100", "--gpus", 4), "1 host of hgx-h100 gpus=4, 4 GPUs"),
        (("hgx-h100", "gpus=4", "--gpus", 8), "2 hosts of hgx-h100-4gpu, 8 GPUs"),
    ],
)
def test_the_first_line_says_hosts_gpus_and_racks(arguments: tuple[object, ...], scale: str) -> None:
    _, done = limits("--host", *arguments, "-c", "all_reduce")
    assert f"all_reduce on {scale}, large sizes" == done.stdout.splitlines()[0]


@pytest.mark.parametrize("shape", ["hgx-h100", "gb200-nvl72", "aws-p5", "mi300x", "laptop"])
def test_equal_paths_share_a_row_and_every_source_has_one_line(shape: str) -> None:
    _, done = limits("--host", shape)
    paths = [json.loads(line) for line in limits("--host", shape, "--json")[1].stdout.splitlines()]
    lines = done.stdout.splitlines()
    counted = [int(found[1]) for line in lines if (found := re.search(r", (\d+) paths  ", line))]
    alone = [line for line in lines if re.match(r"\S+>\S+  [A-Z0-9]+ ", line)]
    assert sum(counted) + len(alone) == len(paths)
    assert len(lines) <= 60
    titles = {str(source["title"]) for path in paths for source in path["limit"].get("sources", ())}
    assert all(done.stdout.count(title) >= 1 for title in titles)
    numbers = re.findall(r"^\[(\d+)\] ", done.stdout, re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert set(re.findall(r"\[(\d+)\]", done.stdout)) == set(numbers)


def test_unlike_paths_keep_rows_of_their_own(tmp_path: Path) -> None:
    host = load("hgx-h100 gpus=2 nics=2 drives=0")
    links = tuple(
        replace(link, protocol=replace(link.protocol, width=8)) if link.b == "gpu1" and link.a == "switch1" else link
        for link in host.links
    )
    file = tmp_path / "ours.json"
    file.write_bytes(encode_topology(replace(host, links=links)))
    text = limits("--host", file)[1].stdout
    assert "gpu0>nic0  " in text
    assert "gpu1>nic1  " in text


def test_gpus_of_a_cluster_file_take_its_first_hosts() -> None:
    _, done = limits("--cluster", ROOT / "examples/clusters/rail-optimised.toml", "--gpus", 64, "-c", "all_reduce")
    assert done.stdout.splitlines()[0] == "all_reduce on 8 hosts of 128x hgx-h100, 64 GPUs, large sizes"


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("hgx-h100", "--gpus", 100), "--gpus 100 does not fill hosts of 8 GPUs", "--gpus 96 or --gpus 104"),
        (("hgx-h100", "--gpus", 0), "--gpus 0 does not fill", "--gpus 8"),
        (("hgx-h100", "--gpus", -8), "--gpus -8 does not fill", "--gpus 8"),
        (("hgx-h100", "--gpus", 8, "--count", 2), "--count and --gpus exclude each other", "--gpus of GPUs"),
        (("laptop", "--gpus", 8), "laptop has no GPUs", "--count"),
        (("gb200-nvl72", "gpus=72"), "gpus must be 0 to 16 in one host, got 72", "--gpus 72"),
    ],
)
def test_gpus_that_no_hosts_have_are_refused(arguments: tuple[object, ...], message: str, hint: str) -> None:
    status, done = limits("--host", *arguments, "-c", "all_reduce")
    assert status == 2
    assert isinstance(done.exception, RailwrightError)
    assert message in done.exception.message
    assert hint in done.exception.hint


def test_a_collective_without_a_band_could_not_be_judged() -> None:
    status, done = limits("--host", "mi300x", "-c", "all_reduce")
    assert status == (3 if "unknown" in done.stdout else 0)


def test_a_hundred_thousand_gpus_are_the_same_question(tmp_path: Path) -> None:
    file = tmp_path / "three.toml"
    file.write_text(THREE_TIERS, encoding="utf-8")
    for collective in ("all_reduce", "all_gather", "all_to_all"):
        free = record("--host", "hgx-h100", "--count", 12500, "-c", collective)
        tiers = record("--cluster", file, "-c", collective)
        assert free["ranks"] == tiers["ranks"] == 100_000
        assert tiers["cluster"] == "three tiers"
        assert tiers["algbw_bytes_per_s"]["limit"] <= free["algbw_bytes_per_s"]["limit"] * 1.0001
    assert tiers["algbw_bytes_per_s"]["limit"] < 0.6 * free["algbw_bytes_per_s"]["limit"], "2:1 holds all_to_all back"


def test_a_part_of_a_cluster_file_s_hosts_can_be_asked_about(tmp_path: Path) -> None:
    file = tmp_path / "three.toml"
    file.write_text(THREE_TIERS, encoding="utf-8")
    found = record("--cluster", file, "--count", 16, "-c", "all_to_all")
    assert found["hosts"] == 16
    alone = record("--host", "hgx-h100", "--count", 16, "-c", "all_to_all")
    for end in ("limit", "expected_low", "expected_high"):
        assert found["algbw_bytes_per_s"][end] == pytest.approx(alone["algbw_bytes_per_s"][end])


def test_a_cluster_file_with_a_saved_topology_works_from_anywhere(railwright) -> None:
    folder = railwright.folder / "clusters"
    folder.mkdir()
    (folder / "saved.json").write_bytes(encode_topology(load("hgx-h100 nics=2")))
    (folder / "c.json").write_text('{"hosts": 4, "host": "saved.json"}', encoding="utf-8")
    done = railwright("limits", "--cluster", "clusters/c.json", "--collective", "all_reduce", "--json")
    assert done.status == 0, done.err
    as_shape = record("--host", "hgx-h100", "nics=2", "--count", 4, "-c", "all_reduce")
    assert json.loads(done.out)["algbw_bytes_per_s"] == as_shape["algbw_bytes_per_s"]


def test_a_path_between_hosts_has_its_limit_and_that_over_all_near_nics() -> None:
    status, done = limits("--host", "aws-p5", "--count", 3, "--path", "gpu0:gpu0@2", "--json")
    assert status == 0
    one, every = map(json.loads, done.stdout.splitlines())
    for row in (one, every):
        fits(row, "limit")
        assert row["kind"] == "NET"
    assert every["path"] == "gpu0@0>gpu0@2 over 4 NICs"
    assert one["limit"]["value"] < every["limit"]["value"] <= 4 * one["limit"]["value"]


def test_a_path_inside_a_host_and_to_the_fabric_are_paths_too() -> None:
    for text, first in (("gpu0:gpu1", "gpu0@0>gpu1@0"), ("gpu0:fabric0", "gpu0@0>fabric0")):
        status, done = limits("--host", "hgx-h100", "--count", 2, "--path", text, "--json")
        assert status == 0
        assert json.loads(done.stdout.splitlines()[0])["path"] == first
    assert limits("--host", "hgx-h100", "--path", "gpu0@0:gpu1@0")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("--count", "0", "-c", "all_reduce"), "hosts must be 1 to 1000000, got 0", "correct the number of hosts"),
        (("--count", "-1", "-c", "all_reduce"), "hosts must be 1 to 1000000, got -1", "correct the number of hosts"),
        (
            ("--count", "1000000000", "-c", "all_reduce"),
            "hosts must be 1 to 1000000, got 1000000000",
            "correct the number of hosts",
        ),
        (("-c", "all_reduec"), "no collective named 'all_reduec'", "all_reduce"),
        (("-c", ""), "no collective named ''", "known: all_gather"),
        (("-c", "all_reduce", "-a", ""), "--algorithm must be a name", "ring, tree, nvls"),
        (("-c", "all_reduce", "-a", " "), "--algorithm must be a name", "leave it out"),
        (("-c", "all_reduce", "-a", "nonsense"), "all_reduce with nonsense", "ring, tree, nvls"),
        (("-c", "all_to_all", "-a", "ring"), "all_to_all with ring", "direct"),
        (("-c", "all_reduce", "--count", "2", "-a", "collnet"), "cannot run on this cluster", "ring, tree"),
        (("-c", "all_reduce", "-a", "nvlstree"), "cannot run on this cluster", "ring, tree"),
        (("-c", "all_reduce", "--size", "0"), "a collective must move at least 1 byte, got 0", "1 or more"),
        (("-c", "all_reduce", "--size", "-1"), "not a size: '-1'", "64K"),
        (("-c", "all_reduce", "--size", "1e30"), "not a size: '1e30'", "64K"),
        (("-c", "all_reduce", "--size", "1000T"), "size '1000T' is above 64 TiB", "fits"),
        (("--size", "8"), "--algorithm and --size require --collective", "--collective"),
        (("-a", "ring"), "--algorithm and --size require --collective", "--collective"),
        (("-c", "all_reduce", "--path", "gpu0:gpu1"), "--path and --collective exclude each other", "one of them"),
        (("nic0>nic0",), "both ends of 'nic0>nic0' are nic0, so the path crosses no link", "two devices"),
        (("gpu0>nic0", " cpu1 > cpu1"), "are cpu1, so the path crosses no link", "two devices"),
        ((">",), "no device in hgx-h100 named ''", "known: "),
        (("gpu0>nic0", "-c", "all_reduce"), "excludes --path and --collective", "alone"),
        (("--count", "2", "--path", "nonsense"), "not a path: 'nonsense'", "gpu0:gpu0@2"),
        (("--count", "2", "--path", ":"), "not a path: ':'", "gpu0:gpu0@2"),
        (("--count", "2", "--path", "gpu0:"), "not a path: 'gpu0:'", "gpu0:gpu0@2"),
        (("--count", "2", "--path", "gpu0:gpu0@99"), "no host '99'", "0 to 1"),
        (("--count", "2", "--path", "gpu0:gpu0@-1"), "no host '-1'", "0 to 1"),
        (("--count", "2", "--path", "gpu99:gpu0@1"), "named 'gpu99'", "gpu7"),
        (("--count", "2", "--path", "gpu0\x1b[31m:gpu0@1"), "named 'gpu0\\x1b[31m'", "gpu0"),
        (("--count", "2", "--path", "gpu0:gpu0"), "both ends of 'gpu0:gpu0' are gpu0@0", "two devices"),
        (("--count", "2", "--path", "gpu0@1:gpu0@1"), "are gpu0@1", "two devices"),
        (("--count", "2", "--path", "host0:host0@1"), "are not connected", "railwright topo"),
        (("--path", "gpu0:gpu0@1"), "there is only one host", "--count 2"),
        (("--cluster", "c.toml", "-c", "all_reduce"), "--cluster and --host exclude each other", "give one"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_with_the_next_step(arguments, message, hint) -> None:
    status, done = limits("--host", "hgx-h100", *arguments)
    assert status == 2
    assert isinstance(done.exception, RailwrightError)
    assert message in done.exception.message
    assert hint in done.exception.hint
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (("--host", "hgx-h101"), "named 'hgx-h101'"),
        (("--host", "laptop"), "needs two GPUs, laptop has 0"),
        (("--host", "gh200"), "needs two GPUs, gh200 has 1"),
        (("--host", "hgx-h100", "nics=0", "--count", "2"), "has no NIC port, so its 2 hosts cannot be connected"),
        (("--cluster", "nowhere.toml"), "nowhere.toml cannot be read"),
        (("--cluster", "/"), "/ is a folder"),
        (("--cluster", "/dev/zero"), "/dev/zero is not a regular file"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(machine, message) -> None:
    status, done = limits(*machine, "-c", "all_reduce")
    assert status == 2
    assert isinstance(done.exception, RailwrightError)
    assert message in done.exception.message


def test_the_command_refuses_with_one_message_and_status_2(railwright) -> None:
    (railwright.folder / "c.toml").write_text('hosts = 4\nhost = "hgx-h100"\nhostz = 1\n', encoding="utf-8")
    done = railwright("limits", "--cluster", "c.toml", "--collective", "all_reduce")
    assert done.status == 2
    assert "c.toml is not a cluster file: Object contains unknown field `hostz`" in done.message()
    assert done.out == ""
    many = railwright("limits", "--host", "hgx-h100", "--count", "many", "-c", "all_reduce")
    assert many.status == 2
    assert "'many' is not a valid integer" in many.message()


def test_a_copy_inside_a_gpu_has_half_of_its_memory_s_rate() -> None:
    found = record("--host", "hgx-h100", " gpu3 > gpu3")
    assert (found["path"], found["kind"], found["devices"]) == ("gpu3>gpu3", "LOC", ["gpu3"])
    whole = load("hgx-h100").device("gpu3").facts["hbm_bandwidth_bytes_per_s"]
    assert found["limit"]["value"] == whole / 2
    assert 0.5 * whole / 2 < found["expected"]["low"] < found["expected"]["high"] == whole / 2
    assert "read and written" in found["limit"]["because"]


def test_a_copy_inside_a_captured_gpu_is_held_by_its_bus_and_clock(railwright) -> None:
    done = railwright("limits", "gpu0>gpu0", "--from", str(PROBED))
    assert done.status == 0
    assert "gpu0>gpu0  LOC              2407 GB/s" in done.out, done.out
    assert "6016 bits x 3201 MHz x 2" in done.out


def test_a_copy_inside_a_memory_whose_channels_nobody_knows_is_no_misuse() -> None:
    status, done = limits("--from", PROBED, "memory0>memory0")
    assert (status, "the number and the rate of its memory channels are unknown" in done.stdout) == (3, True)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["GB200", "NVL72"], "gb200-nvl72"),
        (["--host", "GB200", "NVL72", "nics=2"], "gb200-nvl72 nics=2"),
        (["--host", "DGX", "H100"], "dgx-h100"),
    ],
)
def test_a_name_of_several_words_needs_no_quotes(words, name):
    found = CliRunner().invoke(cli, ["limits", *words, "--collective", "all_reduce", "--count", "2"])
    assert found.exit_code == 0, found.output
    assert found.output.startswith(f"all_reduce on 2 hosts of {name},")


def test_a_word_that_completes_no_name_is_a_path_that_is_none():
    found = CliRunner().invoke(cli, ["limits", "--host", "hgx-h100", "gpu0"])
    assert isinstance(found.exception, RailwrightError)
    assert "not a path: 'gpu0'" in str(found.exception)
