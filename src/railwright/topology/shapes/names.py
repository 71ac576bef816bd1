"""Resolution of the names that people use for machines, to a shape or to the nearest shapes as suggestions.

Case and separators do not matter, nor does a vendor before a name or the text that NVIDIA's tools add to it. A number
of GPUs becomes a change (`4xH100` is `hgx-h100 gpus=4`), and a memory size must be that of the shape's GPU.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

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
           "tesla", "geforce", "supermicro", "standard", "dell", "hpe", "lenovo", "coreweave", "lambda", "nebius",
           "crusoe")  # fmt: skip
_COMMON_WORDS = frozenset(
    (*_MAKERS, "gpu", "gpus", "oam", "hbm2", "hbm2e", "hbm3", "hbm3e", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6",
     "blackwell", "server", "edition", "generation", "nvlink")
)  # fmt: skip
"""Words by which no two shapes differ."""
_NAME_TEXT = re.compile(rf"[A-Za-z0-9 ._-]{{1,{MAX_NAME}}}")
_COUNT_BEFORE = re.compile(r"^(?P<kept>[a-z]{2,12}[ ._-]+)??(?P<count>\d{1,3})(?:[ _-]*x[ _-]*| +)(?=[a-z])")
_COUNT_AFTER = re.compile(r"(?:(?<=\d)|[ ._-]+)[ _-]*x[ _-]*(?P<count>\d{1,3})$")
_GPU_COUNT = re.compile(r"[ ._-]+(?P<count>\d{1,3})[ ._-]?gpus?$")
_MEMORY = re.compile(r"(?:^|[ _-])(\d{2,3}) ?(gb|gib|g)(?=$|[ _-])")
_SEPARATOR = re.compile(r"[^a-z0-9]+")
_SHORT_NAMES = {
    "h100": "hgx-h100", "h200": "hgx-h200", "b200": "hgx-b200", "b300": "hgx-b300", "a100": "hgx-a100",
    "h20": "hgx-h20", "h800": "hgx-h800", "a800": "hgx-a800", "v100": "dgx-1-v100", "v10032": "dgx-1-v100",
    "dgx1": "dgx-1-v100", "h100sxm": "hgx-h100", "h200sxm": "hgx-h200", "a100sxm": "hgx-a100", "b200sxm": "hgx-b200",
    "h100sxm5": "hgx-h100", "a100sxm4": "hgx-a100", "l40s": "pcie-8gpu", "a10080": "hgx-a100", "a10080gb": "hgx-a100",
    "a100pcie40": "a100-pcie-40gb-8gpu", "a100pcie80": "a100-pcie-80gb-8gpu", "4090": "rtx-4090-8gpu",
    "3090": "rtx-3090-8gpu", "5090": "rtx-5090-8gpu", "6000ada": "rtx-6000-ada-8gpu", "pro6000": "rtx-pro-6000-8gpu",
    "nvl72": "gb200-nvl72", "nvl32": "gh200-nvl32", "gh200x4": "quad-gh200", "4xgh200": "quad-gh200",
    "a3mega": "gcp-a3-mega", "a3ultra": "gcp-a3-ultra", "ndh100": "azure-nd-h100-v5", "ndh200": "azure-nd-h200-v5",
    "ndv5": "azure-nd-h100-v5", "ndv4": "azure-nd-a100-v4", "bmgpumi300x": "oci-bm-gpu-mi300x-8",
}  # fmt: skip
"""The machine for the name of a GPU alone, or for a short word: the most common host of that GPU."""
SUGGESTIONS = {
    "h200nvl": ("h100-nvl-8gpu", "hgx-h200"), "p3": ("aws-p3dn",), "p316xlarge": ("aws-p3dn", "dgx-1-v100"),
    "dgx2": ("dgx-1-v100", "dgx-a100"), "dgxh800": ("hgx-h800",), "h203e": ("hgx-h20",),
    "a4x": ("gb200-nvl72", "azure-nd-gb200-v6"), "a4xhighgpu4g": ("gb200-nvl72", "azure-nd-gb200-v6"),
    "a4xmaxgpu4g": ("gb300-nvl72",), "bmgpugb2004": ("gb200-nvl72",), "bmgpugb3004": ("gb300-nvl72",),
    "p6egb200": ("gb200-nvl72",), "up6egb200x72": ("gb200-nvl72",), "up6egb200x36": ("gb200-nvl72",),
    "a2highgpu8g": ("aws-p4d", "azure-nd-a100-v4"), "a2ultragpu8g": ("hgx-a100", "aws-p4de"),
    "a2megagpu16g": ("aws-p4d", "azure-nd-a100-v4"), "nca100v4": ("a100-pcie-80gb-8gpu",),
    "bmgpumi355x8": ("mi355x",), "bmgpul40s4": ("pcie-8gpu",), "mi350x": ("mi355x",), "mi250": ("mi250x",),
    "mi210": ("mi250x",), "b100": ("hgx-b200",), "a30": ("a100-pcie-40gb-8gpu",),
    **dict.fromkeys(("l40", "l4", "a40", "a6000", "rtxa6000", "a10", "a10g", "t4", "g548xlarge", "g6e48xlarge"),
                    ("pcie-8gpu", "rtx-6000-ada-8gpu", "rtx-3090-8gpu")),
    **dict.fromkeys(("xe9680", "821ge", "sys821getnhr", "dgxsuperpod"), ("hgx-h100", "hgx-h200", "dgx-h100")),
    **dict.fromkeys(("dell", "hpe", "lenovo", "supermicro"), ("hgx-h100", "hgx-h200", "hgx-b200")),
    "xe9712": ("gb200-nvl72", "gb300-nvl72"),
    "xe9680l": ("hgx-h200", "hgx-b200"), "xe9780": ("hgx-b300",), "xe8640": ("hgx-h100",),
    **dict.fromkeys(("eos",), ("dgx-h100",)), **dict.fromkeys(("selene", "perlmutter", "leonardo"), ("dgx-a100",)),
}  # fmt: skip
"""Known names without a shape of their own, with the shapes to suggest."""
NEWER = frozenset(("rubin", "verarubin", "vr200", "vr200nvl144", "vr200nvl72", "r100", "mi400", "mi450x"))
"""Machines that are newer than the shapes. None of these resembles them, so none is suggested."""


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

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes
        self.aliases = {alias: name for name, shape in shapes.items() for alias in shape.aliases}
        written = {**self.aliases, **{name: name for name in shapes}}
        self._exact = {name.lower(): shape for name, shape in written.items()}
        self._compact: dict[str, str] = {}
        for name, shape in written.items():
            for form in _list_forms(_split_name(name.lower())):
                self._compact.setdefault(form, shape)
            self._compact["".join(_SEPARATOR.split(name.lower()))] = shape
        self._compact |= _SHORT_NAMES
        self._spelling = {name.lower(): name for name in (*shapes, *self.aliases)}

    def find(self, name: str) -> NamedShape | None:
        """Return the shape of a name in any spelling; None for an unknown name, or a name with a number of hosts."""
        written = _normalise(name)
        found = self._exact.get(written)
        if found is None and _NAME_TEXT.fullmatch(written):
            found = self._compact.get("".join(_SEPARATOR.split(written)))
        if found is not None or not _NAME_TEXT.fullmatch(written):
            return NamedShape(found) if found else None
        parts = _split_name(written)
        found = self._find_by_memory(parts)
        if found is None or parts.number is None:
            return NamedShape(found) if found else None
        maximum = self._shapes[found].layout.gpus
        if not 0 < parts.number <= maximum or not (parts.counts_gpus or _counts_gpus(parts.words)):
            return None
        return NamedShape(found, None if parts.number == maximum else parts.number)

    def find_hosts(self, name: str) -> tuple[str, int] | None:
        """Return (shape, hosts) if the name can only mean several hosts: `16xH100`, `2x DGX H100`."""
        if not _NAME_TEXT.fullmatch(_normalise(name)) or self.find(name) is not None:
            return None
        parts = _split_name(_normalise(name))
        found = self._find_by_memory(parts)
        if found is None or not parts.number:
            return None
        each = self._shapes[found].layout.gpus if parts.counts_gpus or _counts_gpus(parts.words) else 1
        return (found, parts.number // each) if each and parts.number % each == 0 else None

    def suggest(self, name: str) -> tuple[str, ...]:
        """Return the nearest names, the likeliest first: known names of that GPU, else similar spellings."""
        written = _normalise(name[:MAX_NAME])
        parts = _split_name(written)
        for form in _list_forms(parts):
            if form in SUGGESTIONS:
                return SUGGESTIONS[form]
        if self.is_newer(name):
            return ()
        near = difflib.get_close_matches(written, self._spelling, n=3, cutoff=_MIN_SIMILARITY)
        similar = tuple(self._spelling[match] for match in near)
        models = {word for word in parts.words if any(character.isdigit() for character in word)}
        same = [shape for shape, found in self._shapes.items()
                if found.gpu is not None and models.intersection(_SEPARATOR.split(found.gpu.name.lower()))]  # fmt: skip
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

    def is_newer(self, name: str) -> bool:
        """Report whether a name is that of a machine that is newer than all shapes."""
        return not NEWER.isdisjoint(_list_forms(_split_name(_normalise(name[:MAX_NAME]))))

    def _find_by_memory(self, parts: _Parts) -> str | None:
        """Return the shape of those words whose GPU has the memory in the name, if it gives one."""
        for form in _list_forms(parts):
            found = self._compact.get(form)
            if found and self._has_memory(found, parts):
                return found
            named = self._compact.get(f"{form}{parts.memory}gb") if parts.memory else None
            if named:
                return named
        return None

    def _has_memory(self, shape: str, parts: _Parts) -> bool:
        """Report whether the shape's GPU may have that memory."""
        gpu = self._shapes[shape].gpu
        if parts.memory is None or gpu is None:
            return parts.memory is None
        named = re.search(r"\b(\d{2,3})gb?\b", gpu.name.lower())
        known = {gpu.memory.size_bytes / _GIGABYTE, float(named[1]) if named else 0.0}
        apart = 0.0 if parts.memory_is_exact else _MEMORY_TOLERANCE * parts.memory
        return any(abs(size - parts.memory) <= apart for size in known)


def _normalise(name: str) -> str:
    """Return the text in lower case, with an x for each multiplication sign."""
    return name.lower().replace("\N{MULTIPLICATION SIGN}", "x").replace("*", "x")


def _split_name(written: str) -> _Parts:
    """Split a name in lower case into its parts."""
    memory = _MEMORY.search(written)
    text = written[: memory.start()] + " " + written[memory.end() :] if memory else written
    text = text.strip(" ._-")
    count, counts_gpus = None, False
    for pattern in (_GPU_COUNT, _COUNT_BEFORE, _COUNT_AFTER):
        found = pattern.search(text)
        if found is None:
            continue
        text = f"{text[: found.start()]} {found.groupdict().get('kept') or ''} {text[found.end() :]}"
        count, counts_gpus = int(found["count"]), pattern is _GPU_COUNT
        break
    words = tuple(word for word in _SEPARATOR.split(text) if word)
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
    return not _join_distinctive(words).startswith(
        ("dgx", "hgx", "aws", "p3", "p4", "p5", "p6", "nd", "bmgpu", "a2", "a3", "a4")
    )
