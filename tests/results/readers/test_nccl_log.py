"""NCCL's log: recorded logs of seven versions, mixed and cut lines, contradictions, hostile input."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from railwright.errors import UsageError
from railwright.results.readers.nccl_log import log as nccl_log
from railwright.results.readers.nccl_log.model import NcclLog
from railwright.results.readers.nccl_log.summary import Shape, algorithms, shapes, traffic, transports

LOGS = Path(__file__).parents[3] / "testdata" / "external" / "nccl-log"
NAMES = sorted(path.name for path in LOGS.glob("*.log"))


def recorded(name: str) -> NcclLog:
    return nccl_log.read((LOGS / name).read_text(encoding="utf-8"))


def crossings(shape: Shape) -> int:
    return sum(1 for hop in shape.hops if hop.crosses)


def line(rank: int, text: str, host: str = "node0") -> str:
    return f"{host}:{100 + rank}:{200 + rank} [{rank}] NCCL INFO {text}\n"


def start(rank: int, size: int, what: str = "START", comm: str = "0xa") -> str:
    ids = f"cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 commId {comm}"
    return line(rank, f"ncclCommInitRank comm 0x1 rank {rank} nranks {size} {ids} - Init {what}")


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_log_is_recognised_and_survives_json(name):
    text = (LOGS / name).read_text(encoding="utf-8")
    assert nccl_log.recognises(text)
    log = nccl_log.read(text)
    assert msgspec.json.decode(msgspec.json.encode(log), type=NcclLog) == log


def test_nvlink_log_of_2_28_is_read_whole():
    log = recorded("2.28.3-nvlink-2xh200.log")
    main = log.main
    assert (log.versions[0].nccl, log.versions[0].cuda, log.driver) == ("2.28.3", "13.0", 13000)
    assert (main.size, main.nodes, main.hosts) == (2, 1, ("vm",))
    assert [(one.nvml_dev, one.bus_id, one.complete) for one in main.ranks] == [(0, "60", True), (1, "70", True)]
    assert {ring.ranks for ring in main.rings} == {(0, 1)}
    assert len(main.rings) == main.counts.collective == 24
    assert main.counts.p2p == main.counts.p2p_per_peer == 32
    assert main.searches[0].channels == 12
    assert main.searches[0].intra_bytes_per_s == 30e9
    assert transports(main) == (("P2P/direct pointer", 48),)
    assert [(one.name, one.value) for one in log.settings] == [("NCCL_NVLS_ENABLE", "0")]


@pytest.mark.parametrize(
    ("operation", "chosen"),
    [
        ("all_reduce", "AllReduce"),
        ("all_gather", "AllGather"),
        ("reduce_scatter", "ReduceScatter"),
        ("broadcast", "Broadcast"),
        ("send_recv", ""),
        ("all_to_all", ""),
    ],
)
def test_each_collective_on_eight_gpus_tells_its_channels_and_what_nccl_chose(operation, chosen):
    log = recorded(f"2.28.9-{operation}-8xh200.log")
    main = log.main
    assert (main.size, main.nodes, len(main.rings)) == (8, 1, 24)
    assert (main.counts.collective, main.counts.p2p, main.counts.p2p_per_peer, main.counts.nvls) == (24, 32, 32, 0)
    assert {one.operation for one in log.choices} == ({chosen} if chosen else set())
    assert {one.algorithm for one in log.choices} == ({"Ring"} if chosen else set())
    largest = [one for one in log.choices if one.size_bytes == max(each.size_bytes for each in log.choices)]
    assert {(one.protocol, one.channels) for one in largest} == ({("Simple", 24)} if chosen else set())
    assert ("NCCL_NVLS_ENABLE", "0") in {(one.name, one.value) for one in log.settings}


def test_the_tree_of_the_machine_keeps_its_levels_although_two_ranks_print_it_at_once():
    system = recorded("2.28.3-nvlink-2xh200.log").systems[0]
    assert [(one.depth, one.node, one.link) for one in system.nodes] == [
        (0, "CPU/0-ffffffffffffff", ""),
        (1, "NIC/0-0", "PCI"),
        (1, "GPU/0-60", "PCI"),
        (2, "NVS/0-0", "NVL"),
        (1, "GPU/0-70", "PCI"),
        (2, "NVS/0-0", "NVL"),
    ]
    kinds = {(path.source, path.target): path.kind for path in system.paths}
    assert kinds[("GPU/0-60", "GPU/0-70")] == "NVL"
    assert kinds[("GPU/0-60", "CPU/0-ffffffffffffff")] == "PHB"


def test_tuning_table_and_choices_of_2_28():
    log = recorded("2.28.3-nvlink-2xh200.log")
    cell = next(
        one for one in log.tuning if (one.operation, one.algorithm, one.protocol) == ("AllReduce", "Ring", "Simple")
    )
    assert cell.latency_s == pytest.approx(15.2e-6)
    assert cell.bandwidth_bytes_per_s == 360e9
    (chosen,) = algorithms(log)
    assert (chosen.algorithm, chosen.protocol, chosen.channels, chosen.times) == ("Ring", "LL", 24, 45)


def test_pxn_sends_name_their_proxy_and_count_on_its_nic():
    main = recorded("2.23.4-ib-pxn-4x2a100.log").main
    (shape,) = shapes(main)
    assert (shape.channels, crossings(shape)) == ((0, 1, 2), 4)
    assert [hop.send.proxy for hop in shape.hops if hop.crosses] == [None, 2, 4, 6]
    assert {(one.host, one.nic) for one in traffic(main) if one.proxied} == {("node1", 5), ("node2", 0), ("node3", 1)}
    assert all(one.gdr == one.connections for one in traffic(main))


def test_gpudirect_over_the_cpu_of_2_16():
    log = recorded("2.16.5-ib-gdr-over-cpu.log")
    assert [(one.index, one.name, one.link) for one in log.nics] == [(0, "mlx5_0", "RoCE"), (1, "mlx5_2", "IB")]
    assert {one.connection for one in log.main.connections} == {0, 1}
    assert [path.kind for path in log.systems[0].paths if path.source == "NET/1" and path.target == "GPU/81000"] == [
        "PHB"
    ]
    assert [(one.pattern, one.channels) for one in log.main.searches] == [(4, 1), (3, 1), (3, 0)]
    assert log.versions[0].nccl == "2.16.5"


def test_efa_under_mpirun_without_any_communicator_id():
    log = recorded("efa-p4d-2x8a100.log")
    assert len(log.communicators) == 1
    assert (log.main.size, log.main.hosts, len(log.main.rings)) == (16, ("node0", "node1"), 8)
    assert [one.bus_id for one in log.main.ranks[:3]] == ["101c0", "101d0", "201c0"]
    assert {one.network for one in log.main.connections if one.nic is not None} == {"AWS Libfabric"}
    assert [crossings(shape) for shape in shapes(log.main)] == [2, 2, 2, 2]


def test_old_words_of_2_5_and_2_4():
    main = recorded("2.5.7-roce-2x8.log").main
    assert [(one.transport, one.detail) for one in main.connections[1:3]] == [("P2P", "IPC"), ("SHM", "direct")]
    assert [(node.up, node.down) for node in main.trees] == [(7, (1,)), (7, (1,))]
    sockets = recorded("2.4.7-sockets-64.log")
    assert sockets.main.size == 64
    assert {node.rank: node.up for node in sockets.main.trees} == {25: 26, 29: 30, 33: 34}
    assert sockets.versions[0].nccl == "2.4.7"


def test_messages_that_share_a_line_are_told_apart():
    glued = "  1048576  float  sum  -1" + line(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC").rstrip()
    log = nccl_log.read(
        line(0, "Using network IB") + glued + line(1, "Channel 00/0 : 1[1] -> 0[0] via SHM/direct/direct")
    )
    assert [(one.source, one.transport) for one in log.main.connections] == [(0, "P2P"), (1, "SHM")]
    assert log.main.hosts == ("node0",)


@pytest.mark.parametrize("prefix", ["[2026-11-22 10:00:00] ", "[1,0]<stdout>:", "0: ", "10.0.0.1: ", "[155] "])
def test_prefixes_of_launchers_and_time_stamps_do_not_hide_the_host(prefix):
    log = nccl_log.read(prefix + line(3, "Channel 00/0 : 3[3] -> 1[1] [send] via NET/IB/2(1)/GDRDMA(PCI)/Shared"))
    (one,) = log.main.connections
    assert (one.network, one.nic, one.proxy, one.gdr, one.gdr_over_pcie, one.shared) == ("IB", 2, 1, True, True, True)
    assert (log.main.ranks[0].host, log.main.ranks[0].pid) == ("node0", 103)


def test_warnings_of_old_and_new_form_are_kept():
    old = "node0:1:2 [0] transport.cc:384 NCCL WARN Cannot initialize CollNet\n"
    new = "[2026-11-22 10:00:00] node0:1:2 [0] net.cc:12 (ncclIbTest) NCCL WARN Got completion\n"
    log = nccl_log.read(old + new)
    assert [(one.host, one.says) for one in log.warnings] == [
        ("node0", "Cannot initialize CollNet"),
        ("node0", "Got completion"),
    ]


def test_a_ring_that_nccl_cut_is_completed_from_the_ranks_neighbours():
    size = 24
    shown = "".join(f" {rank:3d}" for rank in range(20))
    steps = "".join(line(r, f"Ring 00 : {(r - 1) % size} -> {r} -> {(r + 1) % size}") for r in range(size))
    head = "".join(start(rank, size) for rank in range(size))
    assert nccl_log.read(head + line(0, f"Channel 00/01 :{shown}")).main.rings[0].whole is False
    ring = nccl_log.read(head + line(0, f"Channel 00/01 :{shown}") + steps).main.rings[0]
    assert (ring.whole, ring.ranks) == (True, tuple(range(size)))


def test_dots_at_the_end_of_a_ring_take_the_last_number_with_them():
    log = nccl_log.read(start(0, 200) + line(0, "Channel 00/01 :   0   1   2  10..."))
    assert (log.main.rings[0].ranks, log.main.rings[0].whole) == ((0, 1, 2), False)


def test_two_communicators_are_kept_apart_by_their_id():
    world = "".join(start(rank, 4) for rank in range(4)) + line(0, "Channel 00/01 : 0 1 2 3")
    pair = start(0, 2, comm="0xb") + start(1, 2, comm="0xb") + line(0, "Channel 00/01 : 0 1")
    log = nccl_log.read(pair + world)
    assert [(one.id, one.size, one.rings[0].ranks) for one in log.communicators] == [
        ("0xa", 4, (0, 1, 2, 3)),
        ("0xb", 2, (0, 1)),
    ]


def test_a_connection_of_another_communicator_goes_where_its_process_has_that_rank():
    world = "".join(start(rank, 4) for rank in range(4))
    pair = start(2, 3, comm="0xb").replace("rank 2 nranks 3", "rank 0 nranks 2")
    late = "node0:102:999 [2] NCCL INFO Channel 00/0 : 2[2] -> 3[3] via P2P/CUMEM\n"
    log = nccl_log.read(world + pair + late)
    assert [len(one.connections) for one in log.communicators] == [1, 0]
    lost = "node9:102:999 [2] NCCL INFO Channel 00/0 : 2[2] -> 3[3] via P2P/CUMEM\n"
    assert [len(one.connections) for one in nccl_log.read(world + lost).communicators] == [0]


def test_algorithms_by_number_are_named():
    text = line(0, "8 Bytes -> Algo 1 proto 0 time 12.3") + line(
        0, "AllReduce: 4194304 Bytes -> Algo 5 proto 2 time 9.0"
    )
    log = nccl_log.read(line(0, "Using network IB") + text)
    assert [(one.operation, one.algorithm, one.protocol) for one in log.choices] == [
        ("", "Ring", "LL"),
        ("AllReduce", "NVLSTree", "Simple"),
    ]
    assert log.choices[0].estimate_s == pytest.approx(12.3e-6)


def test_tuning_table_of_2_8():
    head = line(0, "Latency/AlgBw |    Tree/    LL |    Tree/ LL128 |    Ring/Simple |")
    row = line(0, "    AllReduce |     6.0/  12.5 |     9.0/  20.0 |    11.0/  40.0 |")
    log = nccl_log.read(head + row)
    assert [(one.algorithm, one.protocol, one.bandwidth_bytes_per_s) for one in log.tuning] == [
        ("Tree", "LL", 12.5e9),
        ("Tree", "LL128", 20e9),
        ("Ring", "Simple", 40e9),
    ]


def test_names_of_machines_in_settings_are_not_kept():
    log = nccl_log.read(
        line(0, "NCCL_COMM_ID set by environment to head.example:4000") + line(0, "NCCL_PROTO set by environment to LL")
    )
    assert [one.name for one in log.settings] == ["NCCL_PROTO"]


CONTRADICTORY = {
    "a size changes": start(0, 4) + start(1, 8),
    "a rank is beyond the size": start(5, 4),
    "a rank is on two hosts": start(0, 4) + start(0, 4).replace("node0", "node1"),
    "a channel has two rings": start(0, 3) + line(0, "Channel 00/01 : 0 1 2") + line(0, "Channel 00/01 : 0 2 1"),
}


@pytest.mark.parametrize("text", CONTRADICTORY.values(), ids=CONTRADICTORY)
def test_lines_that_contradict_each_other_are_refused_with_their_number(text):
    with pytest.raises(UsageError, match="line") as caught:
        nccl_log.read(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["", "nothing of NCCL\n", "NCCL INFO \n", "x NCCL INFO Channel 00/0 :\n", "NCCL version 2.20.5+cuda12.4\n"]
)
def test_a_text_that_tells_nothing_is_refused(text):
    with pytest.raises(UsageError, match=r"got none in|none of the"):
        nccl_log.read(text)


HOSTILE = {
    "garbage": "\x00\xff garbage [0] :: 123:456 " * 40_000,
    "one line": "a" * 1_000_000,
    "empty messages": "node0:1:2 [0] NCCL INFO \n" * 40_000,
    "marks on one line": "NCCL INFO " * 100_000,
    "long prefixes": (":" * 290 + "[0] NCCL INFO x") * 3_000,
    "unknown messages": "node0:1:2 [0] NCCL INFO x y\n" * 37_000,
    "long trees": "node0:1:2 [0] NCCL INFO Trees" + " [0] 1/-1" * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_garbage_is_refused(name):
    """Backtracking over the text for each character would take 10^12 steps and exceed the time limit of a test."""
    with pytest.raises(UsageError):
        nccl_log.read(HOSTILE[name])


def test_a_line_of_ten_megabytes_costs_no_more_than_its_beginning():
    log = nccl_log.read("node0:1:2 [0] NCCL INFO Channel 00/01 :" + " 1" * 5_000_000)
    assert len(log.main.rings[0].ranks) < 4096


@pytest.mark.parametrize("name", NAMES)
def test_a_log_cut_anywhere_is_read_or_refused(name):
    text = (LOGS / name).read_text(encoding="utf-8")
    places = 60 if len(text) < 30_000 else 20
    for cut in range(0, len(text), max(len(text) // places, 1)):
        try:
            nccl_log.read(text[:cut])
            nccl_log.read(text[cut:])
        except UsageError:
            continue
