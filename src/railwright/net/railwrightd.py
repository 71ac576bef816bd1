"""What railwrightd says of itself, by its own verbs. Everything it prints is bounded and read strictly."""

from __future__ import annotations

import ipaddress
import shutil
from collections import deque
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from railwright.errors import UsageError
from railwright.net.model import ON_THE_NODE, Address, Attached, CachedFlow, Rail, Unseen
from railwright.process import Child

_ASK_S = 10.0
_MOST_PIECES = 4096  # of 4 KiB each: the flows of a large node
_SHOWN = 300

Answer = TypeVar("Answer")


class _Key(msgspec.Struct):
    network: str
    interface: str


class _Pod(msgspec.Struct):
    namespace: str
    name: str


class _Attached(msgspec.Struct):
    """As gRPC's JSON has it, where 64-bit numbers are texts. What an older daemon does not say has a default."""

    key: _Key
    pod: _Pod
    rail: str
    tenant: str
    host_interface: str
    mac: str
    flows_wanted: int
    flows_installed: int
    advertised: bool
    parts: list[str] = []
    addresses: list[str] = []
    gateways: list[str] = []
    gateway_mac: str = ""
    open_tenants: list[str] = []
    netns: str = ""
    device_id: str = ""
    dropped: dict[str, str] = {}
    counted: bool = True


class _List(msgspec.Struct):
    attached: list[_Attached] = []


class _Rail(msgspec.Struct):
    rail: str
    switch_ready: bool
    uplink_up: bool
    session_established: bool
    prefixes: list[str] = []
    problems: list[str] = []
    dropped: dict[str, str] = {}


class _Status(msgspec.Struct):
    rails: list[_Rail] = []
    problems: list[str] = []


@dataclass
class Railwrightd:
    """The daemon of this node: its program, its socket, its configuration; None: where they are by default.

    One that has once not answered is not asked again: each time would cost its whole time-out.
    """

    program: str | None = None
    socket: str | None = None
    config: str | None = None
    away: Unseen | None = None
    """Why it does not answer."""

    def attached(self) -> tuple[Attached, ...] | Unseen:
        """All attachments of the node."""
        found = self._ask_daemon(_List, "list")
        if isinstance(found, Unseen):
            return found
        try:
            return tuple(_attached(one) for one in found.attached)
        except ValueError as error:
            return Unseen(f"railwrightd list says what cannot be: {error}")

    def rails(self) -> dict[str, Rail] | Unseen:
        """Its rails by name."""
        found = self._ask_daemon(_Status, "status")
        if isinstance(found, Unseen):
            return found
        try:
            return {
                one.rail: Rail(
                    rail=one.rail,
                    switch_ready=one.switch_ready,
                    uplink_up=one.uplink_up,
                    session_established=one.session_established,
                    prefixes=tuple(ipaddress.ip_network(text) for text in one.prefixes),
                    problems=(*one.problems, *found.problems),
                    dropped=_counters(one.dropped),
                )
                for one in found.rails
            }
        except ValueError as error:
            return Unseen(f"railwrightd status says what cannot be: {error}")

    def flows(self) -> tuple[CachedFlow, ...] | Unseen:
        """What the datapath has cached; the daemon itself need not run for that."""
        found = self._ask(list[CachedFlow], "flows", "--config", self.config)
        return found if isinstance(found, Unseen) else tuple(found)

    def _ask_daemon(self, kind: type[Answer], verb: str) -> Answer | Unseen:
        if self.away is not None:
            return self.away
        found = self._ask(kind, verb, "--socket", self.socket)
        if isinstance(found, Unseen):
            self.away = found
        return found

    def _ask(self, kind: type[Answer], verb: str, option: str, value: str | None) -> Answer | Unseen:
        program = self.program or shutil.which("railwrightd")
        if program is None:
            return Unseen("railwrightd is not on PATH here", f"{ON_THE_NODE}, or name it with --railwrightd")
        argv = [program, verb, "--json", *([option, value] if value else [])]
        try:
            with Child(argv, output=deque(maxlen=_MOST_PIECES)) as child:
                ended = child.wait(_ASK_S)
        except UsageError as error:
            return Unseen(error.message, "name it with --railwrightd")
        said = "".join(ended.output)
        if ended.timed_out:
            return Unseen(
                f"railwrightd {verb} did not answer within {_ASK_S:.0f} s", "see its log, and railwrightd status"
            )
        # `status` ends with 1 where it has problems to tell.
        if ended.returncode not in (0, 1):
            return Unseen(f"railwrightd {verb}: {ended.describe()}: {said[-_SHOWN:].removeprefix('railwrightd: ')}",
                          f"is {option} right? does railwrightd run? {ON_THE_NODE}")  # fmt: skip
        try:
            return msgspec.json.decode(said, type=kind)
        except msgspec.MsgspecError as error:
            return Unseen(f"railwrightd {verb} says what is not understood: {error}: {said[:_SHOWN]}")


def _attached(one: _Attached) -> Attached:
    return Attached(
        pod=f"{one.pod.namespace}/{one.pod.name}",
        interface=one.key.interface,
        parts=tuple(one.parts),
        rail=one.rail,
        tenant=one.tenant,
        host_interface=one.host_interface,
        mac=one.mac,
        addresses=_addresses(one.addresses),
        gateways=_addresses(one.gateways),
        gateway_mac=one.gateway_mac,
        open_tenants=tuple(one.open_tenants),
        netns=one.netns,
        device_id=one.device_id,
        flows_wanted=one.flows_wanted,
        flows_installed=one.flows_installed,
        advertised=one.advertised,
        dropped=_counters(one.dropped),
        counted=one.counted,
    )


def _addresses(texts: list[str]) -> tuple[Address, ...]:
    return tuple(ipaddress.ip_address(text) for text in texts)


def _counters(texts: dict[str, str]) -> dict[str, int]:
    return {name: int(text[:20]) for name, text in texts.items()}
