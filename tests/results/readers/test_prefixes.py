"""What launchers, containers and collectors put around a table does not matter; and no reader breaks on broken text."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.results.readers.recorded import text

from railwright.errors import RailwrightError
from railwright.results.readers import nccl_log, registry

TABLE = "nccl_tests/2.18.3-all_gather-2xgb10-healthy.txt"
EXTERNAL = Path(__file__).parents[3] / "testdata/external"
RUNS = 100_000 if os.environ.get("RAILWRIGHT_TEST_LONG") else 1_000


def before(prefix: str) -> Callable[[str], str]:
    return lambda whole: "\n".join(prefix + line for line in whole.split("\n"))


WRAPPED = {
    "indented mpirun": before("   [1,0]<stdout>:"),
    "torchrun": before("[default0]:"),
    "rank": before("[rank0]: "),
    "docker compose": before("nccl-test-1  | "),
    "pdsh": before("node-17: "),
    "stern": before("mpi-launcher-x7k2p nccl "),
    "quote": before("> "),
    "stamp and tag": before("2025-03-04T05:06:07.123Z stdout F "),
    "syslog": before("Mar  4 05:06:07 node17 slurmstepd[4242]: "),
    "json": lambda whole: "\n".join(json.dumps({"log": f"{line}\n", "stream": "stdout"}) for line in whole.split("\n")),
    "ansible": lambda whole: "\n".join(f"        {json.dumps(line)}," for line in whole.split("\n")),
    "carriage returns": lambda whole: whole.replace("\n", "\r"),
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_a_table_is_the_same_behind_any_constant_beginning(wrap: Callable[[str], str]) -> None:
    (bare,) = registry.read(text(TABLE))
    (found,) = registry.read(wrap(text(TABLE)))
    assert [one.samples for one in found.results] == [one.samples for one in bare.results]
    assert (found.ranks, found.hosts) == (bare.ranks, bare.hosts)


def test_a_table_without_its_header_is_read_by_the_words_of_its_rows() -> None:
    rows = [line for line in text(TABLE).split("\n") if line.strip()[:1].isdigit()]
    (found,) = registry.read("\n".join(rows))
    (bare,) = registry.read(text(TABLE))
    assert [one.samples for one in found.results] == [one.samples for one in bare.results]


def mutated(raw: str, chance: random.Random) -> str:
    """The text with a few characters, words or lines changed."""
    lines = raw.split("\n")[:60]
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(lines))
        words = lines[place].split(" ")
        spot = chance.randrange(len(words))
        words[spot] = chance.choice(
            ["", "²", "-1", "nan", "1e999", "99999999999999999999", "[", "\x00", "algbw", "0", "é"]
        )
        lines[place] = chance.choice([" ".join(words), lines[place][: chance.randint(0, 40)], lines[place] * 2])
    return "\n".join(lines)


def test_broken_text_is_read_or_refused_and_nothing_else() -> None:
    files = sorted(file for file in EXTERNAL.rglob("*.*") if file.suffix in (".txt", ".log", ".json"))
    texts = [file.read_text(encoding="utf-8", errors="replace")[:6000] for file in files]
    for seed in range(RUNS):
        chance = random.Random(seed)
        broken = mutated(chance.choice(texts), chance)
        for read in (registry.read, nccl_log.read):
            try:
                read(broken)
            except RailwrightError:
                continue
