"""The observed state of a pod's network, and the result lines of checks. An unreadable part is an `Unseen`."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from railwright.errors import CannotJudge
from railwright.results.records import Evidence

if TYPE_CHECKING:
    from railwright.net.recorded import HostEnd, Recorded

Seen = TypeVar("Seen")
State = Literal["ok", "bad", "not looked"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="net_check", tag_field="record",
           forbid_unknown_fields=True):  # fmt: skip
    """The result of a check for an interface, as `railwright net check` prints it."""

    check: str
    interface: str
    rail: str = ""
    """The rail of the interface. Empty if it is unknown."""
    state: State
    says: str
    """A sentence with the observed value."""
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""
    """The next step, as a command if a command fixes the problem."""


class Unseen(msgspec.Struct, frozen=True):
    """A part that could not be read: the reason as a clause, and the step that would make it readable."""

    why: str
    remedy: str = ""


def require_seen(found: Seen | Unseen) -> Seen:
    """Return an observed value. Raises CannotJudge for an `Unseen`."""
    if isinstance(found, Unseen):
        raise CannotJudge(found.why, hint=found.remedy)
    return found


def try_look(look: Callable[[], Seen]) -> Seen | Unseen:
    """Return the result of `look`, or an `Unseen` if it raises CannotJudge."""
    try:
        return look()
    except CannotJudge as error:
        return Unseen(error.message, error.hint)


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """An interface in a network namespace."""

    name: str
    up: bool
    carrier: bool
    mac: str
    mtu_bytes: int
    kind: str
    """The kind in `ip -details`, such as `veth`. Empty for hardware."""
    index: int = 0
    peer_index: int = 0
    """The number of a veth's other end in its own namespace. 0 without one."""
    pci: str = ""
    """The PCI address of its device. Empty for a virtual interface."""
    is_vf: bool = False
    driver: str = ""
    rdma: dict[str, str] = {}
    """Its RDMA devices, each with the state of its first port."""
    gids: dict[str, list[str]] = {}
    """The RoCE v2 GIDs of each device's first port, as addresses. A device whose GIDs cannot be read is missing."""
    addresses: tuple[PortAddress, ...] = ()
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()

    def sources(self, version: int) -> tuple[Address, ...]:
        """Return the global addresses of a family (4 or 6)."""
        return tuple(one.address for one in self.addresses if one.is_global and one.address.version == version)

    def gateways(self) -> tuple[Address, ...]:
        """Return the distinct next hops of its routes."""
        return tuple(dict.fromkeys(route.gateway for route in self.routes if route.gateway is not None))

    def entry(self, address: Address) -> Neighbour | None:
        """Return the neighbour table's entry for an address. None if there is none."""
        return next((one for one in self.neighbours if one.address == address), None)


class PortAddress(msgspec.Struct, frozen=True):
    """An address of an interface."""

    address: Address
    prefix_length: int
    is_global: bool
    trouble: str = ""
    """`tentative` or `dadfailed` if the kernel does not send from the address. Empty if it does."""


class Route(msgspec.Struct, frozen=True):
    """A route through an interface, from any table."""

    destination: Network
    gateway: Address | None
    table: str


class Neighbour(msgspec.Struct, frozen=True):
    """An entry of the neighbour table. `mac` is empty if the entry has no MAC address."""

    address: Address
    mac: str
    states: tuple[str, ...]

    @property
    def is_permanent(self) -> bool:
        """Whether the entry is permanent, so that ARP and ND cannot change it."""
        return "PERMANENT" in self.states


class KernelWay(msgspec.Struct, frozen=True):
    """The kernel's route to an address. `interface` is empty if there is no route, for the reason `why`."""

    target: Address
    interface: str
    why: str = ""


class Forwarding(msgspec.Struct, frozen=True):
    """A leaf's host route to an address as text, and whether the leaf forwards to it."""

    words: str
    forwards: bool


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to echo requests that must not be fragmented. A size is that of the whole IP packet."""

    source: Address
    target: Address
    sent: int
    """The number of small requests."""
    answered: int
    full_bytes: int
    """The interface's MTU."""
    full_sent: int
    full_answered: int
    largest_bytes: int = 0
    """The largest answered size. 0 if none was answered."""
    round_trip_s: float | None = None
    """The shortest round trip. None if there was no answer."""
    error: str = ""
    """The error of the sender's kernel. Empty if it sent all requests."""


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """Echo requests to a pod of another tenant, and the frames that a listener at its interface received."""

    sender: str
    receiver: str
    sent: int
    heard: int
    lost: int
    """Frames that the kernel dropped before the listener, which may therefore have missed some."""
    sender_works: bool
    """Whether the sender's gateway answered right after the requests, so that the sender's frames reach the bridge."""
    receiver_works: bool
    """Whether the receiver's gateway answered the receiver, so that its interface carries frames."""


