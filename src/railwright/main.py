"""The command line. A verb is imported when it is used, so that `--help` is fast."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import click

from railwright import __version__
from railwright.errors import EXIT_CLOSED_PIPE, EXIT_UNJUDGED, EXIT_USAGE, RailwrightError, UnreachableHosts
from railwright.options.group import Group
from railwright.options.version import version_option
from railwright.terminal import ascii_stream, drop_output, escape, wants_ascii

SECTIONS = {
    "Judge without measuring": {
        "explain": "Judge the output of a known tool: normal for its machine or not, why, and the next command.",
        "limits": "Derive the limit of each path and collective, with the reason, without measuring.",
        "whatif": "Compare cluster designs: limits, bill of network parts, cost.",
        "shapes": "List the machines that are known by name.",
        "topo": "Show, capture, load and export a machine's topology.",
    },
    "Measure": {
        "prove": "Measure this machine and compare every path with its limit.",
        "run": "Run single benchmarks with all their options.",
        "audit": "Find settings that keep paths from their limit, with evidence and remedy.",
        "judge": "Judge a results file again and write its reports.",
        "compare": "Compare two runs, taking noise into account.",
        "watch": "Watch a running job from outside: iterations, communication share, best possible gain.",
    },
    "Fabrics and pods": {
        "locate": "Find the slow host, link or route between hosts or in a lab, in few rounds.",
        "simulate": "Run the same search in a simulated fabric with known faults.",
        "cabling": "Compare the cables of a fabric with those planned.",
        "lab": "Emulate a fabric on this machine: hosts, leaves, spines, BGP, rates, faults.",
        "net": "Check a pod's GPU network with real packets: address, route, BGP, flows, offload, isolation.",
    },
    "Set up": {
        "storage": "Write cuFile's configuration for this machine: the NICs that GPUDirect Storage may use.",
        "setup": "Install optional parts (NIXL).",
        "completion": "Print the script that completes railwright's words in bash, zsh or fish.",
        "man": "Print the manual page of a verb, or write those of all.",
    },
}
"""The sections of the help, with the help line of each verb, in the order of use."""
VERBS = {verb: text for verbs in SECTIONS.values() for verb, text in verbs.items()}
"""The help line of each verb. `load_command` returns its command."""


def load_command(verb: str) -> click.Command | None:  # noqa: C901 - a table
    """Import the module of a verb and return its command. None for an unknown verb."""
    command: click.Command
    match verb:
        case "prove":
            from railwright.verbs.prove import prove as command
        case "topo":
            from railwright.verbs.topo import topo as command
        case "shapes":
            from railwright.verbs.shapes import shapes as command
        case "limits":
            from railwright.verbs.limits import limits as command
        case "whatif":
            from railwright.verbs.whatif import whatif as command
        case "audit":
            from railwright.verbs.audit import audit as command
        case "explain":
            from railwright.verbs.explain import explain as command
        case "run":
            from railwright.verbs.run import run as command
        case "judge":
            from railwright.verbs.judge import judge as command
        case "compare":
            from railwright.verbs.compare import compare as command
        case "locate":
            from railwright.verbs.locate import locate as command
        case "simulate":
            from railwright.verbs.simulate import simulate as command
        case "cabling":
            from railwright.verbs.cabling import cabling as command
        case "watch":
            from railwright.verbs.watch import watch as command
        case "lab":
            from railwright.verbs.lab import lab as command
        case "net":
            from railwright.verbs.net import net as command
        case "storage":
            from railwright.verbs.storage import storage as command
        case "setup":
            from railwright.verbs.setup import setup as command
        case "completion":
            from railwright.verbs.completion import completion as command
        case "man":
            from railwright.verbs.man import man as command
        case _:
            return None
    return command


_MACHINE_HINT = "use --host SHAPE|FILE for the machine and --count for the number of hosts: --host hgx-h100 --count 2"
_EQUIVALENT_OPTIONS = {
    **dict.fromkeys(("--machine", "--system", "--server", "--instance", "--topology", "--model"), _MACHINE_HINT),
    **dict.fromkeys(("-N", "-n", "--hosts", "--num-nodes", "--nnodes", "--number"), _MACHINE_HINT),
    **dict.fromkeys(("--op", "--operation", "--coll", "--test"), "use --collective all_reduce"),
    **dict.fromkeys(
        ("--gpus", "--nics", "--nic-rate"), "write changes after the machine: --host hgx-h100 gpus=4 nics=2"
    ),
    **dict.fromkeys(("--between", "--pair"), "use --path gpu0:gpu1, or between hosts --path gpu0:gpu0@1"),
}
"""Options of other tools, with the option that serves the same purpose here."""


def _suggest_usage(error: click.ClickException) -> str:
    """Return the hint for a wrong command line: the command's help, or for an unknown option our equivalent of it."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return "see railwright --help"
    words = _EQUIVALENT_OPTIONS.get(error.option_name, "") if isinstance(error, click.NoSuchOption) else ""
    known = {name for parameter in context.command.params for name in parameter.opts}
    named = next((word for word in words.split() if word.startswith("--")), "")
    return words if named in known else f"see {context.command_path} --help"


