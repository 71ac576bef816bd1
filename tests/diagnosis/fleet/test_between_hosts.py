"""Pairs of hosts are compared with their ports and each other, and collectives with the fabric that results."""

from __future__ import annotations

from itertools import permutations

import pytest
from msgspec.structs import replace
from tests.benchmarks.test_rdma_plan import machine

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.fleet.between_hosts import (
    HostNetwork,
    PairTried,
    judge_by_both,
    judge_pairs,
    summarize_hosts,
)
from railwright.diagnosis.fleet.host_table import host_table
from railwright.diagnosis.fleet.shared_cpus import are_limited_by_links, filter_suspects
from railwright.diagnosis.localise.records import Suspect
from railwright.diagnosis.runs.own_runs import LimitFinder
from railwright.diagnosis.verdicts.judged import Diagnosis
from railwright.results.records import Result
from railwright.topology.sources.load import load

TEN = load("laptop nics=1 nic-rate=10Gb/s nic-protocol=ethernet")
FAST = load("hgx-h100 nics=1")
PAYLOAD = 1.18e9
"""About the payload rate of TCP at 10 Gb/s."""
HOSTS = ("a", "b", "c", "d")


def tried(rate: float = 1.15e9, **other: float) -> list[PairTried]:
    """Build two tries of every ordered pair at the rate, with exceptions by name: `ab=...`."""
    return [PairTried(one, two, (other.get(one + two, rate),) * 2) for one, two in permutations(HOSTS, 2)]


def of_pair(pairs, ends: str):
    return next(one for one in pairs if one.source + one.destination == ends)


def test_a_pair_is_held_against_the_narrower_port_of_its_two_hosts():
    machines = {"a": FAST, "b": FAST, "c": TEN, "d": TEN}
    pairs = judge_pairs(tried(ab=4e9, ba=4e9), HostNetwork(machines))
    slow, well = of_pair(pairs, "ab"), of_pair(pairs, "ac")
    assert slow.limit == pytest.approx(400e9 / 8, rel=0.06)
    assert slow.verdict.state == "unknown"  # one TCP flow depends on a core's speed
    assert well.limit == pytest.approx(PAYLOAD, rel=0.03)
    assert well.verdict.state == "ok"
    assert "10 Gb/s" in well.because


def test_a_slow_pair_is_slow_and_one_above_its_port_is_suspicious():
    pairs = judge_pairs(tried(ab=0.4e9), HostNetwork(dict.fromkeys(HOSTS, TEN)))
    assert (pairs[0].source, pairs[0].destination, pairs[0].standing) == ("a", "b", "behind")
    assert pairs[0].verdict.state == "slow"
    assert pairs[0].is_slow
    assert {one.verdict.state for one in pairs[1:]} == {"ok"}
    above = judge_pairs(tried(cd=2e9), HostNetwork(dict.fromkeys(HOSTS, TEN)))
    assert of_pair(above, "cd").verdict.state == "suspicious"


def test_nothing_is_slow_where_hosts_share_cpus_and_unknown_without_a_port():
    shared = judge_pairs(tried(ab=0.1e9), HostNetwork(dict.fromkeys(HOSTS, TEN), compare=False))
    assert not any(one.is_slow for one in shared)
    assert of_pair(shared, "ab").verdict.state == "unknown"
    assert "share CPUs" in of_pair(shared, "ab").verdict.why
    blind = judge_pairs(tried(ab=0.1e9), HostNetwork({}))
    assert {one.verdict.state for one in blind} == {"unknown"}
    assert of_pair(blind, "ab").is_slow  # compared with its siblings
    assert "--cluster" in blind[0].verdict.needs


def test_a_pair_that_brought_nothing_failed_and_one_try_alone_accuses_nobody():
    lost = [PairTried("a", "b", ()), *tried()[1:]]
    assert of_pair(judge_pairs(lost, HostNetwork({})), "ab").verdict.state == "failed"
    once = [PairTried(one.source, one.destination, one.values[:1]) for one in tried(ab=0.1e9)]
    first = of_pair(judge_pairs(once, HostNetwork({})), "ab")
    assert (first.standing, first.is_slow) == ("behind", False)


def test_where_uplinks_are_shared_a_pair_is_held_against_its_share():
    joined = HostNetwork(dict.fromkeys(HOSTS, TEN))
    (half,) = judge_pairs([PairTried("a", "b", (0.57e9,), 0.5)], joined)
    assert half.limit == pytest.approx(PAYLOAD / 2, rel=0.03)
    assert half.verdict.state == "ok"


