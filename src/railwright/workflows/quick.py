"""`prove --quick`: the audit, and a point of each kind of path, within half a minute. It leaves no file."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
from click.core import ParameterSource

from railwright.benchmarks.registry import DECLARATIONS, QUICK
from railwright.checks.check import Facts
from railwright.checks.outcome import look_for
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.errors import CannotJudge, UsageError
from railwright.faults.every_check import EVERY_CHECK
from railwright.options.arguments import Arguments
from railwright.options.output import print_text
from railwright.report.text.findings import answer_words
from railwright.run.proof import Proof
from railwright.topology.devices import Topology
from railwright.topology.sources.look import look_with_tools
from railwright.workflows.judged import note, show, view_file
from railwright.workflows.measuring import parse_benchmarks, run_proof, show_plan
from railwright.workflows.requirements import load_requirements, select_required

LIMIT_S = 27
"""The time after which the rest is not measured, so that the command ends within 30 s."""
_REASON = f"the limit of {LIMIT_S} s"


def prove_quick(arguments: Arguments) -> int:
    """Audit this machine, measure a few paths, print both, and return the exit status."""
    context = click.get_current_context()
    if context.get_parameter_source("output") is not ParameterSource.DEFAULT:
        note("--quick leaves no file: it does not use --output")
    with _time_limit():
        required = load_requirements(arguments.require)
        names = tuple(name for name in select_required(tuple(QUICK), required, DECLARATIONS) if name in QUICK)
        if not names:
            hint = f"it measures {', '.join(QUICK)}"
            raise UsageError(f"--quick does not measure {required[0]}", hint=hint)
        given = [f"{name}.{key}={value}" for name in names for key, value in QUICK.get(name, {}).items()]
        topology = look_with_tools()
        proof = Proof(
            topology,
            parse_benchmarks(names, (*given, *arguments.options)),
            launches=1,
            command=("railwright", *sys.argv[1:]),
            mpirun=arguments.mpirun,
            silence_s=LIMIT_S,
            force=arguments.force,
        )
        show_plan(proof)
        proof.refuse_impossible()
        if arguments.dry_run:
            return 0
        with tempfile.TemporaryDirectory(prefix="railwright-quick-") as folder:
            file = run_proof(proof, Path(folder))
    view = view_file(file, diagnose(file, DECLARATIONS, required))
    show(view, as_json=arguments.as_json, verbose=arguments.verbose)
    if not arguments.as_json:
        print_text(f"Settings: {_audit_words(topology)}.")
    return view.diagnosis.exit_status


def _audit_words(topology: Topology) -> str:
    facts = Facts(topology=topology)
    return answer_words([look_for(check, facts) for check in EVERY_CHECK if not check.needs_results])


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Interrupt the body after `LIMIT_S`, like Ctrl-C. Raises CannotJudge if it did not measure by then."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt(_REASON)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    try:
        yield
    except KeyboardInterrupt as error:
        if str(error) != _REASON:
            raise
        hint = "railwright prove has no such limit"
        raise CannotJudge(f"nothing was judged within {LIMIT_S} s", hint=hint) from error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
