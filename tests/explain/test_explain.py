"""A table on a machine: its verdict, its first cause, and tables that are never ok."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from railwright.errors import UsageError
from railwright.expected.machine import Machine
from railwright.explain.suggested_shapes import list_shapes
from railwright.explain.table import Explained, explain
from railwright.limits.limit import Limit
from railwright.limits.storage import file_limit
from railwright.results.readers import registry
from railwright.results.readers.foreign_file import ForeignFile
from railwright.topology.cluster import Cluster, build_cluster
from railwright.topology.devices import PcieLink
from railwright.topology.sources.load import load
from railwright.topology.sources.saved import decode_topology, encode_topology

EXTERNAL = Path(__file__).parents[2] / "testdata/external"
NCCL = EXTERNAL / "nccl_tests"
BIBW = "osu/7.5-bibw-cuda-validated.txt"
HEALTHY = "2.19.6-all_reduce-2xh200.txt"
NVLINK_AND_SYS = "since-2.13-all_reduce-nvlink-pair-and-sys.txt"


def machine(shape: str, count: int = 1, path: str = "") -> Machine:
    return Machine(cluster=build_cluster(load(shape), count), path=path)


def tables(text: str) -> tuple[ForeignFile, ...]:
    return registry.read(text)


def explained(text: str, *place: object) -> Explained:
    (file,) = tables(text)
    return explain(file, machine(*place) if place else None)


@functools.cache
def recorded(name: str) -> str:
    return (EXTERNAL / name).read_text(encoding="utf-8")


def faster(text: str, size: int, factor: float) -> str:
    """Divide the time of one row by a factor, and multiply algbw and busbw by it, in both placements."""
    lines = text.splitlines()
    for place, line in enumerate(lines):
        cells = line.split()
        if cells[:1] == [str(size)]:
            for first in (5, 9):
                cells[first] = f"{float(cells[first]) / factor:.2f}"
                for rate in (first + 1, first + 2):
                    cells[rate] = f"{size / float(cells[first]) / 1e3:.2f}"
            lines[place] = "  ".join(cells)
    return "\n".join(lines)


@pytest.mark.parametrize(
    "name", [HEALTHY, "2.19.6-alltoall-2xh200.txt", "2.19.6-sendrecv-2xh200.txt", "2.19.6-all_reduce-tree-2xh200.txt"]
)
def test_a_healthy_table_is_ok_and_nothing_is_supposed(name: str) -> None:
    found = explained(recorded(f"nccl_tests/{name}"), "hgx-h200")
    assert (found.verdict.state, found.status) == ("ok", 0), found.verdict
    assert found.hypotheses == ()
    assert found.findings == ()
    assert all(row.verdict.state in ("ok", "unknown") for row in found.rows)


@pytest.mark.parametrize(
    ("name", "place", "fault", "says"),
    [
        ("nccl_tests/2.19.6-all_reduce-p2p-off-2xh200.txt", ("hgx-h200",), "p2p_disabled", "peer-to-peer"),
        ("nccl_tests/2.19.6-all_reduce-socket-2xh200.txt", ("hgx-h200",), "p2p_disabled", "sockets"),
        ("nccl_tests/2.19.6-all_reduce-2-channels-2xh200.txt", ("hgx-h200",), "few_channels", "2 channels"),
        ("osu/7.5-bw-cuda-no-cxi-slow.txt", ("gh200", 2), "tcp_fallback", "TCP"),
    ],
)
def test_the_fault_that_was_laid_in_is_the_nearest(name: str, place: tuple, fault: str, says: str) -> None:
    found = explained(recorded(name), *place)
    assert (found.verdict.state, found.status) == ("slow", 1)
    healthy, nearest, *others = found.hypotheses
    assert healthy.fault == "healthy"
    assert nearest.fault == fault
    assert says in nearest.says
    assert nearest.distance < healthy.distance / 3
    assert nearest.tell_apart
    assert all(nearest.distance <= one.distance <= 2 * nearest.distance for one in others)


def test_a_tool_that_does_without_nccl_is_not_told_of_nccl_s_settings() -> None:
    found = explained(recorded("osu/7.5-bw-cuda-no-cxi-slow.txt"), "gh200", 2)
    assert not {one.fault for one in found.hypotheses} & {
        "few_channels",
        "pxn_off",
        "algorithm_forced",
        "connection_ceiling",
    }
    assert all("NCCL" not in one.says + one.tell_apart for one in found.hypotheses)


def test_both_directions_at_once_are_held_against_twice_the_rate_in_verdict_and_hypotheses_alike() -> None:
    found = explained(recorded(BIBW), "gh200 nic-rate=200Gb/s", 2)
    assert found.headline is not None
    row = found.rows[found.headline]
    assert isinstance(row.limit, Limit)
    assert row.value is not None
    assert row.limit.value == pytest.approx(2 * 25e9 * 0.994, rel=0.01)
    text = re.sub(r"(?m)^(\d+ +)(\d+\.\d+)", lambda row: f"{row[1]}{float(row[2]) / 8:.2f}", recorded(BIBW))
    slow = explained(text, "gh200 nic-rate=200Gb/s", 2)
    predicted = dict(slow.hypotheses[0].predicted)[4 * 2**20]
    assert predicted == pytest.approx(row.limit.value, rel=0.1)


def test_a_bidirectional_test_of_perftest_counts_both_directions() -> None:
    one = recorded("perftest/ib_write_bw-gbit-4qp.txt")
    both = one.replace("RDMA_Write BW Test", "RDMA_Write Bidirectional BW Test")
    assert both != one
    limits = [explained(text, "hgx-h100", 2).rows[0].limit for text in (one, both)]
    assert all(isinstance(limit, Limit) for limit in limits)
    assert limits[1].value == pytest.approx(2 * limits[0].value)


def test_a_back_end_that_writes_files_is_not_held_against_the_network() -> None:
    found = explained(recorded("nixlbench/posix-dram.txt"), "hgx-h200", 2)
    assert found.hypotheses == ()
    limit = found.rows[-1].limit
    assert isinstance(limit, Limit)
    assert "drives" in limit.because
    with pytest.raises(UsageError, match="needs a test between two devices"):
        explained(recorded("nixlbench/posix-dram.txt"), "hgx-h200", 2, "memory0:memory0@1")


def test_tests_without_a_limit_are_unknown_and_name_no_fault() -> None:
    found = explained(recorded("osu/5.3-allreduce-full.txt"), "gh200", 2)
    assert (found.verdict.state, found.status) == ("unknown", 3)
    assert found.hypotheses == ()


def test_one_rank_alone_is_unknown_and_no_error() -> None:
    text = "\n".join(line for line in recorded(f"nccl_tests/{HEALTHY}").splitlines() if "Rank  1" not in line)
    text = re.sub(r"(?m)^( +\d+ +\d+ +float +sum +-1 +\S+ +\S+ +)\S+( +0 +\S+ +\S+ +)\S+", r"\g<1>0.00\g<2>0.00", text)
    text = re.sub(r"(Avg bus bandwidth +: ).*", r"\g<1>0", text)
    found = explained(text, "hgx-h200")
    assert (found.ranks, found.verdict.state, found.status) == (1, "unknown", 3)
    assert "a single rank" in found.verdict.why


def test_a_table_without_ranks_says_what_was_assumed() -> None:
    text = re.sub(r"(?m)^# *Rank.*$", "", recorded("nccl_tests/2.19.6-sendrecv-2xh200.txt"))
    found = explained(text, "hgx-h200")
    assert found.ranks is None
    assert "all 8 of the machine are assumed" in found.notes[0]


def test_small_messages_of_a_stream_name_no_fault() -> None:
    found = explained(recorded("nixlbench/uccl-ci-time-stamps.txt"), "hgx-h200", 2)
    assert found.verdict.state == "ok"
    assert found.hypotheses == ()


def test_a_row_above_its_limit_is_suspicious_and_never_ok() -> None:
    text = faster(recorded(f"nccl_tests/{HEALTHY}"), 2**30, 2.0)
    found = explained(text, "hgx-h200")
    assert (found.verdict.state, found.status) == ("suspicious", 1)
    assert found.wrong_machine.startswith("not this machine: ")
    assert "1 GiB" in found.verdict.why
    assert [row.verdict.state for row in found.rows].count("suspicious") == 2


def test_a_collapse_in_the_middle_is_named_with_its_size_and_the_worst_row() -> None:
    text = faster(recorded(f"nccl_tests/{HEALTHY}"), 2**20, 1 / 50)
    found = explained(faster(text, 2**24, 1 / 3), "hgx-h200")
    assert (found.verdict.state, found.status) == ("slow", 1)
    assert "4 of " in found.verdict.why
    assert "for example 1 MiB" in found.verdict.why


def test_notes_on_doubted_sizes_name_none_that_is_slow_and_no_span_across_others() -> None:
    found = explained(recorded("nccl_tests/2.18.3-alltoall-16xrtx6000d-slow.txt"), "rtx-pro-6000-8gpu", 2)
    assert "slow from 32 MiB to 1 GiB; normal from 4 GiB on" in found.notes
    (low,) = (note for note in found.notes if ": low, but" in note)
    assert low.startswith("16 MiB, 2 GiB: low, but ")


def wrong_in(text: str, size: int) -> str:
    """Report 3 wrong elements in one row and in the footer."""
    lines = text.splitlines()
    for place, line in enumerate(lines):
        if line.split()[:1] == [str(size)]:
            lines[place] = re.sub(r"(\s)0\s*$", r"\g<1>3", line)
        lines[place] = re.sub(r"(Out of bounds values : )0 OK", r"\g<1>3 FAILED", lines[place])
    return "\n".join(lines)


def test_wrong_data_is_failed_whatever_its_speed() -> None:
    text = wrong_in(recorded(f"nccl_tests/{HEALTHY}"), 2**24)
    found = explained(text, "hgx-h200")
    assert (found.verdict.state, found.status) == ("failed", 3)
    assert "the data check failed (nccl-tests #wrong)" in found.verdict.why
    assert "16 MiB" in found.verdict.why


def test_wrong_data_is_not_hidden_by_slow_rows_and_slow_rows_still_give_the_status() -> None:
    text = wrong_in(recorded("nccl_tests/2.19.6-all_reduce-socket-2xh200.txt"), 2**20)
    found = explained(text, "hgx-h200")
    assert (found.verdict.state, found.status) == ("failed", 1)


def test_wrong_data_needs_no_machine_to_be_failed() -> None:
    found = explained(wrong_in(recorded(f"nccl_tests/{HEALTHY}"), 2**24))
    assert (found.verdict.state, found.status) == ("failed", 3)


def test_without_a_machine_each_row_still_has_its_value_and_no_share_of_a_limit() -> None:
    rows = {row.parameters["size_bytes"]: row for row in explained(recorded("osu/5.3-latency-tagged.txt")).rows}
    assert [rows[size].value for size in (8, 4096, 4194304)] == pytest.approx([0.37e-6, 2.19e-6, 407.21e-6])
    assert {(row.fraction_of_limit, row.verdict.state) for row in rows.values()} == {(None, "unknown")}


@pytest.mark.parametrize("place", [(), ("hgx-h200",)])
@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("NCCL_ALGO=Tree", "algorithm_forced"),
        ("NCCL_P2P_DISABLE=1", "p2p_disabled"),
        ("NCCL_MAX_NCHANNELS=2", "few_channels"),
        ("NCCL_IB_DISABLE=1", "tcp_fallback"),
    ],
)
def test_a_setting_on_the_command_line_is_shown_with_its_remedy(place: tuple, setting: str, fault: str) -> None:
    text = f"mpirun -x {setting} ./all_reduce_perf -b 8\n" + recorded(f"nccl_tests/{HEALTHY}")
    found = explained(text, *place)
    (finding,) = found.findings
    assert (finding.fault, finding.certainty) == (fault, "seen")
    assert setting in finding.says
    assert finding.remedy
    assert found.status == (0 if place else 1), "misconfigured, but of no matter where all is as fast as expected"
    assert found.verdict.state == ("ok" if place else "unknown")


def test_a_fault_of_a_captured_machine_is_a_finding_too() -> None:
    host = load("hgx-h200")
    links = [
        replace(link, protocol=replace(link.protocol, width=8))
        if link.a == "switch0" and isinstance(link.protocol, PcieLink)
        else link
        for link in host.links
    ]
    saved = encode_topology(replace(host, links=tuple(links)))
    place = Machine(cluster=build_cluster(decode_topology(saved, "half"), 1))
    (file,) = tables(recorded(f"nccl_tests/{HEALTHY}"))
    found = explain(file, place)
    assert "pcie_below_maximum" in [finding.fault for finding in found.findings]
    assert found.status == 1


@pytest.mark.parametrize(
    ("name", "place", "message", "hint"),
    [
        (HEALTHY, ("hgx-h200 gpus=1",), "2 ranks on 1 host, 2 per host, but hgx-h200 gpus=1 has 1 GPU", "gpus=8"),
        (HEALTHY, ("laptop",), "laptop has 0 GPUs", "give the shape that it ran on"),
        ("2.18.3-alltoall-16xrtx6000d-slow.txt", ("rtx-pro-6000-8gpu gpus=4", 2), "16 ranks on 2 hosts", "gpus=8"),
        ("before-2.10-all_gather-2xrtx2080ti-part.txt", ("laptop", 3), "2 ranks on 2 hosts, 1 per host", "--count"),
    ],
)
def test_ranks_that_do_not_fit_are_refused_with_both_numbers(name, place, message, hint) -> None:
    with pytest.raises(UsageError) as caught:
        explained(recorded(f"nccl_tests/{name}"), *place)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_more_hosts_in_the_table_than_given_are_refused() -> None:
    text = recorded("nccl_tests/2.18.3-alltoall-16xrtx6000d-slow.txt")
    four = re.sub(r"on +(node\d) device +(\d)", lambda m: f"on {m[1]}-{int(m[2]) // 4} device {m[2]}", text)
    with pytest.raises(UsageError) as caught:
        explained(four, "rtx-pro-6000-8gpu", 2)
    assert "16 ranks on 4 hosts, but --count or the cluster file gives 2" in caught.value.message
    uneven = text.replace("node2 device  0", "node1 device  9")
    with pytest.raises(UsageError, match=r"15 ranks|16 ranks") as caught:
        explained(uneven.replace("node2 device  1", "node3 device  1"), "rtx-pro-6000-8gpu", 4)
    assert "not the same number per host" in caught.value.message


def test_fewer_hosts_and_gpus_than_given_and_another_gpu_are_said() -> None:
    text = recorded("nccl_tests/2.18.3-alltoall-16xrtx6000d-slow.txt")
    found = explained(text, "rtx-pro-6000-8gpu", 16)
    assert "2 hosts of the 16 given" in "\n".join(found.notes)
    assert "RTX 6000D" in "\n".join(found.contradictions)
    assert "is it the right machine?" in "\n".join(found.contradictions)
    same = explained(recorded(f"nccl_tests/{HEALTHY}"), "hgx-h200")
    assert "2 of the 8 GPUs" in "\n".join(same.notes)
    assert same.contradictions == ()


def test_linpack_with_more_ranks_than_gpus_is_refused() -> None:
    with pytest.raises(UsageError, match="8 ranks, but gh200 has 1 GPU on 1 host"):
        explained(recorded("hpl/nvidia-8xgh200.txt"), "gh200")
    assert explained(recorded("hpl/nvidia-8xgh200.txt"), "gh200", 8).verdict.state == "ok"
    assert explained(recorded("hpl/2.3-4ranks.txt"), "laptop").verdict.state == "unknown"


def test_a_path_is_for_tables_between_two_devices() -> None:
    with pytest.raises(UsageError, match="'gpu0:gpu1' needs a test between two devices, got all_reduce"):
        explained(recorded(f"nccl_tests/{HEALTHY}"), "hgx-h200", 1, "gpu0:gpu1")
    text = recorded("osu/7.5-bw-cuda-no-cxi-slow.txt")
    with pytest.raises(UsageError, match="not a path: 'nonsense'"):
        explained(text, "gh200", 2, "nonsense")
    assert explained(text, "gh200", 2, "memory0:memory0@1").verdict.state == "slow"


@pytest.mark.parametrize(
    ("gpu", "has", "has_not"),
    [
        ("NVIDIA H200", {"hgx-h200", "aws-p5en"}, {"hgx-h100", "gh200"}),
        ("NVIDIA H100 80GB HBM3", {"hgx-h100", "gcp-a3-mega"}, {"h100-pcie-8gpu", "hgx-h200"}),
        ("NVIDIA H100 PCIe", {"h100-pcie-8gpu"}, {"hgx-h100"}),
        ("NVIDIA A100-SXM4-40GB", {"aws-p4d"}, {"hgx-a100", "aws-p4de"}),
        ("NVIDIA A100-SXM4-80GB", {"hgx-a100", "aws-p4de"}, {"aws-p4d"}),
        ("Tesla V100-SXM2-32GB", {"aws-p3dn"}, {"hgx-a100"}),
        ("NVIDIA GH200 480GB", {"gh200"}, {"gh200-nvl32", "hgx-h200"}),
        ("NVIDIA RTX 6000 Ada Generation", set(), {"rtx-pro-6000-8gpu"}),
        ("Graphics Device", set(), {"hgx-h100"}),
    ],
)
def test_shapes_are_found_by_the_gpu_that_a_table_names(gpu: str, has: set[str], has_not: set[str]) -> None:
    (file,) = tables(recorded("nccl_tests/2.18.3-all_gather-2xgb10-healthy.txt").replace("NVIDIA GB10", gpu))
    assert file.gpus == (gpu,)
    found = set(list_shapes(file))
    assert has <= found
    assert not has_not & found


def test_a_shape_with_too_few_gpus_is_not_proposed() -> None:
    text = recorded("nccl_tests/2.18.3-alltoall-16xrtx6000d-slow.txt")
    (file,) = tables(text.replace("NVIDIA RTX 6000D", "NVIDIA GH200 480GB"))
    assert list_shapes(file) == ()


def test_files_are_held_against_the_least_of_drives_and_ports() -> None:
    served = Cluster(name="served", host=load("hgx-h100"), hosts=2, storage=(4, load("hgx-a100 drives=12")))
    (file,) = tables(recorded("gdsio/nvfs-8-threads.txt"))
    (row, *_) = explain(file, Machine(cluster=served)).rows
    assert isinstance(row.limit, Limit)
    assert "2 PCIe links of GPUs, each: " in row.limit.because
    assert "other stages: drives of the servers" in row.limit.because


def test_drives_of_two_rates_count_with_what_each_gives() -> None:
    host = load("laptop drives=3")
    last = next(link for link in host.links if link.b == "nvme2n1")
    assert isinstance(last.protocol, PcieLink)
    fast = replace(last, protocol=replace(last.protocol, gt_per_s=32.0, max_gt_per_s=32.0, width=2, max_width=2))
    slow = replace(last, protocol=replace(last.protocol, width=3, max_width=4))
    both = [replace(host, links=tuple(one if link is last else link for link in host.links)) for one in (fast, slow)]
    whole, with_fast, with_slow = (file_limit(build_cluster(one, 1)) for one in (host, *both))
    assert isinstance(whole, Limit)
    assert isinstance(with_fast, Limit)
    assert isinstance(with_slow, Limit)
    assert whole.because.startswith("3 drives, each: ")
    assert with_slow.value == pytest.approx(whole.value * (2 + 0.75) / 3, rel=0.01)
    assert with_fast.value == pytest.approx(whole.value, rel=0.05)


def copies(name: str, head: str, rows: list[list[float]]) -> str:
    """An nvbandwidth matrix in GB/s; 0 means no copy."""
    columns = " ".join(str(number) for number in range(len(rows[0])))
    lines = [f"{number} {' '.join(f'{value:.2f}' for value in row)}" for number, row in enumerate(rows)]
    total = f"SUM {name} {sum(map(sum, rows)):.2f}"
    return "\n".join([f"Running {name}.", f"memcpy CE {head} bandwidth (GB/s)", columns, *lines, "", total, ""])


def test_copies_of_one_gpu_at_an_older_rate_name_its_link_and_itself_alone() -> None:
    text = copies("host_to_device_memcpy_ce", "CPU(row) -> GPU(column)", [[55.1, 12.3, 54.9]])
    found = explained(text, "h100-pcie-8gpu")
    assert (found.verdict.state, found.status) == ("slow", 1)
    _, nearest, *_ = found.hypotheses
    assert nearest.fault == "pcie_below_maximum"
    assert "run 2 generations lower (here only gpu1)" in nearest.says
    assert nearest.distance < 1.15


def test_copies_to_a_gpu_with_half_of_its_nvlinks_name_it_and_healthy_ones_name_nothing() -> None:
    rows = [[390.0] * 4 for _ in range(4)]
    for one in range(4):
        rows[one][2] = rows[2][one] = 190.0
    for one in range(4):
        rows[one][one] = 0.0
    found = explained(copies("device_to_device_memcpy_write_ce", "GPU(row) <- GPU(column)", rows), "hgx-h100")
    assert "the GPUs of a host have half of their NVLinks (here only gpu2)" in found.hypotheses[1].says
    healthy = copies("host_to_device_memcpy_ce", "CPU(row) -> GPU(column)", [[55.1, 55.3]])
    assert explained(healthy, "hgx-h100").hypotheses == ()


def test_gpus_on_pcie_that_talk_over_sockets_inside_their_host_are_told_apart_from_narrow_links() -> None:
    _, without_peers = recorded(f"nccl_tests/{NVLINK_AND_SYS}").split("CUDA_VISIBLE_DEVICES=0,1,6,7 NCCL_P2P_DISABLE=1")
    found = explained(without_peers, "rtx-3090-8gpu gpus=4")
    assert found.verdict.state == "slow"
    assert found.hypotheses[1].fault == "p2p_disabled"
