"""A mount that never answers: errors name it, and nothing hangs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.benchmarks.jobs import job_of

from railwright.benchmarks.files import mounted
from railwright.benchmarks.registry import find
from railwright.errors import CannotJudge
from railwright.native.mount import answers
from railwright.topology.expand import expand


def test_a_mount_that_stalls_after_its_first_answer_is_named_once_and_nothing_hangs(monkeypatch) -> None:
    monkeypatch.setattr(mounted, "answers", lambda _path, _within_s: True)
    asked, began, never = [], threading.Event(), threading.Event()

    def look() -> None:
        asked.append(1)
        began.set()
        never.wait()

    try:
        for _ in range(2):
            with pytest.raises(CannotJudge) as caught:
                mounted.query_mount("/mnt/gone", look, patience_s=0.05)
            assert caught.value.message.startswith("/mnt/gone did not answer within 50")
            assert caught.value.message.endswith("its mount stalls")
        assert began.wait(60), "a busy host may start the thread late"
        assert asked == [1], "the second time nobody waits"
    finally:
        never.set()
        mounted._silent.discard("/mnt/gone")
    with pytest.raises(FileNotFoundError):
        mounted.query_mount("/no/such", lambda: Path("/no/such").stat())


def test_a_plan_on_a_mount_that_stalls_is_waived_with_its_name(monkeypatch) -> None:
    def never(path: str, _look: object) -> None:
        raise CannotJudge(f"{path} did not answer within 10 s: its mount stalls")

    for place in ("railwright.benchmarks.files.direct_file", "railwright.benchmarks.tables.read",
                  "railwright.benchmarks.samples.deepcam"):  # fmt: skip
        monkeypatch.setattr(f"{place}.query_mount", never)
    for name, given in (
        ("parquet_read", {"directory": "/mnt/gone"}),
        ("parquet_read", {"file": "/mnt/gone/f"}),
        ("file_read", {"directory": "/mnt/gone"}),
        ("deepcam_read", {"directory": "/mnt/gone", "reader": "h5py"}),
        ("deepcam_read", {"files": "/mnt/gone", "reader": "h5py"}),
    ):
        plan = find(name).plan(job_of(find(name), expand("laptop", {}), given=given))
        assert "did not answer within 10 s" in plan.waived, name
        assert plan.path.startswith("drive?>")


def test_no_thread_queries_the_mount_if_the_child_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with a thread that hangs in the kernel cannot end."""
    monkeypatch.setattr(mounted, "answers", lambda _path, _patience_s: False)
    try:
        with pytest.raises(CannotJudge, match="did not answer within"):
            mounted.query_mount("/mnt/stalled", lambda: pytest.fail("it was queried"), patience_s=0.05)
    finally:
        mounted._silent.discard("/mnt/stalled")


def test_an_error_is_an_answer() -> None:
    assert answers("/", 30.0)
    assert answers("/no/such\nfolder", 30.0)
