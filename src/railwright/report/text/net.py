"""The lines of `railwright net check` as text; the same records as with `--json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED
from railwright.groups import grouped
from railwright.net.view import Line, State
from railwright.report.text.wording import visible
from railwright.units import count

_MEANING = {
    EXIT_OK: "all is as it should be",
    EXIT_SLOW: "something is wrong",
    EXIT_UNJUDGED: "something could not be looked at, and nothing that could is wrong",
}
_STATES: tuple[State, ...] = ("bad", "not looked", "ok")
_STATE_WIDTH, _NAME_WIDTH = 10, 9


def net_lines(lines: Iterable[Line], *, evidence: bool) -> Iterator[str]:
    """Each interface with its lines; what is not ok with its evidence and remedy, and what is ok with `evidence`.

    What could not be looked at for one and the same reason has its remedy once.
    """
    told: set[tuple[str, str]] = set()
    for (interface, rail), group in grouped(lines, lambda line: (line.interface, line.rail)):
        yield visible(interface) + (f", {visible(rail)}" if rail else "")
        for line in group:
            yield f"  {line.state:<{_STATE_WIDTH}}  {line.check:<{_NAME_WIDTH}}  {visible(line.says)}"
            if line.state == "bad" or evidence or (line.state != "ok" and (line.says, line.remedy) not in told):
                yield from _details(line)
            told.add((line.says, line.remedy))


def _details(line: Line) -> Iterator[str]:
    indent = " " * (2 + _STATE_WIDTH + 2)
    for seen in line.evidence:
        yield f"{indent}{'seen':<{_NAME_WIDTH}}  {visible(f'{seen.claim}: {seen.value} ({seen.seen})')}"
    if line.remedy:
        yield f"{indent}{'remedy':<{_NAME_WIDTH}}  {visible(line.remedy)}"


def closing_line(lines: Iterable[Line], without: Iterable[str], status: int) -> str:
    """How many of each state, what was left out, and what the exit status means."""
    states = [line.state for line in lines]
    counted = ", ".join(f"{states.count(state)} {state}" for state in _STATES if state in states)
    left_out = f", left out: {', '.join(sorted(without))}" if without else ""
    return f"{count(len(states), 'check')}: {counted}{left_out}. Exit status {status}: {_MEANING[status]}."
