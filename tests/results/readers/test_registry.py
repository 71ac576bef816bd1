"""A reader is loaded if a text has one of its marks, and every text that a reader recognises has one of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from railwright.results.readers.registry import FORMATS

NOT_RECORDED = {"linpack.mkl", "deepep"}
EXTERNAL = Path(__file__).parents[3] / "testdata/external"


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.module)
def test_what_a_reader_recognises_has_a_mark_of_it(known) -> None:
    recognised = 0
    for file in EXTERNAL.rglob("*.*"):
        if file.suffix not in (".txt", ".json", ".log", ".md"):
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        pieces = [text, *text.split("\n"), *text.split("\n\n")]
        found = [piece for piece in pieces if known.reader.recognises(piece)]
        assert all(known.may_be_in(piece) for piece in found), file
        recognised += len(found)
    assert recognised or known.module in NOT_RECORDED


@pytest.mark.machine
def test_explain_of_a_table_and_a_shape_loads_what_they_need_alone() -> None:
    table = EXTERNAL / "nccl_tests/2.19.6-all_reduce-2xh200.txt"
    words = ["explain", str(table), "--host", "hgx-h200", "gpus=2"]
    script = f"import sys; from railwright.main import run_command; run_command({words}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "railwright.faults.registry" in loaded
    others = (
        "checks.registry",
        "benchmarks",
        "native",
        "topology.sources.machine",
        "results.readers.fio.text",
        "results.readers.nccl_log.log",
    )
    assert not {f"railwright.{name}" for name in others} & loaded
