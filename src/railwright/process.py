"""Child processes. No other module starts one.

A child gets its own process group, dies with its parent (PR_SET_PDEATHSIG), has a time-out, no shell, and no
standard input. Only `topology.sources`, `net`, `locate`, `watch`, `run`, `launch`, `lab` and `verbs.setup` may use it.
`watch` starts the user's own program: `Attached` lets it use our terminal and sets no time-out.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from railwright.errors import CannotJudge, RailwrightError, UsageError

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU,
           signal.SIGALRM)  # fmt: skip
KEPT_OUTPUT_LINES = 200
_LINE_BYTES = 4096
ANSWER_LINE_BYTES = 1 << 20
"""The longest line of a program that is asked for data."""
_ANSWER_BYTES = 64 << 20
_LINE_COST_BYTES = 64
"""The memory of a line beyond its characters."""
_TERMINATE_WAIT_S = 5.0
_TOO_MANY = "too many processes or threads run: check `ulimit -u`, and pids.max of the cgroup"
_KILLED_S = 10.0
"""The time that a killed child has to exit. A child that waits for a device or a tracer may never exit."""


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends. Exit at once if the parent is already gone."""
    parent = os.getppid()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Defer the signals that end a run, and SIGALRM, until the body has finished.

    Around a fork with `preexec_fn`, Python calls hooks, including those of `logging`, and drops exceptions raised
    there. Ctrl-C would be lost, and if it came while a hook held a lock, every later child would wait for that lock.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run only in the main thread
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in _ENDING}
    held = [number for number, handler in before.items() if callable(handler)]
    try:
        for number in held:
            signal.signal(number, lambda number, _frame: came.append(number))
        yield
    finally:
        for number in held:
            signal.signal(number, before[number])
        if came:
            signal.raise_signal(came[0])


@dataclass
class ChildResult:
    """The exit status of a child (negative for the signal that killed it), and the last lines that it printed."""

    returncode: int
    output: list[str]
    timed_out: bool = False

    def describe(self) -> str:
        """Return the status as text, such as `exit status 1` or `killed by SIGSEGV`."""
        return describe_status(self.returncode)


def describe_status(returncode: int) -> str:
    """Return a return code as text, such as `exit status 1`.

    Shells and MPI launchers report the signal that killed their child as 128 plus its number.
    """
    with contextlib.suppress(ValueError):
        if returncode < 0:
            return f"killed by {signal.Signals(-returncode).name}"
        if returncode > 128:
            return f"exit status {returncode} ({signal.Signals(returncode - 128).name} in its child)"
    return f"exit status {returncode}"


