"""Programs that poll NVIDIA's driver, found by their names and command lines.

nvidia-smi(1): `--loop`, `--loop-ms`, `dmon -d` and `pmon -d` (default 1 s); dcgm-exporter's
`--collect-interval` in ms (30 s); nvtop(1) `--delay` in tenths of a second (1 s); gpustat `--interval` (1 s).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from railwright.topology.sources.tools_model import MOST, Poller

_PROC = Path("/proc")
_MAX_PROCESSES = 100_000
_MAX_COMMAND_BYTES = 64 * 1024
_NUMBER = re.compile(r"\d{1,7}(\.\d{1,4})?")


class _PollerRule(NamedTuple):
    options: tuple[str, ...]
    scale_s: float
    """Seconds in one of the option's units."""
    usual_s: float | None
    """The default interval."""
    when: Callable[[Sequence[str]], bool] = lambda _: True
    """Whether such a command polls at all."""


def _has_option(*options: str) -> Callable[[Sequence[str]], bool]:
    return lambda words: any(word.partition("=")[0] in options for word in words)


_POLLER_RULES: dict[str, tuple[_PollerRule, ...]] = {
    "nvidia-smi": (
        _PollerRule(("-lms", "--loop-ms"), 1e-3, None, _has_option("-lms", "--loop-ms")),
        _PollerRule(("-l", "--loop"), 1.0, 5.0, _has_option("-l", "--loop")),
        _PollerRule(("-d", "--delay"), 1.0, 1.0, lambda words: bool({"dmon", "pmon", "daemon"} & {*words[:2]})),
    ),
    "dcgm-exporter": (_PollerRule(("-c", "--collect-interval"), 1e-3, 30.0),),
    "dcgmi": (_PollerRule(("-d", "--delay"), 1e-3, 1.0, lambda words: "dmon" in words[:1]),),
    "nv-hostengine": (_PollerRule((), 1.0, None),),
    "nvtop": (_PollerRule(("-d", "--delay"), 0.1, 1.0),),
    "gpustat": (
        _PollerRule(("-i", "--interval", "--watch"), 1.0, 1.0,
               lambda words: any(word.startswith(("-i", "--i", "--w")) for word in words)),
    ),
    "nvitop": (_PollerRule((), 1.0, None),),
    "gpud": (_PollerRule((), 1.0, None),),
}  # fmt: skip


def find_pollers(proc: Path = _PROC) -> tuple[Poller, ...]:
    """Return the running programs whose command lines are readable; each program with its interval once."""
    found = {poller for words in _list_commands(proc) if (poller := find_poller(words)) is not None}
    return tuple(sorted(found, key=lambda poller: (poller.interval_s is None, poller.interval_s, poller.program)))[
        :MOST
    ]


def find_poller(words: Sequence[str]) -> Poller | None:
    """Return the poller of a command's words; None if it queries the driver once or never."""
    names = [word.rpartition("/")[2] for word in words[:2]]  # a script has its interpreter before it
    at = next((place for place, name in enumerate(names) if name in _POLLER_RULES), None)
    if at is None:
        return None
    options = words[at + 1 :]
    known = next((candidate for candidate in _POLLER_RULES[names[at]] if candidate.when(options)), None)
    return Poller(program=names[at], interval_s=_interval_s(options, known)) if known is not None else None


def _interval_s(options: Sequence[str], known: _PollerRule) -> float | None:
    for place, word in enumerate(options):
        name, equals, value = word.partition("=")
        if name not in known.options:
            continue
        value = value if equals else next(iter(options[place + 1 : place + 2]), "")
        if _NUMBER.fullmatch(value) and float(value) > 0:
            return float(value) * known.scale_s
    return known.usual_s


def _list_commands(proc: Path) -> Iterator[tuple[str, ...]]:
    try:
        pids = [entry.name for entry in proc.iterdir() if entry.name.isdecimal()][:_MAX_PROCESSES]
    except OSError:
        return
    for pid in pids:
        try:
            with (proc / pid / "cmdline").open("rb") as file:
                raw = file.read(_MAX_COMMAND_BYTES)
        except OSError:  # it has ended
            continue
        yield tuple(raw.decode("utf-8", "replace").rstrip("\0").split("\0"))
