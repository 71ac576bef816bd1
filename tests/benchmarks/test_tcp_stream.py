"""Plain sockets between two real ranks: measurements, evidence, and the reasons for failures."""

# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os
import signal
import socket

import pytest
from tests.benchmarks.jobs import job_of
from tests.launch.test_netns_hosts import hosts, pair  # noqa: F401 - a fixture

from railwright.benchmarks.registry import find
from railwright.benchmarks.sockets import tcp_stream
from railwright.errors import UsageError
from railwright.native.library import NativeError
from railwright.native.memory import Buffer
from railwright.native.tcp import Stream
from railwright.topology.expand import expand


@pytest.mark.parametrize("wait", ["spin", "sleep"])
def test_latency_and_bandwidth_are_measured_and_every_byte_is_checked(railwright, wait):
    done = railwright("run", "tcp_stream", "-o", "sizes=8,64K", "-o", f"wait={wait}", "--force")
    assert done.status == 3, done.err
    railwright.expect_nothing_left()
    results = railwright.results()
    asked = [(one.parameters["size_bytes"], one.parameters["pages"], one.quantity) for one in results]
    assert asked == [
        (size, pages, quantity)
        for size, pages in ((8, "small"), (65536, "small"), (65536, "huge"))
        for quantity in ("latency_s", "bandwidth_bytes_per_s")
    ]
    for one in results:
        size = one.parameters["size_bytes"]
        if one.parameters["pages"] == "huge" and one.outcome == "waived":
            continue  # a kernel may have no huge pages to give
        assert [seen.value for seen in one.evidence][1] in (one.parameters["pages"], "unknown")
        assert (one.outcome, one.evidence[0].value) == ("measured", "tcp"), one.reason
        assert (one.verification.bytes_checked, one.verification.bytes_wrong) == (4 * size, 0), "both loops, both sides"
        assert one.settings["wait"] == wait
        assert one.settings["congestion_control"]
        assert one.settings["segment_bytes"] > 500
        assert min(one.samples) > 0
    assert len(results[0].samples) == 10_000


def test_two_ranks_on_one_cpu_sleep_by_default():
    laptop = expand("laptop", {})
    assert [tcp_stream._spins(job_of(find("tcp_stream"), laptop, cpus)) for cpus in ((0, 1), (0,))] == [True, False]
    assert tcp_stream._spins(job_of(find("tcp_stream"), laptop, (0,), {"wait": "spin"}))


def test_an_unknown_way_to_wait_is_refused():
    with pytest.raises(UsageError, match="tcp_stream wait: there is no choice named 'doze'"):
        find("tcp_stream").parse({"wait": "doze"})


def test_a_rank_that_is_killed_is_named_and_nothing_stays(railwright):
    process = railwright.start("run", "tcp_stream", "-o", "sizes=4M", "--force")
    victim = railwright.wait_until(lambda: railwright.rank(1), "rank 1")
    os.kill(victim.pid, signal.SIGKILL)
    railwright.finish(process)
    railwright.expect_nothing_left()
    assert railwright.results()[-1].outcome == "failed"


@pytest.mark.parametrize("spins", [True, False])
def test_a_side_that_closes_or_says_nothing_ends_the_loop_with_the_cause(spins, monkeypatch):
    monkeypatch.setattr(socket, "IPPROTO_TCP", socket.SOL_SOCKET)  # a pair of Unix sockets has no TCP
    monkeypatch.setattr(socket, "TCP_NODELAY", socket.SO_KEEPALIVE)
    one, other = socket.socketpair()
    with one, other, Buffer(64) as out, Buffer(64) as into:
        stream = Stream(one, starts=True, spins=spins, patience_s=0.05)
        with pytest.raises(NativeError, match="a transfer did not finish in time"):
            stream.latency(out, into, 64, warm=0, iterations=1)
        other.close()
        with pytest.raises(NativeError, match=r"TCP: (the other side closed the connection|Broken pipe)"):
            stream.windows(out, into, 64, window=1, warm=0, iterations=1)


@pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root")
def test_between_two_hosts_the_payload_crosses_the_interface_that_both_have(railwright, pair):
    done = railwright(*("run", "tcp_stream", "--hosts", hosts(pair), "-o", "sizes=64,64K", "--force"))
    assert done.status == 3, done.err
    railwright.expect_nothing_left()
    results = railwright.results()
    assert len(results) == 4
    for one in results:
        assert (one.outcome, one.hosts, one.path) == ("measured", 2, "memory0@0>memory0@1"), one.reason
        assert one.verification.bytes_wrong == 0
    assert results[-1].evidence[0].value == "tcp"
    assert results[-1].evidence[0].seen.startswith("net1 of ")


def test_addresses_that_no_interface_has_are_not_tried(monkeypatch):
    monkeypatch.setenv("UCX_NET_DEVICES", "nosuch0")
    between = job_of(find("tcp_stream"), expand("laptop", {}), hosts=("a", "b"))
    assert tcp_stream._addresses(between) == []
    assert tcp_stream._connect_to_first([], 1) == "rank 1 cannot be reached by TCP: it has no address"


def test_an_address_at_which_nobody_listens_is_named():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        assert "127.0.0.1: Connection refused" in tcp_stream._connect_to_first(["127.0.0.1"], silent.getsockname()[1])
