"""Healthy tables are not reported as slow, and faulty tables get no impossible cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.errors import EXIT_OK, EXIT_UNJUDGED
from railwright.expected.machine import Machine
from railwright.explain.paste import read_paste
from railwright.explain.table import Explained, explain
from railwright.results.readers import registry
from railwright.topology.cluster import Fabric, Tier, build_cluster
from railwright.topology.expand import expand
from railwright.topology.sources.load import load

THREADS = Path(__file__).parents[2] / "testdata/external/threads"
TCPX, ALL_TO_ALL, RACKS, STAGED = "018", "042", "009", "066"
TCPX_HOST = "hgx-h100 nics=4 nic-rate=200Gb/s nic-protocol=ethernet"
ALPS = "gh200 gpus=4 nics=4 nic-rate=200Gb/s nic-protocol=ethernet"


def text_of(number: str) -> str:
    (file,) = THREADS.glob(f"{number}-*.txt")
    return file.read_text(encoding="utf-8")


def held(text: str, host: str, count: int = 1, path: str = "", fabric: Fabric | None = None) -> Explained:
    (file,) = registry.read(text)
    return explain(file, Machine(cluster=build_cluster(load(host), count, fabric), path=path))


def given(host: str, options: dict[str, str] | None = None, count: int = 1) -> Machine:
    return Machine(cluster=build_cluster(expand(host, options or {}), count))


def states(found: Explained) -> set[str]:
    return {row.verdict.state for row in found.rows}


def test_a_fixed_time_of_a_call_is_told_and_is_not_slow_where_healthy_machines_have_it() -> None:
    found = held(text_of(TCPX), TCPX_HOST, 2)
    assert (found.verdict.state, found.status) == ("ok", 0)
    assert "slow" not in states(found)
    assert any("each call takes up to 89" in note for note in found.notes)
    assert any("a fixed time of" in row.verdict.why for row in found.rows)


def test_the_same_time_is_slow_over_infiniband_and_a_rate_is_no_fixed_time() -> None:
    assert "slow" in states(held(text_of(TCPX), TCPX_HOST.replace("ethernet", "infiniband"), 2))
    slow = held(text_of("005"), "p5.48xlarge", 2)
    assert not any("each call takes" in note for note in slow.notes)


def test_one_thread_that_launches_on_eight_gpus_may_take_eight_launches() -> None:
    text = text_of(ALL_TO_ALL)
    found = [held(version, "azure-nd-a100-v4") for version in (text, text.replace("nGpus 8", "nGpus 1"))]
    assert "slow" not in states(found[0])
    assert [row.verdict for row in found[0].rows] != [row.verdict for row in found[1].rows]


def slowed(text: str, times: float) -> str:
    """A table of all_reduce on 1,440 ranks with all times multiplied by a factor."""

    def line_of(line: str) -> str:
        words = line.split()
        if not words or not words[0].isdigit():
            return line
        for place in (5, 9):
            took = round(float(words[place]) * times, 1)
            rate = int(words[0]) / took / 1e3
            words[place : place + 3] = f"{took:.1f}", f"{rate:.2f}", f"{rate * 2 * 1439 / 1440:.2f}"
        return " ".join(words)

    return "\n".join(map(line_of, text.splitlines()))


def test_an_unknown_fabric_of_many_hosts_is_a_doubt_and_a_known_one_is_none() -> None:
    assert held(text_of(RACKS), "gb200-nvl72", 360).verdict.state == "ok"
    slower = slowed(text_of(RACKS), 1.4)
    doubted = held(slower, "gb200-nvl72", 360)
    assert doubted.verdict.state == "unknown"
    assert "--cluster" in doubted.verdict.why
    known = Fabric(tiers=(Tier(hosts=360),))
    assert held(slower, "gb200-nvl72", 360, fabric=known).verdict.state == "slow"


def test_gpus_that_cannot_do_gpudirect_are_held_against_what_goes_through_memory() -> None:
    host = "pcie-8gpu gpus=1 nics=1 nic-rate=100Gb/s nic-protocol=efa"
    found = held(text_of(STAGED), host, 2)
    assert found.verdict.state == "unknown"
    assert any("no GPUDirect RDMA over EFA" in note for note in found.notes)
    able = held(text_of(STAGED).replace("Tesla T4", "NVIDIA A100"), host, 2)
    assert able.verdict.state == "slow"


@pytest.mark.parametrize(("number", "state", "cause"), [("032", "ok", ""), ("033", "slow", "tcp_fallback")])
def test_collectives_of_mpi_are_held_against_the_links(number: str, state: str, cause: str) -> None:
    found = held(text_of(number), ALPS, 2)
    assert (found.ranks, found.hosts, found.verdict.state) == (8, 2, state)
    assert next((one.fault for one in found.hypotheses[1:]), "") == cause
    alone = held(text_of(number).replace("-N2 --ntasks-per-node=4", ""), ALPS, 2)
    assert "lacks the number of ranks" in alone.verdict.why


def test_messages_between_gpus_of_a_host_cost_a_call_each() -> None:
    assert held(text_of("028"), "gh200 gpus=4", path="gpu0:gpu1").verdict.state == "ok"
    over_nics = held(text_of("031"), "gh200 gpus=4", path="gpu0:gpu1")
    assert over_nics.verdict.state == "slow"
    assert over_nics.hypotheses[1].fault == "p2p_disabled"
    assert any("narrowest link" in note for note in over_nics.notes)


def test_a_cause_is_named_only_for_the_collectives_that_it_can_slow() -> None:
    assert not held(text_of(TCPX), TCPX_HOST, 2).findings  # NCCL_P2P_PXN_LEVEL=0 does not affect all_gather
    sends = held(text_of("070"), "hgx-h100 gpus=4 nics=4 nic-protocol=ethernet", 2)
    assert "algorithm_forced" not in {one.fault for one in sends.hypotheses}


COPIES = """\
Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A     {rate}
 1     {rate}       N/A

