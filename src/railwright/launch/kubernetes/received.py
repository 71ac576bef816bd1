"""The records received from pods, stored in the same files as the records of a local run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import msgspec

from railwright.errors import UsageError
from railwright.results.records import End, Run
from railwright.results.store import PREVIOUS_NAME, RESULTS_NAME
from railwright.secrecy import hide_secrets
from railwright.writing import append, record_mode

_encoder = msgspec.json.Encoder()
_LINES = ".jsonl"
_END = b'{"record":"end"'


class Received:
    """The records of a job, written below a folder as they arrive. Raises UsageError if they cannot be written."""

    def __init__(self, folder: Path, command: tuple[str, ...], clock: Callable[[dt.tzinfo], dt.datetime]) -> None:
        self._folder = folder
        self._command = command
        self._clock = clock
        self._files: set[str] = set()
        self._ended: set[str] = set()
        self.lost = ""
        """A description of the missing records. Empty if none are missing."""
        self.has_gaps = False
        """Whether records are missing before the last one."""
        self.interrupted = ""
        """The reason why reading stopped early. Empty if it did not."""

    @property
    def has_results(self) -> bool:
        """Whether any record arrived."""
        return bool(self._files)

    def __contains__(self, file: str) -> bool:
        """Report whether records of the file arrived."""
        return file in self._files

    def keep(self, file: str, record: bytes) -> None:
        """Write one record. Before the first record of a file, an existing file is renamed to `PREVIOUS_NAME`.

        The run record gets the command that the user typed, not that of the pod.
        """
        path = self._folder / file
        try:
            if file not in self._files:
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.exists() and path.suffix == _LINES:
                    path.replace(path.with_name(PREVIOUS_NAME))
                path.unlink(missing_ok=True)
                self._files.add(file)
            self._ended |= {file} if record.startswith(_END) else set()
            append(path, (self._restore_command(record) if file == RESULTS_NAME else record) + b"\n", record_mode())
        except OSError as error:
            hint = "choose another folder with --output"
            raise UsageError(f"cannot write {path}: {error.strerror}", hint=hint) from error

    def _restore_command(self, record: bytes) -> bytes:
        try:
            run = msgspec.json.decode(record, type=Run)
        except msgspec.MsgspecError:
            return record  # not a run record
        restored = _encoder.encode(msgspec.structs.replace(run, command=self._command))
        return hide_secrets(restored.decode()).encode()

    def mark_incomplete(self, why: str, *, gaps: bool) -> None:
        """Append an interrupted end to each file of records without one, or with `gaps` to every one."""
        end = End(finished_at=self._clock(dt.timezone.utc).isoformat(timespec="seconds"), interrupted=why)
        for file in sorted(self._files if gaps else self._files - self._ended):
            if file.endswith(_LINES):
                self.keep(file, _encoder.encode(end))
