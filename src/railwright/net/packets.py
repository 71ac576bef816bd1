"""Real packets of a pod: ARP and ND to its gateways, echo requests to its peers and to pods that it must not reach.

The traffic is bounded: a few hundred packets per peer, none larger than the interface's MTU.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from railwright.errors import CannotJudge
from railwright.net.pod import roles_argv, run_roles
from railwright.net.view import Address, Echo, Isolation, Unseen
from railwright.process import Child

_SMALL_BYTES = 100
_SMALL_PACKETS, _FULL_PACKETS, _STEP_PACKETS = 5, 3, 2
_MIN_MTU_BYTES = {4: 68, 6: 1280}  # the minimum MTUs of RFC 791 and RFC 8200
_STEPS = 48
_ROUNDS = 3
_FORBIDDEN_PACKETS = 20
_CNP_PACKETS, _CNP_DSCP = 4, 48  # the DSCP of RoCE's congestion notifications unless a NIC's cnp_dscp says otherwise
_WAIT_S = 1.0
_ASK_TRIES, _ASK_WAIT_S = 3, 0.4
_START_S = 10.0
_MARK_BYTES = 16

Gateways = dict[Address, str | None]
"""The MAC address of each gateway. None if the gateway does not answer."""
Answers = tuple[Gateways | Unseen, tuple[Echo, ...] | Unseen]


@dataclass(frozen=True)
class End:
    """A pod's interface as a sender or receiver of packets."""

    name: str
    netns: str | None
    interface: str
    addresses: tuple[Address, ...]
    gateways: tuple[Address, ...]

    def pairs(self, targets: Iterable[Address]) -> list[tuple[Address, Address]]:
        """Return (source, target) for each target, except targets of a family in which the interface has no address."""
        sources = {one.version: one for one in reversed(self.addresses)}
        return [(sources[target.version], target) for target in targets if target.version in sources]


def send(end: End, targets: Sequence[Address], mtu_bytes: int) -> Answers:
    """Ask the gateways for their MAC addresses, then send small and full-size echo requests to the targets.

    Datagrams marked as RoCE's congestion notifications follow, which the bridge counts if it refuses their DSCP.
    If no full-size request is answered, sizes in between follow. Raises CannotJudge if no program can run in the
    namespace.
    """
    pairs = [(source, target, max(mtu_bytes, _MIN_MTU_BYTES[target.version])) for source, target in end.pairs(targets)]
    echoes = [
        _echo_role(source, target, [[_SMALL_BYTES, _SMALL_PACKETS], [size, _FULL_PACKETS]])
        for source, target, size in pairs
    ]
    notices = {
        "role": "notify", "targets": [[str(one), str(other)] for one, other, _ in pairs], "dscp": _CNP_DSCP,
        "copies": _CNP_PACKETS,
    }  # fmt: skip
    asked, *records, _ = run_roles(end.netns, [_ask_role(end), *echoes, notices])
    found: list[Echo] = []
    for (source, target, size), record in zip(pairs, records, strict=True):
        if "answers" not in record:
            return _read_gateways(asked), _describe_refusal(f"nothing can be sent to {target}", record)
        found.append(_read_echo(end, source, target, size, record))
    return _read_gateways(asked), tuple(found)


def _ask_role(end: End) -> dict[str, Any]:
    pairs = [[str(source), str(gateway)] for source, gateway in end.pairs(end.gateways)]
    return {"role": "ask", "interface": end.interface, "targets": pairs, "tries": _ASK_TRIES, "wait_s": _ASK_WAIT_S}


def _read_gateways(record: dict[str, Any]) -> Gateways | Unseen:
    if "answers" not in record:
        return _describe_refusal("no gateway can be asked", record)
    return {ipaddress.ip_address(gateway): mac for gateway, mac in record["answers"].items()}


def _describe_refusal(failure: str, record: dict[str, Any]) -> Unseen:
    hint = "raw sockets require CAP_NET_RAW: run this as root on the node" if record.get("errno") == "EPERM" else ""
    return Unseen(f"{failure}: {record.get('error')}", hint)


