"""A machine's files, with documents that programs produce when they are first read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from railwright.topology.sources.root import Root, Unreadable

Ask = Callable[[], bytes | Unreadable]


class ProbedRoot(Root):
    """A root with `documents`: unlisted paths, each with the function that produces it. A capture keeps them like
    files.
    """

    def __init__(self, files: Root, documents: Mapping[str, Ask]) -> None:
        super().__init__(files.name)
        self.holds_settings = files.holds_settings
        self._files = files
        self._documents = documents
        self._answers: dict[str, bytes | Unreadable] = {}

    def read_bytes(self, path: str) -> bytes | Unreadable:
        """Return the bytes of a file or document."""
        if path not in self._documents:
            return self._files.read_bytes(path)
        if path not in self._answers:
            self._answers[path] = self._documents[path]()
        return self._answers[path]

    def list(self, path: str) -> tuple[str, ...] | Unreadable:
        """Return the names in a directory, sorted."""
        return self._files.list(path)
