"""A lab made, shown, entered and ended."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import msgspec

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.lab import build, remove, state
from railwright.lab.plan import PlanOptions, plan
from railwright.lab.status import LabStatus, observe
from railwright.topology.cluster import Cluster
from railwright.units import parse_line_rate
from railwright.verbs.cluster import the_cluster


def make(
    words: tuple[str, ...],
    count: int | None,
    name: str,
    leaf_hosts: int | None,
    spines: int | None,
    rate: str,
    mtu_bytes: int,
    frr: str,
    ovs: bool,
    ssh: bool,
    ipv6_only: bool,
    most_nodes: int,
    dry_run: bool,
) -> int:
    """Make a lab and wait for its routes, or print its plan. Raises UsageError."""
    given = {
        "name": name, "frr": frr, "ovs": ovs, "ssh": ssh, "ipv6_only": ipv6_only, "mtu_bytes": mtu_bytes,
        "leaf_hosts": leaf_hosts, "spines": spines, "most_nodes": most_nodes,
        "rate_bits_per_s": None if rate == "none" else parse_line_rate(rate),
    }  # fmt: skip
    decided = plan(_cluster(words, count), msgspec.convert(given, PlanOptions))
    if dry_run:
        click.echo(msgspec.json.format(msgspec.json.encode(decided)).decode())
        return EXIT_OK
    begun = time.monotonic()
    build.up(decided, lambda text: click.echo(text, err=True))
    click.echo(f"lab {decided.name} is up after {time.monotonic() - begun:.1f} s: {decided.summary()}")
    return EXIT_OK


def _cluster(words: tuple[str, ...], count: int | None) -> Cluster:
    if len(words) == 1 and Path(words[0]).suffix == ".toml":
        return the_cluster(None, count, words[0])
    if count is None:
        raise UsageError("the number of hosts is not given", hint="add --count 4, or give a cluster file (TOML)")
    return the_cluster(" ".join(words), count, None)


def status(name: str | None, as_json: bool) -> int:
    """Print what each lab has and lacks; the exit status is the worst."""
    state.require_root()
    names = [state.open_lab(name).name] if name is not None else state.names()
    worst = EXIT_OK
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as executor:
        for each in names:
            seen = observe(state.open_lab(each), executor)
            worst = max(worst, {"up": EXIT_OK, "incomplete": EXIT_SLOW, "interrupted": EXIT_UNJUDGED}[seen.state])
            click.echo(msgspec.json.encode(seen).decode() if as_json else _status_text(seen))
    if not names and not as_json:
        click.echo("there is no lab here")
    return worst


def _status_text(seen: LabStatus) -> str:
    lines = [f"lab {seen.name}: {seen.state}"]
    for node in seen.nodes:
        routes = f"{node.routes_expected - node.routes_incomplete} of {node.routes_expected} routes"
        lacking = f", missing through {', '.join(node.ports_lacking[:6])}" if node.ports_lacking else ""
        text = (
            f"{node.name:<12} AS {node.asn}  {node.processes} processes  {routes}{lacking}  {' '.join(node.addresses)}"
        )
        lines.append(f"  {text}")
    if seen.ssh_config is not None:
        lines.append(f"  from host to host: ssh -F {seen.ssh_config} {seen.nodes[0].name}")
    return "\n".join(lines)


def become(name: str | None, node: str, argv: tuple[str, ...]) -> None:
    """Become the command: its terminal, signals and exit status are its own."""
    state.require_root()
    words = state.open_lab(name).argv_in(node, argv[1:] if argv[0] == "--" else argv)
    os.execvp(words[0], words)  # noqa: S606 - no shell is wanted


def end(name: str | None, every: bool) -> int:
    """End one lab, or all. Raises UsageError."""
    state.require_root()
    if every:
        if name is not None:
            raise UsageError("--all ends every lab, so --name says nothing", hint="give one of the two")
        ended = remove.down_all()
    else:
        ended = [state.open_lab(name).name]
        remove.down(ended[0])
    click.echo(f"ended {', '.join(ended)}" if ended else "there is no lab here")
    return EXIT_OK