SUM device_to_device_memcpy_read_ce {total}
"""


def test_copies_between_gpus_at_a_rate_of_pcie_have_lost_nvlink() -> None:
    slow = held(COPIES.format(rate="22.10", total="44.20"), "hgx-h100 gpus=2")
    assert [(one.fault, one.certainty) for one in slow.findings] == [("p2p_disabled", "possible")]
    assert not held(COPIES.format(rate="180.00", total="360.00"), "hgx-h100 gpus=2").findings, "no rate of PCIe"
    assert not held(COPIES.format(rate="393.00", total="786.00"), "hgx-h100 gpus=2").findings


def test_messages_at_the_rate_of_a_slower_port_are_told() -> None:
    table = text_of("068")
    assert any("a port of 200 Gb/s" in note for note in held(table, "hgx-h100", 2).notes)
    assert not any("a port of" in note for note in held(table, "ND96asr_v4", 2).notes)


def test_settings_of_any_command_line_are_told_and_cost_nothing_where_all_is_fine() -> None:
    text = "$ mpirun -np 2 --mca pml ob1 -x UCX_TLS=tcp,self osu_bw\n" + text_of("030")
    found = held(text, "quad-gh200", 2)
    assert any(one.fault == "environment_slows" and "UCX_TLS" in one.says for one in found.findings)
    (file,) = registry.read(text)
    assert file.environment == {"UCX_TLS": "tcp,self", "OMPI_MCA_pml": "ob1"}
    assert held(text_of("035").replace("$ srun", "$ FI_PROVIDER=tcp srun"), "quad-gh200", 2).status == 0


def test_a_table_whose_text_ends_inside_a_row_is_never_ok() -> None:
    paste = (THREADS / "109-nccl-tests-p5-first-rows.txt").read_text(encoding="utf-8")
    (table,) = read_paste(paste, given("p5.48xlarge")).tables
    assert (table.verdict.state, table.status) == ("unknown", EXIT_UNJUDGED)
    assert table.contradictions[0].startswith("the text ends inside a row")


def test_a_command_says_how_far_the_table_was_to_go() -> None:
    command = "mpirun -np 2 osu_bw -d cuda -m 33554432 D D\n"
    paste = (THREADS / "082-osu_bw-2xa100-nv4.txt").read_text(encoding="utf-8")
    machine = given("hgx-a100", {"gpus": "2", "nvlink": "4"})
    assert [table.status for table in read_paste(paste, machine).tables] == [EXIT_OK]
    (short,) = read_paste(command + "".join(paste.splitlines(keepends=True)[1:-1]), machine).tables
    assert short.verdict.state == "unknown"
    assert "was configured up to 32 MiB, but the text ends at 16 MiB" in short.contradictions[0]


def test_copies_over_pcie_little_below_the_band_are_in_doubt_and_half_of_it_is_slow() -> None:
    paste = (THREADS / "083-nvbandwidth-6-a6000.txt").read_text(encoding="utf-8")
    machine = given("pcie-8gpu", {"gpus": "6"})
    (table,) = read_paste(paste, machine).tables
    doubts = {row.verdict.why.partition(", but ")[2] for row in table.rows if row.verdict.state == "unknown"}
    assert doubts
    assert all("share a switch" in why for why in doubts)
    without_sum = "".join(line for line in paste.splitlines(keepends=True) if "SUM" not in line)
    (halved,) = read_paste(without_sum.replace("26.34", "13.17"), machine).tables
    assert halved.verdict.state == "slow"


def test_nccl_of_2020_is_in_doubt_where_a_later_one_is_slow() -> None:
    paste = (THREADS / "119-nccl-tests-p4d-2-nodes-kubectl-logs.txt").read_text(encoding="utf-8")
    machine = given("p4d.24xlarge", count=2)
    (old,) = read_paste(paste, machine).tables
    assert old.verdict.state == "unknown"
    assert "NCCL 2.8.3 reaches less" in old.verdict.why
    (later,) = read_paste(paste.replace("NCCL version 2.8.3", "NCCL version 2.21.5"), machine).tables
    assert later.verdict.state == "slow"


def test_one_size_below_its_band_where_protocols_change_is_in_doubt_and_two_are_slow() -> None:
    paste = (THREADS / "121-nccl-tests-8xa100-reduce_scatter.txt").read_text(encoding="utf-8")
    (table,) = read_paste(paste, given("azure-nd-a100-v4"), "reduce_scatter").tables
    assert table.status == EXIT_OK
    fast, slow = "1108.7  242.11  211.84    N/A   1112.6  241.27  211.11", "4608.7 58.24 50.96 N/A 4612.6 58.20 50.92"
    slower = paste.replace(fast, slow)
    (dipped,) = read_paste(slower, given("azure-nd-a100-v4"), "reduce_scatter").tables
    assert dipped.verdict.state == "slow"


def small_sizes(microseconds: float) -> str:
    """The first rows of a table of all_reduce on eight GPUs, in which every size takes the same time."""
    rates = ((size, size / microseconds / 1e3) for size in (1024, 2048, 4096, 8192, 16384))
    halves = ((size, f"{microseconds:.2f} {rate:.2f} {rate * 1.75:.2f} 0") for size, rate in rates)
    rows = (f"{size} {size // 4} float sum -1 {half} {half}" for size, half in halves)
    head = "# nThread 1 nGpus 8 minBytes 1024 maxBytes 16384 step: 2(factor) warmup iters: 5 iters: 20\n"
    columns = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    return head + columns + "\n".join(rows) + "\n"


def test_a_table_that_ends_before_bytes_count_is_in_doubt_until_its_call_takes_far_longer() -> None:
    healthy = held(text_of("230"), "mi300x")
    assert (healthy.verdict.state, states(healthy)) == ("unknown", {"unknown"})
    assert "at these sizes the call decides" in healthy.verdict.why
    assert held(small_sizes(55.0), "mi300x").verdict.state == "unknown"
    assert held(small_sizes(400.0), "mi300x").verdict.state == "slow"
