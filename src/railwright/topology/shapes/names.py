"""Resolution of the names that people use for machines, to a shape or to the nearest shapes as suggestions.

Case and separators do not matter, nor does a vendor before a name or the text that NVIDIA's tools add to it. A number
of GPUs becomes a change (`4x L40S` is `pcie-8gpu gpus=4`) or means a board (`4xH100`). A memory size must be that of
the shape's GPU.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from railwright.topology.shapes.catalogue import NameTable
from railwright.topology.shapes.parts import Shape

MAX_NAME = 80
_MAX_SUGGESTED = 4
_MIN_SIMILARITY = 0.6
_MEMORY_TOLERANCE = 0.08
"""The allowed relative difference: makers count memory in GB and in GiB, and error correction uses some: B200 has 180
or 192 GB.
"""
_GIGABYTE = 1e9
_MAKERS = ("nvidia", "amd", "amazon", "aws", "ec2", "azure", "microsoft", "gcp", "google", "oci", "oracle", "instinct",
           "tesla", "geforce", "quadro", "supermicro", "standard", "dell", "hpe", "lenovo", "coreweave", "lambda",
           "nebius", "crusoe", "ml", "intel")  # fmt: skip
_COMMON_WORDS = frozenset(
    (*_MAKERS, "gpu", "gpus", "oam", "hbm2", "hbm2e", "hbm3", "hbm3e", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6",
     "blackwell", "server", "edition", "generation", "nvlink")
)  # fmt: skip
"""Words by which no two shapes differ."""
# Patterns are compiled when a name needs them: a list of the machines needs none.
_NAME_TEXT = rf"[A-Za-z0-9 ._-]{{1,{MAX_NAME}}}"
_GRES = r"(?:gres[:/])?gpu:(?=[\w.-]{0,60}[a-z])([\w.-]{1,60}?)(?::(\d{1,3}))?(?:\(s:[\d,-]{1,20}\))?"
"""Slurm's generic resource: `gpu:h100:8`."""
_COUNT_WORDS = {"dual": 2, "two": 2, "quad": 4, "four": 4, "eight": 8}
_COUNT_WORD = rf"^({'|'.join(_COUNT_WORDS)})[ ._-]+"
_COUNT_BEFORE = r"^(?P<kept>[a-z]{2,12}[ ._-]+)??(?P<count>\d{1,3})(?:[ _-]*x[ _-]*(?=[a-z\d])| +(?=[a-z]))"
_COUNT_AFTER = r"(?:(?<=\d)|[ ._-]+)[ _-]*x[ _-]*(?P<count>\d{1,3})$"
_GPU_COUNT = r"[ ._-]+(?P<count>\d{1,3})[ ._-]?gpus?$"
_MEMORY = r"(?:^|[ _-])(\d{2,3}) ?(gb|gib|g)(?=$|[ _-])"
_MACHINE = r"dgx|hgx|aws|azure|gcp|oci|nd|bmgpu|(?:p[3-6]|a[2-4]|g[5-6])(?!\d)"
"""The beginning of a name of a machine, where `A40` and `A30` are GPUs."""
_SEPARATOR = r"[^a-z0-9]+"


class NamedShape(NamedTuple):
    """A shape, and the number of GPUs in the name if it differs from the shape's."""

    shape: str
    gpus: int | None = None


class _Parts(NamedTuple):
    """A written name split up: words without separators, a number before or after them, a size of memory in GB."""

    words: tuple[str, ...]
    number: int | None
    counts_gpus: bool
    """Whether the name says that the number counts GPUs."""
    memory: int | None
    memory_is_exact: bool
    """Whether `80G` must match exactly to be memory: it could be a rate."""


