"""Comparison of two runs: the statements that the data supports, and the differences that make runs incomparable."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import msgspec
import pytest

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED
from railwright.limits.limit import Quantity
from railwright.results.compare import ComparedPoint, Comparison, Side, compare
from railwright.results.fairness import Difference
from railwright.results.ratio import ratio_interval
from railwright.results.records import Context, End, Evidence, Noise, Result, ResultFile, Run, Verification
from railwright.results.statistics import summarise
from railwright.topology.devices import Device, EthernetLink, Link, Scalar, Topology

QUIET = Noise(quantum_s=1e-3, lost_fraction=0.001, worst_s=1e-4, quanta=100)
VERIFIED = Verification(method="pattern", bytes_checked=4096, bytes_wrong=0)


def context(**changed: object) -> Context:
    plain = Context(host="one", kernel="6.1", cpu="x", cores=2, software={"nccl": "2.28"}, noise=QUIET)
    return msgspec.structs.replace(plain, **changed)


def topology(mtu_bytes: int = 9000, gpus: int = 1) -> Topology:
    devices = (Device(id="nic0", kind="nic"), Device(id="fabric0", kind="fabric"))
    gpu = tuple(Device(id=f"gpu{number}", kind="gpu") for number in range(gpus))
    link = Link(a="nic0", b="fabric0", protocol=EthernetLink(line_rate_bits_per_s=4e11, mtu_bytes=mtu_bytes))
    return Topology(name="one", source="saved", devices=(*devices, *gpu), links=(link,))


def a_file(results: Sequence[Result], *, where: Context | None = None, machine: Topology | None = None,
           whole: bool = True) -> ResultFile:  # fmt: skip
    run = Run(railwright="1.0", started_at="2026-01-01T00:00:00Z", command=("railwright", "prove"),
              context=where or context(), topology=machine or topology())  # fmt: skip
    return ResultFile(run=run, results=tuple(results), end=End(finished_at="later") if whole else None)


def point(values: Sequence[float], *, quantity: Quantity = "bandwidth_bytes_per_s", size_bytes: int = 4096,
          parameters: dict[str, Scalar] | None = None, **changed: object) -> tuple[Result, ...]:  # fmt: skip
    """Make a point measured in one launch per value."""
    plain = Result(
        benchmark="all_reduce", quantity=quantity, path="gpu0>gpu1", method="nccl-tests", ranks=8, hosts=1,
        parameters={"size_bytes": size_bytes, **(parameters or {})}, verification=VERIFIED,
        settings={"thread_level": "single"},
    )  # fmt: skip
    made = []
    for launch, value in enumerate(values):
        summary = summarise([value]) if math.isfinite(value) else None
        made.append(
            msgspec.structs.replace(plain, **{"launch": launch, "samples": (value,), "summary": summary, **changed})
        )
    return tuple(made)


STEADY = (100.0, 101.0, 99.0, 100.5, 99.5)


def steady(factor: float = 1.0) -> tuple[float, ...]:
    return tuple(value * factor for value in STEADY)


def only(comparison: Comparison) -> ComparedPoint:
    assert len(comparison.points) == 1
    return comparison.points[0]


def blocking(comparison: Comparison) -> list[tuple[str, str, str]]:
    return [(each.what, each.a, each.b) for each in comparison.differences if each.severity == "blocking"]


def cautions(comparison: Comparison) -> dict[str, tuple[str, str]]:
    return {each.what: (each.a, each.b) for each in comparison.differences if each.severity == "caution"}


@pytest.mark.parametrize(
    ("quantity", "factor", "statement", "status"),
    [
        ("bandwidth_bytes_per_s", 0.8, "slower", EXIT_SLOW),
        ("bandwidth_bytes_per_s", 1.25, "faster", EXIT_OK),
        ("operations_per_s", 0.8, "slower", EXIT_SLOW),
        ("latency_s", 0.8, "faster", EXIT_OK),
        ("latency_s", 1.25, "slower", EXIT_SLOW),
        ("latency_s", 1.001, "within noise", EXIT_OK),
    ],
)
def test_a_clear_difference_is_told_in_the_direction_of_its_quantity(
    quantity: Quantity, factor: float, statement: str, status: int
) -> None:
    comparison = compare(a_file(point(STEADY, quantity=quantity)), a_file(point(steady(factor), quantity=quantity)))
    found = only(comparison)
    assert found.statement == statement
    assert found.ratio == pytest.approx(factor)
    assert found.interval is not None
    assert found.interval.low <= factor <= found.interval.high
    assert found.unit == "launches"
    assert comparison.exit_status == status
    assert comparison.differences == ()


def test_a_real_but_tiny_difference_is_not_claimed() -> None:
    still = tuple(100 + number * 0.001 for number in range(5))
    found = only(compare(a_file(point(still)), a_file(point([value * 1.01 for value in still]))))
    assert found.interval is not None
    assert found.interval.low > 1
    assert found.statement == "within noise"


def test_noise_that_hides_a_difference_is_not_called_sameness() -> None:
    comparison = compare(a_file(point((60, 100, 125))), a_file(point((90, 150, 200))))
    found = only(comparison)
    assert (found.statement, found.reason) == ("cannot tell", "noise")
    assert comparison.exit_status == EXIT_UNJUDGED
    assert f"about {found.launches_needed} launches of each would decide" in found.why


@pytest.mark.parametrize("values", [(100,), (60, 100, 125), STEADY])
def test_identical_launches_are_within_noise(values: Sequence[float]) -> None:
    comparison = compare(a_file(point(values)), a_file(point(values)))
    assert (only(comparison).statement, comparison.exit_status) == ("within noise", EXIT_OK)


def compare_many(noise: float, factor: float, launches: int = 3) -> Comparison:
    """A comparison of 300 points whose launches vary by `noise`; those of the second run changed by `factor`."""
    chance = random.Random(1)
    runs = [
        [
            result
            for size in range(1, 301)
            for result in point([scale * math.exp(chance.gauss(0, noise)) for _ in range(launches)], size_bytes=size)
        ]
        for scale in (1, factor)
    ]
    return compare(*map(a_file, runs))


@pytest.mark.parametrize("noise", [0.02, 0.06, 0.1])
def test_unchanged_points_are_within_noise_four_times_in_five(noise: float) -> None:
    comparison = compare_many(noise, 1)
    statements = [found.statement for found in comparison.points]
    assert statements.count("cannot tell") <= 0.2 * len(statements)
    assert statements.count("slower") <= 0.05 * len(statements)
    (together,) = comparison.together
    assert (together.statement, together.points) == ("within noise", 300)


@pytest.mark.parametrize(("factor", "statement"), [(0.9, "slower"), (1 / 0.9, "faster")])
@pytest.mark.parametrize("noise", [0.02, 0.06, 0.1])
def test_a_change_of_a_tenth_that_each_point_hides_shows_in_all_together(
    noise: float, factor: float, statement: str
) -> None:
    (together,) = compare_many(noise, factor).together
    assert together.statement == statement
    assert together.ratio == pytest.approx(factor, rel=0.03)
    assert together.shows < 0.1


def test_what_disturbs_a_whole_launch_is_no_change_of_its_points() -> None:
    disturbed = (1.0, 0.8, 1.0)
    runs = [
        [
            result
            for size in range(1, 31)
            for result in point([scale * launch * (1 + size / 1e4) for launch in disturbed], size_bytes=size)
        ]
        for scale in (1, 0.9)
    ]
    (together,) = compare(*map(a_file, runs)).together
    assert together.statement != "slower"
    assert together.shows > 0.3


def test_a_single_point_and_points_of_few_launches_have_no_sum() -> None:
    assert compare(a_file(point(STEADY)), a_file(point(STEADY))).together == ()
    two = [result for size in (1, 2) for result in point([1, 2], size_bytes=size)]
    assert compare(a_file(two), a_file(two)).together == ()


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.02])
def test_a_slowdown_of_a_tenth_is_found(noise: float) -> None:
    chance = random.Random(2)
    a, b = ([factor * math.exp(chance.uniform(-noise, noise)) for _ in range(3)] for factor in (1, 0.9))
    assert only(compare(a_file(point(a)), a_file(point(b)))).statement == "slower"


def test_the_launches_that_are_estimated_decide() -> None:
    """Twice the estimate decides nine of ten points that three launches do not decide."""
    chance = random.Random(3)

    def launches(count: int, factor: float) -> Sequence[Result]:
        return point([factor * math.exp(chance.gauss(0, 0.5)) for _ in range(count)])

    asked, decided = 0, 0
    for _ in range(200):
        needed = only(compare(a_file(launches(3, 1)), a_file(launches(3, 1.2)))).launches_needed
        if not 0 < needed <= 200:
            continue
        asked += 1
        again = compare(a_file(launches(2 * needed, 1)), a_file(launches(2 * needed, 1.2)))
        decided += only(again).statement != "cannot tell"
    assert asked > 20
    assert decided > 0.9 * asked


def test_three_launches_need_a_difference_beyond_what_both_spread_over() -> None:
    found = only(compare(a_file(point((97, 100, 103))), a_file(point((104, 107, 110)))))
    assert found.interval is not None
    assert found.interval.confidence == pytest.approx(0.9)
    assert found.statement == "cannot tell"
    assert only(compare(a_file(point((99, 100, 101))), a_file(point((104, 107, 108))))).statement == "faster"


@pytest.mark.parametrize("launches", [1, 2])
def test_too_few_launches_cannot_tell_even_a_large_difference(launches: int) -> None:
    comparison = compare(a_file(point(STEADY)), a_file(point([50.0] * launches)))
    found = only(comparison)
    assert (found.statement, found.reason) == ("cannot tell", "few launches")
    assert f"b has {launches}" in found.why
    assert comparison.exit_status == EXIT_UNJUDGED


def test_one_launch_on_each_side_shows_the_interval_inside_it() -> None:
    one = point([100], summary=summarise([98, 99, 100, 101, 102]))
    other = point([50], summary=summarise([48, 49, 50, 51, 52]))
    found = only(compare(a_file(one), a_file(other)))
    assert found.unit == "samples of one launch"
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (48 / 102, 52 / 98)
    assert found.interval.confidence == 0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_values_that_no_ratio_can_hold_are_safe(bad: float) -> None:
    broken = point((100, 101, bad), summary=None)
    for pair in ((broken, point(STEADY)), (point(STEADY), broken)):
        found = only(compare(a_file(pair[0]), a_file(pair[1])))
        assert (found.statement, found.reason, found.ratio) == ("cannot tell", "no value", None)


def test_a_result_without_samples_is_safe() -> None:
    found = only(compare(a_file(point((1, 2, 3), summary=None, samples=())), a_file(point(STEADY))))
    assert (found.statement, found.a) == ("cannot tell", Side())


def test_two_empty_runs_have_nothing_to_compare() -> None:
    comparison = compare(a_file(()), a_file(()))
    assert (comparison.points, comparison.exit_status) == ((), EXIT_UNJUDGED)


def test_points_of_one_side_are_listed() -> None:
    both = point(STEADY)
    extra = point(STEADY, size_bytes=8192)
    comparison = compare(a_file(both + extra), a_file(both))
    assert [(each.measured_in, each.other) for each in comparison.one_sided] == [("a", "absent")]
    assert comparison.exit_status == EXIT_UNJUDGED
    assert comparison.differences == ()


def test_what_only_the_second_run_measured_is_no_loss() -> None:
    both = point(STEADY)
    comparison = compare(a_file(both), a_file(both + point(STEADY, size_bytes=8192)))
    assert [(each.measured_in, each.other) for each in comparison.one_sided] == [("b", "absent")]
    assert comparison.exit_status == EXIT_OK


def test_a_point_that_failed_in_one_run_is_not_ok() -> None:
    both, extra = point(STEADY), point(STEADY, size_bytes=8192)
    failed = point([1.0], size_bytes=8192, outcome="failed", reason="rank 3 hung", summary=None, samples=())
    comparison = compare(a_file(both + extra), a_file(both + failed))
    assert [(each.measured_in, each.other, each.why) for each in comparison.one_sided] == [
        ("a", "failed", "rank 3 hung")
    ]
    assert comparison.exit_status == EXIT_UNJUDGED


def test_512_and_64_gpus_are_not_a_fair_comparison() -> None:
    """The source compares a run of 512 GPUs with one of 64."""
    comparison = compare(a_file(point(STEADY, ranks=512, hosts=64)), a_file(point(steady(1.3), ranks=64, hosts=8)))
    assert blocking(comparison) == [("ranks", "512", "64"), ("hosts", "64", "8")]
    assert only(comparison).statement == "cannot tell"
    assert "ranks 512 and 64" in only(comparison).why
    assert comparison.exit_status == EXIT_UNJUDGED


def test_512_and_64_gpus_as_a_parameter_are_not_a_fair_comparison_either() -> None:
    comparison = compare(
        a_file(point(STEADY, parameters={"gpus": 512})), a_file(point(STEADY, parameters={"gpus": 64}))
    )
    assert blocking(comparison) == [("gpus", "512", "64")]
    assert (comparison.points, comparison.exit_status) == ((), EXIT_UNJUDGED)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"method": "OSU"}, {"method": "perftest"}, ("method", "OSU", "perftest")),
        ({"settings": {"thread_level": "single"}}, {"settings": {"thread_level": "multiple"}},
         ("thread level", "single", "multiple")),
        ({"settings": {"routing_mode": "adaptive"}}, {"settings": {"routing_mode": "static"}},
         ("routing mode", "adaptive", "static")),
        ({"settings": {"routing_mode": "adaptive"}}, {"settings": {}}, ("routing mode", "adaptive", "not recorded")),
        ({}, {"verification": None}, ("data check", "verified", "not verified")),
        ({}, {"verification": Verification(method="pattern", bytes_checked=8, bytes_wrong=3)},
         ("data check", "verified", "15 bytes wrong")),
    ],
)  # fmt: skip
def test_what_blocks_a_comparison_is_told_with_both_values(
    first: dict[str, object], second: dict[str, object], expected: tuple[str, str, str]
) -> None:
    settings = {"settings": {}} if "settings" in first else {}
    comparison = compare(
        a_file(point(STEADY, **{**settings, **first})), a_file(point(steady(0.5), **{**settings, **second}))
    )
    assert blocking(comparison) == [expected]
    assert (only(comparison).statement, only(comparison).reason) == ("cannot tell", "not the same thing")
    if settings:
        assert [one.why for one in comparison.differences] == ["it changes the quantity measured"]


def test_a_routing_mode_of_the_whole_run_counts_too() -> None:
    first = a_file(point(STEADY), where=context(environment={"routing_mode": "adaptive"}))
    second = a_file(point(STEADY), where=context(environment={"routing_mode": "static"}))
    assert blocking(compare(first, second)) == [("routing mode", "adaptive", "static")]


def test_other_sizes_only_and_other_units_are_told() -> None:
    sizes = compare(a_file(point(STEADY, size_bytes=8)), a_file(point(STEADY, size_bytes=16)))
    assert blocking(sizes) == [("sizes", "8 B", "16 B")]
    units = compare(a_file(point(STEADY)), a_file(point(STEADY, quantity="latency_s")))
    assert blocking(units) == [("quantity", "bandwidth_bytes_per_s", "latency_s")]


def test_across_pairs_what_is_to_be_compared() -> None:
    ring, tree = (
        point(steady(factor), parameters={"algorithm": name}) for name, factor in (("ring", 1), ("tree", 1.2))
    )
    apart = compare(a_file(ring), a_file(tree))
    assert blocking(apart) == [("algorithm", "ring", "tree")]
    assert "--across algorithm" in apart.differences[0].why
    paired = compare(a_file(ring), a_file(tree), across=("algorithm",))
    assert only(paired).statement == "faster"
    assert "algorithm" not in only(paired).parameters
    mixed = compare(a_file(ring + tree), a_file(tree), across=("algorithm",))
    assert blocking(mixed) == [("algorithm", "ring, tree", "tree")]


def test_what_may_explain_a_difference_is_a_caution() -> None:
    noise = Noise(quantum_s=1.2e-3, lost_fraction=0.03, worst_s=1, quanta=9)
    changed = {"software": {"nccl": "2.29"}, "environment": {"NCCL_ALGO": "Ring"}, "busy_fraction": 0.4, "noise": noise}
    other = context(host="two", kernel="6.12", **changed)
    comparison = compare(a_file(point(STEADY)), a_file(point(steady(0.8)), where=other, machine=topology(1500, 2)))
    assert blocking(comparison) == []
    assert only(comparison).statement == "slower"
    found = cautions(comparison)
    assert found["host"] == ("one", "two")
    assert found["kernel"] == ("6.1", "6.12")
    assert found["version of nccl"] == ("2.28", "2.29")
    assert found["environment NCCL_ALGO"] == ("not set", "Ring")
    assert found["busy before the run"] == ("0.0 % of all cores", "40.0 % of all cores")
    assert found["noise"] == ("0.1 % of the time lost", "3.0 % of the time lost")
    assert found["clocks"] == ("1.00 ms for fixed work", "1.20 ms for fixed work")
    assert found["link nic0--fabric0 mtu_bytes"] == ("9000", "1500")
    assert found["number of gpus"] == ("1", "2")


def test_how_it_was_measured_is_a_caution_where_it_only_may_matter() -> None:
    first = point(
        STEADY, settings={"binding": "core 0"}, evidence=(Evidence(claim="transport", value="shm", seen="log"),)
    )
    second = point(
        STEADY, settings={"binding": "core 1"}, evidence=(Evidence(claim="transport", value="tcp", seen="log"),)
    )
    comparison = compare(a_file(first), a_file(second, whole=False))
    assert blocking(comparison) == []
    assert cautions(comparison) == {
        "binding": ("core 0", "core 1"),
        "transport in use": ("shm", "tcp"),
        "run": ("complete", "cut off"),
    }


def test_a_time_that_was_measured_along_the_way_is_no_setting() -> None:
    pair = (a_file(point(STEADY, settings={"metadata_exchange_s": value})) for value in (0.1, 0.2))
    assert compare(*pair).differences == ()


def test_unverified_on_both_sides_is_a_caution() -> None:
    unverified = a_file(point(STEADY, verification=None))
    assert cautions(compare(unverified, unverified)) == {"data check": ("not verified", "not verified")}


def test_a_difference_of_many_points_is_told_once() -> None:
    first = [result for size in (8, 16, 32) for result in point(STEADY, size_bytes=size, ranks=2)]
    second = [result for size in (8, 16, 32) for result in point(STEADY, size_bytes=size, ranks=4)]
    differences = compare(a_file(first), a_file(second)).differences
    assert differences == (
        Difference(what="ranks", a="2", b="4", severity="blocking", why="more ranks make a different system",
                   where=("all_reduce gpu0>gpu1",)),
    )  # fmt: skip


def test_true_and_one_are_different_parameters() -> None:
    comparison = compare(a_file(point(STEADY, parameters={"gdr": True})), a_file(point(STEADY, parameters={"gdr": 1})))
    assert comparison.points == ()


@pytest.mark.parametrize("launches", [3, 4, 6, 10])
@pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
def test_unchanged_points_are_called_different_at_most_5_times_in_100(launches: int, noise: float) -> None:
    chance = random.Random(launches)
    rounds, alarms = 400, 0
    for _ in range(rounds):
        sides = [point([math.exp(chance.gauss(0, noise)) for _ in range(launches)]) for _ in "ab"]
        alarms += only(compare(a_file(sides[0]), a_file(sides[1]))).statement in ("faster", "slower")
    # 5 % of 400 are 20; three standard deviations of that count are 13.
    assert alarms <= 33


def test_more_launches_never_make_a_real_difference_harder_to_see() -> None:
    seen = []
    for launches in (3, 5, 10):
        chance = random.Random(launches)
        found = 0
        for _ in range(200):
            a, b = ([shift * math.exp(chance.gauss(0, 0.03)) for _ in range(launches)] for shift in (1, 1.1))
            found += only(compare(a_file(point(a)), a_file(point(b)))).statement == "faster"
        seen.append(found)
    assert seen == sorted(seen)
    assert seen[-1] > 190


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 3), (3, 3), (4, 5), (8, 8)])
def test_the_interval_covers_as_often_as_it_says(first: int, second: int) -> None:
    chance = random.Random(7)
    rounds, inside = 2000, 0
    confidence = 0.0
    for _ in range(rounds):
        a = [math.exp(chance.gauss(0, 0.2)) for _ in range(first)]
        b = [1.3 * math.exp(chance.gauss(0, 0.2)) for _ in range(second)]
        interval = ratio_interval(a, b)
        confidence = interval.confidence
        inside += interval.low <= 1.3 <= interval.high
    assert inside / rounds == pytest.approx(confidence, abs=0.035)


def test_the_interval_refuses_what_has_no_ratio() -> None:
    for values in ([], [0.0], [math.nan], [-1.0]):
        with pytest.raises(ValueError, match="above 0"):
            ratio_interval(values, [1.0])