def test_a_host_that_is_slow_with_everybody_is_behind_and_its_partners_are_not():
    slow = dict.fromkeys(("ab", "ac", "ad"), 300000000.0)
    paths = summarize_hosts(judge_pairs(tried(**slow), HostNetwork({})))
    found = {host: Diagnosis(points=(), paths=own, findings=(), exit_status=0) for host, own in paths.items()}
    table = host_table(found)
    assert [host.name for host in table.hosts if host.behind] == ["a"]
    assert [table.columns[cell.column].path for cell in table.hosts[0].behind] == ["host>others"]


def test_several_ports_of_unlike_rates_give_a_limit_and_no_band_unless_one_is_named():
    def port(of, name):
        nic, link = of.ports_out[0]
        return type(nic)(**{**_fields(nic), "id": name, "facts": {"netdev": name}}), _moved(link, name)

    nics = [port(TEN, "nic0"), port(FAST, "nic1")]
    both = type(TEN)(name="both", source="live", devices=(*[nic for nic, _ in nics], *TEN.of_kind("fabric")),
                     links=tuple(link for _, link in nics))  # fmt: skip
    one = PairTried("a", "b", (0.5e9,))
    (any_port,) = judge_pairs([one], HostNetwork({"a": both, "b": both}))
    assert any_port.limit == pytest.approx(400e9 / 8, rel=0.06)
    assert any_port.verdict.state == "unknown"
    (named,) = judge_pairs([one], HostNetwork({"a": both, "b": both}, ("nic0",)))
    assert named.limit == pytest.approx(PAYLOAD, rel=0.03)
    assert named.verdict.state == "slow"


def _fields(record) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _moved(link, name: str):
    return type(link)(**{**_fields(link), "a": name})


def test_collectives_are_held_against_all_ports_and_the_slowest_measured_pair():
    joined = HostNetwork(dict.fromkeys(HOSTS, TEN))
    fabric = joined.fabric(HOSTS, judge_pairs(tried(ab=0.9e9), joined))
    assert fabric is not None
    assert (fabric.flow_bytes_per_s, fabric.measured) == (0.9e9, True)
    finder = LimitFinder(TEN, (), DECLARATIONS, fabric=fabric)
    point = Result(benchmark="mpi_all_reduce", quantity="bandwidth_bytes_per_s", path="memory0@0>memory0@3", ranks=4,
                   hosts=4, parameters={"size_bytes": 1 << 24, "rate": "busbw"})  # fmt: skip
    limit, band = finder.find(point)
    assert limit.value == pytest.approx(PAYLOAD, rel=0.03)
    assert 0 < band.low < 0.9e9
    assert joined.fabric(HOSTS, judge_pairs([PairTried("a", "b", ())], joined)) is None
    assert HostNetwork({"a": TEN}).fabric(HOSTS, judge_pairs(tried(), joined)) is None


def test_suspects_by_rate_are_doubted_where_hosts_share_cpus():
    common = {"kind": "host", "direction": "both", "capacity": 0.5, "confidence": 0.9, "tests": 3, "evidence": ""}
    slow, dead = Suspect(id="a", verdict="slow", **common), Suspect(id="b", verdict="silent", **common)
    assert filter_suspects([slow, dead], compare=True) == ((slow, dead), ())
    kept, said = filter_suspects([slow, dead], compare=False)
    assert kept == (dead,)
    assert said[0].startswith("host a was at 50% of its rate")
    assert filter_suspects([slow, dead], compare=False, cpus_suffice=True) == ((slow, dead), ())
    nearly = Suspect(id="a", verdict="slow", **common | {"capacity": 0.7})
    assert filter_suspects([nearly], compare=False, cpus_suffice=True)[0] == ()


