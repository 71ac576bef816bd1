"""The tests to run on a mutant, those of its own package first; each command has a time limit."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mutating.copies import Copy
from mutating.draw import Mutant

STAGES = ("package", "package-machine", "quick", "machine")
"""Pure tests and machine tests of the mutant's package, then pure tests and machine tests of other packages."""
LIMIT_S, TEST_LIMIT_S = 460, 240
"""The time limits of a command and of each of its tests: several times their duration on a shared machine."""
NO_TESTS = 5  # pytest's exit status
TIMED_OUT = (124, 137)  # exit statuses of `timeout`
MOSTLY_PURE = ("report", "diagnosis", "cli", "checks", "faults", "topology", "results", "limits")
FOLDERS = (".", *MOSTLY_PURE, "benchmarks", "native", "launch", "lab", "net")
TESTED_IN = {"verbs": "cli", ".": "launch"}  # package -> folder of its tests, if its name differs
REACHING = {  # package -> folders of tests that start programs that use it
    "lab": ("net", "launch"),
    "net": ("lab",),
    "native": ("benchmarks", "launch"),
    "benchmarks": ("launch", "cli"),
    "launch": ("benchmarks", "cli"),
}
GO_NODES = ("railwright/node/test/chain", "-run=^TestAFabricWithOldFRR$ railwright/node/test/lab")
REACHING_OTHERS = ("cli", "report", "topology", "launch", "benchmarks")
PYTEST = ("scripts/test-worker", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", str(TEST_LIMIT_S))
# Without these a test of node/ that cannot run here would skip itself and count as passed.
NEEDED = {"RAILWRIGHT_TEST_NEEDS_ROOT": "1", "RAILWRIGHT_TEST_NEEDS_OVS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
PURE = (("RAILWRIGHT_TEST_PURE", "1"),)
GO_FAILED = re.compile(r"^\s*--- FAIL: (\S+)|^FAIL\t(\S+)|^panic: test timed out", re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    """The outcome of a command; `failed` names failed tests if the command reports them."""

    passed: bool
    timed_out: bool = False
    failed: tuple[str, ...] = ()
    said: str = ""


@dataclass(frozen=True)
class Tests:
    """A command, and its form for the failed tests alone."""

    copy: Copy
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    def run(self, but: set[str]) -> Ended:
        """Run the tests except those in `but`."""
        folder = self.copy.folder / ("node" if self.argv[0] == "go" else ".")
        # RAILWRIGHT_RUN_BY may delay the command, so the time limit is inside it.
        process = subprocess.run(
            [
                *os.environ.get("RAILWRIGHT_RUN_BY", "").split(),
                "timeout",
                "--kill-after=10",
                str(LIMIT_S),
                *self._argv(but),
            ],
            cwd=folder,
            env=os.environ | NEEDED | dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        said = process.stdout
        if process.returncode in TIMED_OUT:
            return Ended(passed=False, timed_out=True, said=said)
        if self.argv[0] == "go":
            failed = tuple(dict.fromkeys(one for match in GO_FAILED.findall(said) for one in match if one))
        else:
            failed = tuple(dict.fromkeys(FAILED.findall(said)))
        return Ended(process.returncode in (0, NO_TESTS), failed=failed, said=said)

    def _argv(self, but: set[str]) -> list[str]:
        if self.argv[0] == "go":
            names = sorted(name for name in but if name.startswith("Test") and "/" not in name)
            return [*self.argv[:3], *([f"-skip=^({'|'.join(names)})$"] if names else []), *self.argv[3:]]
        return [*self.argv, *(f"--deselect={name}" for name in sorted(but) if "::" in name)]

    def alone(self, ended: Ended) -> Tests:
        """Return the command for the failed tests alone, or for all if none is known by name."""
        if ended.timed_out or not ended.failed:
            return self
        if self.argv[0] != "go":
            return replace(
                self, argv=(*PYTEST, *(name for name in ended.failed if "::" in name or name.endswith(".py")))
            )
        names = {name.split("/")[0] for name in ended.failed if name.startswith("Test")}
        packages = [name for name in ended.failed if name.startswith("railwright/")]
        return replace(
            self, argv=(*self.argv[:3], *(["-run", f"^({'|'.join(sorted(names))})$"] if names else []), *packages)
        )


def tests_of(copy: Copy, mutant: Mutant, stage: str) -> Iterator[Tests]:
    """Yield the commands of one stage.

    The path of a test file or of a Go package is also a stage, and runs only that.
    """
    if "/" in stage:
        yield Tests(
            copy, ("go", "test", f"-timeout={LIMIT_S - 20}s", stage) if ".py" not in stage else (*PYTEST, stage)
        )
    elif mutant.language == "Go":
        yield from _go(copy, mutant, stage)
    else:
        yield from _python(copy, mutant, stage)


def _python(copy: Copy, mutant: Mutant, stage: str) -> Iterator[Tests]:
    tiers = (copy.folder / "tests/tiers.py").exists()
    own = TESTED_IN.get(mutant.package, mutant.package)
    module = Path(mutant.path).stem if Path(mutant.path).stem != "__init__" else mutant.package
    if stage == "package":
        files = _files(copy, own, module)
        for group in [files] if tiers else [[file] for file in files]:
            yield from _pytest(copy, group, "not machine" if tiers else None)
    elif stage == "package-machine":
        for file in _files(copy, own, module) if tiers else []:
            yield from _pytest(copy, [file], "machine")
    elif stage == "quick":
        for folder in FOLDERS if tiers else MOSTLY_PURE:  # revisions without tiers are divided by folder
            if folder != own:
                yield from _pytest(copy, _files(copy, folder, module), "not machine" if tiers else None)
    else:
        for folder in REACHING.get(mutant.package, REACHING_OTHERS):
            if folder != own and (tiers or folder not in MOSTLY_PURE):
                for file in _files(copy, folder, module):
                    yield from _pytest(copy, [file], "machine" if tiers else None)


def _pytest(copy: Copy, files: list[str], tier: str | None) -> Iterator[Tests]:
    if files:
        yield Tests(copy, (*PYTEST, *(["-m", tier] if tier else []), *files))


def _files(copy: Copy, folder: str, module: str) -> list[str]:
    """Return the test files in a folder, those that mention the module first."""
    base = copy.folder / "tests"
    paths = sorted(base.glob("test_*.py") if folder == "." else (base / folder).rglob("test_*.py"))
    named = re.compile(rf"\b{re.escape(module)}\b")
    paths.sort(key=lambda path: (module not in path.stem, not named.search(path.read_text())))
    return [path.relative_to(copy.folder).as_posix() for path in paths]


def _go(copy: Copy, mutant: Mutant, stage: str) -> Iterator[Tests]:
    """Yield the tests of the mutant's package, then those of packages that import it, then whole nodes.

    Of each, the pure tests come first.
    """
    own = "railwright/" + Path(mutant.path).parent.as_posix()
    words = ("go", "test", f"-timeout={LIMIT_S - 20}s")
    if stage.startswith("package"):
        yield Tests(copy, (*words, own), PURE if stage == "package" else ())
        return
    listed = _go_list(copy, "-test", "-f", '{{.ForTest}} {{join .Deps " "}}', "./internal/...", "./cmd/...")
    users = sorted({one[0] for one in listed if one[0] != own and own in one[1:] and one[0].startswith("railwright/")})
    if stage == "quick" and users:
        yield Tests(copy, (*words, *users), PURE)
    if stage == "machine":
        for package in (*users, *GO_NODES):
            yield Tests(copy, (*words, *package.split()))


def _go_list(copy: Copy, *words: str) -> list[list[str]]:
    argv = ["go", "list", *words]
    listed = subprocess.run(argv, cwd=copy.folder / "node", check=True, capture_output=True, text=True).stdout
    return [line.split() for line in listed.splitlines() if not line.startswith(" ")]
