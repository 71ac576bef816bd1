"""One fault's one setting: shown, changed, given back. Nothing is changed before it was shown."""

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
from railwright.terminal import visible

ROOT = Path("/")
_MOST_SHOWN = 8
"""Files of a kind that are named; a host has one for each CPU."""


def audit_fix(name: str, how: str) -> int:
    """Show what would mend the fault, and do that or give it back where it is asked for; the exit status."""
    check = next((check for check in EVERY_CHECK if check.name == name), None)
    if check is None:
        raise unknown_name("fault", name, (check.name for check in EVERY_CHECK))
    if check.change is None:
        ours = ", ".join(check.name for check in EVERY_CHECK if check.change is not None)
        raise UsageError(
            f"no single setting of the kernel mends {name}",
            hint=f"`railwright audit` says what does; --fix knows {ours}",
        )
    if how == "undo":
        return _given_back(name)
    topology = load_machine(None)
    told = look_for(check, Facts(topology=topology))
    if told.state != "found":
        click.echo(f"{name}: {told.state}{f' ({visible(told.because)})' if told.because else ''}: nothing to change")
        return EXIT_UNJUDGED if told.state == "could not look" else EXIT_OK
    writes = plan_writes(check.change(topology), ROOT)
    click.echo(f"{name}: {visible(told.findings[0].says)}")
    _show(writes, forward=True)
    if not writes:
        click.echo("No file of this kernel has that setting.")
        return EXIT_UNJUDGED
    if how == "show":
        click.echo("Nothing was changed. --apply changes it until the machine starts anew, --hold until Ctrl-C.")
        return EXIT_SLOW
    if how == "hold":
        hold(name, writes, ROOT, lambda: click.echo("changed; Ctrl-C gives it back", err=True))
        click.echo("given back")
        return EXIT_OK
    apply(name, writes, ROOT)
    click.echo(f"Changed, until the machine starts anew. To give it back: railwright audit --fix {name} --undo")
    return EXIT_OK


def _given_back(name: str) -> int:
    back, others = undo(name, ROOT)
    _show(back, forward=False)
    for one in others:
        click.echo(f"  /{one.file} has another value since, and keeps it")
    click.echo("Given back." if not others else f"Given back, but for {len(others)} that somebody else has changed.")
    return EXIT_OK


def _show(writes: Sequence[Write], *, forward: bool) -> None:
    for one in writes[:_MOST_SHOWN]:
        old, new = (one.before, one.after) if forward else (one.after, one.before)
        click.echo(f"  /{one.file}: {visible(old[:80])} -> {new}")
    if len(writes) > _MOST_SHOWN:
        click.echo(f"  and {len(writes) - _MOST_SHOWN} files more of the same kind")
