"""Broken tables, logs, records and topologies are read, or rejected with one clear error.

`make quick` tries a few hundred of each kind, `make test-long` 100,000 texts.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest
from tests.report import sample

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.errors import RailwrightError
from railwright.expected.collective_rows import collective_row
from railwright.expected.machine import Machine
from railwright.expected.path_rows import list_host_rows
from railwright.explain.paste import read_paste
from railwright.report.text.explain import render_explained
from railwright.report.text.nccl import render_nccl_log
from railwright.results.compare import compare
from railwright.results.records import ResultFile
from railwright.results.store import load
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand
from railwright.topology.routes import list_main_paths
from railwright.topology.sources.saved import decode_topology, encode_topology

EXTERNAL = Path(__file__).parents[2] / "testdata/external"
LONG = bool(os.environ.get("RAILWRIGHT_TEST_LONG"))
PARTS = 20
TEXTS = 100_000 // PARTS if LONG else 10
RECORDS = 2_000 if LONG else 60
TOPOLOGIES = 1_000 if LONG else 25
WORDS = ("", "²", "-1", "nan", "1e999", "99999999999999999999", "[", "\x00", "algbw", "0", "é", "0x", "1.5", "\x1b[2J")
VALUES = (None, -1, 0, 1, 2.5, 1e300, 2**63, "", "²", "gpu0", "a" * 300, [], {}, [0], True)


@pytest.fixture(scope="module")
def machines() -> tuple[Machine | None, ...]:
    shapes = (("hgx-h100", 2), ("gh200", 4), ("pcie-8gpu", 1))
    return (None, None, *(Machine(cluster=build_cluster(expand(name, {}), count)) for name, count in shapes))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    files = sorted(file for file in EXTERNAL.rglob("*.*") if file.suffix in (".txt", ".log", ".json"))
    return [file.read_text(encoding="utf-8", errors="replace")[:6000] for file in files]


def mutated(raw: str, chance: random.Random) -> str:
    """Change a few characters, words or lines of the text."""
    lines = raw.split("\n")[:60]
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(lines))
        words = lines[place].split(" ")
        words[chance.randrange(len(words))] = chance.choice(WORDS)
        other = lines[chance.randrange(len(lines))]
        changes = (" ".join(words), lines[place][: chance.randint(0, 40)], lines[place] * 2, other)
        lines[place] = chance.choice(changes)
    return "\n".join(lines)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_broken_text_is_explained_or_refused(part, texts, machines):
    for seed in range(part * TEXTS, (part + 1) * TEXTS):
        chance = random.Random(seed)
        broken = mutated(chance.choice(texts), chance)
        machine = chance.choice(machines) if seed % 8 == 0 else None
        try:
            found = read_paste(broken, machine)
        except RailwrightError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {broken}") from error
        assert all(render_explained(table) for table in found.tables)
        if found.log is not None:
            assert render_nccl_log(found.log, found.findings, machine.cluster.host if machine else None)


def spoiled(value: object, chance: random.Random) -> object:
    """Replace, remove or duplicate one value somewhere in a JSON value."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        if chance.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: spoiled(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        change = chance.random()
        instead = [] if change < 0.1 else [value[place]] * 2 if change < 0.2 else [spoiled(value[place], chance)]
        return value[:place] + instead + value[place + 1 :]
    return chance.choice(VALUES)


def test_a_broken_results_file_is_judged_and_compared_or_refused(tmp_path):
    whole = ResultFile(run=sample.run(), results=sample.results()[:12], end=sample.end())
    lines = [msgspec.to_builtins(record) for record in (whole.run, *whole.results, whole.end)]
    file = tmp_path / "results.jsonl"
    for seed in range(RECORDS):
        chance = random.Random(seed)
        place = chance.randrange(len(lines))
        broken = [*lines[:place], spoiled(lines[place], chance), *lines[place + 1 :]]
        file.write_bytes(b"\n".join(msgspec.json.encode(line) for line in broken))
        try:
            found = load(file)
            diagnose(found, DECLARATIONS)
            compare(whole, found)
        except RailwrightError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {broken[place]}") from error


def without_links(topology: dict[str, object], chance: random.Random) -> dict[str, object]:
    """Keep a few of the links, or none."""
    links = topology["links"]
    assert isinstance(links, list)
    return {**topology, "links": chance.sample(links, chance.randint(0, len(links)) if chance.random() < 0.7 else 0)}


@pytest.mark.parametrize("shape", ["hgx-h100", "gh200", "pcie-8gpu"])
def test_a_broken_topology_is_judged_or_refused(shape, texts):
    saved = msgspec.json.decode(encode_topology(expand(shape, {})))
    for seed in range(TOPOLOGIES):
        chance = random.Random(seed)
        broken = without_links(saved, chance) if seed % 2 else spoiled(saved, chance)
        try:
            host = decode_topology(msgspec.json.encode(broken), "it")
            cluster = build_cluster(host, 1 + seed % 3)
            list_host_rows(Machine(cluster=build_cluster(host, 1)), list_main_paths(host))
            collective_row(cluster, "all_reduce", "auto", None)
            read_paste(chance.choice(texts), Machine(cluster=cluster))
        except RailwrightError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed} of {shape}") from error
