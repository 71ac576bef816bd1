"""Hosts for tests: any number of network namespaces on one bridge, and the ranks that run in them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from railwright.lab.netns_reach import PREFIX


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@dataclass(frozen=True)
class Bridged:
    """Namespaces with an interface `net1`, joined by a bridge in a further namespace."""

    names: tuple[str, ...]

    @property
    def words(self) -> str:
        """The hosts as a value of `--hosts`."""
        return ",".join(PREFIX + name for name in self.names)

    def pids(self, name: str) -> list[int]:
        """Return all processes in a namespace."""
        listed = subprocess.run(["ip", "netns", "pids", name], text=True, capture_output=True)
        return [int(word) for word in listed.stdout.split()]

    def ranks(self, name: str) -> list[int]:
        """Return the ranks in a namespace."""
        found = []
        for pid in self.pids(name):
            with contextlib.suppress(OSError):
                if b"railwright.launch.rank" in Path(f"/proc/{pid}/cmdline").read_bytes()[:200]:
                    found.append(pid)
        return found

    def kill(self, name: str) -> None:
        """Kill all processes of a host, as when it loses power."""
        for pid in self.pids(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def bridged(count: int, rate_mbits: int = 0) -> Iterator[Bridged]:
    """Create hosts, each with a port of the given rate in Mbit/s, and remove them afterwards."""
    name = f"rwb{os.getpid() % 100_000}"
    names = tuple(f"{name}-{number}" for number in range(count))
    try:
        for space in (name, *names):
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        ip("-n", name, "link", "add", "br0", "up", "type", "bridge")
        for number, space in enumerate(names):
            ip("link", "add", "net1", "netns", space, "type", "veth", "peer", "name", f"p{number}", "netns", name)
            ip("-n", name, "link", "set", f"p{number}", "master", "br0", "up")
            ip("-n", space, "address", "add", f"198.51.{100 + number // 250}.{number % 250 + 1}/16", "dev", "net1")
            ip("-n", space, "link", "set", "net1", "up")
            if rate_mbits:
                shape = ["tc", "qdisc", "add", "dev", "net1", "root", "tbf", "rate", f"{rate_mbits}mbit"]
                more = ["burst", "20kb", "latency", "20ms"]
                subprocess.run(["ip", "netns", "exec", space, *shape, *more], check=True)
        yield Bridged(names)
    finally:
        for space in (*names, name):
            for pid in Bridged(names).pids(space):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)
