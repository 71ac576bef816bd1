"""The verdict of a table never contradicts the conclusion about its curve that is printed beside it."""

from __future__ import annotations

from pathlib import Path

from railwright.expected.machine import Machine
from railwright.explain.paste import read_paste
from railwright.explain.table import Explained
from railwright.options.machine import resolve_cluster

THREADS = Path(__file__).parents[2] / "testdata/external/threads"
OSU = "# OSU MPI Bandwidth Test v7.2\n# Size      Bandwidth (MB/s)\n"


def explained(text: str, machine: str) -> Explained:
    return read_paste(text, Machine(cluster=resolve_cluster(machine, 2, None))).tables[0]


def thread(number: str) -> str:
    (found,) = THREADS.glob(f"{number}-*.txt")
    return found.read_text(encoding="utf-8")


def table(rates: dict[int, float]) -> str:
    return OSU + "".join(f"{size} {rate:.2f}\n" for size, rate in rates.items())


def test_a_rate_that_halves_with_the_size_is_not_ok_even_if_the_band_holds_both() -> None:
    """UCX may use one port of 100 Gb/s or two; this table used two up to 1 MiB, and then one."""
    machine = "pcie-8gpu nics=2 nic-rate=100G nic-protocol=infiniband"
    steady = {2**power: 24300.0 for power in range(17, 23)}
    assert explained(table(steady), machine).verdict.state == "ok"
    found = explained(table(steady | {2**21: 12100.0, 2**22: 12100.0}), machine)
    assert {row.verdict.state for row in found.rows} == {"ok"}
    assert found.verdict.state == "unknown"
    assert "the rate collapses at 2 MiB: 1/2.0 of that at 1 MiB" in found.verdict.why
    assert any(note.startswith("the rate collapses at 2 MiB") for note in found.notes)


def test_beside_slow_rows_the_healthy_machine_does_not_say_that_nothing_is_wrong() -> None:
    found = explained(thread("098"), "hgx-a100 gpus=1 nics=1 nic-rate=200Gb/s")
    assert found.verdict.state == "slow"
    assert found.hypotheses[0].fault == "healthy"
    assert "nothing is wrong" not in {one.says for one in found.hypotheses}


def test_a_value_that_reads_like_the_end_of_its_band_is_just_below_it() -> None:
    why = explained(thread("023"), "pcie-8gpu").verdict.why
    assert "11.6 GB/s is just below the expected 11.6 GB/s" in why
