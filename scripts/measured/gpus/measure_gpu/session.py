"""A session of measurements: its time budget, its folder of raw records, and its runs of programs."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

NOTES, COMMANDS = "notes.txt", "commands.txt"
NOT_RUN = ": not run, the time was up"
"""The end of the note on a run that the time budget did not allow."""
_MIN_S = 5.0
_PATIENCE_S = 5.0
_WEB_PAGES = ("report.html", "metrics.txt")
"""Files that our runs write next to their records; larger, and reproducible from them."""


@dataclass
class Session:
    """The state that every step needs. `left_s` is the remaining time."""

    output: Path
    seconds: float
    rounds: int
    rounds_small: int
    nccl_tests: Path | None
    sizes: str
    """The sizes of collectives, first:last:xSTEP as for `railwright run`."""
    gpus: int
    """The number of GPUs of the host."""
    counts: tuple[int, ...]
    """The numbers of GPUs on which collectives run."""
    started: float = field(default_factory=time.monotonic)

    @property
    def raw(self) -> Path:
        """The folder of raw records."""
        folder = self.output / "raw"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def begin(self, argv: list[str]) -> None:
        """Record the command and its time next to the records."""
        with (self.raw / COMMANDS).open("a") as file:
            file.write(f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%d %H:%M} {shlex.join(argv)}\n")

    def note(self, text: str) -> None:
        """Record a step that was left out or failed, with the reason."""
        print(f"  note: {text}", flush=True)
        with (self.raw / NOTES).open("a") as file:
            file.write(text + "\n")

    def left_s(self) -> float:
        """The seconds left of the time budget."""
        return self.seconds - (time.monotonic() - self.started)

    def not_run(self, name: str) -> None:
        """Note that a run was left out because the time budget was exhausted."""
        self.note(f"{name}{NOT_RUN}")

    def run(self, name: str, argv: list[str], timeout_s: float = 240.0, **environment: str) -> str | None:
        """Run a program and keep its output in `raw/NAME.txt`. Returns the output, or None with a note on failure."""
        allowed = min(timeout_s, self.left_s())
        if allowed < _MIN_S:
            self.not_run(name)
            return None
        print(f"{time.monotonic() - self.started:6.0f} s  {name}", flush=True)
        kept = self.raw / f"{name}.txt"
        try:
            with kept.open("wb") as file:
                child = subprocess.Popen(
                    argv,
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                )
        except OSError as error:
            self.note(f"{name}: {argv[0]} cannot be started: {error.strerror}")
            return None
        try:
            status = child.wait(allowed)
        except BaseException as error:
            _end(child)
            if isinstance(error, subprocess.TimeoutExpired):
                self.note(f"{name}: ended after {allowed:.0f} s")
                return None
            raise
        text = kept.read_text(errors="replace")
        if status not in (0, 1, 3):  # 1 and 3 are verdicts of ours
            last = text.strip().splitlines()[-1:] or ["no output"]
            self.note(f"{name}: exit status {status}: {last[0][:160]}")
            return None
        return text

    def railwright(
        self,
        name: str,
        benchmarks: list[str],
        options: list[str],
        timeout_s: float = 240.0,
        within: tuple[str, ...] = (),
        **environment: str,
    ) -> Path | None:
        """Run railwright, through the command `within` if given. Returns its results.jsonl in `raw/NAME/`, or None."""
        folder = self.raw / name
        chosen = [argument for option in options for argument in ("-o", option)]
        run = [*within, "railwright", "run", *benchmarks, "--alone", *chosen, "--output", str(folder), "--force"]
        self.run(name, run, timeout_s, **environment)
        for page in _WEB_PAGES:
            (folder / page).unlink(missing_ok=True)
        results = folder / "results.jsonl"
        return results if results.exists() else None

    def free_number(self, name: str) -> int:
        """Return the first number after a name that no earlier run in this folder used."""
        number = 0
        while any((self.raw / f"{name}-{number}{end}").exists() for end in ("", ".txt", "-nccl-tests.txt")):
            number += 1
        return number


def first_gpus(count: int) -> dict[str, str]:
    """Return an environment in which CUDA shows only the first `count` GPUs, in PCI address order."""
    return only_gpus(*range(count))


def only_gpus(*numbers: int) -> dict[str, str]:
    """Return an environment in which CUDA shows only the given GPUs."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, numbers)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a program and its children: SIGTERM first, since mpirun then ends its ranks."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_PATIENCE_S)
