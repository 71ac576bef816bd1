"""The command line. Verbs are loaded when they are used, so that `--help` answers at once."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import traceback

import click

from railwright import __version__
from railwright.errors import EXIT_USAGE, RailwrightError

# verb -> (module, one line of help): one file per verb
VERBS: dict[str, tuple[str, str]] = {
    "prove": ("prove", "Measure this machine and hold every path against its limit."),
    "topo": ("topo", "Show, capture, load and export what is there."),
    "limits": ("limits", "What each path and collective can reach, and why; measures nothing."),
    "whatif": ("whatif", "Designs side by side: limits, bill of network parts, cost."),
    "audit": ("audit", "The settings that keep paths from their limit, with evidence and remedy."),
    "explain": ("explain", "What a known tool printed: normal for its machine or not, why, and the next command."),
    "run": ("run", "Run single benchmarks with all their options."),
    "judge": ("judge", "Judge a results file again and write its reports."),
    "compare": ("compare", "Hold two runs side by side, noise taken into account."),
    "lab": ("lab", "An emulated fabric on this machine: hosts, leaves, spines, BGP, rates, faults."),
    "net": ("net", "A pod's GPU network: address, route, BGP, flows, offload, isolation, by real packets."),
    "setup": ("setup", "Install optional parts (NIXL)."),
}


class Verbs(click.Group):
    """Loads the module of a verb when it is called, and suggests the nearest name for one that does not exist."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click passes it
        """All verbs, in the order of their table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The click command of a verb."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"railwright.cli.{VERBS[cmd_name][0]}")
        command: click.Command = module.COMMAND
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of verbs, without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but with our own error for a verb that does not exist."""
        from railwright.errors import unknown_name

        if args and not args[0].startswith("-") and args[0] not in VERBS:
            raise unknown_name("command", args[0], VERBS)
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="railwright")
def cli() -> None:
    """Prove every data path of this machine against the limit that its own hardware sets.

    Exit status: 0 all ok, 1 something is slow or misconfigured, 2 usage or own error, 3 something could not be judged.
    """


def main() -> None:
    """Run the command line and end with its status."""
    _end_on_sigterm()
    status = _status()
    drop_output()
    sys.exit(status)


def _status() -> int:
    """Run the command line; the exit status, with the one message of an error said."""
    try:
        status = cli.main(standalone_mode=False)
        click.echo(nl=False)  # flushes, so that a full disk or a reader who left is noticed here
        return status if isinstance(status, int) else 0
    except RailwrightError as error:
        _say(f"railwright: {error.message}", error.hint)
        return error.exit_status
    except click.ClickException as error:
        _say(f"railwright: {error.format_message()}", "see railwright --help")
    except (click.Abort, KeyboardInterrupt):
        _say("railwright: interrupted", "")
    except (BrokenPipeError, SystemExit):
        # The reader of our output left (`| head`): nobody is there to be told anything. click and rich turn that into
        # SystemExit(1), which would say that something is slow; nothing else of ours raises SystemExit.
        pass
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _say(f"railwright: {error.strerror or error}{where}", "")
    except Exception:
        # A mistake of our own must not leave with status 1, which says that something is slow.
        traceback.print_exc()
    return EXIT_USAGE


def drop_output() -> None:
    """Let what is buffered for a reader who left go nowhere, so that the interpreter's end does not fail on it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: it was closed before we began (`>&-`)
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _end_on_sigterm() -> None:
    """SIGTERM ends the run like Ctrl-C does: children are stopped and what was measured is kept."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt("SIGTERM")

    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, stop)


def _say(message: str, hint: str) -> None:
    from railwright.report.wording import visible

    with contextlib.suppress(OSError):  # standard error may be a full disk or a closed pipe: the status still tells
        # A name from a file may hold escape codes; an error of several lines is ours.
        for line in (*message.splitlines(), *([f"hint: {hint}"] if hint else [])):
            click.echo(visible(line), err=True)
