"""A command as data: its words are known at once, the module of its work is loaded when it is called."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import click

from railwright.errors import UsageError, unknown_name


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


def command(
    name: str,
    work: str,
    text: str,
    *params: click.Parameter,
    cls: type[click.Command] = click.Command,
    **attributes: Any,  # noqa: ANN401 - click's own
) -> click.Command:
    """A command that hands its parameters to `work`: `module:function`, of `railwright.verbs`."""
    return cls(name, params=[*params], help=inspect.cleandoc(text), callback=_deferred(work), **attributes)


def group(name: str, text: str, *commands: click.Command) -> click.Command:
    """A verb that has commands of its own and does nothing without one."""
    return Group(name, help=inspect.cleandoc(text), commands=commands)


def _deferred(work: str) -> Callable[..., Any]:
    def call(**given: Any) -> Any:  # noqa: ANN401 - as the work has it
        after = click.get_current_context().invoked_subcommand
        if after is not None:  # a group that works by itself does not where a command of it follows
            if any(value not in (None, False) for value in given.values()):
                raise UsageError(f"options before {after!r} have no meaning there", hint="write them after it")
            return None
        module, _, function = work.partition(":")
        return getattr(importlib.import_module(f"railwright.verbs.{module}"), function)(**given)

    call.__qualname__ = work
    return call


def option(*names: str, **attributes: Any) -> click.Option:  # noqa: ANN401 - click's own
    """An option, as click's decorator of this name takes it."""
    return click.Option(names, **attributes)


def argument(name: str, **attributes: Any) -> click.Argument:  # noqa: ANN401 - click's own
    """An argument, as click's decorator of this name takes it."""
    return click.Argument([name], **attributes)


def json_option(text: str) -> click.Option:
    """`--json`, given to the work as `as_json`."""
    return option("--json", "as_json", is_flag=True, help=text)
