"""One go of measurements: its time, its folder of raw records, and how a program is run and kept."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Session:
    """What every step needs. `left_s` says how much of the time that was given is left."""

    output: Path
    seconds: float
    rounds: int
    nccl_tests: Path | None
    sizes: str
    """Of collectives, first:last:xSTEP as for `railwright run`."""
    started: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list)
    """What was left out and why, and every program that failed."""

    @property
    def raw(self) -> Path:
        """The folder of raw records."""
        folder = self.output / "raw"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def left_s(self) -> float:
        """Seconds until the time is up."""
        return self.seconds - (time.monotonic() - self.started)

    def run(self, name: str, argv: list[str], timeout_s: float = 240.0, **environment: str) -> str | None:
        """The output of a program, kept in `raw/NAME.txt`; None, with a note, where it failed or time was up."""
        allowed = min(timeout_s, self.left_s())
        if allowed < 5:
            self.notes.append(f"{name}: not run, the time was up")
            return None
        print(f"{time.monotonic() - self.started:6.0f} s  {name}", flush=True)
        try:
            finished = subprocess.run(
                argv,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=allowed,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            self.notes.append(f"{name}: ended after {allowed:.0f} s")
            (self.raw / f"{name}.txt").write_bytes(error.stdout or b"")
            return None
        except OSError as error:
            self.notes.append(f"{name}: {argv[0]} cannot be started: {error.strerror}")
            return None
        (self.raw / f"{name}.txt").write_text(finished.stdout)
        if finished.returncode not in (0, 1, 3):  # 1 and 3 are verdicts of ours
            last = finished.stdout.strip().splitlines()[-1:] or ["no output"]
            self.notes.append(f"{name}: exit status {finished.returncode}: {last[0][:160]}")
            return None
        return finished.stdout

    def railwright(self, name: str, benchmarks: list[str], options: list[str], **environment: str) -> Path | None:
        """A run of ours: its results.jsonl in `raw/NAME/`, None where there is none."""
        folder = self.raw / name
        chosen = [argument for option in options for argument in ("-o", option)]
        self.run(name, ["railwright", "run", *benchmarks, *chosen, "--output", str(folder), "--force"], **environment)
        results = folder / "results.jsonl"
        return results if results.exists() else None
