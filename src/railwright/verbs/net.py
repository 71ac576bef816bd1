"""A pod's rail interfaces looked at, from the pod to the leaf."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import click
import msgspec

from railwright.errors import UsageError, unknown_name
from railwright.net.check import check, exit_status
from railwright.net.checks.registry import CHECKS
from railwright.net.pod import netns_path
from railwright.net.railwrightd import Railwrightd
from railwright.net.target import Question
from railwright.net.view import Address, Line
from railwright.report.formats.records import ExitRecord
from railwright.report.text.net import closing_line, net_lines


def check_pod(
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
    """Print what every check says; the exit status. Raises UsageError."""
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
    if as_json:
        for record in (*lines, ExitRecord(exit_status=status)):
            click.echo(msgspec.json.encode(record).decode())
        return
    for line in net_lines(lines, evidence=evidence):
        click.echo(line)
    click.echo(closing_line(lines, without, status))


def _check_names(names: Iterable[str]) -> None:
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
    found = {}
    for text in given:
        rail, equals, path = text.partition("=")
        if not equals or not rail or not path:
            raise UsageError(f"--leaf-netns {text[:80]!r} is not RAIL=PATH", hint="like rail0=/run/netns/leaf0")
        found[rail] = netns_path(path)
    return found
