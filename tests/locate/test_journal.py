"""An interrupted search resumes from its own measurements, and never from those of another search."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.diagnosis.localise.flows import Flow, Round
from railwright.errors import UsageError
from railwright.locate.journal import Journal
from railwright.locate.probes import FlowResult, PhaseResult

PHASES = [[Round([Flow(0, 1, (0, 3), 1.0)])], [Round([Flow(1, 0, (2, 1), 1.0)])]]
SEEN = [PhaseResult(rounds=[[FlowResult(port=port, ways=[(0, 3)])]], set_aside={"host2": "gone"}) for port in (1, 2)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Both phases."""
    path = tmp_path / "journal"
    with Journal(path, "question") as kept:
        for phase, seen in zip(PHASES, SEEN, strict=True):
            assert kept.next(phase) is None
            kept.add(phase, seen)
    return path


def test_whole_phases_are_read_wherever_the_file_was_cut(file: Path) -> None:
    whole = file.read_bytes()
    first, second = whole.index(b"\n") + 1, whole.index(b"\n", whole.index(b"\n") + 1) + 1
    for cut in (9, first, first + 9, second, second + 9, len(whole) - 1, len(whole)):
        file.write_bytes(whole[:cut])
        with Journal(file, "question") as kept:
            for phase, seen in zip(PHASES, SEEN, strict=True):
                found = kept.next(phase)
                if found is None:
                    kept.add(phase, seen)
                else:
                    assert found == seen
            assert kept.read == (cut >= second) + (cut == len(whole)), cut
        assert file.read_bytes() == whole, cut


def test_a_file_of_something_else_is_refused(file: Path) -> None:
    for content, says in (
        (file.read_bytes(), "belongs to a search with other hosts"),
        (b"notes\n", "not the record of a search"),
    ):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=says), Journal(file, "another question"):
            pass
        assert file.read_bytes() == content
    with Journal(file.with_name("new"), "question") as kept:
        kept.add(PHASES[0], SEEN[0])
    with Journal(file.with_name("new"), "question") as kept, pytest.raises(UsageError, match="another version"):
        kept.next(PHASES[1])
