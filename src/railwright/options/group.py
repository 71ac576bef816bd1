"""Groups of commands, and options that belong together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from railwright.errors import unknown_name

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Group(click.Group):
    """A group that lists its commands in the order of their use, and answers an unknown name with the nearest one."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click passes it
        """In the order in which they were given."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does. Raises UsageError for a name that does not exist."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            raise unknown_name("command" if ctx.parent is None else f"{self.name} command", args[0], known)
        return super().resolve_command(ctx, args)


def combine(*options: Callable[[Any], Any]) -> Callable[[_Function], _Function]:
    """Several of click's decorators as one, in this order."""

    def decorate(function: _Function) -> _Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate
