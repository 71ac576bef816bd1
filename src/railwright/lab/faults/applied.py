"""Puts faults into a lab and takes them out. The caller holds the lab's lock.

`faults.json` in the lab's folder names a fault before anything of it is made, and until everything of it is gone: what
was cut short can be healed.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Sequence

import msgspec

from railwright.errors import CannotJudge, RailwrightError, UsageError, unknown_name
from railwright.lab import state
from railwright.lab.faults import background, cpu
from railwright.lab.faults.effects import Effect, Fault, OnPort, PortBusy, PortDown, PortFlaps, SlowCpu, Values
from railwright.lab.faults.ports import port_scripts, touched
from railwright.lab.faults.registry import fault_named
from railwright.lab.state import Lab

_FILE = "faults.json"
_MOST_FAULTS = 64
_CHANGE_S = 30.0
_ONE_OF_A_KIND = {PortDown: "switched", PortFlaps: "switched", PortBusy: "busy", SlowCpu: "slow"}
"""Two effects of a kind at one place would undo each other."""
_ROLES = {PortFlaps: "flap", PortBusy: "busy", SlowCpu: "follow"}
"""What the child of an effect does in `child.py`."""


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
        return msgspec.json.decode(state.read(lab.folder / _FILE), type=tuple[Applied, ...])
    except FileNotFoundError:
        return ()
    except msgspec.DecodeError as error:
        hint = f"end the lab: railwright lab down --name {lab.name}"
        raise UsageError(f"{lab.folder / _FILE} is broken: {error}", hint=hint) from error


def apply(lab: Lab, fault: Fault, words: list[str]) -> Applied:
    """Put one fault into the lab. Raises UsageError for words that do not fit, CannotJudge if it is impossible here."""
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
    """Take faults out, by id or by name; without any, all. Returns the faults that were healed.

    Raises UsageError for one that is not there, CannotJudge where something could not be put back; then the fault
    stays in the list, and healing can be tried again.
    """
    standing = applied(lab)
    known = [*(one.id for one in standing), *(one.fault for one in standing)]
    wanted = {word.replace("-", "_"): word for word in which}
    for name, word in wanted.items():
        if name not in known:
            raise unknown_name(f"fault in lab {lab.name}", word, known)
    ending = tuple(one for one in standing if not which or one.id in wanted or one.fault in wanted)
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


def _token(lab: Lab, one: Applied) -> str:
    return f"railwright-fault:{lab.identity}:{one.id}"


def _effects(lab: Lab, faults: Iterable[Applied]) -> tuple[Effect, ...]:
    return tuple(
        effect for one in faults for effect in fault_named(one.fault).effects(Values(plan=lab.plan, words=one.words))
    )


def _refuse_conflict(standing: Iterable[Effect], changes: Iterable[Effect]) -> None:
    """Refuse a fault that would undo another one, or could not be told apart from it."""
    kept: set[tuple[str, str]] = set()
    for effect in (*standing, *changes):
        if kind := _ONE_OF_A_KIND.get(type(effect)):
            where = f"{effect.node} port {effect.port}" if isinstance(effect, OnPort) else effect.node
            if (kind, where) in kept:
                hint = "heal it first: railwright lab heal"
                raise UsageError(f"a fault of that kind is on {where} already", hint=hint)
            kept.add((kind, where))


def _settle_ports(lab: Lab, standing: tuple[Effect, ...], changes: tuple[Effect, ...]) -> None:
    """Make every port that `changes` touch what the plan and all `standing` effects say."""
    for node, ports in touched(changes).items():
        for tool, script in port_scripts(lab.plan, standing, node, ports).items():
            _run_script(lab, node, tool, script)


def _run_script(lab: Lab, node: str, tool: str, text: str) -> None:
    script = lab.folder / f"fault.{tool}"
    script.write_text(text)
    try:
        ended = lab.run(node, [tool, "-f" if tool == "nft" else "-batch", str(script)], _CHANGE_S)
        if ended.returncode != 0:
            why = " ".join(ended.output)[:300] or ended.describe()
            hint = f"is {tool} installed? then: railwright lab heal"
            raise CannotJudge(f"{tool} changed nothing in {node}: {why}", hint=hint)
    finally:
        script.unlink(missing_ok=True)


def _begin(lab: Lab, one: Applied, effect: Effect) -> None:
    """Start the child that keeps an effect going."""
    role = _ROLES.get(type(effect))
    if role is not None:
        settings = {"role": role, **msgspec.structs.asdict(effect)}
        if isinstance(effect, SlowCpu):
            settings["cgroup"] = str(cpu.slow(lab, effect.node, effect.share))
        background.start(lab, effect.node, _token(lab, one), settings)


def _write(lab: Lab, faults: tuple[Applied, ...]) -> None:
    state.write(lab.folder / _FILE, msgspec.json.format(msgspec.json.encode(faults)) + b"\n")
