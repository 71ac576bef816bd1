"""Programs that ask NVIDIA's driver again and again, by their names and command lines.

nvidia-smi(1): `--loop`, `--loop-ms`, `dmon -d` and `pmon -d` (1 s where nothing is said); dcgm-exporter's
`--collect-interval` in ms (30 s); nvtop(1) `--delay` in tenths of a second (1 s); gpustat `--interval` (1 s).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from railwright.topology.sources.tools_model import MOST, Poller

_PROC = Path("/proc")
_MOST_PROCESSES = 100_000
_MOST_BYTES = 64 * 1024
_NUMBER = re.compile(r"\d{1,7}(\.\d{1,4})?")


class _Known(NamedTuple):
    options: tuple[str, ...]
    scale_s: float
    """One of the option's units, in seconds."""
    usual_s: float | None
    """Where the option says nothing."""
    when: Callable[[Sequence[str]], bool] = lambda _: True
    """Whether such a command asks again and again at all."""


def _given(*options: str) -> Callable[[Sequence[str]], bool]:
    return lambda words: any(word.partition("=")[0] in options for word in words)


_KNOWN: dict[str, tuple[_Known, ...]] = {
    "nvidia-smi": (
        _Known(("-lms", "--loop-ms"), 1e-3, None, _given("-lms", "--loop-ms")),
        _Known(("-l", "--loop"), 1.0, 5.0, _given("-l", "--loop")),
        _Known(("-d", "--delay"), 1.0, 1.0, lambda words: bool({"dmon", "pmon", "daemon"} & {*words[:2]})),
    ),
    "dcgm-exporter": (_Known(("-c", "--collect-interval"), 1e-3, 30.0),),
    "dcgmi": (_Known(("-d", "--delay"), 1e-3, 1.0, lambda words: "dmon" in words[:1]),),
    "nv-hostengine": (_Known((), 1.0, None),),
    "nvtop": (_Known(("-d", "--delay"), 0.1, 1.0),),
    "gpustat": (
        _Known(("-i", "--interval", "--watch"), 1.0, 1.0,
               lambda words: any(word.startswith(("-i", "--i", "--w")) for word in words)),
    ),
    "nvitop": (_Known((), 1.0, None),),
    "gpud": (_Known((), 1.0, None),),
}  # fmt: skip


def pollers(proc: Path = _PROC) -> tuple[Poller, ...]:
    """Those that run now, as far as their command lines can be read; each program with its interval once."""
    found = {one for words in _commands(proc) if (one := poller_of(words)) is not None}
    return tuple(sorted(found, key=lambda one: (one.interval_s is None, one.interval_s, one.program)))[:MOST]


def poller_of(words: Sequence[str]) -> Poller | None:
    """What a command is, by its words; None where it asks the driver once, or never."""
    names = [word.rpartition("/")[2] for word in words[:2]]  # a script has its interpreter before it
    at = next((place for place, name in enumerate(names) if name in _KNOWN), None)
    if at is None:
        return None
    options = words[at + 1 :]
    known = next((one for one in _KNOWN[names[at]] if one.when(options)), None)
    return Poller(program=names[at], interval_s=_interval_s(options, known)) if known is not None else None


def _interval_s(options: Sequence[str], known: _Known) -> float | None:
    for place, word in enumerate(options):
        name, equals, value = word.partition("=")
        if name not in known.options:
            continue
        value = value if equals else next(iter(options[place + 1 : place + 2]), "")
        if _NUMBER.fullmatch(value) and float(value) > 0:
            return float(value) * known.scale_s
    return known.usual_s


def _commands(proc: Path) -> Iterator[tuple[str, ...]]:
    try:
        pids = [entry.name for entry in proc.iterdir() if entry.name.isdecimal()][:_MOST_PROCESSES]
    except OSError:
        return
    for pid in pids:
        try:
            with (proc / pid / "cmdline").open("rb") as file:
                raw = file.read(_MOST_BYTES)
        except OSError:  # it has ended
            continue
        yield tuple(raw.decode("utf-8", "replace").rstrip("\0").split("\0"))
