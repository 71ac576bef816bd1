"""Libraries in folders of wheels that the loader does not search, and the order in which they are tried."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_MKL = (
    *("libmkl_core", "libmkl_intel_lp64", "libmkl_sequential", "libmkl_intel_thread", "libmkl_scalapack_lp64"),
    *("libmkl_blacs_openmpi_lp64", "libmkl_blacs_intelmpi_lp64"),
)
NO_MKL = "MKL exists for x86-64 alone, not for aarch64: name a ScaLAPACK for this MPI with -o library=PATH"
_FOLDERS = {
    "libcudart.so.13": ("nvidia/cu13/lib", "nvidia/cuda_runtime/lib"),
    "libcudart.so.12": ("nvidia/cuda_runtime/lib",),
    "libcufile.so.0": ("nvidia/cu13/lib", "nvidia/cufile/lib"),
    "libcublas.so.13": ("nvidia/cu13/lib", "nvidia/cublas/lib"),
    "libcublas.so.12": ("nvidia/cublas/lib", "nvidia/cu12/lib"),
    "libcusolverMp.so.0": ("nvidia/cu13/lib",),
    "libnccl.so.2": ("nvidia/nccl/lib", "nvidia/cu13/lib", "nvidia/cu12/lib"),
    **{
        f"{name}.so{version}": ("../..",)  # in a site-packages folder: its prefix's own lib
        for name in _MKL
        for version in (".2", ".3")
    },
    "libiomp5.so": ("../..",),
    "libnixl_capi.so": (".nixl_cu13.mesonpy.libs", ".nixl_cu12.mesonpy.libs"),
}


def find_in_wheels(*names: str) -> list[str]:
    """Return the paths of these libraries in installed wheels, in name order, without importing a package."""
    entries = [entry for entry in sys.path if entry]
    places = (Path(entry, folder, name) for name in names for entry in entries for folder in _FOLDERS.get(name, ()))
    return [str(path) for path in places if path.exists()]


def candidates(*names: str, named: str = "") -> list[str]:
    """Return the libraries to try, in order: only `named` if given, otherwise those of wheels, then the loader's."""
    return [named] if named else [*find_in_wheels(*names), *names]


def load(name: str) -> ctypes.CDLL:
    """Load the first candidate that opens, globally. Raises OSError with the error of the first candidate."""
    problem: OSError | None = None
    for candidate in candidates(name):
        try:
            return ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def preload(name: str) -> str:
    """Load a library for others that are linked with it. Returns the error, or an empty string."""
    try:
        load(name)
    except OSError as error:
        return str(error)
    return ""