class Addresses(tuple[Address, ...]):
    """Addresses, which JSON holds as strings."""

    __slots__ = ()


class Networks(tuple[Network, ...]):
    """Prefixes, which JSON holds as strings."""

    __slots__ = ()


class Counters(dict[str, int]):
    """Packets by reason, which JSON holds as strings."""


class Key(msgspec.Struct, frozen=True):
    """The fields read from an attachment's CNI key."""

    interface: str


class PodName(msgspec.Struct, frozen=True):
    """The name of a pod."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment in `railwrightd list --json`. Fields that old daemons lack have a default."""

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
    """Whether the bridge answered; otherwise `flows_installed` and `dropped` mean nothing."""

    @property
    def interface(self) -> str:
        """The interface's name in the pod."""
        return self.key.interface

    def may_talk_to(self, other: Attached) -> bool:
        """Report whether two interfaces belong to the same tenant, or to tenants open to each other."""
        return other.tenant in (self.tenant, *self.open_tenants)


class Rail(msgspec.Struct, frozen=True, kw_only=True):
    """A rail in `railwrightd status --json`. Fields that old daemons lack have a default."""

    rail: str
    switch_ready: bool
    session_established: bool
    problems: tuple[str, ...]
    dropped: Counters = msgspec.field(default_factory=Counters)
    prefixes: Networks = Networks()
    """The prefixes of its pods' addresses on all nodes."""


class CachedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow of the datapath in `railwrightd flows --json`."""

    in_port: str
    offloaded: bool
    layer: str
    match: str
    actions: str
    packets: int
    why: str = ""


ON_THE_NODE = "on the pod's node, as root: railwright net check --pod NAMESPACE/NAME"
Known = Attached | Unseen | None
"""An attachment of railwrightd. None if the interface is not attached."""
NOT_ATTACHED = Unseen("railwrightd has no attachment for it", "was it attached by ovs-provider or railwright-cni?")


@dataclass(frozen=True, kw_only=True)
class View:
    """The observed state of a pod's interface, the only input of a check."""

    interface: str
    port: Port | None
    """The interface. None if the namespace does not have one of that name."""
    attached: Known
    attached_after: Known
    """The attachment after all packets were sent."""
    rail: Rail | Unseen
    rail_after: Rail | Unseen
    ways: tuple[KernelWay, ...]
    """The routes to the peers."""
    gateways: dict[Address, str | None] | Unseen
    """The MAC address with which each gateway answered. None if it did not answer."""
    echoes: tuple[Echo, ...] | Unseen
    isolations: tuple[Isolation, ...] | Unseen
    cached: tuple[CachedFlow, ...] | Unseen
    host_end: HostEnd | Unseen
    """The other end, the port of the bridge."""
    announced: dict[Address, tuple[str, ...]] | Unseen
    """The BGP peers to which this node's FRR reports having sent each address."""
    leaf: dict[Address, Forwarding] | Unseen
    """The route of the rail's leaf to each address."""
    rdma_shared: bool | None
    """Whether all namespaces see RDMA devices. None if the kernel does not report it."""
    verbs_files: tuple[str, ...] | Unseen
    recorded: Recorded | Unseen
    """The container runtime's record of the interface."""
    netns: str | None
    """The path of the namespace. None means our own."""

    def existing_port(self) -> Port:
        """Return the interface. Raises CannotJudge if the namespace does not have one of that name."""
        return require_seen(self.port or Unseen(f"there is no {self.interface}"))

    def inside(self, command: str) -> str:
        """Return the shell command line that runs `command` in the pod's namespace, for use in a remedy."""
        return command if self.netns is None else f"nsenter --net={shlex.quote(self.netns)} {command}"


class Bad(Exception):
    """The failure of a check: a sentence, and the next step."""

    def __init__(self, says: str, remedy: str) -> None:
        super().__init__(says)
        self.says, self.remedy = says, remedy


Note = Callable[[str, str, str], None]
"""Records a piece of evidence: the claim, the observed value, and its source."""


@dataclass(frozen=True)
class Check:
    """A check of an interface."""

    name: str
    judge: Callable[[View, Note], str]
    """A pure function that notes the evidence and returns a sentence if all is well. Raises Bad for a fault, and
    CannotJudge if parts are unreadable."""
    after: tuple[str, ...] = ()
    """Checks whose failure explains a failure of this check."""
    is_ours: bool = False
    """Whether it is about railwrightd alone, and does not apply to networks without it."""

    def look(self, view: View) -> Line:
        """Judge the view and return the result line."""
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
