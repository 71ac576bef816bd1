"""The records that pods have sent, in the files that they would be in if they had been measured here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import msgspec

from railwright.errors import UsageError
from railwright.results.records import End, Run
from railwright.results.store import PREVIOUS_NAME, RESULTS_NAME

_encoder = msgspec.json.Encoder()
_END = b'{"record":"end"'


class Received:
    """Records of a job, written as they come below a folder. Raises UsageError where they cannot be."""

    def __init__(self, folder: Path, command: tuple[str, ...], clock: Callable[[dt.tzinfo], dt.datetime]) -> None:
        self._folder = folder
        self._command = command
        self._clock = clock
        self._files: set[str] = set()
        self._ended: set[str] = set()
        self.lost = ""
        """What did not come, in words."""
        self.has_gaps = False
        """Whether it is missing before what did."""
        self.interrupted = ""
        """Why no more was waited for."""

    @property
    def has_results(self) -> bool:
        """Whether anything came."""
        return bool(self._files)

    def __contains__(self, file: str) -> bool:
        """Whether records of that file came."""
        return file in self._files

    def keep(self, file: str, record: bytes) -> None:
        """Write one record. The run is that of the command that was typed here, not of the one in the pod."""
        path = self._folder / file
        try:
            if file not in self._files:
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.exists():
                    path.replace(path.with_name(PREVIOUS_NAME))
                self._files.add(file)
            self._ended |= {file} if record.startswith(_END) else set()
            with path.open("ab") as out:
                out.write((self._as_typed(record) if file == RESULTS_NAME else record) + b"\n")
        except OSError as error:
            hint = "choose another folder with --output"
            raise UsageError(f"cannot write {path}: {error.strerror}", hint=hint) from error

    def _as_typed(self, record: bytes) -> bytes:
        try:
            run = msgspec.json.decode(record, type=Run)
        except msgspec.MsgspecError:
            return record  # of another kind
        return _encoder.encode(msgspec.structs.replace(run, command=self._command))

    def mark_incomplete(self, why: str, *, gaps: bool) -> None:
        """Let no reader take files for whole whose end has not come; with gaps, which may be anywhere, any file."""
        end = End(finished_at=self._clock(dt.UTC).isoformat(timespec="seconds"), interrupted=why)
        for file in sorted(self._files if gaps else self._files - self._ended):
            self.keep(file, _encoder.encode(end))
