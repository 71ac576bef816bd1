"""`railwright net`: checks a pod's GPU network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from railwright.errors import UsageError, unknown_name
from railwright.options.group import Group
from railwright.options.output import json_option, print_answer

if TYPE_CHECKING:
    from railwright.net.view import Address


@click.group(cls=Group)
def net() -> None:
    """Check a pod's GPU network, which `railwrightd` and its CNI plugins set up.

    \b
    railwright net check --pod team-a/trainer-0           on the pod's node, as root
    railwright net check                                  inside the pod, with fewer checks
    railwright net check --netns /proc/4711/ns/net
    """


@net.command()
@click.option("--pod", metavar="NAMESPACE/NAME", help="A pod on this node.")
@click.option("--netns", metavar="PATH|NAME", help="A pod's network namespace.")
@click.option(
    "--interface",
    "interfaces",
    multiple=True,
    metavar="NAME",
    help="Check only this interface. [all that are attached]",
)
@click.option("--to", multiple=True, metavar="ADDRESS", help="A pod of the same tenant on any node.")
@click.option("--peer-netns", metavar="PATH|NAME", help="A pod of the same tenant on this machine.")
@click.option("--stranger-netns", metavar="PATH|NAME", help="A pod of another tenant here. [any that is attached]")
@click.option("--leaf-netns", "leaves", multiple=True, metavar="RAIL=PATH|NAME", help="A rail's leaf, in a lab.")
@click.option("--railwrightd", "program", metavar="PATH", help="The daemon's program. [on PATH]")
@click.option("--socket", metavar="PATH", help="The daemon's socket. [its default]")
@click.option("--config", metavar="PATH", help="The daemon's configuration. [its default]")
@click.option("--cni-results", metavar="FOLDER", help="The container runtime's records. [Multus' or libcni's]")
@click.option("--vty-socket", metavar="FOLDER", help="The socket folder of FRR's daemons. [their default]")
@click.option("--without", multiple=True, metavar="CHECK", help="Skip a check. The last line names it.")
@click.option("--evidence", is_flag=True, help="Show the evidence of checks that are ok as well.")
@json_option("Print one JSON record for each check.")
def check(
    to: tuple[str, ...],
    leaves: tuple[str, ...],
    program: str | None,
    socket: str | None,
    config: str | None,
    without: tuple[str, ...],
    evidence: bool,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - the rest of a `Question`
) -> int:
    """Check a pod's rail interfaces, from the pod to the leaf, by configuration and by real packets.

    Exit status: 0 all ok, 1 something is bad, 2 wrong usage, 3 something could not be checked and nothing is bad.
    """
    from railwright.net.check import check as checked
    from railwright.net.check import exit_status
    from railwright.net.checks.registry import CHECKS
    from railwright.net.railwrightd import Railwrightd
    from railwright.net.target import Question
    from railwright.report.formats.records import ExitRecord
    from railwright.report.text.net import closing_line, net_lines

    known = [known_check.name for known_check in CHECKS]
    for name in without:
        if name not in known:
            raise unknown_name("check", name, known)
    question = Question(
        **options,
        to=tuple(map(_parse_address, to)),
        leaves=dict(map(_parse_leaf, leaves)),
        without=frozenset(without),
        daemon=Railwrightd(program, socket, config),
    )
    lines = checked(question)
    status, left_out = exit_status(lines), set(known) - {line.check for line in lines}
    print_answer(
        [*lines, ExitRecord(exit_status=status)],
        lambda: [*net_lines(lines, evidence=evidence), closing_line(lines, left_out, status)],
        as_json=as_json,
    )
    return status


def _parse_address(text: str) -> Address:
    import ipaddress

    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise UsageError(
            f"--to must be an address, got {text[:80]!r}", hint="give an address like 10.1.0.5 or fd00::5"
        ) from None
    if address.is_multicast or address.is_loopback or address.is_link_local or address.is_unspecified:
        raise UsageError(
            f"--to must be a pod's address, got {address}", hint="give an address like 10.1.0.5 or fd00::5"
        )
    return address


def _parse_leaf(text: str) -> tuple[str, str]:
    from railwright.net.pod import netns_path

    rail, equals, path = text.partition("=")
    if not equals or not rail or not path:
        raise UsageError(f"--leaf-netns must be RAIL=PATH, got {text[:80]!r}", hint="write rail0=/run/netns/leaf0")
    return rail, netns_path(path)
