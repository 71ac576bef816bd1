"""Work trees in .cache/mutants, with the source of one revision, the tests of another, and a mutant."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutating.draw import Mutant

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ("src", ":(glob)node/internal/**/*.go", ":(glob)node/cmd/**/*.go", ":(exclude,glob)node/**/*_test.go")
BUILD_NATIVE = (
    "import types, hatch_build as build;"
    "build.NativeBuildHook.initialize(types.SimpleNamespace(root='.'), 'editable', {'artifacts': []})"
)


@dataclass(frozen=True)
class Copy:
    """A separate work tree with its own .venv, so that mutants never alter the developer's tree."""

    folder: Path

    def set_up(self, source: str, tests: str) -> None:
        """Create the work tree, or restore it after an interrupted run."""
        if not self.folder.exists():
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "worktree", "add", "--force", "--detach", self.folder, tests], cwd=ROOT, check=True)
        self._git("checkout", "--force", "--detach", tests)
        self._git("restore", "--source", source, "--", *SOURCE)
        worker = self.folder / "scripts/test-worker"  # the present runner, also for tests of an old revision
        worker.write_text((ROOT / "scripts/test-worker").read_text())
        worker.chmod(0o755)
        subprocess.run(["make", "test-deps"], cwd=self.folder, check=True)
        self.build_native()

    @contextlib.contextmanager
    def with_mutant(self, mutant: Mutant) -> Iterator[None]:
        """Apply the mutant for the duration of the context, then restore the file."""
        path = self.folder / mutant.path
        text = path.read_text()
        try:
            self._write(path, mutant.apply(text))
            yield
        finally:
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        """Write a file with a new modification time: Python detects a change by size and by whole seconds of it."""
        changed = max(time.time(), path.stat().st_mtime + 2)
        path.write_text(text)
        os.utime(path, (changed, changed))
        if path.suffix == ".c":
            self.build_native()

    def build_native(self) -> None:
        subprocess.run([".venv/bin/python", "-c", BUILD_NATIVE], cwd=self.folder, check=True)

    def _git(self, *words: str) -> None:
        subprocess.run(["git", "-c", "advice.detachedHead=false", *words], cwd=self.folder, check=True)
