"""Published messages between hosts of healthy systems: none of them is slow, and values three times worse would be.

Except for small latencies, none of them was used to set the constants.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from railwright.diagnosis.verdicts.verdict import judge
from railwright.expected.expect import expect
from railwright.expected.machine import Machine
from railwright.results.workload import Message
from railwright.topology.cluster import build_cluster
from railwright.topology.devices import EthernetLink, NetworkLink
from railwright.topology.expand import expand

KIB, MIB = 2**10, 2**20
US = 1e-6
TIME = "latency_s"


class Published(NamedTuple):
    """The rows of a table: size in bytes -> MB/s, or us."""

    source: str
    workload: Message
    rate: str
    rows: dict[int, float]
    mtu_of_roce: int = 0


OSU, BY_VERBS = Message(), Message(by="verbs")
TABLES = (
    Published("gist hppritcha/8da4436a, osu_mbw_mr of one pair, Omni-Path 100", OSU, "100Gb/s", {
        1: 2.88, 64: 193.85, KIB: 2562.0, 8 * KIB: 7755.74, 16 * KIB: 9374.84, 64 * KIB: 11689.81, MIB: 12352.99,
        4 * MIB: 12380.57}),
    Published("gist hppritcha/200bc7a2, osu_mbw_mr of one pair, Aries (10.2 GB/s)", OSU, "82Gb/s", {
        1: 1.42, 64: 91.32, KIB: 946.99, 8 * KIB: 2894.39, 16 * KIB: 4916.61, 64 * KIB: 8938.57, MIB: 9916.39,
        4 * MIB: 9964.39}),
    Published("reframe pull request 1232, osu_bw reference of Piz Daint, Aries", OSU, "82Gb/s", {4 * MIB: 9607.0}),
    Published("gist jfgrimm/3af692a5, osu_bw by Open MPI, 100 Gb/s InfiniBand", OSU, "100Gb/s", {
        1: 5.53, 64: 343.32, KIB: 3951.17, 4 * KIB: 7335.49, 16 * KIB: 8777.24, 32 * KIB: 10297.78}),
    Published("the same by MPICH and UCX, which dips at 256 B", OSU, "100Gb/s", {
        1: 4.92, 128: 582.86, 256: 278.04, 512: 849.44, KIB: 1481.1, 2 * KIB: 4340.41, 16 * KIB: 10337.4,
        32 * KIB: 10324.66}),
    Published("openucx/ucx issue 9520, ucx_perftest ucp_get, ConnectX-5 EDR", OSU, "100Gb/s", {
        8: 7.88, KIB: 760.69, 4 * KIB: 1812.13, 16 * KIB: 5124.17, 64 * KIB: 11287.8, 128 * KIB: 11480.63,
        256 * KIB: 11659.31}),
    Published("openucx/ucx issue 7449, IMB PingPong of the near sockets, HDR", replace(OSU, one_at_a_time=True),
              "200Gb/s", {256 * KIB: 12001.65, 512 * KIB: 15255.85}),
    Published("openucx/ucx issue 8852, ib_read_bw, ConnectX-6 HDR", replace(BY_VERBS, one_sided=True), "200Gb/s", {
        2: 4.67 * 1.048576, 16: 38.95 * 1.048576, 64: 155.39 * 1.048576}),
    Published("openucx/ucx issue 9430, ib_send_bw, ConnectX-3, RoCE of 40 Gb/s with an MTU of 1024", BY_VERBS,
              "40Gb/s", {64 * KIB: 36070 / 8}, mtu_of_roce=1500),
    Published("gist hppritcha/6a3acd0c, osu_latency, Aries", replace(OSU, quantity=TIME), "82Gb/s", {
        1: 1.21, KIB: 1.49, 8 * KIB: 4.97, 64 * KIB: 15.03, MIB: 114.59, 4 * MIB: 435.6}),
    Published("gist jfgrimm/3af692a5, osu_latency by Open MPI", replace(OSU, quantity=TIME), "100Gb/s", {
        1: 0.91, KIB: 1.67, 8 * KIB: 4.79, 16 * KIB: 7.08, 32 * KIB: 9.14, 64 * KIB: 12.62}),
    Published("QLogic OFED+ user guide, osu_latency, InfiniBand DDR", replace(OSU, quantity=TIME), "16Gb/s", {
        1: 1.06, 256: 1.51, 4 * KIB: 4.99, 64 * KIB: 58.28, MIB: 567.6, 4 * MIB: 2178.66}),
    Published("reframe pull request 1232, osu_latency reference of Piz Daint", replace(OSU, quantity=TIME), "82Gb/s",
              {8: 1.61}),
    Published("Lumi-supercomputer/reframe issue 7, osu_latency, Slingshot, at worst", replace(OSU, quantity=TIME),
              "200Gb/s", {8: 8.0}),
    Published("linux-rdma/perftest issue 131, ib_read_lat", replace(BY_VERBS, one_sided=True, quantity=TIME),
              "100Gb/s", {2: 1.91}),
    Published("openucx/ucx issue 6242, ib_send_lat, RoCE over a bond of 25 Gb/s", replace(BY_VERBS, quantity=TIME),
              "25Gb/s", {2: 5.84}, mtu_of_roce=1500),
)  # fmt: skip


def machine(table: Published) -> Machine:
    host = expand("hgx-h100", {"nics": "1", "nic-rate": table.rate})
    if table.mtu_of_roce:
        links = tuple(
            replace(link, protocol=EthernetLink(line_rate_bits_per_s=link.protocol.line_rate_bits_per_s,
                                                mtu_bytes=table.mtu_of_roce, rdma=True))
            if isinstance(link.protocol, NetworkLink) else link for link in host.links
        )  # fmt: skip
        host = replace(host, links=links)
    return Machine(cluster=build_cluster(host, 2))


def states(table: Published, worse: float = 1.0) -> dict[int, str]:
    """Return size -> verdict of each row, or of a value that is `worse` times worse."""
    where, found = machine(table), {}
    for size, printed in table.rows.items():
        value = printed * US * worse if table.workload.quantity == TIME else printed * 1e6 / worse
        limit, band = expect(replace(table.workload, size_bytes=size), where)
        found[size] = judge("measured", "", value, limit, band, None, must_check=False).state
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.source)
def test_no_row_of_a_sound_system_is_slow_or_above_its_limit(table) -> None:
    assert set(states(table).values()) <= {"ok", "unknown"}


def test_four_of_five_rows_are_ok() -> None:
    found = [state for table in TABLES for state in states(table).values()]
    assert found.count("ok") >= 0.8 * len(found)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.source)
def test_much_worse_values_are_slow(table) -> None:
    """A value three times worse is slow if bytes decide, and so is a small message that takes 80 us more."""
    by_time = table.workload.quantity == TIME
    for size, state in states(table, worse=3.2).items():
        assert size < MIB or state == "slow", size
    if by_time and table.workload.by == "library":
        late = table._replace(rows={size: us + 80 for size, us in table.rows.items() if size <= 8 * KIB})
        assert set(states(late).values()) == {"slow"}
