"""Ranks in network namespaces that are given by name, like those of pods: their traffic crosses the veth."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from tests.stand_ins import build

pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root")]

# An HPL that reads the file that `--dat` names, as NVIDIA's does. Both ranks must have it.
USER_HPL = """#!/bin/sh
[ "$1" = --dat ] && [ -s "$2" ] || exit 3
[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0
echo 'HPL-NVIDIA 24.06.0'
echo 'Prog= 50.00%'
echo 'T/V                N    NB     P     Q               Time                 Gflops'
echo 'WR11C2R4          64     8     1     2               0.10             1.8091e-03'
echo '||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   4.40000000e-03 ...... PASSED'
"""

QUICK = ("-o", "sizes=9K", "--force")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[str, str]]:
    """Two namespaces joined by a veth, `net1` in both. `net2` exists only in the first."""
    names = tuple(f"rwt-ns-{os.getpid()}-{number:04x}" for number in (1, 2))
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", "net1", "netns", names[0], "type", "veth", "peer", "name", "net1", "netns", names[1])
        ip("-n", names[0], "link", "add", "net2", "type", "veth", "peer", "name", "net3")
        ip("-n", names[0], "address", "add", "198.51.100.1/24", "dev", "net2")
        for face in ("net2", "net3"):
            ip("-n", names[0], "link", "set", face, "up")
        for number, name in enumerate(names, 1):
            ip("-n", name, "address", "add", f"192.0.2.{number}/24", "dev", "net1")
            ip("-n", name, "link", "set", "net1", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def hosts(pair: tuple[str, str]) -> str:
    return ",".join(f"netns:{name}" for name in pair)


def test_what_ranks_send_crosses_the_interface_that_both_have(railwright, pair):
    done = railwright("run", "mpi_all_reduce", "--hosts", hosts(pair), *QUICK)
    assert done.status == 3, done.err  # the limit between hosts is unknown
    result = railwright.results("mpi_all_reduce")[0]
    assert (result.outcome, result.hosts, result.ranks) == ("measured", 2, 2), result.reason
    assert result.verification.bytes_wrong == 0
    assert (result.settings["hosts"], result.settings["reached_by"]) == (",".join(pair), "namespaces")
    (seen,) = [evidence for evidence in result.evidence if evidence.claim == "transport"]
    assert (seen.value, seen.seen.split(" of ")[0]) == ("tcp", "net1"), seen.seen
    railwright.expect_nothing_left()


def test_a_user_s_hpl_runs_on_several_hosts_with_its_input(railwright, pair, tmp_path):
    program = tmp_path / "hpl.sh"
    program.write_text(USER_HPL)
    program.chmod(0o755)
    words = ("run", "hpl", "--hosts", hosts(pair), "-o", f"program={program}", "-o", "n=64", "-o", "nb=8", "--force")
    done = railwright(*words)
    (only,) = railwright.results("hpl")
    assert (only.outcome, only.hosts, only.ranks) == ("measured", 2, 2), only.reason or done.err
    assert (only.settings["solver"], only.settings["scaled_residual"]) == ("program", 0.0044)
    railwright.expect_nothing_left()


def test_nixl_finds_its_way_between_namespaces_of_one_machine(railwright, pair):
    words = ("run", "kv_transfer", "--hosts", hosts(pair), "-o", "sizes=4K", "-o", "operations=WRITE", "--force")
    done = railwright(*words)
    assert done.status == 3, done.err
    block = next(one for one in railwright.results("kv_transfer") if "size_bytes" in one.parameters)
    assert block.outcome == "measured", block.reason
    assert {one.claim: one.value for one in block.evidence} == {"ucx_protocol": "tcp/net1", "transport": "tcp"}


def test_a_namespace_that_gets_no_packet_is_an_error_with_its_name(railwright, pair):
    ip("-n", pair[1], "address", "del", "192.0.2.2/24", "dev", "net1")
    ip("-n", pair[1], "address", "add", "203.0.113.2/24", "dev", "net1")
    try:
        done = railwright("run", "mpi_all_reduce", "--hosts", hosts(pair), *QUICK)
    finally:
        ip("-n", pair[1], "address", "del", "203.0.113.2/24", "dev", "net1")
        ip("-n", pair[1], "address", "add", "192.0.2.2/24", "dev", "net1")
    assert done.status == 3
    assert f"{pair[1]} cannot be reached from {pair[0]}: it has no route there" in done.message()
    assert not railwright.results()


def test_namespaces_without_a_common_interface_are_told_so(railwright, pair):
    ip("-n", pair[1], "link", "set", "net1", "down")
    try:
        done = railwright("run", "mpi_all_reduce", "--hosts", hosts(pair), *QUICK)
    finally:
        ip("-n", pair[1], "link", "set", "net1", "up")
    assert done.status == 2
    assert f"{pair[0]} and {pair[1]} have no interface of the same name" in done.message()


def test_a_namespace_in_which_ranks_would_wait_for_ever_is_an_error(railwright, pair):
    ip("-n", pair[1], "link", "set", "lo", "down")
    try:
        done = railwright("run", "mpi_all_reduce", "--hosts", hosts(pair), *QUICK)
    finally:
        ip("-n", pair[1], "link", "set", "lo", "up")
    assert done.status == 3
    assert f"{pair[1]}: lo is down" in done.message()
    assert f"hint: ip -n {pair[1]} link set lo up" in done.message()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--hosts", "netns:rwt-no-such,netns:{1}"), "there is no network namespace named 'rwt-no-such'"),
        (("--hosts", "netns:{0},{1}"), "hosts must all be netns:NAME or none, got"),
        (("--hosts", "netns:{0},netns:{0}"), "is given twice"),
        (("--hosts", "netns:{0},netns:../../etc"), "host must be a name or an address, got"),
        (("--hosts", "netns:{0},netns:-n"), "host must be a name or an address, got"),
        (("--hosts", "netns:{0},netns:{1}", "--lab", "lab"), "--lab does not apply to network namespaces"),
        (("--hosts", "netns:{0},netns:{1}", "--ssh-config", "/none"), "--ssh-config does not apply to network"),
    ],
)
def test_words_that_name_no_two_namespaces_are_refused(answer, pair, words, message):
    done = answer("run", "mpi_all_reduce", *(word.format(*pair) for word in words))
    assert done.status == 2
    assert message in done.message()


def test_each_host_is_screened_by_itself_and_a_broken_one_costs_itself_alone(railwright, pair, tmp_path):
    library = tmp_path / "libscalapack.so"
    build("scalapack.c", library)
    broken = f"rwt-ns-{os.getpid()}-none"
    ip("netns", "add", broken)
    try:
        asked = ("-o", "n=96", "-o", "nb=10", "-o", "threads=1", "-o", f"library={library}", "--force")
        done = railwright("run", "hpl", "--screen", "--hosts", f"{hosts(pair)},netns:{broken}", *asked)
    finally:
        ip("netns", "delete", broken)
    assert done.status == 3, done.err
    found = {(one.parameters["host"], one.parameters.get("part")): one for one in railwright.results("hpl")}
    assert {name for name, _ in found} == {*pair, broken}
    for name in pair:
        assert [found[name, part].outcome for part in (None, "dgemm")] == ["measured", "measured"]
        assert found[name, None].hosts == found[name, None].ranks == 1
    assert found[broken, None].outcome == "failed"
    assert broken in found[broken, None].reason
    order = [line.split()[1] for line in done.out.partition("the fastest first")[2].splitlines() if " rwt-ns" in line]
    assert order[4] == broken
    railwright.expect_nothing_left()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hpl", "--screen"), "--screen requires --hosts"),
        (("mpi_latency", "--screen", "--hosts", "a,b"), "mpi_latency cannot measure each of several hosts separately"),
    ],
)
def test_what_cannot_be_screened_is_refused(answer, words, said):
    done = answer("run", *words)
    assert done.status == 2
    assert said in done.message()
