"""railwrightd's own view, by its verbs. All of its output is bounded and read strictly."""

from __future__ import annotations

import ipaddress
import shutil
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from railwright.errors import CannotJudge, UsageError
from railwright.net.view import (
    ON_THE_NODE,
    Attached,
    AttachedFacts,
    CachedFlow,
    Rail,
    RailFacts,
    Seen,
    Unseen,
    looked,
)
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


class _Attached(AttachedFacts, frozen=True, kw_only=True):
    """A record in gRPC's JSON, which writes 64-bit numbers as text. Fields that an older daemon lacks have defaults."""

    key: _Key
    pod: _Pod
    addresses: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    dropped: dict[str, str] = msgspec.field(default_factory=dict)


class _List(msgspec.Struct):
    attached: list[_Attached] = []


class _Rail(RailFacts, frozen=True, kw_only=True):
    prefixes: tuple[str, ...] = ()
    dropped: dict[str, str] = msgspec.field(default_factory=dict)


class _Status(msgspec.Struct):
    rails: list[_Rail] = []
    problems: tuple[str, ...] = ()


@dataclass
class Railwrightd:
    """The daemon of this node: its program, its socket, its configuration. None means the default place.

    One that has once not answered is not asked again: each time would cost its whole time-out.
    """

    program: str | None = None
    socket: str | None = None
    config: str | None = None
    away: Unseen | None = None
    """The reason why the daemon does not answer."""

    def attached(self) -> tuple[Attached, ...] | Unseen:
        """All attachments of the node."""
        return self._ask_daemon("list", _List, lambda said: tuple(map(_attached, said.attached)))

    def rails(self) -> dict[str, Rail] | Unseen:
        """Its rails by name."""
        return self._ask_daemon("status", _Status, lambda said: {one.rail: _rail(one, said) for one in said.rails})

    def flows(self) -> tuple[CachedFlow, ...] | Unseen:
        """The flows that the datapath has cached. The daemon need not run for this."""
        return looked(lambda: self._ask(tuple[CachedFlow, ...], "flows", "--config", self.config))

    def _ask_daemon(self, verb: str, kind: type[Answer], read: Callable[[Answer], Seen]) -> Seen | Unseen:
        if self.away is not None:
            return self.away
        said = looked(lambda: self._ask(kind, verb, "--socket", self.socket))
        if isinstance(said, Unseen):
            self.away = said
            return said
        try:
            return read(said)
        except ValueError as error:
            return Unseen(f"railwrightd {verb} says what cannot be: {error}")

    def _ask(self, kind: type[Answer], verb: str, option: str, value: str | None) -> Answer:
        """The output of a verb. Raises CannotJudge."""
        program = self.program or shutil.which("railwrightd")
        if program is None:
            hint = f"{ON_THE_NODE}, or name it with --railwrightd"
            raise CannotJudge("railwrightd is not on PATH here", hint=hint)
        argv = [program, verb, "--json", *([option, value] if value else [])]
        try:
            with Child(argv, output=deque(maxlen=_MOST_PIECES)) as child:
                ended = child.wait(_ASK_S)
        except UsageError as error:
            raise CannotJudge(error.message, hint="name it with --railwrightd") from error
        said = "".join(ended.output)
        if ended.timed_out:
            hint = "see its log, and railwrightd status"
            raise CannotJudge(f"railwrightd {verb} did not answer within {_ASK_S:.0f} s", hint=hint)
        # `status` ends with 1 where it has problems to tell.
        if ended.returncode not in (0, 1):
            why = f"{ended.describe()}: {said[-_SHOWN:].removeprefix('railwrightd: ')}"
            hint = f"is {option} right? does railwrightd run? {ON_THE_NODE}"
            raise CannotJudge(f"railwrightd {verb}: {why}", hint=hint)
        try:
            return msgspec.json.decode(said, type=kind)
        except msgspec.MsgspecError as error:
            why = f"railwrightd {verb} says what is not understood: {error}: {said[:_SHOWN]}"
            raise CannotJudge(why) from error


def _attached(one: _Attached) -> Attached:
    return Attached(
        **_facts(one, AttachedFacts),
        pod=f"{one.pod.namespace}/{one.pod.name}",
        interface=one.key.interface,
        addresses=tuple(map(ipaddress.ip_address, one.addresses)),
        gateways=tuple(map(ipaddress.ip_address, one.gateways)),
        dropped=_counters(one.dropped),
    )


def _rail(one: _Rail, status: _Status) -> Rail:
    return Rail(
        **{**_facts(one, RailFacts), "problems": one.problems + status.problems},
        prefixes=tuple(map(ipaddress.ip_network, one.prefixes)),
        dropped=_counters(one.dropped),
    )


def _facts(one: msgspec.Struct, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields that the daemon's own record and ours share."""
    return {name: getattr(one, name) for name in kind.__struct_fields__}


def _counters(texts: dict[str, str]) -> dict[str, int]:
    return {name: int(text[:20]) for name, text in texts.items()}
