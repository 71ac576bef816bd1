"""The same data has the same limit, band and verdict, whether we measured it or another tool printed it.

Records of docs/measured are written as the text of the known tool and read back. Of our own record only the facts that
a text carries are kept: it lacks baselines of the same run, the devices of a path, and the check.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.verdicts.judged import Judged
from railwright.diagnosis.verdicts.verdict import judge_result
from railwright.expected.bands import scale_band
from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.explain.bus_rates import busbw_scale
from railwright.explain.rows import fit_machine, judge_rows
from railwright.limits.limit import Limit
from railwright.results.declarations import find_workload
from railwright.results.readers import registry
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.records import Result
from railwright.results.workload import Collective, Copy, Files, Linpack, Memory, Message, Workload
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand

MEASURED = Path(__file__).parent.parent.parent / "docs" / "measured"
MOST = 40
"""Records of a benchmark that are compared."""


@cache
def lines_of(subject: str) -> dict[str, list[bytes]]:
    """Return the results in an archive by benchmark, as written. An archive is unpacked once."""
    found: dict[str, list[bytes]] = {benchmark: [] for where, benchmark, *_ in CASES.values() if where == subject}
    with tarfile.open(MEASURED / subject / "records.tar.xz") as archive:
        for member in archive:
            if member.name.endswith("results.jsonl") and (file := archive.extractfile(member)) is not None:
                for line in file.read().splitlines():
                    name = line[:200].partition(b'"benchmark":"')[2].partition(b'"')[0].decode()
                    if name in found and b'"record":"result"' in line[:40]:
                        found[name].append(line)
    return found


def archived(subject: str, benchmark: str, keep: Callable[[Result], bool]) -> list[Result]:
    """Return the measured records of a benchmark in an archive, the first of each point."""
    found: dict[object, Result] = {}
    for line in lines_of(subject)[benchmark]:
        result = msgspec.json.decode(line, type=Result)
        if result.outcome == "measured" and result.summary is not None and keep(result):
            found.setdefault((result.path, result.quantity, *sorted(result.parameters.items())), result)
        if len(found) >= MOST:
            break
    return list(found.values())


def is_rate(result: Result) -> bool:
    return result.quantity == "bandwidth_bytes_per_s"


def size(result: Result) -> int:
    return int(result.parameters["size_bytes"])


def value(result: Result) -> float:
    assert result.summary is not None
    return result.summary.median


def write_nccl_tests(results: list[Result]) -> str:
    """Write both placements of each size, the second as not measured."""
    ranks = results[0].ranks
    lines = ["$ NCCL_NVLS_ENABLE=0 mpirun -np 8 ./all_reduce_perf -b 8 -e 8G",
             "# Collective test starting: all_reduce_perf",
             "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592", "# Using devices"]  # fmt: skip
    lines += [f"#  Rank {rank:2} Group  0 Pid {100 + rank} on h device {rank:2} [0x0{rank}] NVIDIA H200"
              for rank in range(ranks)]  # fmt: skip
    lines += [
        "#                                               out-of-place                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw  wrong     time   algbw   busbw  wrong",  # noqa: E501
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",  # noqa: E501
    ]
    for result in sorted(results, key=size):
        algbw = value(result) / 1e9
        cells = f"{size(result) / value(result) * 1e6:10.2f} {algbw:.6f} {algbw * 2 * (ranks - 1) / ranks:.6f} 0"
        lines.append(f"{size(result):12} {size(result) // 4:12} float sum -1 {cells} {cells}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1"])


def write_osu(results: list[Result]) -> str:
    rows = [f"{size(result):<10} {value(result) / 1e6:20.2f}" for result in sorted(results, key=size)]
    return "\n".join(["# OSU MPI Bandwidth Test v7.5", "# Datatype: MPI_CHAR.",
                      "# Size      Bandwidth (MB/s)", *rows])  # fmt: skip


def write_osu_latency(results: list[Result]) -> str:
    rows = [f"{size(result):<10} {value(result) * 1e6:20.2f}" for result in sorted(results, key=size)]
    return "\n".join(["# OSU MPI Latency Test v7.5", "# Datatype: MPI_CHAR.", "# Size          Latency (us)", *rows])


def write_nvbandwidth(results: list[Result]) -> str:
    lines = ["nvbandwidth Version: v0.8", "Built from Git version: v0.8", ""]
    for result in results:
        source = result.path.partition(">")[0]
        to_gpu = source.startswith("memory")
        name, arrow = ("host_to_device", "->") if to_gpu else ("device_to_host", "<-")
        gpu = int(result.path.replace("memory0", "").strip(">").removeprefix("gpu"))
        rate = f"{value(result) / 1e9:.2f}"
        lines += [f"Running {name}_memcpy_ce.", f"memcpy CE CPU(row) {arrow} GPU(column) bandwidth (GB/s)",
                  f"           {gpu}", f" 0     {rate}", "", f"SUM {name}_memcpy_ce {rate}", ""]  # fmt: skip
    return "\n".join(lines)


def write_fio(results: list[Result]) -> str:
    lines = []
    for number, result in enumerate(results):
        rate, each = value(result), size(result)
        mib = value(result) / 2**20
        sent = f"1024MiB/{1024 / mib * 1000:.0f}msec"
        lines += [
            f"job{number}: (g={number}): rw=read, bs=(R) {size(result)}B-{size(result)}B, ioengine=libaio, iodepth=1",
            "fio-3.33",
            f"job{number}: (groupid={number}, jobs=1): err= 0: pid=1: Fri Nov 27 00:00:00 2026",
            f"  read: IOPS={rate / each:.0f}, BW={mib:.0f}MiB/s ({rate / 1e6:.0f}MB/s)({sent})",
        ]
    return "\n".join(lines)


def write_nixlbench(results: list[Result]) -> str:
    rows = []
    for result in sorted(results, key=size):
        time = size(result) / value(result) * 1e6
        rows.append(
            f"{size(result):<19} 1 {value(result) / 1e9:16.6f} {time:.1f} 1.0 1.0 0.5 1.0 {time:.1f} {time:.1f}"
        )
    return "\n".join([
        "NIXLBench Configuration", "Backend (--backend=[UCX,GDS,POSIX]) : UCX",
        "Initiator seg type (--initiator_seg_type=[DRAM,VRAM]) : DRAM",
        "Target seg type (--target_seg_type=[DRAM,VRAM]) : DRAM", "Op type (--op_type=[READ,WRITE]) : WRITE", "-" * 160,
        "  ".join(("Block Size (B)", "Batch Size", "B/W (GB/Sec)", "Avg Lat. (us)", "Avg Prep (us)", "P99 Prep (us)",
                   "Avg Post (us)", "P99 Post (us)", "Avg Tx (us)", "P99 Tx (us)")), "-" * 160, *rows,
    ])  # fmt: skip


def write_perftest(title: str) -> Callable[[list[Result]], str]:
    def text(results: list[Result]) -> str:
        rows = []
        for result in sorted(results, key=size):
            rate = value(result) / 2**20
            rows.append(f"{size(result):<10} 5000 {rate:18.6f} {rate:18.6f} {value(result) / size(result) / 1e6:.9f}")
        header = "#bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]"
        return "\n".join([title.center(80), " Connection type : RC", header, *rows])

    return text


def write_perftest_latency(results: list[Result]) -> str:
    header = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]"
    header += "    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
    rows = []
    for result in sorted(results, key=size):
        time = value(result) * 1e6
        rows.append(f"{size(result):<8} 1000 {time:.4f} {time:.4f} {time:.4f} {time:.4f} 0.00 {time:.4f} {time:.4f}")
    return "\n".join(["Send Latency Test".center(80), header, *rows])


def write_stream(results: list[Result]) -> str:
    rows = [f"{str(result.parameters['kernel']).capitalize()}: {value(result) / 1e6:20.1f} 0.01 0.01 0.01"
            for result in results]  # fmt: skip
    return "\n".join(["Function    Best Rate MB/s  Avg time     Min time     Max time", *rows, "Solution Validates"])


def write_hpl(results: list[Result]) -> str:
    lines = ["HPLinpack 2.3  --  High-Performance Linpack benchmark", ""]
    for result in results:
        order, grid = int(result.parameters["n"]), (int(result.parameters["p"]), int(result.parameters["q"]))
        seconds = (2 / 3 * order**3 + 1.5 * order**2) / value(result)
        lines += ["T/V                N    NB     P     Q               Time                 Gflops", "-" * 80,
                  f"WR11C2R4 {order:12} 128 {grid[0]:5} {grid[1]:5} {seconds:18.2f} {value(result) / 1e9:22.4e}", "",
                  "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)= 2.0e-03 ...... PASSED"]  # fmt: skip
    return "\n".join(lines)


def place_on_two_hosts(workload: Workload) -> Workload:
    """Return our workload between two hosts, as the text does not name the transport inside one."""
    return replace(workload, path="memory0@0>memory0@1", over="", shares_cores=False)


def place_on_two_hosts_by_verbs(workload: Workload) -> Workload:
    return replace(place_on_two_hosts(workload), by="verbs")


def place_in_one_host(workload: Workload) -> Workload:
    return replace(workload, path="", shares_cores=False)


def hgx(hosts: int = 1, gpus: int = 8) -> Machine:
    return Machine(cluster=build_cluster(expand("hgx-h200", {"gpus": str(gpus)} if gpus < 8 else {}), hosts))


CASES: dict[str, tuple[str, str, Callable[[Result], bool], Callable[[list[Result]], str], Machine,
                       Callable[[Workload], Workload]]] = {
    "nccl-tests": ("8xh200", "nccl_all_reduce", lambda row: is_rate(row) and row.ranks == 8
                   and row.parameters.get("rate") == "algbw" and str(row.settings.get("nvls", "")).startswith("off")
                   and row.parameters.get("buffers", "plain") == "plain"
                   and not {"algorithm", "protocol"} & row.parameters.keys()
                   and row.parameters.get("placement") == "out of place", write_nccl_tests, hgx(), place_in_one_host),
    "nixlbench": ("2xh200", "kv_transfer", lambda row: is_rate(row) and row.parameters.get("operation") == "WRITE",
                  write_nixlbench, hgx(2), place_on_two_hosts),
    "fio": ("1xh100", "file_read", lambda row: is_rate(row), write_fio, hgx(), place_in_one_host),
    "OSU bandwidth": ("1xh100", "mpi_bandwidth", lambda row: is_rate(row) and row.parameters.get("transport") == "tcp"
                      and row.parameters.get("pages") != "huge", write_osu, hgx(2), place_on_two_hosts),
    "OSU latency": ("1xh100", "mpi_latency", lambda row: row.parameters.get("transport") == "tcp"
                    and row.parameters.get("pages") != "huge", write_osu_latency, hgx(2), place_on_two_hosts),
    "nvbandwidth": ("2xh200", "gpu_copy", lambda row: is_rate(row) and "memory0" in row.path and size(row) >= 2**26
                    and row.parameters.get("engine") == "ce" and row.parameters.get("host") == "pinned"
                    and row.parameters.get("direction") == "one", write_nvbandwidth, hgx(), lambda row: row),
    "perftest write": ("2xh200", "kv_transfer", lambda row: is_rate(row) and row.parameters.get("operation") == "WRITE",
                       write_perftest("RDMA_Write BW Test"), hgx(2), place_on_two_hosts_by_verbs),
    "perftest read": ("2xh200", "kv_transfer", lambda row: is_rate(row) and row.parameters.get("operation") == "READ",
                      write_perftest("RDMA_Read BW Test"), hgx(2), place_on_two_hosts_by_verbs),
    "perftest send": ("1xh100", "mpi_bandwidth", lambda row: is_rate(row) and row.parameters.get("pages") != "huge",
                      write_perftest("Send BW Test"), hgx(2), place_on_two_hosts_by_verbs),
    "perftest latency": ("1xh100", "mpi_latency", lambda row: row.parameters.get("pages") != "huge",
                         write_perftest_latency, hgx(2), place_on_two_hosts_by_verbs),
    "STREAM": ("1xh100", "memory_stream", is_rate, write_stream,
               Machine(cluster=build_cluster(expand("laptop", {}), 1)), lambda row: row),
    "HPL": ("1xh100", "gpu_hpl", lambda row: row.quantity == "flop_per_s" and "dgemm" not in row.parameters.values(),
            write_hpl, hgx(), lambda row: replace(row, by_vendor=True, shares_cores=False)),
}  # fmt: skip


def compare_rows(name: str) -> Iterator[tuple[str, Judged, Judged]]:
    """Yield (point, ours, theirs) of every row."""
    subject, benchmark, keep, render, machine, carried = CASES[name]
    results = archived(subject, benchmark, keep)
    if name not in ("HPL", "nvbandwidth", "fio", "STREAM"):
        results = list({size(result): result for result in results if size(result) > 0}.values())
    files: tuple[ForeignFile, ...] = registry.read(render(results))
    theirs = [(row, file) for file in files for row in zip(file.results, judged_as_text(file, machine), strict=True)]
    assert len(theirs) >= len(results) > 0, name
    for (row, other), file in theirs:
        if row.quantity != results[0].quantity:
            continue  # fio prints operations a second beside its rates
        ours = min(results, key=lambda result: distance(result, row))
        scale = busbw_scale(file)
        assert value(ours) == pytest.approx(row.summary.median, rel=0.01)
        limit, band = expect(carried(find_workload(ours, DECLARATIONS)), fit_machine(file, machine))
        limit = replace(limit, value=limit.value * scale) if isinstance(limit, Limit) else limit
        band = scale_band(band, scale, scale) if band is not None else None
        mine = judge_result(ours, row.summary.median * scale, (limit, band), None, must_check=False)
        yield f"{name} {ours.parameters}", mine, other


def judged_as_text(file: ForeignFile, machine: Machine) -> tuple[Judged, ...]:
    return judge_rows(file, fit_machine(file, machine))


def distance(result: Result, row: Result) -> float:
    alike = (result.parameters.get("size_bytes") == row.parameters.get("size_bytes")) or result.path == row.path
    return abs(value(result) - row.summary.median) / value(result) + (0 if alike else 10)


@pytest.mark.parametrize("name", CASES)
def test_every_row_has_the_same_limit_band_and_verdict(name) -> None:
    for point, ours, theirs in compare_rows(name):
        assert type(ours.limit) is type(theirs.limit), point
        if isinstance(ours.limit, Limit):
            assert ours.limit.value == pytest.approx(theirs.limit.value, rel=1e-6), point
            assert ours.limit.because == theirs.limit.because, point
        assert (ours.expected is None) == (theirs.expected is None), point
        if ours.expected is not None and theirs.expected is not None:
            ends = [[getattr(row.expected, edge) or 0.0 for edge in ("low", "high", "doubtful_to")]
                    for row in (ours, theirs)]  # fmt: skip
            assert ends[0] == pytest.approx(ends[1], rel=1e-6), point
        assert ours.verdict.state == theirs.verdict.state, point


def test_the_records_cover_every_kind() -> None:
    kinds = {type(find_workload(archived(*CASES[name][:3])[0], DECLARATIONS)) for name in CASES}
    assert kinds == {Collective, Copy, Files, Linpack, Memory, Message}
