"""The changes that faults make to a lab, as data. Faults compute them and `applied` carries them out.

The state of a port follows from the plan and the applied faults. So faults may share a port, and healing a fault
restores the state that the plan and the remaining faults give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from railwright.errors import UsageError
from railwright.lab.nodes import Cable, LabPlan, Node
from railwright.units import format_line_rate, parse_line_rate

MIN_RATE_BITS_PER_S = 64_000.0
"""The minimum rate of a fault. At a lower rate, packets would wait in the queue for seconds."""
MIN_MTU_BYTES = 1280
"""The minimum MTU of IPv6 (RFC 8200, section 5); below it the kernel disables IPv6 on the port, and so BGP."""
DEFAULT_SLOWDOWN = 10.0


class OnPort(msgspec.Struct, frozen=True):
    """A change to a port of a node."""

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
    """The port drops packets longer than this, in either direction."""

    mtu_bytes: int


class PortSegments(OnPort, frozen=True):
    """The port sends every packet separately, like a wire; a veth otherwise carries 64 KiB of TCP as one packet."""


class PortLoss(OnPort, frozen=True):
    """The port loses a fraction of the arriving packets at random."""

    fraction: float
    spare_routing: bool
    """Whether BGP and neighbour discovery packets pass, so that routing does not notice the fault."""


class PortFlaps(OnPort, frozen=True):
    """The port goes down for `down_s`, is up for `up_s`, and so on."""

    down_s: float
    up_s: float


class PortBusy(OnPort, frozen=True):
    """Foreign packets leave through the port at a steady rate, regardless of loss."""

    rate_bits_per_s: float
    packet_bytes: int


class SlowCpu(msgspec.Struct, frozen=True):
    """All processes of the node together get this share of one CPU."""

    node: str
    share: float


Effect = OnPort | SlowCpu


class Values(msgspec.Struct, frozen=True):
    """The arguments of a fault, and methods that interpret them in this lab. Every method raises UsageError."""

    plan: LabPlan
    words: Mapping[str, str]

    def given(self, name: str) -> bool:
        """Report whether the argument has a value."""
        return bool(self.words[name])

    def node(self, name: str, *kinds: Literal["host", "leaf", "spine", "superspine"]) -> Node:
        """Return the named node, which must be of one of `kinds` if any are given."""
        node = self.plan.node(self.words[name].partition(":")[0])
        if kinds and node.kind not in kinds:
            raise UsageError(
                f"{name} must be a {' or '.join(kinds)}, got {node.name}, a {node.kind}",
                hint="see railwright lab status",
            )
        return node

    def cable(self, one: str, other: str) -> tuple[Cable, Node, Node]:
        """Return the cable between two nodes, each `leaf0`, or `leaf0:PORT` if several cables join them."""
        first, second = self.node(one), self.node(other)
        ports = {node.name: self.words[name].partition(":")[2] for name, node in ((one, first), (other, second))}
        cables = self.plan.between(first.name, second.name)
        if not cables:
            near = sorted({cable.peer_of(first.name) for cable in self.plan.cables_of(first.name)})
            hint = f"{first.name} has cables to {', '.join(near[:16])}"
            raise UsageError(f"no cable joins {first.name} and {second.name}", hint=hint)
        fitting = [c for c in cables if all(port in ("", c.port_of(node)) for node, port in ports.items())]
        if len(fitting) != 1:
            names = ", ".join(f"{first.name}:{cable.port_of(first.name)}" for cable in cables)
            raise UsageError(f"{len(fitting)} cables match {self.words[one]} {self.words[other]}", hint=f"give {names}")
        return fitting[0], first, second

    def rate_below(self, name: str, whole_bits_per_s: float | None) -> float:
        """Return a rate in bit/s below the link's own. The default is a tenth of it."""
        if not self.given(name):
            if whole_bits_per_s is None:
                raise UsageError(f"{name} has no default: the link has no rate", hint=f"give {name}=20Mb/s")
            return max(whole_bits_per_s / DEFAULT_SLOWDOWN, MIN_RATE_BITS_PER_S)
        rate = parse_line_rate(self.words[name])
        if rate < MIN_RATE_BITS_PER_S:
            raise UsageError(
                f"{name} must be at least 64 kb/s, got {self.words[name]}", hint="use link_down to stop the link"
            )
        if whole_bits_per_s is not None and rate >= whole_bits_per_s:
            whole = format_line_rate(whole_bits_per_s)
            raise UsageError(
                f"{name} must be below the link's {whole}, got {self.words[name]}", hint="give a lower rate"
            )
        return rate

    def number(self, name: str, minimum: float, maximum: float) -> float:
        """Return a number within bounds; `10%` is 0.1."""
        text = self.words[name].strip()
        try:
            value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            raise UsageError(
                f"{name} must be a number, got {text[:40]}", hint=f"give {minimum:g} to {maximum:g}"
            ) from None
        if not minimum <= value <= maximum:  # also true of NaN
            raise UsageError(
                f"{name} must be {minimum:g} to {maximum:g}, got {text[:40]}", hint="give a value in that range"
            )
        return value

    def choice(self, name: str, *choices: str) -> str:
        """Return the argument, which must be one of the choices."""
        if self.words[name] not in choices:
            raise UsageError(
                f"{name} must be {' or '.join(choices)}, got {self.words[name][:40]}", hint="give one of these"
            )
        return self.words[name]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of fault."""

    name: str
    summary: str
    arguments: Mapping[str, str | None]
    """The arguments by name, given in order or as NAME=VALUE, with their defaults. None marks a required argument;
    for "" the fault computes the default."""
    effects: Callable[[Values], tuple[Effect, ...]]
    """Computes the fault's changes. Raises UsageError for arguments that do not fit the lab."""

    def usage(self) -> str:
        """Return the usage line: `link_slow FROM TO [rate=]`."""
        words = [name.upper() if default is None else f"[{name}={default}]" for name, default in self.arguments.items()]
        return " ".join([self.name, *words])

    def read(self, words: list[str]) -> dict[str, str]:
        """Parse the words of the command line into arguments by name. Raises UsageError."""
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
