"""Puts faults into a lab and takes them out. The lab's lock is the caller's to hold.

`faults.json` in the lab's folder names a fault before anything of it is made, and until everything of it is gone: what
was cut short can be healed.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Sequence

import msgspec

from railwright.errors import CannotJudge, RailwrightError, UsageError, unknown_name
from railwright.lab.faults import background, cpu
from railwright.lab.faults.model import Effect, Fault, PortBusy, PortDown, PortFlaps, SlowCpu, Values
from railwright.lab.faults.ports import node_commands, touched
from railwright.lab.faults.registry import fault_named
from railwright.lab.state import Lab

_FILE = "faults.json"
_MAX_FILE_BYTES = 2**20
_MOST_FAULTS = 64
_CHANGE_S = 30.0


class Applied(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault that is in the lab now."""

    id: str
    """Short and random; `heal` takes it."""
    fault: str
    words: dict[str, str]

    def describe(self) -> str:
        """`link_slow from=leaf0 to=spine1 rate=20Mb/s`."""
        return " ".join([self.fault, *(f"{name}={value}" for name, value in self.words.items() if value)])


def applied(lab: Lab) -> tuple[Applied, ...]:
    """The faults that are in the lab, in the order in which they came. Raises UsageError for a broken file."""
    try:
        with (lab.folder / _FILE).open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_FILE_BYTES), type=tuple[Applied, ...])
    except FileNotFoundError:
        return ()
    except msgspec.DecodeError as error:
        hint = f"end the lab: railwright lab down --name {lab.name}"
        raise UsageError(f"{lab.folder / _FILE} is broken: {error}", hint=hint) from error


def apply(lab: Lab, fault: Fault, words: list[str]) -> Applied:
    """Put one fault into the lab. Raises UsageError for words that do not fit, CannotJudge where it cannot be."""
    before = applied(lab)
    new = Applied(id=secrets.token_hex(2), fault=fault.name, words=fault.read(words))
    changes = _effects(lab, [new])
    standing = _effects(lab, before)
    _refuse_conflict(standing, changes)
    if len(before) >= _MOST_FAULTS or any(other.words == new.words and other.fault == new.fault for other in before):
        raise UsageError(f"{new.describe()} is there already", hint="see railwright lab fault")
    _write(lab, (*before, new))
    try:
        _settle_ports(lab, (*standing, *changes), changes)
        for effect in changes:
            _begin(lab, new, effect)
    except BaseException:
        # Half a fault would be no known fault. What cannot be undone now stays in the list.
        with contextlib.suppress(RailwrightError, OSError):
            heal(lab, [new.id])
        raise
    return new


def heal(lab: Lab, which: Sequence[str] = ()) -> tuple[Applied, ...]:
    """Take faults out, by id or by name of the fault; all without any. The faults that were healed.

    Raises UsageError for one that is not there, CannotJudge where something could not be put back; then the fault
    stays in the list, and healing can be tried again.
    """
    standing = applied(lab)
    for word in which:
        if not any(_is(one, word) for one in standing):
            known = [*(one.id for one in standing), *(one.fault for one in standing)]
            raise unknown_name(f"fault in lab {lab.name}", word, known)
    ending = tuple(one for one in standing if not which or any(_is(one, word) for word in which))
    staying = tuple(one for one in standing if one not in ending)
    changes = _effects(lab, ending)
    for one in ending:
        background.end(_token(lab, one))
    _settle_ports(lab, _effects(lab, staying), changes)
    for effect in changes:
        if isinstance(effect, SlowCpu):
            cpu.release(cpu.group_of(lab, effect.node))
    _write(lab, staying)
    return ending


def _is(one: Applied, word: str) -> bool:
    return word.replace("-", "_") in (one.id, one.fault)


def _token(lab: Lab, one: Applied) -> str:
    return f"railwright-fault:{lab.identity}:{one.id}"


def _effects(lab: Lab, faults: Iterable[Applied]) -> tuple[Effect, ...]:
    return tuple(
        effect for one in faults for effect in fault_named(one.fault).effects(Values(plan=lab.plan, words=one.words))
    )


def _refuse_conflict(standing: Iterable[Effect], changes: Iterable[Effect]) -> None:
    """What cannot be told apart, or would undo each other, is not applied together."""
    kept: set[tuple[str, str, str]] = set()
    for effect in (*standing, *changes):
        if isinstance(effect, PortDown | PortFlaps):
            key = ("switched", effect.node, effect.port)
        elif isinstance(effect, PortBusy):
            key = ("busy", effect.node, effect.port)
        elif isinstance(effect, SlowCpu):
            key = ("slow", effect.node, "")
        else:
            continue
        if key in kept:
            where = " port ".join(word for word in key[1:] if word)
            raise UsageError(f"a fault of that kind is on {where} already", hint="heal it first: railwright lab heal")
        kept.add(key)


def _settle_ports(lab: Lab, standing: tuple[Effect, ...], changes: tuple[Effect, ...]) -> None:
    """Make every port that `changes` touch what the plan and all `standing` effects say."""
    for node, ports in touched(changes).items():
        wanted = node_commands(lab.plan, standing, node, ports)
        scripts = (
            ("tc", _lines(wanted.tc), ["tc", "-batch"]),
            ("ip", _lines(wanted.ip), ["ip", "-batch"]),
            ("nft", wanted.nft, ["nft", "-f"]),
        )
        for kind, text, argv in scripts:
            _run_script(lab, node, kind, text, argv)


def _run_script(lab: Lab, node: str, kind: str, text: str, argv: list[str]) -> None:
    script = lab.folder / f"fault.{kind}"
    script.write_text(text)
    try:
        ended = lab.run(node, [*argv, str(script)], _CHANGE_S)
        if ended.returncode != 0:
            why = " ".join(ended.output)[:300] or ended.describe()
            hint = f"is {kind} installed? then: railwright lab heal"
            raise CannotJudge(f"{kind} changed nothing in {node}: {why}", hint=hint)
    finally:
        with contextlib.suppress(FileNotFoundError):
            script.unlink()


def _lines(commands: Iterable[Sequence[str]]) -> str:
    return "".join(" ".join(words) + "\n" for words in commands)


def _begin(lab: Lab, one: Applied, effect: Effect) -> None:
    """Start what keeps an effect going."""
    token = _token(lab, one)
    settings: dict[str, str | float | int]
    if isinstance(effect, SlowCpu):
        group = cpu.slow(lab, effect.node, effect.share)
        settings = {"role": "follow", "cgroup": str(group)}
    elif isinstance(effect, PortFlaps):
        settings = {"role": "flap", "port": effect.port, "down_s": effect.down_s, "up_s": effect.up_s}
    elif isinstance(effect, PortBusy):
        settings = {
            "role": "busy",
            "port": effect.port,
            "rate_bits_per_s": effect.rate_bits_per_s,
            "packet_bytes": effect.packet_bytes,
        }
    else:
        return
    background.start(lab, effect.node, token, settings)


def _write(lab: Lab, faults: tuple[Applied, ...]) -> None:
    """Whole or not at all."""
    part = lab.folder / f".{_FILE}"
    part.write_bytes(msgspec.json.format(msgspec.json.encode(faults)) + b"\n")
    part.chmod(0o600)
    part.replace(lab.folder / _FILE)
