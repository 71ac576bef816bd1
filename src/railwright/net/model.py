"""What is said of a pod's network, and what it is said from. Everything that could not be looked at is an `Unseen`."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from railwright.results.model import Evidence

State = Literal["ok", "bad", "not looked"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="net_check", tag_field="record",
           forbid_unknown_fields=True):  # fmt: skip
    """What one check says of one interface: a line of `railwright net check`."""

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
    """Something that could not be looked at, one clause why, and what would let it be seen."""

    why: str
    remedy: str = ""


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
        """What the neighbour table has of an address."""
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
    """Where the kernel sends what goes to an address; `interface` is empty where it goes nowhere."""

    target: Address
    interface: str
    why: str = ""


class Forwarding(msgspec.Struct, frozen=True):
    """A leaf's host route to an address, in words, and whether it forwards to it."""

    words: str
    forwards: bool


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """What came back of echo requests that may not be fragmented. Sizes are of the whole IP packet."""

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
    targets: tuple[Address, ...]
    sent: int
    heard: int
    lost: int
    """Frames that the ear's kernel dropped before it: it may have missed some."""
    sender_works: bool
    """The sender's gateway answered it in the same breath: its frames do reach the bridge."""
    receiver_works: bool
    """The receiver's gateway answers it: its interface carries frames."""


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment as `railwrightd list --json` has it."""

    pod: str
    """NAMESPACE/NAME."""
    interface: str
    parts: tuple[str, ...]
    rail: str
    tenant: str
    host_interface: str
    mac: str
    addresses: tuple[Address, ...]
    gateways: tuple[Address, ...]
    gateway_mac: str
    open_tenants: tuple[str, ...]
    netns: str
    device_id: str
    flows_wanted: int
    flows_installed: int
    advertised: bool
    dropped: dict[str, int]
    counted: bool = True
    """Whether the bridge could be asked: `flows_installed` and `dropped` say nothing otherwise."""

    def may_talk_to(self, other: Attached) -> bool:
        """Whether they are of one tenant, or of two that are open to each other."""
        return other.tenant in (self.tenant, *self.open_tenants)


class Rail(msgspec.Struct, frozen=True, kw_only=True):
    """A rail as `railwrightd status --json` has it."""

    rail: str
    switch_ready: bool
    uplink_up: bool
    session_established: bool
    prefixes: tuple[Network, ...] = ()
    """That the addresses of its pods are in, on all nodes."""
    problems: tuple[str, ...] = ()
    dropped: dict[str, int] = {}


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
    """All that was seen of one interface of a pod; what a check looks at."""

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

    def line(self, check: str, trouble: tuple[str, str], fine: str, evidence: Sequence[Evidence] = ()) -> Line:
        """The line of a check that looked: `trouble` is what is wrong and its remedy, both empty where `fine` is so."""
        says, remedy = trouble
        return Line(
            check=check,
            interface=self.interface,
            state="bad" if says else "ok",
            says=says or fine,
            evidence=tuple(evidence),
            remedy=remedy if says else "",
        )

    def not_looked(self, check: str, unseen: Unseen, evidence: Sequence[Evidence] = ()) -> Line:
        """The line of a check that could not look."""
        return Line(
            check=check,
            interface=self.interface,
            state="not looked",
            says=unseen.why,
            evidence=tuple(evidence),
            remedy=unseen.remedy,
        )

    def no_port(self, check: str) -> Line:
        """The line of a check that needs an interface which is not there."""
        return self.not_looked(check, Unseen(f"there is no {self.interface}"))

    def inside(self, command: str) -> str:
        """A command line for a person, that runs a command in the pod's namespace."""
        return command if self.netns is None else f"nsenter --net={shlex.quote(self.netns)} {command}"


@dataclass(frozen=True)
class Check:
    """One check. `look` is pure. `after`: checks whose being bad explains that this one is."""

    name: str
    summary: str
    look: Callable[[View], Line]
    after: tuple[str, ...] = ()
