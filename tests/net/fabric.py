"""A fabric with pods, real Open vSwitch and FRR. node/test/lab runs it until its standard input is closed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import COMMAND, PATIENCE_S, ROOT, wait_until

from railwright.process import die_with_parent

_UP_S = 600.0  # includes building the daemon, the plugins and ovs-cni
_NEEDED = ("go", "ovs-vswitchd", "nft", "ethtool")

needs_fabric = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/lib/frr/bgpd").exists() or any(shutil.which(one) is None for one in _NEEDED),
    reason="waived: a fabric with pods needs root, Go, Open vSwitch, FRR, nftables and ethtool",
)

Line = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """The output of `railwright net check`."""

    status: int
    lines: tuple[Line, ...]
    err: str

    def of(self, interface: str, state: str) -> dict[str, Line]:
        """Return the lines of an interface in the given state, by check."""
        return {line["check"]: line for line in self.lines if line["interface"] == interface and line["state"] == state}

    def words(self) -> str:
        """Return the output as a message for a failed test."""
        return "\n".join(f"{one['interface']} {one['state']} {one['check']}: {one['says']}" for one in self.lines)


class Fabric:
    """Two nodes and two rails. The first node has two pods of tenant red and one of another, the second one of red."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told
        self.node = told["nodes"][0]
        self.pods = [pod for pod in told["pods"] if pod["node"] == self.node["name"]]
        self.pod = self.pods[0]
        self.stranger = next(pod for pod in self.pods if pod["tenant"] != self.pod["tenant"])
        self.remote = next(pod for pod in told["pods"] if pod["node"] != self.node["name"])
        self.restarted: list[subprocess.Popen[bytes]] = []
        self.leaf = {leaf["rail"]: leaf for leaf in told["leaves"]}

    @cached_property
    def daemon(self) -> list[str]:
        """The options that name the daemon."""
        where = {name: self.node[name] for name in ("socket", "config")}
        where |= {"railwrightd": self.told["railwrightd"], "vty-socket": self.node["frr"]["folder"]}
        where |= {"cni-results": self.node["cni_results"]}
        return [f"--{name}={path}" for name, path in where.items()]

    @cached_property
    def all_ends(self) -> list[str]:
        """The options that name the remote pod and the leaves, so that every check can look."""
        to = [f"--to={one[family]}" for one in self.remote["interfaces"] for family in ("ipv4", "ipv6")]
        return [*to, *(f"--leaf-netns={rail}={leaf['netns']}" for rail, leaf in self.leaf.items())]

    def argv(self, *words: str) -> list[str]:
        """Return the command line of `net check` on the first node."""
        return ["ip", "netns", "exec", self.node["netns"], COMMAND, "net", "check", *words]

    def check(self, *words: str, pod: str | None = None, daemon: bool = True) -> Answer:
        """Run `net check` for the first pod or for `pod`, with further arguments."""
        which = [] if pod == "" else ["--pod", pod or f"{self.pod['namespace']}/{self.pod['name']}"]
        argv = self.argv(*which, *(self.daemon if daemon else []), *words, "--json")
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S)
        assert "Traceback" not in done.stderr, done.stderr
        records = [json.loads(line) for line in done.stdout.splitlines()]
        lines = tuple(record for record in records if record["record"] == "net_check")
        if lines:
            assert records[-1] == {"record": "exit", "exit_status": done.returncode}
        return Answer(done.returncode, lines, done.stderr)

    def inside(self, pod: dict[str, Any], *argv: str) -> str:
        """Run a command in a pod."""
        return ip_netns(pod["netns"], *argv)

    def ofctl(self, rail: int, *words: str) -> str:
        """Run a command of ovs-ofctl on a rail's bridge of the first node."""
        verb, *rest = words
        strict = ["--strict"] if verb == "mod-flows" else []
        bridge = f"unix:{self.node['openvswitch']['folder']}/{self.node['rails'][rail]['bridge']}.mgmt"
        return run("ovs-ofctl", "-O", "OpenFlow14", *strict, verb, bridge, *rest)

    def vtysh(self, *commands: str) -> None:
        """Run vtysh commands on the first node."""
        run(*self.node["frr"]["vtysh"], *(word for one in commands for word in ("-c", one)))

    @contextlib.contextmanager
    def without_daemon(self) -> Iterator[None]:
        """Stop the first node's daemon. Afterwards, start it again and wait until it answers."""
        os.kill(self.node["daemon_pid"], signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{self.node['daemon_pid']}/exe").exists(), "the daemon has ended")
        try:
            yield
        finally:
            argv = [
                "ip",
                "netns",
                "exec",
                self.node["netns"],
                self.told["railwrightd"],
                "--config",
                self.node["config"],
            ]
            nowhere = subprocess.DEVNULL
            daemon = subprocess.Popen(argv, stdout=nowhere, stderr=nowhere, preexec_fn=die_with_parent)
            self.restarted.append(daemon)
            self.node["daemon_pid"] = daemon.pid
            wait_until(lambda: self.settled() or daemon.poll(), "the daemon serves its rails")

    def settled(self) -> bool:
        """Report whether, according to the daemon, all rails are healthy and all addresses are advertised."""
        ready = subprocess.run(self.asks("status"), capture_output=True, timeout=PATIENCE_S).returncode == 0
        return ready and all(one["advertised"] for one in self.attached())

    def attached(self) -> list[dict[str, Any]]:
        """Return the first node's attachments, as the daemon lists them."""
        found: list[dict[str, Any]] = json.loads(run(*self.asks("list")))["attached"]
        return found

    def asks(self, verb: str) -> list[str]:
        """Return the command line that queries the first node's daemon. `flows` works without it."""
        option = "config" if verb == "flows" else "socket"
        return [self.told["railwrightd"], verb, "--json", f"--{option}", self.node[option]]


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def ip_netns(netns: str, *argv: str) -> str:
    return run("ip", "netns", "exec", netns, *argv)


@contextlib.contextmanager
def held_fabric(folder: Path) -> Iterator[Fabric]:
    """Build the program of node/test/lab, and run its fabric."""
    program, told = folder / "fabric.test", folder / "fabric.json"
    build = ["go", "-C", str(ROOT / "node"), "test", "-c", "-o", str(program), "./test/lab"]
    done = subprocess.run(build, capture_output=True, text=True, timeout=_UP_S)
    assert done.returncode == 0, done.stdout + done.stderr
    environment = {**os.environ, "RAILWRIGHT_HOLD": str(told), "RAILWRIGHT_HOLD_FRR": "8"}
    with (folder / "fabric.log").open("w+") as log:
        held = subprocess.Popen(
            [str(program), "-test.run=^TestHold$", "-test.timeout=30m"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=ROOT / "node/test/lab",
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        try:
            wait_until(lambda: told.exists() or held.poll() is not None, "the fabric is up", _UP_S)
            log.seek(0)
            assert told.exists(), log.read()
            fabric = Fabric(json.loads(told.read_text()))
            try:
                yield fabric
            finally:
                for daemon in fabric.restarted:
                    daemon.kill()
                    daemon.wait()
        finally:
            assert held.stdin is not None
            held.stdin.close()
            try:
                held.wait(60)
            finally:
                held.kill()
                held.wait()
