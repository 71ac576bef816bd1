"""Transfers by NIXL that move nothing, as with a broken backend: every point must report wrong bytes.

GPU memory without files is in `test_kv_vram`.

The ranks are real and so is NIXL; only the timed calls are replaced, so that they return and move nothing.
"""
# ruff: noqa: F811 - fixtures of other modules are imported, and are arguments

from __future__ import annotations

import pytest
from tests.benchmarks import test_gpu_file
from tests.benchmarks.test_gpu_file import in_a_run, two_gpus  # noqa: F401 - fixtures
from tests.benchmarks.test_kv_transfer import bucket, object_client  # noqa: F401 - fixtures
from tests.stand_ins import stand_ins  # noqa: F401 - a fixture

SITE = """
import os
from railwright.native import nixl, nixl_crew, nixl_layers
from railwright.native.nixl_crew import CrewPass

def crew(requests, cpus, *, depth, iterations, patience_s):
    return CrewPass(1e-3, [1e-3] * iterations * len(requests), [1e-4] * iterations * len(requests))

nixl_crew.time_crew = crew
if "TEST_CREW_ALONE" not in os.environ:  # objects are laid and checked one request after another
    nixl.Request.time = lambda self, *, warm, iterations, patience_s: ([1e-3] * iterations, [1e-4] * iterations)
    nixl_layers.time_layers = lambda agent, requests, *, warm, iterations, patience_s: (
        [[1e-3 * (layer + 1) for layer in range(len(requests))] for _ in range(iterations)]
    )
"""


@pytest.fixture
def broken(railwright, tmp_path):
    """Return the results of a run whose transfers move nothing."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SITE)

    def run(name, *options, **variables):
        given = [part for option in options for part in ("-o", option)]
        railwright("run", name, *given, "--force", environment={"PYTHONPATH": str(folder), **variables})
        railwright.expect_nothing_left()
        return railwright.results()

    return run


@pytest.fixture
def nothing_moves(monkeypatch):
    """Make the ranks of `in_a_run` move nothing."""
    monkeypatch.setattr(test_gpu_file, "SITE", test_gpu_file.SITE + SITE)


def all_wrong(results, points):
    """Check that every point has its records, and that bytes are right only by chance."""
    seen = {tuple(sorted((key, value) for key, value in one.parameters.items() if key != "until")) for one in results}
    assert len(seen) == points
    for one in results:
        check = one.verification
        assert one.outcome == "measured", one.reason
        assert 0.98 * check.bytes_checked < check.bytes_wrong <= check.bytes_checked, one.parameters
    seeds = {one.settings["pattern_seed"] for one in results}
    assert len(seeds) == points, "every point has a pattern of its own"


def test_between_two_processes(broken):
    all_wrong(broken("kv_transfer", "sizes=4K,1M", "batches=1,16"), points=8)


def test_by_several_threads(broken):
    all_wrong(broken("kv_transfer", "sizes=4K", "threads=2", "depth=2"), points=2)


def test_the_blocks_of_a_request(broken):
    all_wrong(broken("kv_cache", "tokens=64", "layout=paged,as-kvbench"), points=8)


def test_one_size_in_several_batches_to_a_file(broken):
    """All batches use the same places: with one pattern per size the second would find the first's."""
    results = broken("kv_file", "sizes=4K", "batches=1,16,64", "file-size=1M", "direct=yes,no")
    all_wrong(results, points=2 * 3 * 2)


def test_objects_that_a_run_before_has_written(broken, railwright, bucket, object_client):
    given = ("kv_file", "backend=OBJ", f"s3={bucket}", "sizes=4K", "batches=1,4", "file-size=64K")
    options = [part for option in given[1:] for part in ("-o", option)]
    assert railwright("run", given[0], *options, "--force", environment=object_client).status == 3
    sound = railwright.results()
    assert all(one.verification.bytes_wrong == 0 for one in sound)
    results = broken(*given, **object_client, TEST_CREW_ALONE="1")
    all_wrong(results, points=4)
    assert not {one.settings["pattern_seed"] for one in sound} & {one.settings["pattern_seed"] for one in results}


def test_files_by_cufile(nothing_moves, in_a_run):
    results = in_a_run(backend="GDS,GDS_MT", memory="DRAM,VRAM", sizes="4K", batches="1,4")
    all_wrong(results, points=2 * 2 * 2 * 2)
