"""Drives the installed command as a user does: a process in a session of its own, real ranks under real MPIs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import msgspec
import pytest
from click.testing import CliRunner
from tests.stand_ins import stand_ins  # noqa: F401 - a fixture
from tests.tiers import pytest_collection_modifyitems, pytest_configure, pytest_runtest_protocol  # noqa: F401 - hooks

from railwright.main import run_command
from railwright.results.records import End, Record, Result, Run
from railwright.run.context import NOISE_SWITCH

# Started in the background by a shell without job control, or by nohup, we ignore signals, and so would all that the
# tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
# Workers of pytest-xdist are told 80 columns: what is printed would depend on who runs the tests.
os.environ.pop("COLUMNS", None)

ROOT = Path(__file__).parents[1]
COMMAND = str(Path(sys.executable).with_name("railwright"))
MPIRUNS = {"openmpi": str(Path(sys.executable).with_name("mpirun")), "mpich": str(ROOT / ".venv-mpich/bin/mpirun")}
MARK = "RAILWRIGHT_TEST_MARK"
SHARED_MEMORY = Path("/dev/shm")
OF_LAUNCHERS = re.compile(r"(\.?railwright|prte|ompi|openmpi|pmix|mpich|hydra|ucx|nixl)", re.IGNORECASE)
PATIENCE_S = 300.0
"""After it something hangs, on however busy a machine; nothing is fast or slow by it."""
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")

Value = TypeVar("Value")


@contextlib.contextmanager
def running(argv: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen]:
    """Start a program, which is killed at the end: a test that fails does not wait for it."""
    with subprocess.Popen(argv, **settings) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(condition: Callable[[], Value], what: str, within_s: float = PATIENCE_S) -> Value:
    """The first truthy value of `condition`; fails loudly when there is none in time.

    Rests four times as long as the condition took: many start a process, and would keep a core from what they wait for.
    """
    begun_s = asked_s = time.monotonic()
    while not (value := condition()):
        now_s = time.monotonic()
        if now_s - begun_s > within_s:
            pytest.fail(f"within {within_s} s there was not: {what}")
        time.sleep(min(max(0.01, 4 * (now_s - asked_s)), 0.5))
        asked_s = time.monotonic()
    return value


def open_files(pid: int) -> list[str]:
    """Return the targets of a process's descriptors, without those that it closes meanwhile."""
    found = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(file.readlink()))
    return found


@dataclass(frozen=True)
class Process:
    """A process that was started, however indirectly, by the command under test."""

    pid: int
    argv: tuple[str, ...]
    environment: dict[str, str]

    @property
    def rank(self) -> int | None:
        """Its rank, None if it is a launcher, a proxy or the command itself."""
        if self.argv[1:4] != ("-P", "-m", "railwright.launch.rank"):
            return None
        return next((int(self.environment[name]) for name in RANK_VARIABLES if name in self.environment), 0)

    @property
    def is_mpirun(self) -> bool:
        return "-n" in self.argv and "railwright.launch.rank" in self.argv

    def resident_bytes(self) -> int:
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return 0


