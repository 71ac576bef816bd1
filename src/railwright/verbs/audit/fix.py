"""The settings that fix a fault: shown, changed and restored. Every change is shown first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from railwright.checks.check import Facts
from railwright.checks.outcome import look_for
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError, unknown_name
from railwright.faults.every_check import EVERY_CHECK
from railwright.launch.kernel_setting import Run, Step, apply, hold, plan_steps, undo
from railwright.options.machine import load_machine
from railwright.options.output import print_text
from railwright.terminal import escape

ROOT = Path("/")
_MAX_SHOWN = 8
"""The maximum number of steps that are listed, since a host may have one per CPU."""


def audit_fix(name: str, how: str, *, is_agreed: bool = False) -> int:
    """Show the settings that fix a fault, and apply or undo them if requested. Returns the exit status.

    Before it applies them it asks, unless `is_agreed`.
    """
    check = next((check for check in EVERY_CHECK if check.name == name), None)
    if check is None:
        raise unknown_name("fault", name, (check.name for check in EVERY_CHECK))
    if check.change is None:
        ours = ", ".join(check.name for check in EVERY_CHECK if check.change is not None)
        hint = f"see the remedy in `railwright audit`; --fix accepts {ours}"
        raise UsageError(f"{name} is not fixed by a single kernel setting or a command that can be undone", hint=hint)
    if how == "undo":
        return _restore(name)
    topology = load_machine(None)
    outcome = look_for(check, Facts(topology=topology))
    if outcome.state != "found":
        print_text(
            f"{name}: {escape(outcome.right) if outcome.state == 'fine' else outcome.state}"
            f"{f' ({escape(outcome.because)})' if outcome.because else ''}: nothing to change"
        )
        return EXIT_UNJUDGED if outcome.state == "could not look" else EXIT_OK
    steps = plan_steps(check.change(topology), ROOT)
    print_text(f"{name}: {escape(outcome.findings[0].says)}")
    _show(steps, forward=True)
    if not steps:
        print_text(f"It cannot be changed from here. Remedy: {escape(outcome.findings[0].remedy)}")
        return EXIT_UNJUDGED
    if how == "show":
        print_text("Nothing was changed. --apply changes it until the next reboot, --hold until Ctrl-C.")
        return EXIT_SLOW
    if how == "hold":
        hold(name, steps, ROOT, lambda: click.echo("changed; Ctrl-C restores it", err=True))
        print_text("restored")
        return EXIT_OK
    if not is_agreed and not _ask(name):
        print_text("Nothing was changed.")
        return EXIT_SLOW
    apply(name, steps, ROOT)
    print_text(f"Changed until the next reboot. To restore it: railwright audit --fix {name} --undo")
    return EXIT_OK


def _ask(name: str) -> bool:
    """Ask for the change. Raises UsageError if nobody answers."""
    try:
        return click.confirm("Change it until the next reboot?", err=True)
    except (click.Abort, OSError) as error:
        hint = f"railwright audit --fix {name} --apply --yes"
        raise UsageError("--apply asks before it changes a setting, and nobody answered", hint=hint) from error


def _restore(name: str) -> int:
    restored, others = undo(name, ROOT)
    _show(restored, forward=False)
    for write in others:
        print_text(f"  /{write.file} was changed by others since and keeps its value")
    print_text("Restored." if not others else f"Restored, except {len(others)} that others have changed.")
    return EXIT_OK


def _show(steps: Sequence[Step], *, forward: bool) -> None:
    for step in steps[:_MAX_SHOWN]:
        if isinstance(step, Run):
            print_text(f"  {escape(shlex.join(step.words if forward else step.undo))}")
            continue
        old, new = (step.before, step.after) if forward else (step.after, step.before)
        print_text(f"  /{step.file}: {escape(old[:80])} -> {new}")
    if len(steps) > _MAX_SHOWN:
        kind = "commands" if isinstance(steps[0], Run) else "files"
        print_text(f"  and {len(steps) - _MAX_SHOWN} more {kind} of the same kind")
