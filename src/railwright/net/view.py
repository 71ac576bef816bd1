"""A pod's network as it was seen, and the lines that checks say of it. What could not be looked at is an `Unseen`."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from railwright.errors import CannotJudge
from railwright.results.records import Evidence

Seen = TypeVar("Seen")
State = Literal["ok", "bad", "not looked"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="net_check", tag_field="record",
           forbid_unknown_fields=True):  # fmt: skip
    """The line of one check about one interface, as `railwright net check` prints it."""

    check: str
    interface: str
    rail: str = ""
    """Empty where it is not known."""
    state: State
    says: str
    """One sentence, with the value seen."""
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""
    """The next step; a command where one mends it."""


class Unseen(msgspec.Struct, frozen=True):
    """Something that could not be looked at: the reason as a clause, and what would make it visible."""

    why: str
    remedy: str = ""


def seen(found: Seen | Unseen) -> Seen:
    """The value that was seen. Raises CannotJudge for an `Unseen`."""
    if isinstance(found, Unseen):
        raise CannotJudge(found.why, hint=found.remedy)
    return found


def looked(look: Callable[[], Seen]) -> Seen | Unseen:
    """The result of `look`; an `Unseen` if it raises CannotJudge."""
    try:
        return look()
    except CannotJudge as error:
        return Unseen(error.message, error.hint)


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """An interface as its namespace has it."""

    name: str
    up: bool
    carrier: bool
    mac: str
    mtu_bytes: int
    kind: str
    """`veth` and its like, as `ip -details` says it; empty for hardware."""
    pci: str = ""
    """PCI address of what is behind it; empty for a virtual interface."""
    is_vf: bool = False
    driver: str = ""
    rdma: dict[str, str] = {}
    """Its RDMA devices, each with the state of its first port."""
    addresses: tuple[PortAddress, ...] = ()
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()

    def sources(self, version: int) -> tuple[Address, ...]:
        """The global addresses of a family (4 or 6)."""
        return tuple(one.address for one in self.addresses if one.is_global and one.address.version == version)

    def gateways(self) -> tuple[Address, ...]:
        """The next hops of its routes, each once."""
        return tuple(dict.fromkeys(route.gateway for route in self.routes if route.gateway is not None))

    def entry(self, address: Address) -> Neighbour | None:
        """The entry of the neighbour table for an address."""
        return next((one for one in self.neighbours if one.address == address), None)


class PortAddress(msgspec.Struct, frozen=True):
    """An address of an interface."""

    address: Address
    prefix_length: int
    is_global: bool
    trouble: str = ""
    """`tentative` or `dadfailed`: nothing is sent from it."""


class Route(msgspec.Struct, frozen=True):
    """A route by an interface, of any table."""

    destination: Network
    gateway: Address | None
    table: str


class Neighbour(msgspec.Struct, frozen=True):
    """An entry of the neighbour table. `mac` is empty where there is none."""

    address: Address
    mac: str
    states: tuple[str, ...]

    @property
    def is_permanent(self) -> bool:
        """Whether no ARP and no ND can change it."""
        return "PERMANENT" in self.states


class Way(msgspec.Struct, frozen=True):
    """The kernel's route to an address. `interface` is empty if there is none."""

    target: Address
    interface: str
    why: str = ""


class Forwarding(msgspec.Struct, frozen=True):
    """A leaf's host route to an address, in words, and whether it forwards to it."""

    words: str
    forwards: bool


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to echo requests that may not be fragmented. Sizes are of the whole IP packet."""

    source: Address
    target: Address
    sent: int
    """Small ones."""
    answered: int
    full_bytes: int
    """The interface's MTU."""
    full_sent: int
    full_answered: int
    largest_bytes: int = 0
    """The largest that was answered; 0: none."""
    round_trip_s: float | None = None
    """The shortest."""
    error: str = ""
    """What the sender's own kernel said where it refused to send."""


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """Echo requests to a pod of another tenant, and what an ear at its interface heard of them."""

    sender: str
    receiver: str
    sent: int
    heard: int
    lost: int
    """Frames that the ear's kernel dropped before it: it may have missed some."""
    sender_works: bool
    """The sender's gateway answered it in the same breath: its frames do reach the bridge."""
    receiver_works: bool
    """The receiver's gateway answers it: its interface carries frames."""


class Addresses(tuple[Address, ...]):
    """Addresses, which JSON has as text."""

    __slots__ = ()


class Networks(tuple[Network, ...]):
    """Prefixes, which JSON has as text."""

    __slots__ = ()


class Counters(dict[str, int]):
    """Packets by reason, which JSON has as text."""


class Key(msgspec.Struct, frozen=True):
    """The part of CNI's key of an attachment that is used."""

    interface: str


