"""The gateway: it answers ARP and ND, and its neighbour entry has the MAC address of the rail's bridge."""

from __future__ import annotations

import shlex

from railwright.errors import CannotJudge
from railwright.net.view import Address, Attached, Bad, Check, Neighbour, Note, Port, View, require_seen


def _judge(view: View, note: Note) -> str:
    port, answers = view.existing_port(), require_seen(view.gateways)
    if not answers:
        raise CannotJudge(f"no route of {port.name} has a gateway to ask", hint="see the check route")
    known = view.attached.gateway_mac if isinstance(view.attached, Attached) else ""
    # If the daemon does not know the bridge's MAC, an ARP answer gives it for gateways of both families.
    right = known or next(filter(None, answers.values()), "")
    for gateway, mac in answers.items():
        note(str(gateway), _describe_answer(mac, port.entry(gateway)), f"{_protocol(gateway)}; ip neighbour")
    if known:
        note("the bridge's MAC", known, "railwrightd list")
    for gateway, mac in answers.items():
        _judge_one(view, port, gateway, mac, right)
    if not right:
        why = f"no gateway answers, so the MAC addresses that {port.name} has for them cannot be verified"
        raise CannotJudge(why, hint="on the node: railwrightd status")
    return f"{' and '.join(map(str, answers))} at {right}"


def _describe_answer(mac: str | None, entry: Neighbour | None) -> str:
    table = f"{entry.mac or 'no MAC'} {' '.join(entry.states).lower()}" if entry else "no entry"
    return f"{f'answers {mac}' if mac else 'no answer'}; {table}"


def _protocol(gateway: Address) -> str:
    return "ARP" if gateway.version == 4 else "ND"


def _judge_one(view: View, port: Port, gateway: Address, answer: str | None, right: str) -> None:
    entry = port.entry(gateway)
    if answer is not None and answer.lower() != right.lower():
        says = f"{gateway} answers {answer}, and the rail's bridge is {right}: another device answers in its place"
        raise Bad(says, "on the node: ovs-vsctl list-ports of the rail's bridge; railwrightd status")
    if entry is not None and entry.mac and right and entry.mac.lower() != right.lower():
        says = f"the neighbour table has {entry.mac} for {gateway}, and the rail's bridge is {right}"
        command = f"ip neighbour replace {gateway} lladdr {shlex.quote(right)} dev {shlex.quote(port.name)}"
        raise Bad(says, view.inside(f"{command} nud permanent"))
    # A datapath that cannot answer ND is fine if the plugin has written a permanent entry.
    if answer is None and not (gateway.version == 6 and entry is not None and entry.is_permanent):
        says = f"{gateway} does not answer {_protocol(gateway)}: no packet of {port.name} reaches it"
        raise Bad(says, "on the node: railwrightd list, are its flows installed? railwrightd status")


CHECK = Check("gateway", _judge, after=("interface", "address", "flows", "route"))
