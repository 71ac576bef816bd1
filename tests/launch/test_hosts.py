"""Ranks on several hosts of a real lab, reached by namespace and by plain ssh: their traffic crosses the lab, and
however a launch ends, it leaves no process or file in any namespace.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import COMMAND, PATIENCE_S, Driver, wait_until

from railwright.lab import build, remove, ssh, state
from railwright.lab.faults.applied import apply, heal
from railwright.lab.faults.registry import find_fault
from railwright.lab.plan import PlanOptions, plan
from railwright.lab.state import Lab
from railwright.lab.wait import wait_settled
from railwright.launch.scratch import sweep
from railwright.topology.cluster import build_cluster
from railwright.topology.sources.load import load

needs_sshd = pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="waived: openssh-server is not installed")
pytestmark = [pytest.mark.machine, pytest.mark.skipif(os.geteuid() != 0, reason="waived: a lab needs root"), needs_sshd]

QUICK = ("-o", "mpi_all_reduce.sizes=9K", "--force")
BLOCK = ("-o", "kv_transfer.sizes=4K", "-o", "operations=WRITE", "--force")
# The first result comes at once, and the second size takes minutes.
ENDLESS = ("run", "mpi_bandwidth", "-o", "pages=small", "-o", "sizes=8,4M", "--alone", "--force")
RATE_BYTES_PER_S = 200e6 / 8
WAYS = ("namespaces", "ssh")


@dataclass
class Hosts:
    """A lab whose hosts run ranks."""

    lab: Lab

    def words(self, way: str, railwright: Driver, *arguments: str, hosts: str = "host0,host2") -> list[str]:
        """Return the command line of a run on hosts of the lab. Over ssh, the run is started on the first host."""
        if way == "namespaces":
            return [*arguments, "--lab", self.lab.name, "--hosts", hosts]
        config = str(ssh.config_path(self.lab))
        inside = ["lab", "exec", "--name", self.lab.name, "host0", "--", COMMAND]
        return [*inside, *arguments, "--hosts", hosts, "--ssh-config", config, "-O", str(railwright.output)]

    def processes(self) -> dict[int, str]:
        """Return all processes in namespaces of the lab."""
        found = {}
        for pid in remove.find_processes(self.lab.namespace(node.name) for node in self.lab.plan.nodes):
            try:
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:  # it ended meanwhile
                continue
        return found

    def ranks(self) -> list[int]:
        return [pid for pid, words in self.processes().items() if "-m railwright.launch.rank" in words[:200]]

    def put(self, words: str) -> None:
        name, *rest = words.split()
        apply(self.lab, find_fault(name), rest)


def made(name: str, **options: object) -> Iterator[Hosts]:
    cluster = build_cluster(load("hgx-h100 nics=1"), 4)
    lab = build.up(
        plan(cluster, PlanOptions(name=f"{name}{os.getpid()}", ssh=True, **options)), settle_within_s=PATIENCE_S
    )
    hosts = Hosts(lab)
    daemons = hosts.processes()
    assert sum("sshd" in words for words in daemons.values()) == 4
    try:
        yield hosts
    finally:
        remove.down(lab.name)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in daemons), "the end of every daemon")
    assert not (state.LABS / lab.name).exists()


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """4 hosts, 2 leaves, 2 spines, one NIC of 200 Mb/s in each host; IPv4 and IPv6."""
    yield from made("ranks")


@pytest.fixture(scope="module")
def hosts_of_ipv6() -> Iterator[Hosts]:
    yield from made("six", ipv6_only=True)


@pytest.fixture
def mended(hosts: Hosts) -> Iterator[Hosts]:
    """The same lab. After a test, its faults are removed and all routes are restored."""
    yield hosts
    heal(hosts.lab)
    with ThreadPoolExecutor(2) as executor:
        wait_settled(hosts.lab, executor, PATIENCE_S)


@pytest.fixture
def daemons(hosts: Hosts) -> dict[int, str]:
    """The processes in the lab before a launch, those of FRR and sshd."""
    return hosts.processes()


def expect_nothing_left(hosts: Hosts, daemons: dict[int, str], railwright: Driver) -> None:
    """sshd's sessions end shortly after their commands. The next launch on a host removes a killed rank's folder."""
    wait_until(lambda: set(hosts.processes()) <= set(daemons), "an end of all that the launch started")
    assert set(daemons) <= set(hosts.processes()), "a daemon of the lab was ended, too"
    sweep()
    railwright.expect_nothing_left()


def bandwidth(railwright: Driver, benchmark: str = "mpi_all_reduce") -> float:
    """Return the rate at the largest size. Assert that the bytes were verified and crossed the lab."""
    results = [one for one in railwright.results(benchmark) if one.quantity == "bandwidth_bytes_per_s"]
    for one in results:
        assert one.outcome == "measured", one.reason
        assert one.hosts == 2
        assert one.verification.bytes_wrong == 0
        (seen,) = [evidence for evidence in one.evidence if evidence.claim == "transport"]
        assert seen.value == "tcp", seen.seen
        assert re.match(r"rail0 of host0, host2 sent ", seen.seen), seen.seen
    return results[-1].summary.median


@pytest.mark.parametrize("way", WAYS)
def test_what_ranks_send_crosses_the_links_of_the_lab(railwright, hosts, daemons, way):
    done = railwright(*hosts.words(way, railwright, "run", "mpi_all_reduce", "memory_copy", *QUICK))
    assert done.status == 3, done.err  # the limit between hosts is unknown
    assert "Traceback" not in done.err
    assert bandwidth(railwright) < 1.02 * RATE_BYTES_PER_S
    first = railwright.results("mpi_all_reduce")[0]
    assert first.path == "memory0@0>memory0@1"
    assert (first.settings["hosts"], first.ranks) == ("host0,host2", 2)
    (alone,) = railwright.results("memory_copy")
    assert (alone.outcome, alone.reason) == ("waived", "it measures within one host: leave out --hosts")
    expect_nothing_left(hosts, daemons, railwright)


def test_a_slow_link_of_the_lab_changes_the_figure(railwright, mended):
    slow_bytes_per_s = 40e6 / 8
    mended.put("link_slow leaf0 host0 rate=40Mb/s")
    railwright(*mended.words("namespaces", railwright, "run", "mpi_all_reduce", *QUICK))
    assert bandwidth(railwright) < 1.02 * slow_bytes_per_s


def test_nixl_moves_a_kv_block_from_host_to_host(railwright, hosts):
    done = railwright(
        *hosts.words("namespaces", railwright, "run", "kv_transfer", *BLOCK, "-o", "metadata=socket,mpi"),
    )
    assert done.status == 3, done.err
    exchanged = {one.parameters["metadata"] for one in railwright.results() if "metadata" in one.parameters}
    assert exchanged == {"socket", "mpi"}
    expect_block_moved(railwright)


@pytest.mark.parametrize("way", WAYS)
def test_mpich_runs_over_the_same_hosts(railwright, hosts, daemons, mpiruns, way):
    words = ("run", "mpi_all_reduce", *QUICK, "--mpirun", mpiruns["mpich"])
    done = railwright(*hosts.words(way, railwright, *words))
    assert done.status == 3, done.err
    assert bandwidth(railwright) < 1.02 * RATE_BYTES_PER_S
    expect_nothing_left(hosts, daemons, railwright)


def expect_block_moved(railwright: Driver) -> None:
    """Assert that UCX reports TCP over the host's port, and that the port's counter agrees."""
    blocks = [one for one in railwright.results("kv_transfer") if "size_bytes" in one.parameters]
    assert [one.outcome for one in blocks] == ["measured"], [one.reason for one in blocks]
    assert blocks[0].verification.bytes_wrong == 0
    assert {one.claim: one.value for one in blocks[0].evidence} == {"ucx_protocol": "tcp/rail0", "transport": "tcp"}


def test_ranks_meet_where_there_is_ipv6_only(railwright, hosts_of_ipv6):
    port = hosts_of_ipv6.lab.plan.node("host0").rails[0]
    assert (port.addresses_v4, len(port.addresses_v6)) == ((), 2)
    words = ("run", "mpi_all_reduce", "kv_transfer", *QUICK, *BLOCK)
    done = railwright(*hosts_of_ipv6.words("namespaces", railwright, *words))
    assert done.status == 3, done.err
    assert bandwidth(railwright) < 1.02 * RATE_BYTES_PER_S
    expect_block_moved(railwright)


def test_four_ranks_on_each_of_two_hosts_meet_over_ipv6_by_ssh(railwright, hosts_of_ipv6):
    done = railwright(*hosts_of_ipv6.words("ssh", railwright, "run", "mpi_all_gather", "--ranks-per-host", "4",
                                           "-o", "sizes=64K", "--force"))  # fmt: skip
    assert done.status == 3, done.err
    result = railwright.results("mpi_all_gather")[0]
    assert (result.outcome, result.ranks, result.hosts) == ("measured", 8, 2), result.reason
    assert result.settings["functional"] is True
    assert result.evidence[0].value == "tcp", result.evidence


def test_mpich_says_why_it_cannot_start_over_ipv6(railwright, hosts_of_ipv6, mpiruns):
    words = ("run", "mpi_all_reduce", *QUICK, "--mpirun", mpiruns["mpich"])
    done = railwright(*hosts_of_ipv6.words("namespaces", railwright, *words))
    assert done.status == 3
    assert re.search(r"address must not contain colons for MPICH's launcher, got fd72:", done.message())


@pytest.fixture(params=WAYS)
def busy(request, railwright, hosts, daemons):
    """A run that has its first result, and whose ranks measure the second size."""
    process = railwright.start(*hosts.words(request.param, railwright, *ENDLESS))
    wait_until(lambda: railwright.results() and len(hosts.ranks()) == 2, "a first result of two ranks")
    return process


def test_a_rank_that_is_killed_is_named_and_takes_the_others_along(railwright, hosts, daemons, busy):
    victim = hosts.ranks()[-1]
    os.kill(victim, signal.SIGKILL)
    done = railwright.finish(busy)
    assert done.status == 3, done.err
    kept, failed = railwright.results("mpi_bandwidth")
    assert (kept.outcome, failed.outcome) == ("measured", "failed")
    named = r"rank [01] \(host host[02], pid \d+\) at step 'mpi_bandwidth 4 MiB, small pages' "
    assert re.match(named, failed.reason), failed.reason
    expect_nothing_left(hosts, daemons, railwright)


def test_ctrl_c_leaves_nothing_in_any_namespace(railwright, hosts, daemons, busy):
    busy.send_signal(signal.SIGINT)
    done = railwright.finish(busy)
    assert "Traceback" not in done.err
    assert railwright.ends()[1].interrupted
    expect_nothing_left(hosts, daemons, railwright)


def test_a_killed_parent_leaves_no_process_in_any_namespace(railwright, hosts, daemons, busy):
    busy.kill()
    busy.wait()
    wait_until(lambda: set(hosts.processes()) <= set(daemons), "the end of mpirun and all ranks")
    assert set(daemons) <= set(hosts.processes())


@pytest.mark.parametrize("way", WAYS)
def test_a_host_that_cannot_be_reached_is_an_error_with_its_name(railwright, mended, way):
    mended.put("link_down host2 leaf1")
    wait_until(lambda: no_route(mended.lab), "the withdrawal of its routes")
    done = railwright(*mended.words(way, railwright, "run", "mpi_all_reduce", *QUICK, hosts="host0,host1,host2"))
    assert done.status == 3
    why = "it has no route there" if way == "namespaces" else "ssh: connect to host .* Network is unreachable"
    assert re.search(rf"railwright: host2.*{why}", done.message()), done.message()
    assert "host1" not in done.message()
    assert not railwright.results()


def no_route(lab: Lab) -> bool:
    loopback = lab.plan.node("host2").loopback_v4
    rail = lab.plan.node("host2").rails[0].addresses_v4[0]
    return all(lab.run("host0", ["ip", "route", "get", address]).returncode for address in (loopback, rail))


def test_a_host_that_lets_nobody_in_is_an_error_with_its_cause(railwright, hosts, tmp_path):
    key = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    config = tmp_path / "config"
    text = ssh.config_path(hosts.lab).read_text()
    config.write_text(re.sub(r"IdentityFile .*", f"IdentityFile {key}", text))
    words = hosts.words("ssh", railwright, "run", "mpi_all_reduce", *QUICK)
    words[words.index("--ssh-config") + 1] = str(config)
    done = railwright(*words)
    assert done.status == 3
    assert re.search(r"^  host0: root@10\.255\.0\.1: Permission denied", done.err, re.MULTILINE), done.err
    assert re.search(r"hint: try: \S+ssh -F ", done.message()), done.message()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--hosts", "host0,host2", "--lab", "nothere"), "lab"),
        (("--hosts", "host0,leaf0"), "leaf0 is a leaf"),
        (("--hosts", "host0,host9"), "no node in lab"),
        (("--hosts", "host0"), "--hosts must name 2 to 512 hosts, got 1"),
        (("--hosts", "host0,host0"), "given twice"),
        (("--hosts", "host0,-oProxyCommand=x"), "host must be a name or an address, got"),
        (("--hosts", "host0,a b"), "host must be a name or an address, got"),
        (("--ranks-per-host", "4"), "requires --hosts"),
        (("--hosts", "host0,host1", "-o", "transports=shm"), "shared memory does not work between hosts"),
        (("--hosts", "host0,host1", "-o", "ranks=5"), "ranks is 5 for mpi_all_reduce"),
        (("--hosts", "host0,host1", "--interfaces", "a/b"), "interface must be a name, got"),
        (("--hosts", "host0,host1", "--ssh-config", "/none"), "--ssh-config exclude each other"),
    ],
)
def test_words_that_make_no_launch_are_refused(answer, hosts, words, message):
    lab = () if "--lab" in words or "--ranks-per-host" in words else ("--lab", hosts.lab.name)
    done = answer("run", "mpi_all_reduce", *words, *lab)
    assert done.status == 2
    assert message in done.message()


def test_only_the_key_of_the_lab_opens_its_hosts_and_nobody_else_can_read_it(hosts):
    folder = ssh.config_path(hosts.lab).parent
    private = [folder, *folder.glob("**/host_key"), folder / "id_ed25519", folder / "config"]
    assert len(private) == 3 + len(hosts.lab.plan.of_kind("host"))
    assert {path.stat().st_mode & 0o077 for path in private} == {0}
    assert {path.stat().st_uid for path in folder.rglob("*")} == {0}
    listening = hosts.lab.run("host0", ["ss", "-Hltn"]).output
    own = {line.split()[3] for line in listening if line.split()[3].endswith(":22")}
    assert own == {"10.255.0.1:22", "[fd72:6169:6c00:ff00::1]:22"}