def processes_with(mark: str) -> list[Process]:
    """All live processes whose environment holds the mark of one test."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines = (folder / "environ").read_bytes().decode("utf-8", "replace").split("\0")
            if f"{MARK}={mark}" in lines:
                environment = dict(line.split("=", 1) for line in lines if "=" in line)
                argv = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                found.append(Process(int(folder.name), tuple(argv), environment))
    return found


@dataclass(frozen=True)
class Done:
    """The end of a command: its status and its output."""

    status: int
    out: str
    err: str

    def message(self) -> str:
        """The one message of an error with its hint, after having made sure that it is one and no traceback."""
        assert "Traceback" not in self.err, self.err
        said = [line for line in self.err.splitlines() if line.startswith("railwright: ")]
        assert len(said) == 1, f"one message was expected:\n{self.err}"
        hints = [line for line in self.err.splitlines() if line.startswith("hint: ")]
        assert len(hints) <= 1, self.err
        return "\n".join(said + hints)


@dataclass
class Driver:
    """Starts `railwright` in a session and a TMPDIR of its own, and knows what it left behind."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.output = self.folder / "out"
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.before = self._files_of_launchers()

    def start(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        around: tuple[str, ...] = (),
        **streams: object,
    ) -> subprocess.Popen:
        """The command in the background, or another `around` it; `-O` is added for the measuring verbs without it."""
        argv = list(arguments)
        if argv and argv[0] in ("run", "prove") and "-O" not in argv and len(argv) > 1:
            argv += ["-O", str(self.output)]
        # What a test measures is the benchmark that it names; that ceilings come with it is a matter of the plan.
        argv += ["--alone"] * (argv[:1] == ["run"] and len(argv) > 1 and "--dry-run" not in argv)
        variables = os.environ | {MARK: self.mark, "TMPDIR": str(self.temporary), "COLUMNS": "200", NOISE_SWITCH: "off"}
        process = subprocess.Popen(
            [*around, COMMAND, *argv],
            cwd=self.folder,
            env=variables | (environment or {}),
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams,
        )
        self.started.append(process)
        return process

    def finish(self, process: subprocess.Popen, within_s: float = PATIENCE_S) -> Done:
        out, err = process.communicate(timeout=within_s)
        return Done(process.returncode, out or "", err or "")

    def __call__(self, *arguments: str, within_s: float = PATIENCE_S, **settings: object) -> Done:
        """Run the command to its end."""
        return self.finish(self.start(*arguments, **settings), within_s)

    wait_until = staticmethod(wait_until)

    def processes(self) -> list[Process]:
        return processes_with(self.mark)

    def rank(self, number: int) -> Process | None:
        return next((process for process in self.processes() if process.rank == number), None)

    def records(self, folder: Path | None = None) -> list[Record]:
        """Every whole line of the results so far; fails on a line that is no record."""
        path = (folder or self.output) / "results.jsonl"
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        return [msgspec.json.decode(line, type=Record) for line in lines[:-1]]

    def results(self, benchmark: str | None = None, folder: Path | None = None) -> list[Result]:
        found = [record for record in self.records(folder) if isinstance(record, Result)]
        return [result for result in found if benchmark in (None, result.benchmark)]

    def ends(self) -> tuple[Run, End]:
        """The first and the last record, which a run that could end by itself always has."""
        records = self.records()
        assert isinstance(records[0], Run)
        assert isinstance(records[-1], End)
        return records[0], records[-1]

    def left_behind(self) -> list[str]:
        """Processes and files that are there now and should not be."""
        left = [f"process {process.pid}: {' '.join(process.argv)}" for process in self.processes()]
        left += [str(path) for path in self.temporary.iterdir()]
        return left + sorted(self._files_of_launchers() - self.before)

    def expect_nothing_left(self, within_s: float = PATIENCE_S) -> None:
        """The kernel needs a moment for those it kills, so this asks until the deadline."""
        deadline = time.monotonic() + within_s
        while left := self.left_behind():
            assert time.monotonic() < deadline, "left behind: " + "; ".join(left)
            time.sleep(0.05)

    def end_all(self) -> None:
        """Whatever a failing test left running."""
        for process in self.started:
            process.kill()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait()
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    def _files_of_launchers(self) -> set[str]:
        """Files that launchers and libraries keep outside TMPDIR, except those of a running process of another test."""
        found = set()
        # Ranks that load Open MPI 4 without its mpirun make this folder too, in whichever test.
        orte = any(str(word).endswith("mpirun.openmpi") for process in self.started for word in process.args)
        for base in (SHARED_MEMORY, Path("/tmp")):
            for name in (path.name for path in base.iterdir()):
                owner = re.match(r"railwright-(\d+)-", name)
                alive = owner is not None and Path("/proc", owner.group(1)).exists()
                ours = owner is not None and int(owner.group(1)) in {process.pid for process in self.started}
                if OF_LAUNCHERS.match(name) and (ours or not alive) and (orte or not name.startswith("ompi.")):
                    found.add(str(base / name))
        return found


@dataclass(frozen=True)
class InProcess:
    """`railwright` without a process of its own, for words that start nothing; relative names are below its folder."""

    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def __call__(self, *words: str) -> Done:
        """Run the command to its end. What it sets in the environment ends with it, such as the job that it watches."""
        with patch.dict(os.environ), CliRunner().isolation(env={"COLUMNS": "200"}) as (out, err, _):
            status = run_command(list(words))
        return Done(status, out.getvalue().decode(), err.getvalue().decode())


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """The command in this process, in a folder of its own."""
    folder = tmp_path / "in-process"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return InProcess(folder)


@pytest.fixture
def railwright(tmp_path: Path) -> Iterator[Driver]:
    """The command; afterwards no process of it is left, whatever became of the test."""
    driver = Driver(tmp_path)
    try:
        yield driver
    finally:
        driver.end_all()


@pytest.fixture(scope="module")
def driver_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver shared by a module, for answers that no test changes."""
    driver = Driver(tmp_path_factory.mktemp("shared"))
    try:
        yield driver
    finally:
        driver.end_all()


@pytest.fixture(scope="session")
def mpiruns() -> dict[str, str]:
    """The mpirun of each MPI, by name."""
    return MPIRUNS


@pytest.fixture(params=sorted(MPIRUNS))
def mpirun(request: pytest.FixtureRequest) -> str:
    """The mpirun of Open MPI, then that of MPICH."""
    path = MPIRUNS[request.param]
    assert Path(path).exists(), f"{path} is missing: make test-deps"
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts file systems of a few hundred KiB (needs root, as the house's tests do); unmounts them at the end."""
    mounted: list[Path] = []

    def mount(name: str, *options: str, kind: str = "tmpfs") -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        flags = ["-o", ",".join(options)] if options else []
        subprocess.run(["mount", "-t", kind, *flags, "railwright-test", str(folder)], check=True)
        if folder not in mounted:
            mounted.append(folder)
        return folder

    yield mount
    for folder in reversed(mounted):
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
