"""Names of GPUs: makers, drivers and tools write the same model each in their own way."""

from __future__ import annotations

import re

_MODEL = re.compile(r"[A-Z]{0,6}\d{2,5}[A-Z]{0,4}")
"""The part of a GPU's name that tells its model, like `H100`, `L40S` or `MI300X`."""
_MEMORY = re.compile(r"(\d{1,4})GB?")
_FORM_FACTORS = ("PCIE", "NVL", "PRO", "ADA", "MAX")
"""Words that tell two GPUs of one model apart."""
_OF_THE_CPU = {("GH200", "120"), ("GH200", "480")}
"""Sizes in a name that are of the CPU's memory: both are one GPU, 10de:2342, with 96 GB (pci.ids)."""


def names_a_model(name: str) -> bool:
    """Whether a name tells which model it is."""
    return bool(_model_of(name)[0])


def is_model(seen: str, known: str) -> bool:
    """Whether two names are of the same GPU: makers, drivers and tools write the rest of a name each their own way."""
    models, _ = _model_of(known)
    return bool(models) and _model_of(seen) == _model_of(known) and _memories(seen, known)


def _model_of(name: str) -> tuple[frozenset[str], frozenset[str]]:
    words = re.findall(r"[A-Z0-9]{1,20}", name[:120].upper())
    models = (word for word in words if _MODEL.fullmatch(word) and not _MEMORY.fullmatch(word))
    return frozenset(models), frozenset(words) & frozenset(_FORM_FACTORS)


def _memories(seen: str, known: str) -> bool:
    """Whether the two do not name different sizes of memory."""
    mine, other = _memory(seen), _memory(known)
    return not mine or not other or mine == other


def _memory(name: str) -> str:
    """The size that a name tells, as it is written; "of the CPU" where it is not the GPU's."""
    upper = name[:120].upper()
    size = next(iter(re.findall(r"\b(\d{1,4})GB?\b", upper)), "")
    return "of the CPU" if any(model in upper and size == of_cpu for model, of_cpu in _OF_THE_CPU) else size
