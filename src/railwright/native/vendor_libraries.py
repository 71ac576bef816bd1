"""NVIDIA's user-space libraries, which wheels keep in folders where the loader does not look."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_FOLDERS = {
    "libcudart.so.13": ("nvidia/cu13/lib", "nvidia/cuda_runtime/lib"),
    "libcudart.so.12": ("nvidia/cuda_runtime/lib",),
    "libcufile.so.0": ("nvidia/cu13/lib", "nvidia/cufile/lib"),
}


def candidates(name: str) -> list[str]:
    """Where a library may be, in the order to try: as the loader finds it, then in NVIDIA's wheels."""
    inside = (Path(entry, folder, name) for entry in sys.path if entry for folder in _FOLDERS.get(name, ()))
    return [name, *(str(path) for path in inside if path.exists())]


def preload(name: str) -> str:
    """Load a library so that others which are linked with it find it; why that cannot be done, or an empty string."""
    problem = ""
    for candidate in candidates(name):
        try:
            ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            problem = problem or str(error)
        else:
            return ""
    return problem
