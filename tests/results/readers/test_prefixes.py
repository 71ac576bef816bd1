"""Prefixes of launchers, containers and log collectors do not change how a table is read."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.results.readers.recorded import text

from railwright.results.readers import registry
from railwright.results.readers.pasted.prefixes import MAX_PREFIXES, Prefixes

TABLE = "nccl_tests/2.18.3-all_gather-2xgb10-healthy.txt"


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
    "avocado": before("12:06:53 DEBUG| [stdout] "),
    "time and level": before("12:06:53.120 INFO  | "),
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


def test_the_longest_beginning_counts_and_any_number_stands_for_any_other():
    row = "# OSU MPI Bandwidth Test v7.4"
    found = Prefixes([f"node7: {row}", f"node7: rank 12 | {row}"])
    assert found.split(f"node8: rank 3 | {row}") == ("node8: rank 3 |", row)
    assert found.split(f"node8: {row}") == ("node8:", row)
    assert found.split(f"rack8: {row}") == ("", f"rack8: {row}")


def test_so_many_beginnings_cost_a_line_no_more_than_one():
    """A tree needs one step per part of the line: no line is compared with 4,096 prefixes."""
    lines = [f"{'ab ' * (number % 30 + 1)}{'x' * (number // 30 + 1)} | # OSU MPI" for number in range(MAX_PREFIXES)]
    found = Prefixes(lines)
    steps = 0
    tree = found._tree
    while tree:
        steps, tree = steps + 1, max(tree.values(), key=len, default={})
    assert steps <= 100
    assert found.split(lines[70]) == (lines[70].removesuffix(" # OSU MPI"), "# OSU MPI")