class Names:
    """The spellings of some shapes."""

    def __init__(self, shapes: Mapping[str, Shape], table: NameTable) -> None:
        self._shapes, self._table = shapes, table
        self.aliases = {alias: name for name, aliases in table.shapes.items() for alias in aliases}
        self._written = {**self.aliases, **{name: name for name in shapes}}
        self._exact = {name.lower(): shape for name, shape in self._written.items()}

    @cached_property
    def _spelling(self) -> dict[str, str]:
        return {name.lower(): name for name in (*self._shapes, *self.aliases)}

    def find(self, name: str) -> NamedShape | None:
        """Return the shape of a name in any spelling; None for an unknown name, or a name with a number of hosts."""
        written = _normalise(name)
        found = self._exact.get(written)
        if found is None and re.fullmatch(_NAME_TEXT, written):
            found = self._table.spellings.get("".join(re.split(_SEPARATOR, written)))
        if found is not None or not re.fullmatch(_NAME_TEXT, written):
            return NamedShape(found) if found else None
        parts = _split_name(written)
        if not self._table.suggestions.keys().isdisjoint(_list_forms(parts)):
            return None
        found = self._find_by_memory(parts)
        if found is None and written.endswith("s") and written[-2:-1].isdigit():
            return self.find(written[:-1])  # `8 H100s`
        if found is None or parts.number is None:
            return NamedShape(found) if found else None
        board = self._find_board(found, str(parts.number), parts.words)
        if board is not None and (parts.counts_gpus or _counts_gpus(parts.words)):
            return NamedShape(board)
        maximum = self._shapes[found].layout.gpus
        if not 0 < parts.number <= maximum or not (parts.counts_gpus or _counts_gpus(parts.words)):
            return None
        return NamedShape(found, None if parts.number == maximum else parts.number)

    def find_board(self, name: str, gpus: str) -> str | None:
        """Return the board that a name means with that number of GPUs; None if the name's own shape is meant."""
        found = self.find(name)
        return self._find_board(found.shape, gpus, _split_name(_normalise(name)).words) if found else None

    def _find_board(self, shape: str, gpus: str, words: tuple[str, ...]) -> str | None:
        by_name = self._table.boards.get(shape, {})
        by_gpu = self._table.gpu_boards.get(shape, {}) if _counts_gpus(words) else {}
        return by_name.get(gpus) or by_gpu.get(gpus)

    def find_hosts(self, name: str) -> tuple[str, int] | None:
        """Return (shape, hosts) if the name can only mean several hosts: `16xH100`, `2x DGX H100`."""
        if not re.fullmatch(_NAME_TEXT, _normalise(name)) or self.find(name) is not None:
            return None
        parts = _split_name(_normalise(name))
        found = self._find_by_memory(parts)
        if found is None or not parts.number:
            return None
        each = self._shapes[found].layout.gpus if parts.counts_gpus or _counts_gpus(parts.words) else 1
        return (found, parts.number // each) if each and parts.number % each == 0 else None

    def suggest(self, name: str) -> tuple[str, ...]:
        """Return the nearest names, the likeliest first: known names of that GPU, else similar spellings."""
        import difflib

        written = _normalise(name[:MAX_NAME])
        parts = _split_name(written)
        for form in _list_forms(parts):
            if form in self._table.suggestions:
                return self._table.suggestions[form]
        if self.why_unmodelled(name):
            return ()
        near = difflib.get_close_matches(written, self._spelling, n=3, cutoff=_MIN_SIMILARITY)
        similar = tuple(self._spelling[match] for match in near)
        models = {word for word in parts.words if any(character.isdigit() for character in word)}
        same = [shape for shape, found in self._shapes.items()
                if found.gpu and models.intersection(re.split(_SEPARATOR, found.gpu.name.lower()))]  # fmt: skip
        if not same:
            return similar
        fits = [shape for shape in same if self._has_memory(shape, parts)]
        ranked = sorted(fits or same, key=lambda shape: -difflib.SequenceMatcher(None, written, shape).ratio())
        nearest: dict[str, str] = {}
        for candidate in similar:
            shape = self._exact[candidate.lower()]
            if shape in (fits or same):
                nearest[shape] = shape if shape in similar else candidate
        return (*nearest.values(), *(candidate for candidate in ranked if candidate not in nearest))[:_MAX_SUGGESTED]

    def why_unmodelled(self, name: str) -> str:
        """Return why a known machine has no shape; empty for any other name."""
        forms = _list_forms(_split_name(_normalise(name[:MAX_NAME])))
        return next((self._table.unmodelled[form] for form in forms if form in self._table.unmodelled), "")

    def _find_by_memory(self, parts: _Parts) -> str | None:
        """Return the shape of those words whose GPU has the memory in the name, if it gives one."""
        for form in _list_forms(parts):
            found = self._table.spellings.get(form)
            if found and self._has_memory(found, parts):
                return found
            named = self._table.spellings.get(f"{form}{parts.memory}gb") if parts.memory else None
            if named:
                return named
        return None

    def _has_memory(self, shape: str, parts: _Parts) -> bool:
        """Report whether the shape's GPU may have that memory."""
        gpu = self._shapes[shape].gpu
        if parts.memory is None or gpu is None:
            return parts.memory is None
        named = re.search(r"\b(\d{2,3})gb?\b", gpu.name.lower())
        known = {(gpu.memory.size_bytes or 0) / _GIGABYTE, float(named[1]) if named else 0.0}
        apart = 0.0 if parts.memory_is_exact else _MEMORY_TOLERANCE * parts.memory
        return any(abs(size - parts.memory) <= apart for size in known)


def list_spellings(table: NameTable) -> dict[str, str]:
    """Return the shape of each name without separators, makers and words that distinguish no shape.

    `scripts/write-shapes` adds them to the spellings of the table.
    """
    compact: dict[str, str] = {}
    for shape, aliases in table.shapes.items():
        for name in (*aliases, shape):
            for form in _list_forms(_split_name(name.lower())):
                compact.setdefault(form, shape)
            compact["".join(re.split(_SEPARATOR, name.lower()))] = shape
    return compact | table.spellings


def _normalise(name: str) -> str:
    """Return the text in lower case, with an x for each multiplication sign, and `8x h100` for Slurm's `gpu:h100:8`."""
    written = name.lower().replace("\N{MULTIPLICATION SIGN}", "x").replace("*", "x")
    gres = re.fullmatch(_GRES, written)
    return f"{gres[2]}x {gres[1]}" if gres and gres[2] else gres[1] if gres else written


def _split_name(written: str) -> _Parts:
    """Split a name in lower case into its parts."""
    memory = re.search(_MEMORY, written)
    text = written[: memory.start()] + " " + written[memory.end() :] if memory else written
    text = re.sub(_COUNT_WORD, lambda word: f"{_COUNT_WORDS[word[1]]}x ", text.strip(" ._-"))
    count, counts_gpus = None, False
    for pattern in (_GPU_COUNT, _COUNT_BEFORE, _COUNT_AFTER):
        found = re.search(pattern, text)
        if found is None:
            continue
        text = f"{text[: found.start()]} {found.groupdict().get('kept') or ''} {text[found.end() :]}"
        count, counts_gpus = int(found["count"]), pattern is _GPU_COUNT
        break
    words = tuple(word for word in re.split(_SEPARATOR, text) if word)
    is_exact = memory is not None and memory[2] == "g"
    return _Parts(words, count, counts_gpus, int(memory[1]) if memory else None, is_exact)


def _list_forms(parts: _Parts) -> Iterator[str]:
    """Yield the words joined, then without makers before them, then without words that distinguish no shape."""
    yield "".join(parts.words)
    text = "".join(parts.words)
    for maker in _MAKERS:
        if text.startswith(maker) and len(text) > len(maker) + 2:
            yield text.removeprefix(maker)
    yield "".join(itertools.dropwhile(lambda word: word in _MAKERS, parts.words))
    yield _join_distinctive(parts.words)


def _join_distinctive(words: Iterable[str]) -> str:
    return "".join(word for word in words if word not in _COMMON_WORDS)


def _counts_gpus(words: tuple[str, ...]) -> bool:
    """Report whether a number next to these words counts GPUs rather than hosts, because they do not name a machine."""
    return re.match(_MACHINE, _join_distinctive(words)) is None
