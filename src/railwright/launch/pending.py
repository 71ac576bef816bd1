"""The nodes of a job that is yet to be submitted, to Slurm or to Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass
class PendingReach:
    """Nodes that a job has yet to be given: enough for a plan, and for nothing else."""

    name: str
    shares_files = False
    shares_cpus = False
    interfaces: tuple[str, ...] = ()
    rate_bytes_per_s: float | None = None
    host_cpus: float | None = None

    def part(self, _hosts: tuple[str, ...]) -> PendingReach:
        """Some of them."""
        return self

    def fabric(self, _interfaces: Sequence[str]) -> None:
        """Nobody knows what joins them."""

    def check(self) -> None:
        """Nothing can be asked of them yet."""

    def around(self, argv: Sequence[str]) -> list[str]:
        """Never called."""
        raise NotImplementedError

    def agent(self, scratch: Path) -> list[str]:
        """Never called."""
        raise NotImplementedError

    def address(self) -> str:
        """Never called."""
        raise NotImplementedError

    def addresses(self) -> tuple[str, ...]:
        """Never called."""
        raise NotImplementedError

    def addresses_on(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """Never called."""
        raise NotImplementedError
