"""A page that cannot be rendered or written does not prevent the other page or the report on the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report import sample

from railwright.errors import RailwrightError
from railwright.results.records import ResultFile
from railwright.workflows import judged

FILE = ResultFile(run=sample.run(), results=sample.results(), end=sample.end())


@pytest.mark.parametrize("as_json", [False, True])
def test_a_mistake_in_a_page_leaves_the_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, *, as_json: bool
) -> None:
    def broken(*_: object) -> str:
        raise OverflowError("in a figure")

    monkeypatch.setattr("railwright.workflows.judged.render_html", broken)
    with pytest.raises(OverflowError, match="in a figure"):
        judged.report(FILE, tmp_path, as_json=as_json)
    said = capsys.readouterr().out
    assert "memory_copy" in said
    assert ("Exit status" in said) != as_json
    assert [one.name for one in tmp_path.iterdir()] == ["metrics.txt"]


def test_a_page_that_cannot_be_written_leaves_the_rest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(RailwrightError, match=r"cannot write .*report\.html: Is a directory"):
        judged.report(FILE, tmp_path, as_json=False)
    assert "Exit status" in capsys.readouterr().out
    assert sorted(one.name for one in tmp_path.iterdir()) == ["metrics.txt", "report.html"]
