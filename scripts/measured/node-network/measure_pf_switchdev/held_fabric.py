"""The fabric of node/test/lab, kept up by a child process: leaves, a spine, nodes with railwrightd, and pods."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
UP_WITHIN_S = 180.0
DOWN_WITHIN_S = 60.0
TENANT = "red-1"
MOST_URGENT_NICE = -20


@dataclass(frozen=True)
class Fabric:
    """The child's description of the fabric: see node/test/lab/hold_test.go."""

    told: dict[str, Any]

    def pods(self) -> tuple[str, str]:
        """Return the namespaces of two pods of the same tenant on two nodes."""
        names = [node["name"] for node in self.told["nodes"][:2]]
        found = [
            next(pod["netns"] for pod in self.told["pods"] if pod["node"] == name and pod["namespace"] == TENANT)
            for name in names
        ]
        return found[0], found[1]

    def face(self, rail: int) -> str:
        """Return the name of the rail's interface in every pod."""
        return next(one["name"] for one in self.told["pods"][0]["interfaces"] if one["rail"] in (rail, f"rail{rail}"))

    def leaf(self, rail: int) -> str:
        """Return the namespace of a rail's leaf."""
        return next(leaf["netns"] for leaf in self.told["leaves"] if leaf["rail"] in (rail, f"rail{rail}"))

    def put_switches_first(self) -> None:
        """Give Open vSwitch the highest priority: the NIC switch that it stands for would not wait for a core."""
        for node in self.told["nodes"]:
            pid = int(Path(node["openvswitch"]["folder"], "ovs-vswitchd.pid").read_text())
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), MOST_URGENT_NICE)

    def switched_bytes(self, rail: int) -> int:
        """Return the bytes that all nodes' Open vSwitch has sent and received over that rail's uplink."""
        total = 0
        for node in self.told["nodes"]:
            of_rail = node["rails"][rail]
            management = f"unix:{node['openvswitch']['folder']}/{of_rail['bridge']}.mgmt"
            told = run_program(["ovs-ofctl", "-O", "OpenFlow14", "dump-ports", management, of_rail["uplink"]])
            total += sum(map(int, re.findall(r"bytes=(\d+)", told)))
        return total


@contextlib.contextmanager
def hold_fabric() -> Iterator[Fabric]:
    """Keep a fabric of two nodes up during the context, or until this process ends.

    Needs root, Go, Open vSwitch and FRR 10.
    """
    with tempfile.TemporaryDirectory(prefix="rwt-pf-") as folder:
        program, told = Path(folder, "lab.test"), Path(folder, "fabric.json")
        subprocess.run(["go", "test", "-c", "-o", str(program), "./test/lab"], cwd=ROOT / "node", check=True)
        environment = {**os.environ, "RAILWRIGHT_HOLD": str(told), "RAILWRIGHT_TEST_NEEDS_ROOT": "1"}
        words = [str(program), "-test.run", "^TestHold$", "-test.timeout", "0"]
        with subprocess.Popen(words, cwd=ROOT / "node/test/lab", env=environment, stdin=subprocess.PIPE,
                              stdout=sys.stderr, start_new_session=True) as child:  # fmt: skip
            try:
                yield Fabric(_wait_for_description(child, told))
            finally:
                assert child.stdin is not None
                child.stdin.close()
                try:
                    child.wait(DOWN_WITHIN_S)
                except subprocess.TimeoutExpired:
                    child.kill()


def _wait_for_description(child: subprocess.Popen[bytes], path: Path) -> dict[str, Any]:
    end = time.monotonic() + UP_WITHIN_S
    while not path.exists():
        if child.poll() is not None:
            sys.exit(f"the fabric did not come up: its program ended with status {child.returncode}")
        if time.monotonic() > end:
            sys.exit(f"the fabric is not up after {UP_WITHIN_S:.0f} s")
        time.sleep(0.1)
    return json.loads(path.read_text())


@contextlib.contextmanager
def plain_hosts(fabric: Fabric, rail: int, mtu_bytes: int, *, offload: bool) -> Iterator[tuple[str, str]]:
    """Provide two namespaces, each with a veth directly to a rail's leaf, like a host that uses the PF itself.

    The interface has the same name as in pods. Without `offload`, the kernel computes segments and checksums in
    software, which the userspace datapath also requires of pods.
    """
    names = [f"rwt-pf{'o' * offload}-{os.getpid()}-{number:04x}" for number in (1, 2)]
    leaf, face = fabric.leaf(rail), fabric.face(rail)
    try:
        for number, name in enumerate(names):
            port, network = f"{'pfo' if offload else 'pf'}{number}", f"203.0.113.{4 * offload + 2 * number}"
            host = f"203.0.113.{4 * offload + 2 * number + 1}"
            run_program(["ip", "netns", "add", name])
            run_program(["ip", "-n", name, "link", "set", "lo", "up"])
            run_program(["ip", "link", "add", face, "netns", name, "type", "veth", "peer", "name", port, "netns", leaf])
            run_program(["ip", "-n", leaf, "addr", "add", f"{network}/31", "dev", port])
            run_program(["ip", "-n", name, "addr", "add", f"{host}/31", "dev", face])
            run_program(["ip", "-n", name, "link", "set", face, "mtu", str(mtu_bytes)])
            for end, inside in ((port, leaf), (face, name)):
                run_program(["ip", "-n", inside, "link", "set", end, "up"])
                if not offload:
                    run_program(["ip", "netns", "exec", inside, "ethtool", "-K", end, "tx", "off"])
            run_program(["ip", "-n", name, "route", "add", "default", "via", network])
        yield names[0], names[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def mtu_of(namespace: str, face: str) -> int:
    """Return the MTU of an interface, in bytes."""
    return json.loads(run_program(["ip", "-n", namespace, "-json", "link", "show", "dev", face]))[0]["mtu"]


def run_program(words: Sequence[str]) -> str:
    """Return the output of a program; exit with its error message if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
