"""ucc_perftest: its versions, the meaning of a size, and ranks from the bandwidths, the GPUs or the command."""

from __future__ import annotations

import pytest
from tests.results.readers.recorded import sizes, text

from railwright.errors import UsageError
from railwright.results.readers import registry
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.workload import Collective, Unlimited

ALLTOALL = text("ucc_perftest/1.4-alltoall-64-gpus.txt")
FIRST = text("ucc_perftest/2021-allreduce-first-form.txt")
SHARP = text("ucc_perftest/2023-reduce_scatter-4-hosts-sharp-and-ucp.txt")
GPUS = text("ucc_perftest/1.6-reducedt-2xh100.txt")
COLUMNS = "  Count  Size  Time, us  Bandwidth, GB/s\n  avg min max avg max min\n"


def said(collective: str, memory: str = "host", in_place: int = 0) -> str:
    return f"Collective:  {collective}\nMemory type:  {memory}\nDatatype:  float32\nInplace:  {in_place}\n\n"


def row(factor: float, size: int = 1 << 20, times: tuple[float, ...] = (100.0, 90.0, 110.0)) -> str:
    bandwidths = (f"{factor * size / time / 1e3:.2f}" for time in times)
    return f"  {size // 4}  {size}  {' '.join(map(str, times))}  {' '.join(bandwidths)}\n"


def read(given: str) -> ForeignFile:
    (file,) = registry.read(given)
    return file


def collective(file: ForeignFile) -> Collective:
    assert isinstance(file.workload, Collective)
    return file.workload


def test_the_time_is_that_of_the_slowest_rank_and_the_others_stand_beside_it() -> None:
    file = read(ALLTOALL)
    last = file.results[-1]
    assert (last.quantity, last.samples, last.parameters["size_bytes"]) == ("latency_s", (0.04734421,), 33554432)
    assert (last.settings["avg_rank_s"], last.settings["min_rank_s"]) == pytest.approx((0.04729249, 0.04725838))
    assert sizes(file.results)[:2] == [4, 4096]
    assert "the data was not checked" in file.notes


def test_the_bandwidths_tell_the_ranks_and_what_the_size_is_of() -> None:
    file = read(ALLTOALL)
    assert (file.ranks, collective(file).operation, collective(file).by) == (64, "all_to_all", "mpi")
    assert collective(file).of_each_rank
    first = read(text("ucc_perftest/2021-alltoall-8-gpus-first-bandwidths.txt"))
    assert first.ranks == 8
    since_1_5 = read(said("Alltoall") + COLUMNS.replace("Bandwidth", "Bus Bandwidth") + row(7 / 8))
    assert (since_1_5.ranks, collective(since_1_5).of_each_rank) == (8, False)
    reduced = read(said("Allreduce") + COLUMNS + row(1.5))
    assert (reduced.ranks, collective(reduced).of_each_rank) == (4, False)


def test_tables_alone_are_of_the_command_above_them() -> None:
    for file, slowest in zip(registry.read(SHARP), (50852.04e-6, 849455.64e-6), strict=True):
        assert (file.test, file.ranks, collective(file).of_each_rank) == ("ucc_reduce_scatter", 4, True)
        assert file.results[-1].samples == (pytest.approx(slowest),)
    nameless = registry.read(SHARP[SHARP.index("#  ") :])[0]
    assert isinstance(nameless.workload, Unlimited)
    assert any("lacks the lines above the table" in note for note in nameless.notes)


def test_without_bandwidths_the_ranks_are_those_of_the_command_and_not_of_the_options_of_the_tool() -> None:
    assert read(FIRST).ranks is None
    assert read("mpirun -np 8 ucc_perftest -c allreduce -n 100\n" + FIRST).ranks == 8
    slurm = read("srun -N 4 --ntasks-per-node=2 ucc_perftest -c allreduce -n 100 -N 3\n" + FIRST)
    assert (slurm.ranks, slurm.hosts) == (8, 4)


def test_every_rank_names_its_gpu_since_1_5() -> None:
    file = read(GPUS)
    assert (file.ranks, file.hosts, file.gpus) == (2, 1, ("NVIDIA H100 80GB HBM3",))
    assert isinstance(file.workload, Unlimited)
    labelled = "".join(f"[1,{line[8] if line[:4] == 'Rank' else 0}]<stdout>:{line}\n" for line in GPUS.split("\n"))
    assert read(labelled).ranks == 2
    assert not collective(read(GPUS.replace("Reduce DT", "Reduce_scatter"))).of_each_rank


def test_a_barrier_has_no_sizes() -> None:
    file = read(said("Barrier") + COLUMNS + "  N/A  N/A  3.00 2.90 3.10  N/A N/A N/A\n")
    assert file.results[0].parameters == {}
    assert isinstance(file.workload, Unlimited)


@pytest.mark.parametrize(
    "command", ["-x UCC_TLS=nccl", "-x UCC_TL_NCCL_TUNE=allreduce:cuda:inf", "CL_BASIC {TL_NCCL},"]
)
def test_it_is_by_nccl_where_the_text_says_so(command: str) -> None:
    table = said("Allreduce", memory="cuda") + COLUMNS + row(1.75)
    assert collective(read(f"{command}\n{table}")).by == "nccl"
    assert collective(read(f"{table}{command}\n{row(1.75, 1 << 21)}")).by == "nccl"
    assert collective(read(table)).by == "mpi"
    assert collective(read(f"-x UCC_TLS=ucp,nccl\n-x UCC_TL_NCCL_TUNE=0\n{table}")).by == "mpi"
    assert isinstance(read(f"{command}\n{ALLTOALL}").workload, Unlimited)


def test_in_place_the_bandwidths_count_other_bytes() -> None:
    assert read(said("Alltoall", in_place=1) + COLUMNS + row(0.0)).ranks is None


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("44.70", "47.40", "line 24: 47.40 GB/s are not 33554432 bytes in 47292.49 us"),
        ("47344.21", "47244.21", r"average must be between .*, got 47292\.49 us"),
        ("33554432", "33554431", "is not 8388608 x float32"),
        ("4194304    16777216", "2097152     8388608", "size 8388608 follows size 8388608"),
        ("Collective:             Alltoall", "Collective: Bcast", "does not fit ucc_bcast by any number of ranks"),
        ("Collective", "srun -n 32 ucc_perftest\nCollective", "does not fit ucc_alltoall by 32 ranks"),
        ("47258.38", "nan", "must be a number of zero or more, got 'nan'"),
    ],
)
def test_what_contradicts_itself_is_refused(old: str, new: str, reason: str) -> None:
    assert old in ALLTOALL
    with pytest.raises(UsageError, match=reason):
        registry.read(ALLTOALL.replace(old, new))


def test_a_row_that_the_end_cut_off_is_left_out() -> None:
    file = read(ALLTOALL.rstrip()[:-30])
    assert len(file.results) == 9
    assert any("the text ends inside line 24" in note for note in file.notes)