def test_links_limited_the_flows_if_those_of_others_than_the_suspect_agree():
    suspect = Suspect(
        kind="nic", id="c:gpu0", direction="up", capacity=0.33, verdict="slow", confidence=0.9, tests=3, evidence=""
    )
    ends = [(f"{one}:gpu0", f"{two}:gpu0") for one, two in permutations(HOSTS, 2)]
    uniform = [(*pair, 0.33 if pair[0] == "c:gpu0" else 0.97) for pair in ends]
    assert are_limited_by_links(uniform, [suspect])
    assert not are_limited_by_links(uniform, []), "the slow flows count without a suspect"
    uneven = [(*pair, 0.3 + 0.06 * number) for number, pair in enumerate(ends)]
    assert not are_limited_by_links(uneven, [suspect])
    assert not are_limited_by_links([], [suspect])
    two = [("c:gpu0", "d:gpu0", 0.33), ("d:gpu0", "c:gpu0", 0.97)] * 3
    assert are_limited_by_links(two, [suspect]), "what a slow sender receives still counts"


RDMA = machine()
PORTS = {"a": "mlx5_0+mlx5_1", "b": "mlx5_0+mlx5_1", "c": "mlx5_0"}
"""The RDMA ports of three of the hosts; the fourth has none."""
PORT = 400e9 / 8 * 4096 / 4122
"""The payload of InfiniBand at 400 Gb/s."""


def by_rdma(rate: float = 0.98, **other: float | str) -> list[PairTried]:
    """Build two tries of every pair of the hosts with RDMA, at a share of their ports: `ab=...`, or its trouble."""
    found = []
    for one, two in permutations(PORTS, 2):
        told = other.get(one + two, rate)
        ports = PORTS[one], PORTS[two]
        lanes = min(port.count("+") + 1 for port in ports)
        is_rate = not isinstance(told, str)
        values = (told * lanes * PORT,) * 2 if is_rate else ()
        found.append(PairTried(one, two, values, 1.0, ports, 4096, "" if is_rate else told))
    return found


def judged(rdma: list[PairTried], not_tried: str = "", **other: float):
    machines = dict.fromkeys(HOSTS, RDMA)
    return judge_by_both(tried(3e9, **other), rdma, HostNetwork(machines), not_tried)


def test_rdma_judges_a_pair_over_all_its_near_ports_with_tcp_beside():
    pairs = judged(by_rdma())
    both, one = of_pair(pairs, "ab"), of_pair(pairs, "ac")
    assert (both.by, both.verdict.state, both.tcp_value) == ("rdma", "ok", 3e9)
    assert both.limit == pytest.approx(2 * PORT, rel=0.01)
    assert one.limit == pytest.approx(PORT, rel=0.01), "the other host has one port"
    assert one.verdict.state == "ok"
    alone = of_pair(pairs, "ad")
    assert (alone.by, alone.value, alone.tcp_value) == ("tcp", 3e9, None)
    assert len(pairs) == 12


def test_a_pair_slow_by_rdma_is_slow_however_well_tcp_does():
    slow = of_pair(judged(by_rdma(ab=0.5)), "ab")
    assert (slow.verdict.state, slow.tcp_value) == ("slow", 3e9)


def test_rdma_that_brings_nothing_has_failed_whatever_tcp_brings():
    why = "b:mlx5_0: RDMA port mlx5_0:1 is not active"
    failed = of_pair(judged(by_rdma(ab=why)), "ab")
    assert failed.verdict.state == "failed"
    assert failed.verdict.why == f"no data arrived by RDMA: {why}; TCP moved 3.00 GB/s"
    (some,) = [
        replace(one, trouble="retry exceeded") for one in by_rdma() if (one.source, one.destination) == ("a", "b")
    ]
    broke = of_pair(judged([some]), "ab")
    assert (broke.verdict.state, broke.value) == ("failed", some.values[0])
    assert broke.verdict.why == "no data arrived by RDMA in some tries: retry exceeded; TCP moved 3.00 GB/s"
    untried = judged([replace(one, values=()) for one in by_rdma()], "mpirun is not found")
    assert {one.verdict.state for one in untried if one.by == "rdma"} == {"unknown"}
    assert "mpirun is not found" in of_pair(untried, "ab").verdict.why


def test_collectives_over_tcp_are_held_against_tcp_and_columns_against_their_like():
    joined = HostNetwork(dict.fromkeys(HOSTS, RDMA))
    pairs = judge_by_both(tried(3e9, ab=2e9), by_rdma(), joined)
    fabric = joined.fabric(HOSTS, pairs)
    assert fabric is not None
    assert fabric.flow_bytes_per_s == 2e9
    columns = {(path.path, path.parameters.get("by")) for path in summarize_hosts(pairs)["a"]}
    assert columns == {("host>others", "rdma"), ("others>host", "rdma"), ("host>others", None), ("others>host", None)}
