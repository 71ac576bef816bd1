"""Files that a user asked for."""

from __future__ import annotations

from pathlib import Path

from railwright.errors import UsageError


def write(file: str, text: str) -> None:
    """Write the file. Raises UsageError."""
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", hint="choose another file") from error
