"""Machines that can be named: what they are made of, as data, each part with its source.

A shape is what one published machine of that kind has; anything that differs is a change (`hgx-h100 nics=2`).
"""

from __future__ import annotations

import difflib
import re

from railwright.errors import UsageError, unknown_name
from railwright.topology.shapes import amd, aws, azure, gcp, grace, laptop, nvidia, oci, pcie
from railwright.topology.shapes.parts import Shape

_FAMILIES = (nvidia, aws, azure, gcp, oci, grace, amd, pcie, laptop)

SHAPES: dict[str, Shape] = {name: shape for family in _FAMILIES for name, shape in family.SHAPES.items()}
"""By canonical name, which is in lower case."""
ALIASES: dict[str, str] = {alias: name for name, shape in SHAPES.items() for alias in shape.aliases}
"""The vendors' own names, as they write them, to the canonical name."""

_SPELLING = {name.lower(): name for name in (*SHAPES, *ALIASES)}
_MAX_NAME = 80
_NEAR = 0.6
_VENDORS = ("nvidia", "amd", "amazon", "aws", "ec2", "azure", "microsoft", "gcp", "google", "oci", "oracle", "instinct",
            "tesla", "geforce", "supermicro", "standard")  # fmt: skip
_A_NAME = re.compile(rf"[A-Za-z0-9 ._-]{{1,{_MAX_NAME}}}")
_COUNT = re.compile(r"^(?:8|4|2|1)x(?=[a-z])")
_NO_MEANING = re.compile(r"[^a-z0-9]+")
_MODELS = {
    "h100": "hgx-h100", "h200": "hgx-h200", "b200": "hgx-b200", "b300": "hgx-b300", "a100": "hgx-a100",
    "h100sxm": "hgx-h100", "h100sxm5": "hgx-h100", "h200sxm": "hgx-h200", "a100sxm": "hgx-a100",
    "a100sxm4": "hgx-a100", "b200sxm": "hgx-b200", "h20": "hgx-h20", "h800": "hgx-h800", "a800": "hgx-a800",
    "v100": "dgx-1-v100", "dgx1": "dgx-1-v100", "v10032": "dgx-1-v100", "v10032gb": "dgx-1-v100",
    "l40s": "pcie-8gpu", "a100pcie40": "a100-pcie-40gb-8gpu",
    "a100pcie80": "a100-pcie-80gb-8gpu", "a10080": "hgx-a100", "a10080gb": "hgx-a100", "rtx4090": "rtx-4090-8gpu",
    "4090": "rtx-4090-8gpu", "3090": "rtx-3090-8gpu", "5090": "rtx-5090-8gpu", "6000ada": "rtx-6000-ada-8gpu",
    "pro6000": "rtx-pro-6000-8gpu", "nvl72": "gb200-nvl72", "nvl32": "gh200-nvl32", "gh200x4": "quad-gh200",
    "4xgh200": "quad-gh200", "a3mega": "gcp-a3-mega", "a3ultra": "gcp-a3-ultra",
    "ndh100": "azure-nd-h100-v5", "ndh200": "azure-nd-h200-v5", "ndv5": "azure-nd-h100-v5", "ndv4": "azure-nd-a100-v4",
    "bmgpumi300x": "oci-bm-gpu-mi300x-8",
}  # fmt: skip
"""What a GPU's name alone, or a short word, stands for: the machine that most of them are in."""


def _compact(name: str) -> str:
    """Without case, separators, vendors before it and a number of GPUs before or behind: `8x NVIDIA H100` is `h100`."""
    found = [word for word in _NO_MEANING.split(name[:_MAX_NAME].lower()) if word]
    while len(found) > 1 and (found[0] in _VENDORS or found[0] in ("8x", "4x", "2x", "1x", "8", "x")):
        found = found[1:]
    text = "".join(found)
    for vendor in _VENDORS:
        if text.startswith(vendor) and len(text) > len(vendor) + 2:
            text = text.removeprefix(vendor)
    return _COUNT.sub("", text).removesuffix("8gpu") or text


_CANONICAL = {name.lower(): name for name in SHAPES} | {alias.lower(): name for alias, name in ALIASES.items()}
_BY_COMPACT = _MODELS | {
    _compact(name): shape for name, shape in {**ALIASES, **dict(zip(SHAPES, SHAPES, strict=True))}.items()
}


def canonical_name(name: str) -> str | None:
    """The name in SHAPES, from that name or a vendor's however it is spelt; None for an unknown name."""
    exact = _CANONICAL.get(name.lower())
    if exact is not None or not _A_NAME.fullmatch(name):
        return exact
    counted = "".join(_NO_MEANING.split(name.lower()))
    return _BY_COMPACT.get(counted) or _BY_COMPACT.get(_compact(name))


def split_name(words: list[str]) -> tuple[str, list[str]] | None:
    """(the name in SHAPES, the words after it), where the first words name a shape: `GB200 NVL72 nics=2`."""
    named = next((place for place, word in enumerate(words) if "=" in word), len(words))
    for most in range(named, 0, -1):
        found = canonical_name(" ".join(words[:most]))
        if found is not None:
            return found, words[most:]
    return None


def unknown_shape(name: str, kind: str = "shape") -> UsageError:
    """The error for an unknown name, with the nearest names or else all canonical ones."""
    near = difflib.get_close_matches(name[:_MAX_NAME].lower(), _SPELLING, n=3, cutoff=_NEAR)
    if not near:
        return unknown_name(kind, name, SHAPES)
    hint = f"did you mean {', '.join(_SPELLING[match] for match in near)}?"
    return UsageError(f"there is no {kind} named {name[:_MAX_NAME]!r}", hint=hint)