@dataclass
class Child:
    """A running child. As a context manager, it ends the whole process group on exit."""

    argv: Sequence[str]
    environment: Mapping[str, str] | None = None
    answer_alone: bool = False
    """Whether stderr is reported only if the child fails: `ip -json` may print warnings although it succeeds."""
    output: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_OUTPUT_LINES))
    complaints: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_OUTPUT_LINES))
    given: bytes = b""
    """The standard input of the child: at most 64 KiB, which the pipe buffers until the child reads it."""
    line_bytes: int = _LINE_BYTES
    """A longer line of the output is kept as several."""
    most_bytes: int | None = None
    """The memory that the output may take. What exceeds it is dropped, and `cut` is set. None leaves it to `output`."""
    cut: bool = field(default=False, init=False)
    folder: Path | None = None
    """The working directory of the child. None means ours."""
    by_caller: bool = False
    """Whether the caller reads the standard output (`answers`) and writes the standard input (`asked`)."""

    def __enter__(self) -> Child:
        try:
            with hold_signals():
                self._start()
        except (KeyboardInterrupt, RailwrightError):
            if hasattr(self, "_popen"):
                self.stop()
            raise
        return self

    def _start(self) -> None:
        try:
            self._popen = subprocess.Popen(
                list(self.argv),
                env=dict(self.environment) if self.environment is not None else None,
                cwd=self.folder,
                stdin=subprocess.PIPE if self.given or self.by_caller else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if self.answer_alone or self.by_caller else subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            raise _explain_start(self.argv[0], error) from error
        if self._popen.stdin is not None and not self.by_caller:
            with contextlib.suppress(BrokenPipeError), self._popen.stdin as pipe:
                pipe.write(self.given)
        streams = ((None if self.by_caller else self._popen.stdout, self._collect_output),
                   (self._popen.stderr, self._collect_complaints))  # fmt: skip
        self._readers = [
            threading.Thread(target=collect, args=(stream,), daemon=True)
            for stream, collect in streams
            if stream is not None
        ]
        try:
            for reader in self._readers:
                reader.start()
        except RuntimeError as error:
            raise CannotJudge(f"cannot start {self.argv[0]}: {error}", hint=_TOO_MANY) from error

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self.by_caller:
            self.answers.close()
            with contextlib.suppress(OSError):
                self.asked.close()

    @property
    def answers(self) -> IO[bytes]:
        """The standard output of the child, if `by_caller` is set. It ends with the child."""
        assert self._popen.stdout is not None
        return self._popen.stdout

    @property
    def asked(self) -> IO[bytes]:
        """The standard input of the child, if `by_caller` is set."""
        assert self._popen.stdin is not None
        return self._popen.stdin

    @property
    def pid(self) -> int:
        """The process id of the child, which is also its process group."""
        return self._popen.pid

    def poll(self) -> int | None:
        """Return the return code, or None while the child runs."""
        return self._popen.poll()

    def wait(self, timeout_s: float) -> ChildResult:
        """Wait until the child exits. After `timeout_s`, end its group and set `timed_out`."""
        timed_out = False
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
            self.stop()
        for reader in self._readers:
            reader.join(1.0)
        status = self._popen.returncode
        # A killed child that has not exited does not have a status yet. The last line of its output reports that.
        ended = -signal.SIGKILL if status is None else status
        lines = [*self.output, *(self.complaints if ended != 0 else ())]
        return ChildResult(returncode=ended, output=lines, timed_out=timed_out)

    def stop(self, grace_s: float = 1.0) -> None:
        """Send SIGTERM to the whole group, and SIGKILL after `grace_s` to the processes that are left.

        A child that still does not exit is left behind. The last line of its output names it.
        """
        try:
            if self._popen.poll() is None:
                self._signal_group(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._popen.wait(grace_s)
        finally:
            # Needed after a normal exit as well, since a dead launcher may have left ranks in its group, and when a
            # second Ctrl-C cuts the grace period short.
            self._signal_group(signal.SIGKILL)
            self._await_killed()

    def _await_killed(self) -> None:
        try:
            self._popen.wait(_KILLED_S)
        except subprocess.TimeoutExpired:
            self.output.append(f"process {self.pid} was killed but still exists after {_KILLED_S:g} s")

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)

    def _collect_output(self, stream: IO[bytes]) -> None:
        taken_bytes = 0
        for line in _read_lines(stream, self.line_bytes):
            taken_bytes += len(line) + _LINE_COST_BYTES
            self.cut = self.most_bytes is not None and taken_bytes > self.most_bytes
            if not self.cut:
                self.output.append(line)

    def _collect_complaints(self, stream: IO[bytes]) -> None:
        self.complaints.extend(_read_lines(stream, _LINE_BYTES))


def _read_lines(stream: IO[bytes], line_bytes: int) -> Iterator[str]:
    """Yield the lines, and close the stream. A child that prints no newline cannot fill our memory."""
    with stream:
        while line := stream.readline(line_bytes):
            yield line.decode("utf-8", "replace").rstrip("\n")


class Attached:
    """A user's program that shares our terminal and process group, so that it receives Ctrl-C too."""

    def __init__(self, argv: Sequence[str], *, output_to_error: bool) -> None:
        """Start the program, with its standard output on our standard error if requested. Raises UsageError."""
        try:
            with hold_signals():
                self._popen = subprocess.Popen(
                    list(argv), stdout=sys.stderr if output_to_error else None, preexec_fn=die_with_parent
                )
        except OSError as error:
            raise _explain_start(argv[0], error) from error

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    def wait(self, timeout_s: float) -> int:
        """Wait for the program and return its return code. Raises subprocess.TimeoutExpired if it is still running."""
        return self._popen.wait(timeout_s)

    def end(self) -> int:
        """Terminate the program if it still runs, kill it if that fails, and return its return code.

        A program that does not exit even then counts as killed by SIGKILL.
        """
        for stop in (self._popen.terminate, self._popen.kill):
            if self._popen.poll() is None:
                stop()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._popen.wait(_TERMINATE_WAIT_S)
        return -signal.SIGKILL if self._popen.returncode is None else self._popen.returncode


def _explain_start(program: str, error: OSError) -> RailwrightError:
    """Return the error of a program that is unsuitable, or for which this machine has no process, memory or file."""
    words = f"cannot start {program}: {error.strerror}"
    if error.errno == errno.EAGAIN:
        return CannotJudge(words, hint=_TOO_MANY)
    lacks = error.errno in (errno.ENOMEM, errno.EMFILE, errno.ENFILE)
    return CannotJudge(words, hint="check `ulimit -a`") if lacks else UsageError(words)


def run(argv: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None) -> ChildResult:
    """Run a child to completion. The result holds its last lines: use `query` for output that is parsed.

    Raises UsageError or CannotJudge if it cannot be started.
    """
    with Child(argv, environment) as child:
        return child.wait(timeout_s)


def query(argv: Sequence[str], *, timeout_s: float, given: bytes = b"", most_bytes: int = _ANSWER_BYTES) -> ChildResult:
    """Run a child to completion. The result holds its whole stdout, and the end of its stderr as well if it failed.

    `given` is its standard input. Raises UsageError or CannotJudge if it cannot be started, and CannotJudge if it
    prints more than `most_bytes`.
    """
    child = Child(argv, answer_alone=True, given=given, output=deque(), line_bytes=ANSWER_LINE_BYTES,
                  most_bytes=most_bytes)  # fmt: skip
    with child:
        answer = child.wait(timeout_s)
    if child.cut:
        raise CannotJudge(f"{argv[0]} printed more than {most_bytes >> 20} MiB", hint="run it by hand, and look")
    return answer
