"""The kernel setting that fixes a fault: shown, changed and restored. Every change is shown first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from railwright.checks.check import Facts
from railwright.checks.outcome import look_for
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError, unknown_name
from railwright.faults.every_check import EVERY_CHECK
from railwright.launch.kernel_setting import Write, apply, hold, plan_writes, undo
from railwright.options.machine import load_machine
from railwright.terminal import escape

ROOT = Path("/")
_MAX_SHOWN = 8
"""The maximum number of files that are listed, since a host may have one per CPU."""


def audit_fix(name: str, how: str) -> int:
    """Show the setting that fixes a fault, and apply or undo it if requested. Returns the exit status."""
    check = next((check for check in EVERY_CHECK if check.name == name), None)
    if check is None:
        raise unknown_name("fault", name, (check.name for check in EVERY_CHECK))
    if check.change is None:
        ours = ", ".join(check.name for check in EVERY_CHECK if check.change is not None)
        raise UsageError(
            f"{name} is not fixed by a single kernel setting",
            hint=f"see the remedy in `railwright audit`; --fix accepts {ours}",
        )
    if how == "undo":
        return _restore(name)
    topology = load_machine(None)
    outcome = look_for(check, Facts(topology=topology))
    if outcome.state != "found":
        click.echo(
            f"{name}: {outcome.state}{f' ({escape(outcome.because)})' if outcome.because else ''}: nothing to change"
        )
        return EXIT_UNJUDGED if outcome.state == "could not look" else EXIT_OK
    writes = plan_writes(check.change(topology), ROOT)
    click.echo(f"{name}: {escape(outcome.findings[0].says)}")
    _show(writes, forward=True)
    if not writes:
        click.echo("This kernel does not have that setting.")
        return EXIT_UNJUDGED
    if how == "show":
        click.echo("Nothing was changed. --apply changes it until the next reboot, --hold until Ctrl-C.")
        return EXIT_SLOW
    if how == "hold":
        hold(name, writes, ROOT, lambda: click.echo("changed; Ctrl-C restores it", err=True))
        click.echo("restored")
        return EXIT_OK
    apply(name, writes, ROOT)
    click.echo(f"Changed until the next reboot. To restore it: railwright audit --fix {name} --undo")
    return EXIT_OK


def _restore(name: str) -> int:
    restored, others = undo(name, ROOT)
    _show(restored, forward=False)
    for write in others:
        click.echo(f"  /{write.file} was changed by others since and keeps its value")
    click.echo("Restored." if not others else f"Restored, except {len(others)} that others have changed.")
    return EXIT_OK


def _show(writes: Sequence[Write], *, forward: bool) -> None:
    for write in writes[:_MAX_SHOWN]:
        old, new = (write.before, write.after) if forward else (write.after, write.before)
        click.echo(f"  /{write.file}: {escape(old[:80])} -> {new}")
    if len(writes) > _MAX_SHOWN:
        click.echo(f"  and {len(writes) - _MAX_SHOWN} more files of the same kind")
