"""`railwright net`: a pod's GPU network."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from railwright.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from railwright.net.model import Address, Line


@click.group("net")
def COMMAND() -> None:  # noqa: N802 - see cli/prove.py
    """A pod's GPU network, as `railwrightd` and its CNI plugins lay it.

    \b
    railwright net check --pod team-a/trainer-0           on the pod's node, as root
    railwright net check                                  inside the pod; says what it cannot see from there
    railwright net check --netns /proc/4711/ns/net
    """  # noqa: D301 - click takes the backspace itself as the mark of lines to keep


@COMMAND.command("check")
@click.option("--pod", metavar="NAMESPACE/NAME", help="A pod of this node.")
@click.option("--netns", metavar="PATH|NAME", help="A pod's network namespace.")
@click.option("--interface", "interfaces", multiple=True, metavar="NAME", help="Only this one. [all that are attached]")
@click.option("--to", "to", multiple=True, metavar="ADDRESS", help="Of a pod of the same tenant, on any node.")
@click.option("--peer-netns", metavar="PATH|NAME", help="A pod of the same tenant on this machine.")
@click.option("--stranger-netns", metavar="PATH|NAME", help="A pod of another tenant here. [one that is attached]")
@click.option("--leaf-netns", "leaves", multiple=True, metavar="RAIL=PATH|NAME", help="A rail's leaf, in a lab.")
@click.option("--railwrightd", "program", metavar="PATH", help="The daemon's program. [on PATH]")
@click.option("--socket", metavar="PATH", help="The daemon's socket. [its default]")
@click.option("--config", metavar="PATH", help="The daemon's configuration. [its default]")
@click.option("--vty-socket", metavar="FOLDER", help="Of FRR's daemons. [its default]")
@click.option("--without", multiple=True, metavar="CHECK", help="Leave a check out; the last line says so.")
@click.option("--evidence", is_flag=True, help="Show what was seen for what is ok, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record for each check.")
def check_command(  # one option each
    pod: str | None,
    netns: str | None,
    interfaces: tuple[str, ...],
    to: tuple[str, ...],
    peer_netns: str | None,
    stranger_netns: str | None,
    leaves: tuple[str, ...],
    program: str | None,
    socket: str | None,
    config: str | None,
    vty_socket: str | None,
    without: tuple[str, ...],
    evidence: bool,
    as_json: bool,
) -> int:
    """Look at a pod's rail interfaces, from the pod to the leaf, by evidence and by real packets.

    Exit status: 0 all ok, 1 something is bad, 2 wrong usage, 3 something could not be looked at and nothing is bad.
    """
    from railwright.net.check import check, exit_status
    from railwright.net.railwrightd import Railwrightd
    from railwright.net.target import Question

    _check_names(without)
    question = Question(
        pod=pod,
        netns=netns,
        interfaces=interfaces,
        to=tuple(_address(text) for text in to),
        peer_netns=peer_netns,
        stranger_netns=stranger_netns,
        leaves=_leaves(leaves),
        without=frozenset(without),
        vty_socket=vty_socket,
        daemon=Railwrightd(program, socket, config),
    )
    lines = check(question)
    status = exit_status(lines)
    _tell(lines, without, status, evidence=evidence, as_json=as_json)
    return status


def _tell(lines: tuple[Line, ...], without: tuple[str, ...], status: int, *, evidence: bool, as_json: bool) -> None:
    import msgspec

    from railwright.report.net_text import closing_line, net_lines
    from railwright.report.records import ExitRecord

    if as_json:
        for record in (*lines, ExitRecord(exit_status=status)):
            click.echo(msgspec.json.encode(record).decode())
        return
    for line in net_lines(lines, evidence=evidence):
        click.echo(line)
    click.echo(closing_line(lines, without, status))


def _check_names(names: Iterable[str]) -> None:
    from railwright.net.checks.registry import CHECKS

    known = [one.name for one in CHECKS]
    for name in names:
        if name not in known:
            raise unknown_name("check", name, known)


def _address(text: str) -> Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise UsageError(f"--to {text[:80]!r} is not an address", hint="give one like 10.1.0.5 or fd00::5") from None
    if address.is_multicast or address.is_loopback or address.is_link_local or address.is_unspecified:
        raise UsageError(f"--to {address} is no pod's address", hint="give one like 10.1.0.5 or fd00::5")
    return address


def _leaves(given: tuple[str, ...]) -> dict[str, str]:
    from railwright.net.pod import netns_path

    found = {}
    for text in given:
        rail, equals, path = text.partition("=")
        if not equals or not rail or not path:
            raise UsageError(f"--leaf-netns {text[:80]!r} is not RAIL=PATH", hint="like rail0=/run/netns/leaf0")
        found[rail] = netns_path(path)
    return found
