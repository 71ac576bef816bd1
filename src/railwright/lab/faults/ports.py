"""Scripts for `tc`, `ip` and `nft` that set a node's ports as the plan and the applied faults require. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from railwright.lab.faults.effects import (
    Effect,
    OnPort,
    PairRate,
    PortBusy,
    PortDown,
    PortFlaps,
    PortLoss,
    PortMtu,
    PortRate,
    PortSegments,
)
from railwright.lab.faults.queues import pair_priority, queue_commands
from railwright.lab.nodes import Cable, LabPlan

NFT_TABLE = "railwright_fault"
# Before connection tracking and every other hook that could count a packet before it is dropped.
_LOSS_HOOK_PRIORITY = -400
_LOSS_GRAIN = 1_000_000
_BGP_PORT = 179  # IANA; RFC 4271
_DEFAULT_GSO_SEGMENTS = 65535  # the default of a veth


def changed_ports(effects: Iterable[Effect]) -> dict[str, tuple[str, ...]]:
    """Return the nodes with a changed port or filter, each with these ports."""
    found: dict[str, dict[str, None]] = {}
    for effect in effects:
        if isinstance(effect, OnPort) and not isinstance(effect, PortBusy):
            found.setdefault(effect.node, {})[effect.port] = None
    return {node: tuple(ports) for node, ports in found.items()}


def port_scripts(plan: LabPlan, effects: Iterable[Effect], node: str, ports: Iterable[str]) -> dict[str, str]:
    """Return, by tool, the script that sets `ports` of a node as the plan and `effects` (all that are applied) require.

    Every script is idempotent. The one for nft replaces all rules of faults in this node, in one transaction.
    """
    mine = [effect for effect in effects if isinstance(effect, OnPort) and effect.node == node]
    cables = {cable.port_of(node): cable for cable in plan.cables_of(node)}
    tc: list[tuple[str, ...]] = []
    ip: list[tuple[str, ...]] = []
    for port in ports:
        port_effects = [effect for effect in mine if effect.port == port]
        tc += _queue(port_effects, port, cables[port])
        ip.append(_link(port_effects, port, cables[port]))
    return {"tc": _lines(tc), "ip": _lines(ip), "nft": _nft(mine)}


def _lines(commands: Iterable[Sequence[str]]) -> str:
    return "".join(" ".join(words) + "\n" for words in commands)


def _queue(effects: Sequence[OnPort], port: str, cable: Cable) -> list[tuple[str, ...]]:
    rates = [effect.rate_bits_per_s for effect in effects if isinstance(effect, PortRate)]
    if cable.rate_bits_per_s is not None:
        rates.append(cable.rate_bits_per_s)
    pairs = [effect.rate_bits_per_s for effect in effects if isinstance(effect, PairRate)]
    return queue_commands(port, cable, min(rates, default=None), pairs)


def _link(effects: Sequence[OnPort], port: str, cable: Cable) -> tuple[str, ...]:
    kinds = {type(effect) for effect in effects}
    mtu = min([cable.mtu_bytes, *(effect.mtu_bytes for effect in effects if isinstance(effect, PortMtu))])
    segments = 1 if PortSegments in kinds else _DEFAULT_GSO_SEGMENTS
    words = ("link", "set", "dev", port, "mtu", str(mtu), "gso_max_segs", str(segments))
    if PortDown in kinds:
        return (*words, "down")
    # The child process of PortFlaps takes the port down and up.
    return words if PortFlaps in kinds else (*words, "up")


def _nft(effects: Sequence[OnPort]) -> str:
    """Return the nft script. Port names are quoted although they come from the plan."""
    lines = [f"table {family} {NFT_TABLE} {{}}\ndelete table {family} {NFT_TABLE}" for family in ("inet", "netdev")]
    losses = [effect for effect in effects if isinstance(effect, PortLoss)]
    if losses:
        chains = "\n".join(_loss_chain(index, loss) for index, loss in enumerate(losses))
        lines.append(f"table netdev {NFT_TABLE} {{\n{chains}\n}}")
    rules = []
    numbers: dict[str, int] = {}
    for pair in effects:
        if isinstance(pair, PairRate):
            index = numbers[pair.port] = numbers.get(pair.port, -1) + 1
            rules += _pair_rules(pair, index)
    if rules:
        # The last priority: routing itself sets a forwarded packet's priority from its TOS.
        chain = "chain pairs {\ntype filter hook postrouting priority 300;\n" + "\n".join(rules) + "\n}"
        lines.append(f"table inet {NFT_TABLE} {{\n{chain}\n}}")
    return "\n".join(lines) + "\n"


def _loss_chain(index: int, loss: PortLoss) -> str:
    spared = [
        f"tcp dport {_BGP_PORT} accept",
        f"tcp sport {_BGP_PORT} accept",
        "icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } accept",
        "ether type arp accept",
    ]
    hook = f'type filter hook ingress device "{loss.port}" priority {_LOSS_HOOK_PRIORITY + index};'
    dropped = round(loss.fraction * _LOSS_GRAIN)
    chance = f"numgen random mod {_LOSS_GRAIN} < {dropped} " if dropped < _LOSS_GRAIN else ""
    drop = f"{chance}counter drop"
    rules = [hook, *(spared if loss.spare_routing else []), drop]
    return f"chain loss{index} {{\n" + "\n".join(rules) + "\n}"


def _pair_rules(pair: PairRate, index: int) -> list[str]:
    rules = []
    for family, six in (("ip", False), ("ip6", True)):
        sources = ", ".join(address for address in pair.sources if (":" in address) == six)
        destinations = ", ".join(address for address in pair.destinations if (":" in address) == six)
        if sources and destinations:
            match = f"{family} saddr {{ {sources} }} {family} daddr {{ {destinations} }}"
            rules.append(f'oifname "{pair.port}" {match} counter meta priority set {pair_priority(index)}')
    return rules
