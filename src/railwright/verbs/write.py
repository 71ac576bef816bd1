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


def refuse_no_page(output: str | None) -> None:
    """Raises UsageError for a name that no browser would open as a page."""
    if output is not None and not output.lower().endswith((".html", ".htm")):
        raise UsageError(f"{output[:200]!r} is not the name of a page", hint="--output writes HTML: name it FILE.html")
