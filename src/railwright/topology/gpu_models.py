"""Comparison of GPU names. Makers, drivers and tools each write the same model in their own way."""

from __future__ import annotations

import re

_MODEL = re.compile(r"[A-Z]{0,6}\d{2,5}[A-Z]{0,4}")
"""The part of a GPU's name that is its model, like `H100`, `L40S` or `MI300X`."""
_MEMORY = re.compile(r"(\d{1,4})GB?")
_FORM_FACTORS = ("PCIE", "NVL", "PRO", "ADA", "MAX")
"""Words that distinguish two GPUs of a model."""
_CPU_MEMORY_SIZES = {("GH200", "120"), ("GH200", "480")}
"""Sizes in a name that are the CPU's memory: both names are one GPU, 10de:2342, with 96 GB (pci.ids)."""


def names_a_model(name: str) -> bool:
    """Report whether a name contains a model."""
    return bool(_parse_model(name)[0])


def is_model(seen: str, known: str) -> bool:
    """Report whether two names are of the same GPU: the same model and form factor, and no different memory sizes."""
    models, _ = _parse_model(known)
    return bool(models) and _parse_model(seen) == _parse_model(known) and _may_have_same_memory(seen, known)


def is_model_of_other_memory(seen: str, known: str) -> bool:
    """Report whether two names are of the same GPU with different memory sizes, whose links are alike."""
    return bool(_parse_model(known)[0]) and _parse_model(seen) == _parse_model(known) and not is_model(seen, known)


def _parse_model(name: str) -> tuple[frozenset[str], frozenset[str]]:
    words = re.findall(r"[A-Z0-9]{1,20}", name[:120].upper())
    models = (word for word in words if _MODEL.fullmatch(word) and not _MEMORY.fullmatch(word))
    return frozenset(models), frozenset(words) & frozenset(_FORM_FACTORS)


def _may_have_same_memory(seen: str, known: str) -> bool:
    """Report whether two names have the same memory size, or one of them has none."""
    mine, other = _parse_memory(seen), _parse_memory(known)
    return not mine or not other or mine == other


def _parse_memory(name: str) -> str:
    """Return the memory size in a name, as written; "of the CPU" if it is not the GPU's."""
    upper = name[:120].upper()
    size = next(iter(re.findall(r"\b(\d{1,4})GB?\b", upper)), "")
    return "of the CPU" if any(model in upper and size == of_cpu for model, of_cpu in _CPU_MEMORY_SIZES) else size
