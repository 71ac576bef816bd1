"""Injects faults into a lab and heals them. The caller holds the lab's lock.

`faults.json` in the lab's folder lists a fault from before its first change until its last change is undone, so that an
interrupted change can be healed.
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
from railwright.lab.faults.ports import changed_ports, port_scripts
from railwright.lab.faults.registry import find_fault
from railwright.lab.state import Lab
from railwright.reading import InvalidContent, decode_json
from railwright.writing import write_file

_FILE = "faults.json"
_MAX_FAULTS = 64
_CHANGE_S = 30.0
_ONE_OF_A_KIND = {PortDown: "switched", PortFlaps: "switched", PortBusy: "busy", SlowCpu: "slow"}
"""Two effects of the same kind at one place would undo each other."""
_ROLES = {PortFlaps: "flap", PortBusy: "busy", SlowCpu: "follow"}
"""The role in `child.py` that keeps an effect going."""


class AppliedFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault that is currently in the lab."""

    id: str
    """A short random word, for `heal`."""
    fault: str
    words: dict[str, str]

    def describe(self) -> str:
        """Return the fault as text: `link_slow from=leaf0 to=spine1 rate=20Mb/s`."""
        return " ".join([self.fault, *(f"{name}={value}" for name, value in self.words.items() if value)])


def read_applied(lab: Lab) -> tuple[AppliedFault, ...]:
    """Return the faults in the lab, oldest first. Raises UsageError if faults.json cannot be decoded."""
    try:
        return decode_json(state.read(lab.folder / _FILE), tuple[AppliedFault, ...])
    except FileNotFoundError:
        return ()
    except InvalidContent as error:
        hint = f"end the lab: railwright lab down --name {lab.name}"
        raise UsageError(f"{lab.folder / _FILE} is broken: {error}", hint=hint) from error


def apply(lab: Lab, fault: Fault, words: list[str]) -> AppliedFault:
    """Inject a fault. Raises CannotJudge if a tool fails here.

    Raises UsageError for arguments that do not fit the lab, for a fault that conflicts with another, and for too many.
    """
    before = read_applied(lab)
    new = AppliedFault(id=secrets.token_hex(2), fault=fault.name, words=fault.read(words))
    changes = _effects(lab, [new])
    standing = _effects(lab, before)
    _refuse_conflict(standing, changes)
    if len(before) >= _MAX_FAULTS:
        raise UsageError(f"a lab must have at most {_MAX_FAULTS} faults", hint="heal one: railwright lab heal FAULT")
    if any(other.words == new.words and other.fault == new.fault for other in before):
        raise UsageError(f"{new.describe()} is already in the lab", hint="see railwright lab fault")
    _write(lab, (*before, new))
    try:
        _settle_ports(lab, (*standing, *changes), changes)
        for effect in changes:
            _begin(lab, new, effect)
    except BaseException:
        # Half of a fault matches no description. A change that cannot be undone now stays in the list.
        with contextlib.suppress(RailwrightError, OSError):
            heal(lab, [new.id])
        raise
    return new


def heal(lab: Lab, which: Sequence[str] = ()) -> tuple[AppliedFault, ...]:
    """Heal the faults with these ids or names; all of them if none is given. Returns the healed faults.

    Raises UsageError for a fault that is not in the lab, CannotJudge if a change could not be undone; the fault then
    stays in the list, and healing can be tried again.
    """
    standing = read_applied(lab)
    known = [*(fault.id for fault in standing), *(fault.fault for fault in standing)]
    wanted = {word.replace("-", "_"): word for word in which}
    for name, word in wanted.items():
        if name not in known:
            raise unknown_name(f"fault in lab {lab.name}", word, known)
    ending = tuple(fault for fault in standing if not which or fault.id in wanted or fault.fault in wanted)
    staying = tuple(fault for fault in standing if fault not in ending)
    changes = _effects(lab, ending)
    for fault in ending:
        background.end(_token(lab, fault))
    _settle_ports(lab, _effects(lab, staying), changes)
    for effect in changes:
        if isinstance(effect, SlowCpu):
            cpu.release(cpu.cgroup_path(lab, effect.node))
    _write(lab, staying)
    return ending


def _token(lab: Lab, fault: AppliedFault) -> str:
    return f"railwright-fault:{lab.identity}:{fault.id}"


def _effects(lab: Lab, faults: Iterable[AppliedFault]) -> tuple[Effect, ...]:
    return tuple(
        effect
        for fault in faults
        for effect in find_fault(fault.fault).effects(Values(plan=lab.plan, words=fault.words))
    )


def _refuse_conflict(standing: Iterable[Effect], changes: Iterable[Effect]) -> None:
    """Raise UsageError if two effects of the same kind apply to a port or node, where one would undo the other."""
    kept: set[tuple[str, str]] = set()
    for effect in (*standing, *changes):
        if kind := _ONE_OF_A_KIND.get(type(effect)):
            where = f"{effect.node} port {effect.port}" if isinstance(effect, OnPort) else effect.node
            if (kind, where) in kept:
                hint = "heal it first: railwright lab heal"
                raise UsageError(f"{where} already has a fault of that kind", hint=hint)
            kept.add((kind, where))


def _settle_ports(lab: Lab, standing: tuple[Effect, ...], changes: tuple[Effect, ...]) -> None:
    """Set every port in `changes` to the state that the plan and all `standing` effects give it."""
    for node, ports in changed_ports(changes).items():
        for tool, script in port_scripts(lab.plan, standing, node, ports).items():
            _run_script(lab, node, tool, script)


def _run_script(lab: Lab, node: str, tool: str, text: str) -> None:
    script = lab.folder / f"fault.{tool}"
    write_file(script, text)
    try:
        ended = lab.run(node, [tool, "-f" if tool == "nft" else "-batch", str(script)], _CHANGE_S)
        if ended.returncode != 0:
            why = " ".join(ended.output)[:300] or ended.describe()
            hint = f"check that {tool} is installed, then run railwright lab heal"
            raise CannotJudge(f"{tool} failed in {node}: {why}", hint=hint)
    finally:
        script.unlink(missing_ok=True)


def _begin(lab: Lab, fault: AppliedFault, effect: Effect) -> None:
    """Start the child that keeps an effect going."""
    role = _ROLES.get(type(effect))
    if role is not None:
        settings = {"role": role, **msgspec.structs.asdict(effect)}
        if isinstance(effect, SlowCpu):
            settings["cgroup"] = str(cpu.slow(lab, effect.node, effect.share))
        background.start(lab, effect.node, _token(lab, fault), settings)


def _write(lab: Lab, faults: tuple[AppliedFault, ...]) -> None:
    write_file(lab.folder / _FILE, msgspec.json.format(msgspec.json.encode(faults)) + b"\n")
