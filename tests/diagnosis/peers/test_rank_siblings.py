"""A rank that takes longer than the others for the same work is named if it is slow in every launch."""

from __future__ import annotations

from railwright.diagnosis.peers.ranks import slower_ranks
from railwright.results.records import Result


def product(times, *, rank=3, launch=0, ranks=8, **settings):
    kept = {"slowest_rank": rank, "slowest_host": "node7", "slowest_times_median": times} | settings
    return Result(benchmark="b", quantity="flop_per_s", path="p", launch=launch, ranks=ranks, settings=kept)


def named(*results):
    return [(one.says.partition(" took ")[0], one.certainty) for one in slower_ranks(results)]


def test_a_slow_rank_is_named_with_its_gpu_and_host():
    assert named(product(1.2)) == [("rank 3 on node7", "possible")]
    found = named(product(1.2, slowest_gpu="gpu3"), product(1.1, launch=1, slowest_gpu="gpu3"))
    assert found == [("gpu3 (rank 3 on node7)", "likely")]


def test_what_is_no_slow_rank_is_not_named():
    assert named(product(1.04)) == []
    assert named(product(1.3, ranks=2)) == []
    assert named(product(1.3, cpu_share=0.5)) == []
    assert named(product(1.3, functional=True)) == []
    assert named(product(1.3), product(1.2, rank=5, launch=1)) == []
    assert named(product(1.3), product(1.01, launch=1)) == []
    assert named(Result(benchmark="b", quantity="flop_per_s", path="p", ranks=8)) == []