_STDOUT, _STDERR = 1, 2
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
_COMPLETION = "_RAILWRIGHT_COMPLETE"
"""Set by the script of `railwright completion` when it asks for completions."""


class Verbs(Group):
    """The group of all verbs. It imports the module of a verb on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click passes it
        """Return all verbs in the order of `VERBS`."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the click command of a verb."""
        command = load_command(cmd_name)
        if command is not None and _COMPLETION in os.environ:
            from railwright.options.completion import complete_files

            complete_files(command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Treat `help VERB` as `VERB --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of verbs without importing them."""
        widest = max(map(len, VERBS))
        for section, verbs in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(verb.ljust(widest), text) for verb, text in verbs.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@version_option(__version__)
def cli() -> None:
    """Measure every data path of this machine and compare it with the limit that its hardware sets.

    \b
    railwright explain all_reduce.txt --host hgx-h100 --count 2
    railwright prove
    railwright limits --host gb200-nvl72 --gpus 72 --collective all_reduce

    Exit status: 0 all ok, 1 something is slow or misconfigured, 2 usage or internal error, 3 something could not be
    judged.
    """


def main() -> None:
    """Run the command line and exit with its status."""
    _fill_closed_streams()
    _end_on_signals()
    if wants_ascii(os.environ):
        sys.stdout, sys.stderr = ascii_stream(sys.stdout), ascii_stream(sys.stderr)
    status = run_command(sys.argv[1:])
    drop_output()
    sys.exit(status)


def run_command(words: list[str]) -> int:
    """Run the command with these arguments, print the message of an error, and return the exit status."""
    try:
        status = cli.main(words, "railwright", standalone_mode=False)
        click.echo(nl=False)  # flushes, so that a full disk or a closed pipe is detected here
        return status if isinstance(status, int) else 0
    except RailwrightError as error:
        _print_error(f"railwright: {_message(error)}", error.hint)
        return error.exit_status
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
    except click.ClickException as error:
        message = " ".join(error.format_message().split())  # click lists choices on lines of their own
        _print_error(f"railwright: {message}", _suggest_usage(error))
    except (click.Abort, KeyboardInterrupt) as error:
        by = str(error.__cause__ or error)  # click replaces the exception of a signal by its own
        _print_error("railwright: interrupted" + f" by {by}" * bool(by), "")
    except (BrokenPipeError, SystemExit):
        # The reader closed the pipe (`| head`), so no message would reach it. click and rich turn that into
        # SystemExit(1), which would mean that something is slow. Nothing else in Railwright raises SystemExit.
        return EXIT_CLOSED_PIPE
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _print_error(f"railwright: {error.strerror or error}{where}", "")
    except Exception as error:
        if isinstance(error, MemoryError) or "start new thread" in str(error):
            lack = "memory" if isinstance(error, MemoryError) else "processes and threads"
            _print_error(f"railwright: this machine or a limit permits no more {lack}", "check `ulimit -a`")
            return EXIT_UNJUDGED
        # An internal error must not exit with status 1, which means that something is slow.
        sys.excepthook(*sys.exc_info())  # importing `traceback` would add a tenth to the time of --help
    return EXIT_USAGE


def _message(error: RailwrightError) -> str:
    """Return the message of an error; of several hosts that cannot be used, each cause on a line of its own."""
    if not isinstance(error, UnreachableHosts) or len(error.troubles) < 2:
        return error.message
    from railwright.results.host_list import fold_sentences

    lines = (f"  {sentence}" for sentence in fold_sentences(error.troubles))
    return "\n".join((f"{len(error.troubles)} hosts cannot be used", *lines))


def _end_on_signals() -> None:
    """Make SIGTERM and its kind end the run like Ctrl-C: stop the children and keep the results.

    Schedulers send SIGUSR1, SIGUSR2 and SIGXCPU before a limit. SIGHUP stays ignored below nohup; a second one is
    ignored: a lost terminal sends it, and then its shell.
    """

    def stop(number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number).name)

    with contextlib.suppress(ValueError):  # not in the main thread
        for number in _ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, stop)


def _fill_closed_streams() -> None:
    """Open /dev/null in place of standard streams that the caller closed (`2>&-`), and print there.

    Otherwise the next file, perhaps that of the results, would get the number of standard error.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = os.fdopen(_STDOUT, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_STDERR, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _print_error(message: str, hint: str) -> None:
    with contextlib.suppress(OSError):  # standard error may be a full disk or a closed pipe; the status is still right
        # A name from a file may contain escape codes, but line breaks in a message are our own.
        for line in (*message.splitlines(), *([f"hint: {hint}"] if hint else [])):
            click.echo(escape(line), err=True)
