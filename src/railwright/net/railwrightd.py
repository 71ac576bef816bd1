"""The view of railwrightd, read through its verbs. This package uses no other part of railwrightd and its plugins.

`schema/railwrightd-*.schema.json` define their output, which is bounded and parsed strictly; unused fields are ignored.
"""

from __future__ import annotations

import ipaddress
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from railwright.errors import CannotJudge, UsageError
from railwright.net.view import (
    ON_THE_NODE,
    Addresses,
    Attached,
    CachedFlow,
    Counters,
    Networks,
    Rail,
    Seen,
    Unseen,
    try_look,
)
from railwright.process import query

DEFAULT_SOCKET = "/run/railwright/railwrightd.sock"
_ASK_S = 10.0
_MOST_BYTES = 16 << 20
"""The longest answer: the flows of a large node."""
_SHOWN_CHARACTERS = 300
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")

Answer = TypeVar("Answer")
Count = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,20}$")]
"""A 64-bit integer, which gRPC's JSON writes as a string."""
WRITTEN: Mapping[type, Any] = {Addresses: tuple[str, ...], Networks: tuple[str, ...], Counters: dict[str, Count]}
"""The JSON form of each type that JSON does not have."""


class List(msgspec.Struct):
    """The fields read from `railwrightd list --json`."""

    attached: tuple[Attached, ...]


class Status(msgspec.Struct):
    """The fields read from `railwrightd status --json`."""

    rails: tuple[Rail, ...]
    problems: tuple[str, ...]


Flows = tuple[CachedFlow, ...]
"""The fields read from `railwrightd flows --json`."""


@dataclass
class Railwrightd:
    """This node's daemon: its program, socket and configuration. None means the default.

    A daemon that has not answered is not asked again, since each attempt would take a full timeout.
    """

    program: str | None = None
    socket: str | None = None
    config: str | None = None
    away: Unseen | None = None
    """The reason why the daemon does not answer. None if it does or has not been asked."""

    def attached(self) -> tuple[Attached, ...] | Unseen:
        """Return all attachments on the node."""
        return self._ask_daemon("list", read_list)

    def rails(self) -> dict[str, Rail] | Unseen:
        """Return the node's rails by name."""
        return self._ask_daemon("status", read_status)

    def flows(self) -> Flows | Unseen:
        """Return the datapath's cached flows. Works without a running daemon."""
        return try_look(lambda: read_flows(self._ask("flows", "--config", self.config)))

    def _ask_daemon(self, verb: str, read: Callable[[str], Seen]) -> Seen | Unseen:
        if self.away is None:
            found = try_look(lambda: read(self._ask(verb, "--socket", self.socket)))
            if not isinstance(found, Unseen):
                return found
            self.away = found
        return self.away

    def _ask(self, verb: str, option: str, value: str | None) -> str:
        """Run a verb and return its output. Raises CannotJudge if railwrightd is missing, fails or does not answer."""
        program = self.program or shutil.which("railwrightd")
        if program is None:
            hint = f"{ON_THE_NODE}, or name it with --railwrightd"
            raise CannotJudge("railwrightd is not on PATH here", hint=hint)
        argv = [program, verb, "--json", *([option, value] if value else [])]
        try:
            ended = query(argv, timeout_s=_ASK_S, most_bytes=_MOST_BYTES)
        except UsageError as error:
            raise CannotJudge(error.message, hint="name it with --railwrightd") from error
        said = "".join(ended.output)
        if ended.timed_out:
            hint = "see its log, and railwrightd status"
            raise CannotJudge(f"railwrightd {verb} did not answer within {_ASK_S:.0f} s", hint=hint)
        # `status` exits with status 1 if it reports problems.
        if ended.returncode not in (0, 1):
            why = f"{ended.describe()}: {said[-_SHOWN_CHARACTERS:].removeprefix('railwrightd: ')}"
            hint = f"is {option} right? does railwrightd run? {ON_THE_NODE}"
            raise CannotJudge(f"railwrightd {verb}: {why}", hint=hint)
        return said


def read_list(said: str) -> tuple[Attached, ...]:
    """Parse the attachments from the output of `list`. Raises CannotJudge for malformed output."""
    return _decode_output("list", List, said).attached


def read_status(said: str) -> dict[str, Rail]:
    """Parse the output of `status` into rails by name. Each rail's problems include those of the node.

    Raises CannotJudge for malformed output.
    """
    status = _decode_output("status", Status, said)
    return {rail.rail: msgspec.structs.replace(rail, problems=rail.problems + status.problems) for rail in status.rails}


def read_flows(said: str) -> Flows:
    """Parse the output of `flows`. Raises CannotJudge for malformed output."""
    return _decode_output("flows", Flows, said)


def _decode_output(verb: str, kind: type[Answer], said: str) -> Answer:
    try:
        return msgspec.json.decode(said, type=kind, dec_hook=_decode_value)
    except (msgspec.MsgspecError, RecursionError) as error:
        cause = str(error)[:_SHOWN_CHARACTERS]
        why = f"cannot parse the output of railwrightd {verb}: {cause}: {_find_value(str(error), said)}"
        schema = f"schema/railwrightd-{verb}.schema.json"
        raise CannotJudge(why, hint=f"check railwrightd --version: its output must match {schema}") from error


def _decode_value(kind: type, value: object) -> object:
    try:
        written = msgspec.convert(value, WRITTEN[kind])
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error  # so that msgspec adds the path
    if kind is Counters:
        return Counters((name, int(text)) for name, text in written.items())
    return kind(map(ipaddress.ip_address if kind is Addresses else ipaddress.ip_network, written))


def _find_value(error: str, said: str) -> str:
    """Return the value at the path in an msgspec error, as JSON. If there is no such value, return the whole output."""
    try:
        value: Any = msgspec.json.decode(said)
        for name, number in _STEP.findall(error.rpartition(" - at `$")[2]):
            value = value[name or int(number)]
        return msgspec.json.encode(value).decode()[:_SHOWN_CHARACTERS]
    except (msgspec.MsgspecError, RecursionError, LookupError, TypeError):
        return said[:_SHOWN_CHARACTERS]
