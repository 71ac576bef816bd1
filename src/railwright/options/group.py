"""Groups of commands, and combined options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from railwright.errors import unknown_name
from railwright.options.help import Command

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Group(Command, click.Group):
    """A group that keeps its commands in the given order and suggests the nearest name for an unknown one."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click passes it
        """Return the commands in the order in which they were added."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does. Raises UsageError for a name that does not exist."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            raise unknown_name("command" if ctx.parent is None else f"{self.name} command", args[0], known)
        return super().resolve_command(ctx, args)


def combine(*options: Callable[[Any], Any], section: str = "") -> Callable[[_Function], _Function]:
    """Combine several of click's decorators into one, in this order, as a section of the help."""

    def decorate(function: _Function) -> _Function:
        before = len(getattr(function, "__click_params__", ()))
        for option in reversed(options):
            function = option(function)
        for parameter in getattr(function, "__click_params__", ())[before:] if section else ():
            vars(parameter).setdefault("section", section)
        return function

    return decorate