class PodName(msgspec.Struct, frozen=True):
    """The name of a pod."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment as `railwrightd list --json` has it. What the first daemons did not tell has a default."""

    key: Key
    pod: PodName
    parts: tuple[str, ...]
    rail: str
    tenant: str
    host_interface: str
    mac: str
    addresses: Addresses
    device_id: str
    flows_wanted: int
    flows_installed: int
    advertised: bool
    netns: str = ""
    gateways: Addresses = Addresses()
    open_tenants: tuple[str, ...] = ()
    gateway_mac: str = ""
    dropped: Counters = msgspec.field(default_factory=Counters)
    counted: bool = True
    """Whether the bridge could be asked: `flows_installed` and `dropped` say nothing otherwise."""

    @property
    def interface(self) -> str:
        """Its name in the pod."""
        return self.key.interface

    def may_talk_to(self, other: Attached) -> bool:
        """Whether two interfaces belong to one tenant, or to two that are open to each other."""
        return other.tenant in (self.tenant, *self.open_tenants)


class Rail(msgspec.Struct, frozen=True, kw_only=True):
    """A rail as `railwrightd status --json` has it. What the first daemons did not tell has a default."""

    rail: str
    switch_ready: bool
    session_established: bool
    problems: tuple[str, ...]
    dropped: Counters = msgspec.field(default_factory=Counters)
    prefixes: Networks = Networks()
    """That the addresses of its pods are in, on all nodes."""


class CachedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow of the datapath as `railwrightd flows --json` has it."""

    in_port: str
    offloaded: bool
    layer: str
    match: str
    actions: str
    packets: int
    why: str = ""


ON_THE_NODE = "on the pod's node, as root: railwright net check --pod NAMESPACE/NAME"
Known = Attached | Unseen | None
"""What railwrightd has attached; None: it knows nothing of the interface."""
NOT_ATTACHED = Unseen("railwrightd has no attachment for it", "was it attached by ovs-provider or railwright-cni?")


@dataclass(frozen=True, kw_only=True)
class View:
    """All that was seen of one interface of a pod. A check looks at this alone."""

    interface: str
    port: Port | None
    """None: the namespace has no such interface."""
    attached: Known
    attached_after: Known
    """The same once all packets were sent."""
    rail: Rail | Unseen
    rail_after: Rail | Unseen
    ways: tuple[Way, ...]
    """To the peers."""
    gateways: dict[Address, str | None] | Unseen
    """The MAC address that each gateway was asked for just now and answered; None: no answer."""
    echoes: tuple[Echo, ...] | Unseen
    isolations: tuple[Isolation, ...] | Unseen
    cached: tuple[CachedFlow, ...] | Unseen
    host_mtu_bytes: int | Unseen
    """Of the other end: the port of the bridge."""
    announced: dict[Address, tuple[str, ...]] | Unseen
    """The BGP peers that FRR of this node has sent each address to, by its own word."""
    leaf: dict[Address, Forwarding] | Unseen
    """What the rail's leaf has for each address."""
    rdma_shared: bool | None
    """Whether RDMA devices are seen in all namespaces; None: the kernel does not say."""
    verbs_files: tuple[str, ...] | Unseen
    netns: str | None
    """Its path; None: we are in it."""

    def existing_port(self) -> Port:
        """The interface. Raises CannotJudge where the namespace has none of that name."""
        return seen(self.port or Unseen(f"there is no {self.interface}"))

    def inside(self, command: str) -> str:
        """A command line for a person, that runs a command in the pod's namespace."""
        return command if self.netns is None else f"nsenter --net={shlex.quote(self.netns)} {command}"


class Bad(Exception):
    """Raised by a check that finds something wrong: one sentence, and the next step."""

    def __init__(self, says: str, remedy: str) -> None:
        super().__init__(says)
        self.says, self.remedy = says, remedy


Note = Callable[[str, str, str], None]
"""Takes one piece of evidence: the claim, the value seen, and where it was seen."""


@dataclass(frozen=True)
class Check:
    """One check."""

    name: str
    judge: Callable[[View, Note], str]
    """Pure. Notes the evidence and returns one sentence where all is well. Raises Bad, and CannotJudge where it
    cannot look."""
    after: tuple[str, ...] = ()
    """Other checks: where one of them is bad, that explains why this one is."""

    def look(self, view: View) -> Line:
        """The line that the check says of the view."""
        evidence: list[Evidence] = []

        def note(claim: str, value: str, where: str) -> None:
            evidence.append(Evidence(claim=claim, value=value, seen=where))

        state: State = "ok"
        remedy = ""
        try:
            says = self.judge(view, note)
        except Bad as trouble:
            state, says, remedy = "bad", trouble.says, trouble.remedy
        except CannotJudge as unseen:
            state, says, remedy = "not looked", unseen.message, unseen.hint
        return Line(
            check=self.name,
            interface=view.interface,
            rail=view.attached.rail if isinstance(view.attached, Attached) else "",
            state=state,
            says=says,
            evidence=tuple(evidence),
            remedy=remedy,
        )
