"""Linpack before it runs: the layout of ranks, the memory that fits, and HPL.dat."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace
from tests.benchmarks.jobs import job_of, jobs_of

from railwright.benchmarks.job import Machine
from railwright.benchmarks.linpack import hpl_dat, layout, options, problem
from railwright.benchmarks.linpack.hpl import progress, share_done
from railwright.benchmarks.linpack.problem import Grid
from railwright.benchmarks.registry import ON_REQUEST, find
from railwright.errors import UsageError
from railwright.topology.sources.load import load
from railwright.units import GIB

HPL = find("hpl")
# The file that HPL 2.3 ships, with other comments where HPL ignores them.
SHIPPED = """first line
second line
HPL.out      output
6            device
4            sizes
29 30 34 35  Ns
4            blocks
1 2 3 4      NBs
0            PMAP process mapping
3            grids
2 1 4        Ps
2 4 1        Qs
16.0         threshold
"""


@pytest.fixture
def memory(monkeypatch):
    """Return a function that sets the free memory."""

    def say(free):
        monkeypatch.setattr(options, "available_memory_bytes", lambda: free)

    say(16 * GIB)
    return say


@pytest.fixture(scope="module")
def host():
    return load("hgx-h100")


def refused(call):
    with pytest.raises(UsageError) as caught:
        call()
    return str(caught.value)


def test_the_operations_are_those_of_hpl():
    # WR11C2R4 5120 128 2 2: 26.71 s, 3.3515 Gflops (testdata/external, HPL 2.3)
    assert problem.operations(5120) / 26.71 / 1e9 == pytest.approx(3.3515, rel=2e-4)


def test_every_row_lies_on_one_place_alone():
    draw = random.Random(26)
    for _ in range(300):
        order, block, places = draw.randint(1, 3000), draw.randint(1, 300), draw.randint(1, 17)
        dealt = [0] * places
        for row in range(order):
            dealt[row // block % places] += 1
        assert [problem.count_on_place(order, block, place, places) for place in range(places)] == dealt


def test_the_memory_is_8_n_squared_and_little_else():
    for grid in (Grid(1, 1), Grid(1, 2), Grid(2, 4)):
        each = [problem.count_memory(20_000, 192, grid, rank, 1) for rank in range(grid.ranks)]
        assert sum(one.matrix for one in each) == 8 * 20_000**2
        assert sum(one.named - one.panels - one.packed for one in each) < 1.002 * 8 * 20_000**2


def test_the_largest_order_fits_and_the_next_does_not():
    draw = random.Random(1)
    for _ in range(200):
        grid, block = draw.choice(layout.list_grids(draw.randint(1, 24))), draw.randint(1, 400)
        per_host = draw.choice([one for one in range(1, grid.ranks + 1) if grid.ranks % one == 0])
        team = problem.Team(per_host, draw.randint(1, 64))
        free = draw.randint(0, 64) * GIB
        order = problem.largest_order(free, block, grid, team)
        assert order % block == 0
        assert not order or problem.memory_on_host(order, block, grid, team) <= free
        assert problem.memory_on_host(order + block, block, grid, team) > free


def test_a_grid_has_no_more_rows_than_columns():
    best = {1: "1x1", 2: "1x2", 6: "2x3", 7: "1x7", 16: "4x4", 48: "6x8"}
    assert {ranks: str(layout.best_grid(ranks)) for ranks in best} == best
    assert [str(one) for one in layout.list_grids(4)] == ["1x4", "2x2", "4x1"]


def test_residuals():
    norms = problem.Norms(residual=1e-12, matrix=1000.0, solution=2.0, right_side=0.5)
    assert problem.scaled_residual(norms, 4000) == pytest.approx(1e-12 / (2**-53 * 2000.5 * 4000))
    for wrong in (float("nan"), float("inf")):
        for place in range(4):
            parts = list(norms)
            parts[place] = wrong
            residual = problem.scaled_residual(problem.Norms(*parts), 4000)
            assert not residual < 16 or (wrong == float("inf") and place and residual == 0), (wrong, place)
    assert problem.scaled_residual(problem.Norms(0.0, 0.0, 0.0, 0.0), 4000) == float("inf")


def test_a_rank_for_each_node_with_its_cores(host, memory):
    """Two sockets of 8 cores; a core has two CPUs, which Linux numbers 16 apart."""
    cpus = tuple(
        cpu for node in (0, 1) for cpu in (*range(8 * node, 8 * node + 8), *range(16 + 8 * node, 24 + 8 * node))
    )
    lists = {0: "0-7,16-23", 1: "8-15,24-31"}
    devices = tuple(
        replace(one, facts=one.facts | {"cpu_list": lists[one.numa], "cores": 8}) if one.kind == "cpu" else one
        for one in host.devices
    )
    one = job_of(HPL, replace(host, devices=devices), cpus, {"n": "20000"})
    assert (one.ranks, one.case.threads, str(one.case.grid)) == (2, 8, "1x2")
    assert [layout.list_cpus(one.machine, place, 2) for place in (0, 1)] == [cpus[:16], cpus[16:]]
    assert one.launch.environment["MKL_NUM_THREADS"] == "8"
    alone = job_of(HPL, replace(host, devices=devices), cpus, {"n": "20000", "threads": "1"})
    assert (alone.ranks, str(alone.case.grid)) == (16, "4x4")


def test_n_fills_the_memory_that_was_allowed(host, memory):
    for free, fill in ((16 * GIB, 80), (64 * GIB, 50)):
        memory(free)
        one = job_of(HPL, host, (0, 1), {"ranks": "2", "fill": str(fill)})
        assert 0.9 * fill / 100 * free < HPL.plan(one).memory_bytes <= fill / 100 * free
        assert one.case.n % one.case.nb == 0


def test_every_combination_is_a_launch(host, memory):
    given = {"n": "1000,2000", "nb": "64,128", "grid": "1x2,2x1"}
    cases = [one.case for one in jobs_of(HPL, host, (0, 1), given)]
    assert len({(one.n, one.nb, one.grid) for one in cases}) == 8
    assert {one.threads for one in cases} == {1}
    assert "64 combinations" in refused(lambda: jobs_of(HPL, host, (0, 1), {
        "n": ",".join(map(str, range(100, 120))), "nb": "1,2,3,4", "grid": "1x1"}))  # fmt: skip


def test_a_flat_grid_is_one_row_of_any_group(host, memory):
    assert str(job_of(HPL, host, (0, 1), {"ranks": "2", "grid": "flat"}).case.grid) == "1x2"
    for hosts, given, grid in ((2, "flat", "1x4"), (4, "flat", "1x8"), (4, "auto", "2x4")):
        names = tuple(f"node{number}" for number in range(hosts))
        group = Machine(topology=host, cpus=(0, 1), hosts=names, grows_to=4, first_hosts=hosts // 2, ranks_per_host=2)
        (one,) = options.launches(HPL.parse({"n": "1000", "grid": given}), group)
        assert (one.ranks, str(one.case.grid)) == (2 * hosts, grid), (hosts, given)
    said = refused(lambda: options.launches(HPL.parse({"n": "1000", "grid": "2x4"}), group))
    assert "no grid but flat" in said


def test_what_does_not_fit_is_refused_with_what_would(host, memory):
    said = refused(lambda: job_of(HPL, host, (0, 1), {"ranks": "2", "grid": "2x3"}))
    assert said == "a grid of 2x3 needs 6 ranks, got 2\nhint: give -o grid=1x2 or 2x1, or other ranks"
    memory(2 * GIB)
    said = refused(lambda: job_of(HPL, host, (0, 1), {"ranks": "2", "n": "40000"}))
    assert "N = 40000 needs" in said
    fits = int(said.rpartition("N = ")[2].split()[0])
    assert job_of(HPL, host, (0, 1), {"ranks": "2", "n": str(fits)}).case.n == fits
    memory(100 << 20)
    assert "before any matrix" in refused(lambda: job_of(HPL, host, (0, 1), {"ranks": "2"}))
    memory(None)
    assert "give -o n=" in refused(lambda: job_of(HPL, host, (0, 1), {}))
    assert "8 CPUs" in refused(lambda: job_of(HPL, host, (0, 1), {"ranks": "4", "threads": "2"}))


def test_options_that_cannot_be_used():
    for given in ({"grid": "2"}, {"grid": "0x2"}, {"grid": "2x"}, {"n": "0"}, {"nb": "x"}, {"fill": "96"},
                  {"library": "libfoo.so"}, {"dat": "/nonexistent/HPL.dat"}, {"grid": ",".join(["1x1"] * 30)},
                  {"threads": "0"}):  # fmt: skip
        with pytest.raises(UsageError):
            HPL.parse(given)


def test_ranks_of_several_hosts(host, memory):
    one = job_of(HPL, host, (0, 1), {"n": "4000"}, hosts=("a", "b"), ranks_per_host=2)
    assert (one.ranks, str(one.case.grid), one.case.threads) == (4, "2x2", 1)
    assert HPL.plan(one).path == "memory0@0>memory0@1"
    with pytest.raises(UsageError, match="ranks is 3 per host"):
        job_of(HPL, host, (0, 1), {"n": "4000", "ranks": "3"}, hosts=("a", "b"), ranks_per_host=2)
    # Namespaces of one machine share its memory, so that all ranks count.
    together = job_of(HPL, host, (0, 1), {"n": "4000"}, hosts=("a", "b"), ranks_per_host=1, hosts_share_cpus=True)
    assert HPL.plan(together).memory_bytes > 8 * 4000**2 + 2 * problem.RANK_BYTES
    assert together.case.threads == 1


def test_the_hpl_dat_that_hpl_ships_is_read():
    asked = hpl_dat.read(SHIPPED)
    assert asked == hpl_dat.HplDat((29, 30, 34, 35), (1, 2, 3, 4), (Grid(2, 2), Grid(1, 4), Grid(4, 1)), 16.0)
    of_hpl_1 = SHIPPED.replace("0            PMAP process mapping\n", "")
    assert hpl_dat.read(of_hpl_1) == asked


def test_hpl_dat_is_read_as_it_was_written():
    asked = hpl_dat.HplDat((1000, 2000), (64, 192), (Grid(2, 4), Grid(1, 8)), -1.5)
    text = hpl_dat.write(asked)
    assert hpl_dat.read(text) == asked
    assert len(text.splitlines()) == 31


def test_an_invalid_hpl_dat_is_refused_with_its_line():
    lines = SHIPPED.splitlines()

    def broken(number, line):
        text = "\n".join([*lines[: number - 1], line, *lines[number:]])
        return refused(lambda: hpl_dat.read(text))

    for number, line in ((5, "x"), (5, "21"), (5, ""), (6, "29 30"), (6, "29 0 1 2"), (8, "1 2 3 99999"), (9, "1 PMAP"),
                         (11, "2 1"), (12, "2 4 x"), (13, "nan"), (13, "many")):  # fmt: skip
        assert f"HPL.dat line {number}:" in broken(number, line), (number, line)
    for text in ["\n".join(lines[:cut]) for cut in range(12)]:
        with pytest.raises(UsageError, match=r"HPL\.dat line"):
            hpl_dat.read(text)
    with pytest.raises(UsageError, match="100000 characters"):
        hpl_dat.read("1" * 100_000)


def test_the_user_s_hpl_dat_overrides_the_options(host, memory, tmp_path):
    file = tmp_path / "HPL.dat"
    file.write_text(hpl_dat.write(hpl_dat.HplDat((960,), (96,), (Grid(1, 2), Grid(2, 1)), 16.0)))
    jobs = jobs_of(HPL, host, (0, 1), {"dat": str(file)})
    assert [(one.ranks, one.case.n, one.case.nb, str(one.case.grid)) for one in jobs] == [
        (2, 960, 96, "1x2"), (2, 960, 96, "2x1"),
    ]  # fmt: skip


def test_progress_counts_operations_and_not_columns():
    assert share_done(0, 100) == 0
    assert share_done(100, 100) == share_done(999, 100) == 1
    assert share_done(50, 100) == 0.875
    assert progress(50, 100, 7.0) == "88 %, 1.00 s left"
    assert progress(0, 100, 7.0) == "0 %"


def test_it_runs_on_request_alone():
    assert HPL in ON_REQUEST
    assert isinstance(HPL.parse({}), options.HplOptions)
    assert layout.count_cores(Machine(topology=load("hgx-h100"), cpus=(0,))) == 1


def test_the_work_space_is_the_one_measured_with_mkl():
    # Resident bytes beyond matrix, b and pivots, MKL 2026.2: (N, NB, grid, threads) -> bytes on rank 0.
    seen = {
        (2000, 192, Grid(1, 1), 1): 20.7e6, (4000, 192, Grid(1, 2), 1): 28.2e6, (8000, 192, Grid(1, 2), 1): 49.5e6,
        (8000, 192, Grid(1, 1), 2): 75.4e6, (4000, 64, Grid(1, 2), 1): 13.3e6, (4000, 128, Grid(1, 4), 1): 18.3e6,
        (4000, 384, Grid(1, 1), 1): 36.0e6, (6000, 384, Grid(1, 2), 1): 37.8e6, (4000, 256, Grid(1, 2), 1): 35.8e6,
    }  # fmt: skip
    for (order, block, grid, threads), work_bytes in seen.items():
        named = problem.count_memory(order, block, grid, 0, threads)
        held = named.matrix + named.right_side + named.pivots + work_bytes
        assert held == pytest.approx(named.named, rel=0.05), (order, block, grid, threads)
    # The same of one process by LAPACK: (N, threads) -> bytes.
    alone = {(4000, 1): 11.1e6, (6000, 1): 13.8e6, (8000, 1): 13.6e6, (4000, 2): 28.8e6}
    for (order, threads), work_bytes in alone.items():
        named = problem.memory_alone(order, threads)
        assert named.matrix + work_bytes == pytest.approx(named.named, rel=0.05), (order, threads)
