"""The results of `railwright net check` as text; `--json` prints the same records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED
from railwright.groups import group_by_key
from railwright.net.view import Line, State
from railwright.report.text.wording import escape
from railwright.units import format_count

_MEANING = {
    EXIT_OK: "everything is ok",
    EXIT_SLOW: "something is wrong",
    EXIT_UNJUDGED: "something could not be checked, and nothing else is wrong",
}
_STATES: tuple[State, ...] = ("bad", "not looked", "ok")
_STATE_WIDTH, _NAME_WIDTH = 10, 9


def net_lines(lines: Iterable[Line], *, evidence: bool) -> Iterator[str]:
    """Yield each interface with its checks, and evidence and remedy of those that are not ok.

    `evidence` shows them for all checks. Checks that share a reason for not being made show the remedy once.
    """
    shown: set[tuple[str, str]] = set()
    for (interface, rail), group in group_by_key(lines, lambda line: (line.interface, line.rail)):
        yield escape(interface) + (f", {escape(rail)}" if rail else "")
        for line in group:
            yield f"  {line.state:<{_STATE_WIDTH}}  {line.check:<{_NAME_WIDTH}}  {escape(line.says)}"
            if line.state == "bad" or evidence or (line.state != "ok" and (line.says, line.remedy) not in shown):
                yield from _details(line)
            shown.add((line.says, line.remedy))


def _details(line: Line) -> Iterator[str]:
    indent = " " * (2 + _STATE_WIDTH + 2)
    for seen in line.evidence:
        yield f"{indent}{'seen':<{_NAME_WIDTH}}  {escape(f'{seen.claim}: {seen.value} ({seen.seen})')}"
    if line.remedy:
        yield f"{indent}{'remedy':<{_NAME_WIDTH}}  {escape(line.remedy)}"


def closing_line(lines: Iterable[Line], without: Iterable[str], status: int) -> str:
    """Format the count of each state, the checks left out, and the meaning of the exit status."""
    states = [line.state for line in lines]
    counted = ", ".join(f"{states.count(state)} {state}" for state in _STATES if state in states)
    left_out = f", left out: {', '.join(sorted(without))}" if without else ""
    return f"{format_count(len(states), 'check')}: {counted}{left_out}. Exit status {status}: {_MEANING[status]}."
