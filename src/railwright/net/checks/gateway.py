"""The gateway: it answers ARP and ND now, and the neighbour table has the MAC address of the rail's bridge for it."""

from __future__ import annotations

import shlex

from railwright.net.model import Address, Attached, Check, Line, Neighbour, Port, Unseen, View
from railwright.results.model import Evidence

_NAME = "gateway"


def _look(view: View) -> Line:
    port, answers = view.port, view.gateways
    if port is None:
        return view.no_port(_NAME)
    if isinstance(answers, Unseen):
        return view.not_looked(_NAME, answers)
    if not answers:
        return view.not_looked(_NAME, Unseen(f"no route of {port.name} has a gateway that could be asked", "see route"))
    known = view.attached.gateway_mac if isinstance(view.attached, Attached) else ""
    # An answer of ARP says what the bridge's MAC is where the daemon does not, also for gateways of the other family.
    right = known or next((mac for mac in answers.values() if mac), "")
    evidence = [_evidence(gateway, mac, port.entry(gateway)) for gateway, mac in answers.items()]
    if known:
        evidence.append(Evidence(claim="the bridge's MAC", value=known, seen="railwrightd list"))
    troubles = (_trouble(view, port, gateway, mac, right) for gateway, mac in answers.items())
    trouble = next((one for one in troubles if one[0]), ("", ""))
    if not trouble[0] and not right:
        why = f"no gateway answers, and whether {port.name} has their right MAC address cannot be told"
        return view.not_looked(_NAME, Unseen(why, "on the node: railwrightd status"), evidence)
    return view.line(_NAME, trouble, f"{' and '.join(str(one) for one in answers)} at {right}", evidence)


def _evidence(gateway: Address, mac: str | None, entry: Neighbour | None) -> Evidence:
    table = f"{entry.mac or 'no MAC'} {' '.join(entry.states).lower()}" if entry else "no entry"
    value = f"{f'answers {mac}' if mac else 'no answer'}; {table}"
    return Evidence(claim=str(gateway), value=value, seen=f"{_protocol(gateway)}; ip neighbour")


def _protocol(gateway: Address) -> str:
    return "ARP" if gateway.version == 4 else "ND"


def _trouble(view: View, port: Port, gateway: Address, answer: str | None, right: str) -> tuple[str, str]:
    entry = port.entry(gateway)
    if answer is not None and answer.lower() != right.lower():
        says = f"{gateway} answers {answer}, and the rail's bridge is {right}: somebody else answers in its place"
        return says, "on the node: ovs-vsctl list-ports of the rail's bridge; railwrightd status"
    if entry is not None and entry.mac and right and entry.mac.lower() != right.lower():
        says = f"the neighbour table has {entry.mac} for {gateway}, and the rail's bridge is {right}"
        command = (
            f"ip neighbour replace {gateway} lladdr {shlex.quote(right)} dev {shlex.quote(port.name)} nud permanent"
        )
        return says, view.inside(command)
    # A datapath that cannot answer ND is no fault where the plugin has written the entry for good.
    if answer is None and not (gateway.version == 6 and entry is not None and entry.is_permanent):
        says = f"{gateway} does not answer {_protocol(gateway)}: nothing that {port.name} sends gets to it"
        return says, "on the node: railwrightd list, are its flows installed? railwrightd status"
    return "", ""


CHECK = Check(
    "gateway",
    "it answers, and the neighbour table has its MAC address",
    _look,
    after=("interface", "address", "flows", "route"),
)
