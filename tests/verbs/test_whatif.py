"""`railwright whatif`: the command, its text, its records and its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner

from railwright.errors import CannotJudge, UsageError
from railwright.expected.designs import Design, Question, compare_designs, evaluate_design
from railwright.report.pages.whatif import render_designs_html
from railwright.report.text.whatif import labels, render_designs
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load
from railwright.topology.sources.saved import encode_topology
from railwright.verbs import whatif as verb

EXAMPLE = Path(__file__).parents[2] / "examples" / "prices.toml"
SIXTEEN = ("--count", "16", "--host", "hgx-h100")
CLUSTER = """
hosts = 64
host = "hgx-h100 nics=8"
[fabric]
rail_optimised = true
[[fabric.tiers]]
hosts = 16
oversubscription = 2
[[fabric.tiers]]
name = "spine"
hosts = 64
switches = 4
"""


def whatif(*arguments: str) -> str:
    done = CliRunner().invoke(verb.whatif, list(arguments), catch_exceptions=False, standalone_mode=False)
    assert done.return_value == 0
    return done.output


def records(*arguments: str) -> list[Design]:
    return [msgspec.json.decode(line, type=Design) for line in whatif(*arguments, "--json").splitlines()]


def refused(*arguments: str) -> UsageError:
    with pytest.raises(UsageError) as error:
        CliRunner().invoke(verb.whatif, list(arguments), catch_exceptions=False)
    assert error.value.hint
    assert error.value.exit_status == 2
    return error.value


def test_fewer_nics_are_held_beside_the_full_machine() -> None:
    text = whatif(*SIXTEEN, "--vary", "nics=2,4,8")
    rows = [line for line in text.splitlines() if line.startswith("all_to_all")]
    assert rows == ["all_to_all      nics=2   13.1 GB/s   5.64 GB/s to 12.9 GB/s   -75 %   NIC port (direct)"]
    assert "saves 96 NICs, 224 cables, 448 optics, 96 leaf ports, 128 uplink ports, 128 spine ports" in text
    assert "PHB to its NIC" in text
    assert "EUR" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_designs_that_their_ports_hold_back_alike_say_why() -> None:
    alike = whatif("--host", "hgx-h100", "--host", "hgx-b200", "--count", "4")
    assert "note  between hosts these designs are alike, because NIC ports of one rate hold all of them back" in alike
    assert "between hosts these designs are alike" not in whatif(*SIXTEEN, "--vary", "nics=2,8")


def test_text_is_at_most_100_columns_with_long_names_and_prices() -> None:
    vary = ("--vary", "nics=2,8", "--vary", "nic-rate=200Gb/s,400Gb/s", "--vary", "pcie=4,5")
    text = whatif(*SIXTEEN, *vary, "--prices", str(EXAMPLE), "-c", "all_reduce")
    assert max(map(len, text.splitlines())) <= 100
    assert "  design 8  hgx-h100 nics=8 nic-rate=400Gb/s pcie=5, 128 GPUs, 4 leaf and 2 spine switches" in text
    assert "not compared with each other, because the price list has one price for" in text


def test_the_examples_prices_say_that_they_are_made_up() -> None:
    text = whatif(*SIXTEEN, "--vary", "nics=2,8", "--prices", str(EXAMPLE), "-c", "all_reduce")
    assert "EXAMPLE" in text
    assert "not an offer" in text
    # 16 x 250000 + 32 x 1500 + 32 x 100 + 64 x 500 + 32 x 500
    assert "4,099,200 EUR" in text
    source = EXAMPLE.read_text()
    assert all("example" in line for line in source.splitlines() if re.match(r"\w+ = \d", line))


def test_one_design_has_no_comparison() -> None:
    text = whatif(*SIXTEEN, "nics=4")
    assert "1 design of 16 hosts" in text
    for word in ("loss", "saves", "Pareto", "against", "best"):
        assert word not in text
    (design,) = records(*SIXTEEN, "nics=4")
    assert (design.saving, design.pareto) == (None, None)


def test_designs_of_as_many_gpus_have_hosts_of_their_own_number() -> None:
    text = whatif("--gpus", "72", "--host", "gb200-nvl72", "--host", "hgx-h200", "-c", "all_gather")
    assert text.splitlines()[0] == "2 designs of 72 GPUs"
    assert "18 hosts, 72 GPUs (1 rack)" in text
    assert "9 hosts, 72 GPUs" in text
    assert whatif(*SIXTEEN, "-c", "all_gather").splitlines()[0] == "1 design of 16 hosts, 128 GPUs"


def test_hosts_can_be_given_one_by_one() -> None:
    found = records(*SIXTEEN, "nics=4", "--host", "hgx-h100", "nics=8", "nic-rate=200Gb/s", "-c", "all_gather")
    assert [design.name for design in found] == ["hgx-h100 nics=4", "hgx-h100 nics=8 nic-rate=200Gb/s"]
    four, eight = found
    assert four.collectives[0].busbw_bytes_per_s.limit == pytest.approx(eight.collectives[0].busbw_bytes_per_s.limit)
    assert (four.pareto, eight.pareto) == (None, None), "ports of 400 Gb/s are not counted against those of 200"


UNLIKE = ("--count", "16", "--host", "hgx-h100", "--host", "hgx-b300", "-c", "all_reduce")
TABLES = """
title = "a test"
currency = "EUR"
gpu_host = { hgx-h100 = 1000, "B300" = 2000 }
nic = { "400Gb/s" = 10, "800Gb/s" = 20 }
cable = { "400Gb/s" = 1, "800Gb/s" = 2 }
optic = { "400Gb/s" = 2, "800Gb/s" = 4 }
leaf_port = { "400Gb/s" = 3, "800Gb/s" = 6 }
spine_port = { "400Gb/s" = 5, "800Gb/s" = 10 }
"""


@pytest.mark.parametrize("prices", [(), ("--prices", str(EXAMPLE))])
def test_unlike_parts_are_not_compared(prices: tuple[str, ...]) -> None:
    text = whatif(*UNLIKE, *prices)
    for word in ("beaten by", "same", "Pareto", "against", "4,755,200"):
        assert word not in text
    assert text.count("not compared: its parts are unlike") == 2
    both = " ".join(text.split())
    assert "parts of 400 Gb/s InfiniBand" in both or "ports of 400 Gb/s InfiniBand" in both


def test_unlike_parts_with_a_price_for_each_kind_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(TABLES)
    slow, fast = records(*UNLIKE, "--prices", str(file))
    assert slow.cost is not None
    assert fast.cost is not None
    assert fast.cost.total == 2 * slow.cost.total == 2 * 19968
    assert (slow.pareto, fast.pareto) == (True, True)
    assert "as many network parts; other hosts; other NICs; other ports" in whatif(*UNLIKE, "--prices", str(file))


def test_the_page_draws_only_designs_that_can_be_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    whatif(*UNLIKE, "--output", str(page))
    assert 'id="pictures"' not in page.read_text()
    whatif(*UNLIKE, "--host", "hgx-h200", "--output", str(page))
    pictures = page.read_text().partition('id="pictures"')[2].partition('id="collectives"')[0]
    assert "hgx-h200" in pictures
    assert "hgx-b300" not in pictures


def test_designs_of_like_parts_are_compared_beside_an_unlike_design() -> None:
    text = whatif(*UNLIKE, "--host", "hgx-h200")
    assert "against hgx-h100, the one with the most switch ports" in text
    assert "as many network parts; other hosts" in text
    assert text.count("not compared: its parts are unlike") == 1


def test_several_varies_multiply_and_replace_what_the_host_says() -> None:
    found = records(*SIXTEEN, "nics=1", "--vary", "nics=2,4", "--vary", "pcie=4,5", "-c", "all_gather")
    assert [design.name for design in found] == [
        f"hgx-h100 nics={nics} pcie={pcie}" for nics in (2, 4) for pcie in (4, 5)
    ]


def test_a_cluster_file_gives_the_fabric_and_the_host(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER)
    (own,) = records("--cluster", str(file), "-c", "all_to_all")
    assert (own.name, own.hosts, own.collectives[0].held_back_by) == ("hgx-h100 nics=8", 64, "uplinks")
    assert [tier.switches for tier in own.parts.tiers] == [32, 4]
    varied = records("--cluster", str(file), "--vary", "nics=2,8", "-c", "all_to_all")
    assert [design.parts.leaf_switches for design in varied] == [8, 32]
    other = records("--cluster", str(file), "--count", "32", "--host", "mi300x", "-c", "all_to_all")
    assert (other[0].hosts, other[0].parts.leaf_ports) == (32, 256)


def test_a_saved_machine_is_a_design_too(tmp_path: Path) -> None:
    file = tmp_path / "ours.json"
    file.write_bytes(encode_topology(load("hgx-h100 nics=4")))
    found = records("--count", "16", "--host", str(file), "--host", "hgx-h100", "-c", "all_reduce")
    assert [design.parts.nics for design in found] == [64, 128]


def test_records_are_what_their_schema_says() -> None:
    schema = msgspec.json.schema(Design)
    for line in whatif(*SIXTEEN, "--vary", "nics=2,8", "--prices", str(EXAMPLE), "--json").splitlines():
        jsonschema.validate(json.loads(line), schema)
        assert json.loads(line)["record"] == "design"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--host", "hgx-h100"), "whatif requires --count, --gpus or --cluster"),
        (("--count", "16"), "whatif requires a host"),
        (("--count", "1", "--host", "hgx-h100"), "a design must have at least 2 hosts, got 1"),
        (("--count", "0", "--host", "hgx-h100"), "hosts must be 1 to 1000000, got 0"),
        ((*SIXTEEN, "--host", "mi300x", "--vary", "nics=2,4"), "--vary requires a single --host, got 2"),
        ((*SIXTEEN, "--vary", "nics"), "--vary must be KEY=A,B, got 'nics'"),
        ((*SIXTEEN, "--vary", "nics=2,,4"), "--vary must be KEY=A,B"),
        ((*SIXTEEN, "--vary", "nics=2,2"), "'hgx-h100 nics=2' is given twice"),
        ((*SIXTEEN, "--vary", "nics=2", "--vary", "nics=4"), "nics is varied twice"),
        ((*SIXTEEN, "--vary", "nisc=2,4"), "no change named 'nisc'"),
        ((*SIXTEEN, "--vary", "nics=" + ",".join(map(str, range(1, 66)))), "designs must be at most 64, got 65"),
        ((*SIXTEEN, "--host", "hgx-h100"), "'hgx-h100' is given twice"),
        ((*SIXTEEN, "-c", "alltonone"), "hgx-h100: there is no collective named 'alltonone'"),
        ((*SIXTEEN, "--radix", "2"), "--radix must be 4 to 1024, got 2"),
        ((*SIXTEEN, "--radix", "4"), "more than three tiers"),
        ((*SIXTEEN, "--output", "page.pdf"), "--output must name an HTML page, got 'page.pdf'"),
        ((*SIXTEEN, "--output", "/no/such/folder/page.html"), "cannot write /no/such/folder/page.html"),
        ((*SIXTEEN, "--prices", "/no/such/prices.toml"), "cannot be read"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(*arguments).message


def test_a_host_whose_ports_have_no_rate_cannot_be_judged(tmp_path: Path) -> None:
    host = load("hgx-h100")
    links = tuple(
        msgspec.structs.replace(link, protocol=msgspec.structs.replace(link.protocol, line_rate_bits_per_s=None))
        if link.b == "fabric0"
        else link
        for link in host.links
    )
    file = tmp_path / "ours.json"
    file.write_bytes(encode_topology(msgspec.structs.replace(host, links=links)))
    with pytest.raises(CannotJudge, match=r"ours\.json: .* lacks facts"):
        CliRunner().invoke(verb.whatif, ["--count", "2", "--host", str(file)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title = "x"\ncurrency = "EUR"\nnic = 1\n', "no gpu_host, cable, optic, leaf_port, spine_port"),
        ('title = "x"\ncurrency = "EUR"\nnics = 1\n', "is not a price list"),
        ('title = "x"\ncurrency = "EUR"\nnic = nan\n', "the price of nic must be 0 to 1e+09, got nan"),
        ('title = "x"\ncurrency = "EUR"\nnic = -5\n', "the price of nic must be 0 to 1e+09, got -5"),
        (
            'title = "x"\ncurrency = "nine chars"\n',
            "must have a title of at most 200 characters and a currency of at most 8",
        ),
        ("nic = 1\n", "is not a price list"),
        ("\x00", "is not a price list"),
        ("x = " + "[" * 5000, "is not a price list"),
        ("# " + "x" * 70_000, "larger than"),
    ],
)
def test_a_price_list_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    assert message in refused(*SIXTEEN, "-c", "all_gather", "--prices", str(file)).message


def test_a_radix_beside_a_file_that_gives_all_switches_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER.replace("hosts = 16\n", "hosts = 16\nswitches = 8\n"))
    assert "--radix has no effect" in refused("--cluster", str(file), "--radix", "64").message


@pytest.fixture(scope="module")
def designs() -> tuple[Design, ...]:
    names = ("</script><b>\x1b[31m", "hgx-h100 nics=8", "hgx-h100 nics=8 pcie=4")
    hosts = ("hgx-h100 nics=2", "hgx-h100 nics=8", "hgx-h100 nics=8 pcie=4")
    asked = Question(collectives=("all_reduce", "all_to_all"))
    return compare_designs(
        [evaluate_design(name, build_cluster(load(host), 16), asked) for name, host in zip(names, hosts, strict=True)]
    )


def test_the_page_is_whole_and_no_name_becomes_markup(designs: tuple[Design, ...]) -> None:
    page = render_designs_html(designs, Question(collectives=("all_reduce", "all_to_all")))
    assert page.count("<script") == 1
    assert "</script><b>" not in page
    assert "&lt;/script&gt;&lt;b&gt;" in page
    assert "\x1b" not in page
    assert "default-src 'none'" in page
    head = page[: page.index("<script>")]
    assert "src=" not in head.replace("script-src", "")
    for words in ("3 designs of 16 hosts", "-75 %", "Pareto", "saves 96 NICs", "6 GB/s", "nearest NIC"):
        assert words in head


def test_the_pictures_have_each_design_by_its_cost_and_its_limit(designs: tuple[Design, ...]) -> None:
    page = render_designs_html(designs, Question(collectives=("all_reduce", "all_to_all")))
    pictures = re.findall(r'<svg class="chart".*?</svg></g></svg>', page, re.DOTALL)
    assert len(pictures) == 2
    marks = re.findall(r'(m\w+)" d="M([\d.]+) ([\d.]+)"><title>([^<]+)', pictures[0])
    assert [name for name, *_ in marks] == ["m1", "m1", "m3o"]
    (cheap, _, low, _), (_, dear, high, words), (_, beaten, _, _) = ((m, float(x), float(y), t) for m, x, y, t in marks)
    assert cheap
    assert low > high, "y grows downwards"
    assert dear == beaten
    assert words.splitlines()[1:] == ["limit 397 GB/s", f"expected {words.splitlines()[2].removeprefix('expected ')}",
                                      "384 switch ports"]  # fmt: skip


def test_labels_are_what_tells_designs_apart(designs: tuple[Design, ...]) -> None:
    named = [msgspec.structs.replace(designs[0], name=name) for name in ("hgx-h100", "hgx-h100 nics=2")]
    assert labels(named) == ("hgx-h100", "nics=2")
    long = [msgspec.structs.replace(designs[0], name=name) for name in ("x" * 40, "y")]
    assert labels(long) == ("design 1", "design 2")
    assert "\x1b" not in render_designs(designs, Question(collectives=("all_reduce",)))


def test_nearly_all_is_not_all() -> None:
    text = whatif("--count", "18", "--host", "gb200-nvl72", "--host", "pcie-8gpu", "-c", "all_to_all")
    assert "-99.6 %" in text
    assert "the designs have different numbers of GPUs" in text