def _echo_role(
    source: Address, target: Address, packets: list[list[int]], *, mark: str = "", wait_s: float = _WAIT_S
) -> dict[str, Any]:
    mark = mark or secrets.token_hex(_MARK_BYTES)
    return {"role": "echo", "source": str(source), "target": str(target), "packets": packets, "mark": mark,
            "wait_s": wait_s}  # fmt: skip


def _read_echo(end: End, source: Address, target: Address, full_bytes: int, record: dict[str, Any]) -> Echo:
    answers = dict(record["answers"])
    largest = full_bytes if answers[full_bytes] else 0
    if answers[_SMALL_BYTES] and not largest:
        largest = _find_largest(end, source, target, full_bytes)
    return Echo(
        source=source,
        target=target,
        sent=_SMALL_PACKETS,
        answered=answers[_SMALL_BYTES],
        full_bytes=full_bytes,
        full_sent=_FULL_PACKETS,
        full_answered=answers[full_bytes],
        largest_bytes=largest,
        round_trip_s=record["round_trip_ns"] / 1e9 if record["round_trip_ns"] is not None else None,
        error=record["error"] if record["refused"] else "",
    )


def _find_largest(end: End, source: Address, target: Address, above: int) -> int:
    """Find the largest answered size below `above`, in shrinking steps."""
    passes = _SMALL_BYTES
    for _ in range(_ROUNDS):
        step = max((above - passes + _STEPS - 1) // _STEPS, 1)
        sizes = list(range(passes + step, above, step))
        if not sizes:
            break
        (record,) = run_roles(end.netns, [_echo_role(source, target, [[size, _STEP_PACKETS] for size in sizes])])
        answered = [size for size, count in record.get("answers", ()) if count]
        passes = max(answered, default=passes)
        above = min((size for size in sizes if size > passes), default=above)
    return passes


def try_isolation(sender: End, receiver: End) -> Isolation:
    """Send echo requests to an interface that must not receive them, and listen there.

    Raises CannotJudge if the two have no address of the same family, or if sending or listening fails.
    """
    pairs = sender.pairs(receiver.addresses)
    if not pairs:
        raise CannotJudge(f"{sender.name} and {receiver.name} have no addresses of the same family")
    mark = secrets.token_hex(_MARK_BYTES)
    packets = [[_SMALL_BYTES, _FORBIDDEN_PACKETS]]
    with Child(roles_argv(receiver.netns, [{"role": "hear", "interface": receiver.interface, "mark": mark}])) as ear:
        if why := _wait_until_ready(ear):
            raise CannotJudge(f"cannot listen on {receiver.interface} of {receiver.name}: {why}")
        forbidden = [_echo_role(source, target, packets, mark=mark, wait_s=0.0) for source, target in pairs]
        # The gateway is asked last, through the same port: its answer shows that earlier packets were forwarded.
        *sent, asked = run_roles(sender.netns, [*forbidden, _ask_role(sender)])
        (asked_there,) = run_roles(receiver.netns, [_ask_role(receiver)])
        with contextlib.suppress(ProcessLookupError):
            os.kill(ear.pid, signal.SIGTERM)
        ended = ear.wait(_START_S)
    heard = _read_record(ended.output)
    if "frames" not in heard:
        raise CannotJudge(f"the listener at {receiver.name} ended without a record: {' '.join(ended.output)[-200:]}")
    return Isolation(
        sender=sender.name,
        receiver=receiver.name,
        sent=sum(int(record.get("sent", 0)) for record in sent),
        heard=heard["frames"],
        lost=heard["lost"],
        sender_works=_has_answer(asked),
        receiver_works=_has_answer(asked_there),
    )


def _has_answer(record: dict[str, Any]) -> bool:
    return any(record.get("answers", {}).values())


def _wait_until_ready(child: Child) -> str:
    """Wait until the child listens. Returns why it does not, or an empty string if it does."""
    end = time.monotonic() + _START_S
    while "ready" not in child.output:
        if child.poll() is not None or time.monotonic() > end:
            return str(_read_record(child.wait(0.1).output).get("error", "it printed nothing"))
        time.sleep(0.005)
    return ""


def _read_record(output: Sequence[str]) -> dict[str, Any]:
    """Return the record from the last line that holds one. Empty if no line does."""
    for line in reversed(output):
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            (record,) = msgspec.json.decode(line, type=list[dict[str, Any]])
            return record
    return {}
