"""Required paths, named by benchmark and path with wildcards, alone decide the exit status."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from railwright.diagnosis.verdicts.judged import JudgedPath, Verdict
from railwright.diagnosis.verdicts.policy import find_unmet, parse_requirements, required_status
from railwright.errors import UsageError
from railwright.workflows.requirements import load_requirements

KNOWN = ("mpi_latency", "gpu_copy", "memory_copy")


def path(benchmark, way="memory0>memory0", state="ok"):
    return JudgedPath(benchmark=benchmark, quantity="latency_s", path=way, parameters={},
                      verdict=Verdict(state=state, why="w"))  # fmt: skip


def status(paths, *lines):
    return required_status(find_unmet(paths, parse_requirements(lines, KNOWN)))


@pytest.mark.parametrize(
    ("state", "expected"),
    [("ok", 0), ("slow", 1), ("unknown", 3), ("suspicious", 3), ("failed", 3), ("waived", 3), ("reference", 3)],
)
def test_a_required_path_decides_and_no_other_does(state, expected):
    paths = (path("mpi_latency", state=state), path("gpu_copy", state="slow"))
    assert status(paths, "mpi_latency") == expected
    assert find_unmet(paths, parse_requirements(["mpi_latency"], KNOWN)) == (
        () if state == "ok" else (("mpi_latency memory0>memory0", state),)
    )


def test_a_way_narrows_it_wildcards_widen_it_and_what_is_missing_is_no_pass():
    paths = (path("gpu_copy", "memory0>gpu0"), path("gpu_copy", "gpu0>gpu1", "slow"))
    assert status(paths, "gpu_copy memory0>gpu*  # to each GPU") == 0
    assert status(paths, "gpu_*") == 1
    assert status(paths, "gpu_copy memory0>gpu7") == status((), "mpi_latency") == 3
    assert status((replace(paths[0]), path("mpi_latency", state="waived")), "mpi_latency", "", "# all") == 3


def test_a_name_that_nothing_has_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(UsageError, match="mpi_latncy"):
        parse_requirements(["mpi_latncy"], KNOWN)
    policy = tmp_path / "policy"
    policy.write_text("# prolog\nmpi_latency\ngpu_copy memory0>gpu0\n")
    assert list(map(str, load_requirements((str(policy),)))) == ["mpi_latency", "gpu_copy memory0>gpu0"]
    policy.write_text("# nothing\n")
    with pytest.raises(UsageError, match="--require must name a path"):
        load_requirements((str(policy),))
    policy.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not text"):
        load_requirements((str(policy),))
