"""measure-pf-switchdev: the order of turns, the samples that are kept, and the page that its records make."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from railwright.limits import network
from railwright.results.compare import compare
from railwright.results.records import Result
from railwright.results.statistics import summarise
from railwright.results.store import load
from railwright.topology.devices import EthernetLink, Link

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "testdata" / "measured" / "pf-switchdev"


@pytest.fixture
def parts(monkeypatch):
    """The modules of the script."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts/measured/node-network"))
    from measure_pf_switchdev import page, transfers

    return {"page": page, "transfers": transfers}


def test_no_way_is_always_measured_before_another(parts):
    ways = [parts["transfers"].Way(name, ("a", "b"), "net1") for name in "xyz"]
    orders = ["".join(way.name for way in parts["transfers"].turns(ways, number)) for number in range(6)]
    assert {"".join(sorted(order)) for order in orders} == {"xyz"}
    assert {count for place in range(3) for count in Counter(order[place] for order in orders).values()} == {2}


def test_few_samples_are_kept_and_the_summary_is_of_all(parts):
    samples = tuple(float(number) for number in range(1, 10_001))
    result = Result(benchmark="b", quantity="latency_s", path="p", samples=samples, summary=summarise(samples))
    kept = parts["transfers"].thin_samples(result)
    assert (len(kept.samples), kept.settings["samples_kept"], kept.summary) == (250, "1 of 40", result.summary)
    assert parts["transfers"].thin_samples(kept) == kept


def test_a_record_says_what_repeats_it_and_not_where_it_was_written(parts):
    words = ["--rounds", "3", "--output", "/home/somebody/out", "--brief"]
    assert parts["transfers"].command(words) == (
        "scripts/measured/node-network/measure-pf-switchdev",
        "--rounds",
        "3",
        "--brief",
    )


def test_the_recorded_runs_compare_point_by_point():
    comparison = compare(load(RECORDED / "pf_n2.jsonl"), load(RECORDED / "switchdev_n2.jsonl"))
    assert not comparison.one_sided
    assert not [one for one in comparison.differences if one.severity == "blocking"]
    (launches,) = {len(side.launches) for point in comparison.points for side in (point.a, point.b)}
    assert launches >= 3


def test_the_recorded_page_is_what_its_records_say(parts, tmp_path):
    for path in RECORDED.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "measured.md").unlink()
    assert parts["page"].write(tmp_path).read_text() == (RECORDED / "measured.md").read_text()


def test_the_page_shows_the_sum_of_two_pods_against_the_limit(parts):
    record = json.loads((RECORDED / "contention.json").read_text())
    both = next(phase for phase in record["phases"] if phase["name"] == "a and b")
    both["payload_bits_per_s"] = record["payload_limit_bits_per_s"] / 2
    (row,) = [line for line in parts["page"].contention_lines(record) if line.startswith("| a and b |")]
    assert " 50.0% " in row


def test_two_pods_are_held_against_the_limit_of_the_port_that_they_share():
    record = json.loads((RECORDED / "contention.json").read_text())
    port = EthernetLink(line_rate_bits_per_s=record["line_rate_bits_per_s"], mtu_bytes=record["mtu_bytes"])
    limit = network.limit(Link(a="nic0", b="fabric", protocol=port))
    assert 8 * limit.value == pytest.approx(record["payload_limit_bits_per_s"])
    sums = {phase["name"]: phase["payload_bits_per_s"] / 8 / limit.value for phase in record["phases"]}
    assert all(0.9 < sums[name] < 1.02 for name in ("a alone", "b alone", "a and b", "to a and b")), sums
