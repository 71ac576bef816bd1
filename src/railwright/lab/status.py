"""The present state of a lab, compared with its plan."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Literal

import msgspec

from railwright.lab import ssh
from railwright.lab.remove import find_processes
from railwright.lab.routes import expected_routes
from railwright.lab.state import Lab
from railwright.lab.wait import missing_routes

State = Literal["up", "incomplete", "interrupted"]


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one node."""

    name: str
    kind: str
    asn: int
    addresses: tuple[str, ...]
    namespace: str
    processes: int
    """Processes in its namespace: daemons of FRR and Open vSwitch, sshd, and the user's own."""
    routes_expected: int
    routes_incomplete: int
    """Addresses that lack a next hop, or any route."""
    ports_lacking: tuple[str, ...]
    """Ports that missing routes should use."""


class LabStatus(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="lab"):
    """The record of `railwright lab status --json`."""

    name: str
    state: State
    """`up`: every route is in place. `incomplete`: routes are missing. `interrupted`: the lab never came up.

    `lab down` removes the remains of an interrupted lab.
    """
    folder: str
    ssh_config: str | None
    """The file for `ssh -F` from a host to another; None if the lab has no sshd."""
    nodes: tuple[NodeStatus, ...]


def observe(lab: Lab, executor: Executor) -> LabStatus:
    """Inspect every node of a lab. Raises UsageError if its plan cannot be read."""
    expected = expected_routes(lab.plan)
    missing = missing_routes(lab, expected, executor)
    nodes = []
    for node in lab.plan.nodes:
        lacking = missing.get(node.name, {})
        nodes.append(
            NodeStatus(
                name=node.name,
                kind=node.kind,
                asn=node.asn,
                addresses=node.addresses,
                namespace=lab.namespace(node.name),
                processes=len(find_processes([lab.namespace(node.name)])),
                routes_expected=len(expected[node.name]),
                routes_incomplete=len(lacking),
                ports_lacking=tuple(sorted({port for ports in lacking.values() for port in ports})),
            )
        )
    state: State = "interrupted" if not lab.ready else "incomplete" if missing else "up"
    config = str(ssh.config_path(lab)) if lab.plan.ssh else None
    return LabStatus(name=lab.name, state=state, folder=str(lab.folder), ssh_config=config, nodes=tuple(nodes))
