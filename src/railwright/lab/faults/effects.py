"""The changes that faults make to a lab, as data. A fault decides, `settle` acts.

Since the state of a port follows from the plan and from the faults that are applied, faults may share a port, and
healing one leaves exactly what the plan and the others say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from railwright.errors import UsageError
from railwright.lab.nodes import Cable, LabPlan, Node
from railwright.units import format_line_rate, parse_line_rate

LEAST_RATE_BITS_PER_S = 64_000.0
"""Below it a queue of some packets holds them for seconds."""
LEAST_MTU_BYTES = 1280
"""Of IPv6 (RFC 8200, section 5); below it the kernel takes IPv6 from the port, and BGP with it."""
DEFAULT_SLOWDOWN = 10.0


class OnPort(msgspec.Struct, frozen=True):
    """A change at one port of a node."""

    node: str
    port: str


class PortRate(OnPort, frozen=True):
    """The port sends at this rate."""

    rate_bits_per_s: float


class PairRate(OnPort, frozen=True):
    """The port sends packets from `sources` to `destinations` at this rate."""

    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    rate_bits_per_s: float


class PortDown(OnPort, frozen=True):
    """The port is down; its peer sees no carrier."""


class PortMtu(OnPort, frozen=True):
    """The port takes no packet longer than this, in either direction."""

    mtu_bytes: int


class PortSegments(OnPort, frozen=True):
    """The port sends each packet by itself, as on a wire; a veth otherwise carries 64 KiB of TCP as one."""


class PortLoss(OnPort, frozen=True):
    """The port loses a fraction of the arriving packets at random."""

    fraction: float
    spare_routing: bool
    """Whether BGP and neighbour discovery pass, so that routing does not see the fault."""


class PortFlaps(OnPort, frozen=True):
    """The port goes down for `down_s`, is up for `up_s`, and so on."""

    down_s: float
    up_s: float


class PortBusy(OnPort, frozen=True):
    """Foreign packets leave through the port at a steady rate, whatever is lost."""

    rate_bits_per_s: float
    packet_bytes: int


class SlowCpu(msgspec.Struct, frozen=True):
    """All processes of the node together get this share of one CPU."""

    node: str
    share: float


Effect = OnPort | SlowCpu


class Values(msgspec.Struct, frozen=True):
    """The words of a fault, and readers that give their meaning in this lab. Every reader raises UsageError."""

    plan: LabPlan
    words: Mapping[str, str]

    def given(self, name: str) -> bool:
        """Whether it has a value."""
        return bool(self.words[name])

    def node(self, name: str, *kinds: Literal["host", "leaf", "spine", "superspine"]) -> Node:
        """A node, of one of `kinds` where there are any."""
        node = self.plan.node(self.words[name].partition(":")[0])
        if kinds and node.kind not in kinds:
            raise UsageError(f"{node.name} is no {' or '.join(kinds)}", hint="see railwright lab status")
        return node

    def cable(self, one: str, other: str) -> tuple[Cable, Node, Node]:
        """The cable between two nodes, each `leaf0` or `leaf0:PORT` where several cables join them."""
        first, second = self.node(one), self.node(other)
        ports = {node.name: self.words[name].partition(":")[2] for name, node in ((one, first), (other, second))}
        cables = self.plan.between(first.name, second.name)
        if not cables:
            near = sorted({cable.peer_of(first.name) for cable in self.plan.cables_of(first.name)})
            hint = f"{first.name} is joined to {', '.join(near[:16])}"
            raise UsageError(f"no cable joins {first.name} and {second.name}", hint=hint)
        fitting = [c for c in cables if all(port in ("", c.port_of(node)) for node, port in ports.items())]
        if len(fitting) != 1:
            names = ", ".join(f"{first.name}:{cable.port_of(first.name)}" for cable in cables)
            raise UsageError(f"{len(fitting)} cables fit {self.words[one]} {self.words[other]}", hint=f"give {names}")
        return fitting[0], first, second

    def rate_below(self, name: str, whole_bits_per_s: float | None) -> float:
        """A rate in bit/s below the link's own. The default is a tenth of it."""
        if not self.given(name):
            if whole_bits_per_s is None:
                raise UsageError("this link has no rate to be slower than", hint=f"give {name}=20Mb/s")
            return max(whole_bits_per_s / DEFAULT_SLOWDOWN, LEAST_RATE_BITS_PER_S)
        rate = parse_line_rate(self.words[name])
        given = f"{name}={self.words[name]}"
        if rate < LEAST_RATE_BITS_PER_S:
            raise UsageError(f"{given} is below 64 kb/s", hint="a link that carries nothing: link_down")
        if whole_bits_per_s is not None and rate >= whole_bits_per_s:
            whole = format_line_rate(whole_bits_per_s)
            raise UsageError(f"{given} is no fault: the link has {whole}", hint="give a lower rate")
        return rate

    def number(self, name: str, least: float, most: float) -> float:
        """A number within bounds; `10%` is 0.1."""
        text = self.words[name].strip()
        try:
            value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            raise UsageError(f"not a number: {name}={text[:40]}", hint=f"give {least:g} to {most:g}") from None
        if not least <= value <= most:  # also a NaN
            raise UsageError(f"{name}={text[:40]} is out of range", hint=f"give {least:g} to {most:g}")
        return value

    def choice(self, name: str, *choices: str) -> str:
        """One of some words."""
        if self.words[name] not in choices:
            raise UsageError(f"{name}={self.words[name][:40]} has no meaning", hint=f"give {' or '.join(choices)}")
        return self.words[name]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fault."""

    name: str
    summary: str
    arguments: Mapping[str, str | None]
    """The words that it takes, in their places or as NAME=VALUE, with their defaults. None: the word must be given.
    "": the fault works it out."""
    effects: Callable[[Values], tuple[Effect, ...]]
    """Raises UsageError for words that do not fit the lab."""

    def usage(self) -> str:
        """`link_slow FROM TO [rate=]`."""
        words = [name.upper() if default is None else f"[{name}={default}]" for name, default in self.arguments.items()]
        return " ".join([self.name, *words])

    def read(self, words: list[str]) -> dict[str, str]:
        """Words of the command line by the names of the arguments. Raises UsageError."""
        hint = f"write {self.usage()}"
        given: dict[str, str] = {}
        places = [name for name, default in self.arguments.items() if default is None]
        for word in words:
            name, equals, value = word.partition("=")
            if not equals:
                name, value = (places[0] if places else ""), word
            if name not in self.arguments or not value:
                raise UsageError(f"{self.name} does not take {word[:60]!r}", hint=hint)
            if name in given:
                raise UsageError(f"{name} is given twice", hint=hint)
            given[name] = value
            places = [place for place in places if place != name]
        if places:
            raise UsageError(f"{self.name} needs {' and '.join(places).upper()}", hint=hint)
        return {name: given.get(name, default or "") for name, default in self.arguments.items()}
