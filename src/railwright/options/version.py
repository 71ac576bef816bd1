"""The version, with the parts that were found: libraries, drivers and programs that measurements can use."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

_PACKAGES = (("openmpi", "MPI's launcher and library"), ("mpi4py", ""), ("nixl-cu13", "railwright setup nixl"))
"""The packages that measurements use, each with its use or the way to get it."""
_EXTRAS = (
    ("nvidia-nccl-cu13", "collectives of GPUs", "gpu"),
    ("mkl", "hpl", "hpl"),
    ("pyarrow", "parquet_read", "tables"),
    ("h5py", "deepcam_read", "samples"),
)
"""The packages of extras, each with the benchmark that uses it."""
_LIBRARIES = ("libcuda", "libnccl", "libcufile", "libibverbs")
_FOLDERS = ("/usr/local/cuda/lib64", f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/lib64")
_PROGRAMS = {
    "mpirun": "the package openmpi has its own",
    "ssh": "--hosts",
    "srun": "--slurm",
    "kubectl": "--kubernetes",
    "ip": "lab, net check",
}
"""The programs, each with the options or verbs that start it."""
_DRIVER = "/proc/driver/nvidia/version"


def version_option(version: str) -> Callable[[Any], Any]:
    """Return the option `--version`, which prints the version and the parts."""

    def show(context: click.Context, _option: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            click.echo("\n".join((f"railwright, version {version}", "", *_list_parts())))
            context.exit()

    return click.option(
        "--version", "-V", is_flag=True, expose_value=False, is_eager=True, callback=show,
        help="Show the version and the parts that were found, and exit.",
    )  # fmt: skip


def _list_parts() -> list[str]:
    import importlib.metadata
    import platform
    import shutil
    from pathlib import Path

    from railwright.installation import find_installation

    def find_package(name: str) -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return ""

    def find_library(name: str) -> str:
        folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *_FOLDERS]
        return next((str(file) for folder in folders if folder for file in Path(folder).glob(f"{name}.so.*")), "")

    def find_way(extra: str) -> str:
        return "x86-64 alone" if extra == "hpl" and platform.machine() == "aarch64" else here.add_extra(extra)

    here = find_installation()
    loops = Path(__file__).parents[1] / "native" / "_loops.so"
    driver = "not loaded"
    if os.path.exists(_DRIVER):  # noqa: PTH110
        driver = Path(_DRIVER).read_text(encoding="utf-8", errors="replace").splitlines()[0].partition(":")[2].strip()
    rows = [
        ("Python", f"{platform.python_version()}, {platform.system()} {platform.release()}", ""),
        ("timed loops", "built" if loops.exists() else "", "pip install again with a C compiler"),
        *((name, find_package(name), use) for name, use in _PACKAGES),
        *((name, find_package(name), f"{use}: {find_way(extra)}") for name, use, extra in _EXTRAS),
        ("NVIDIA driver", driver, ""),
        *((name, find_library(name), "") for name in _LIBRARIES),
        *((name, shutil.which(name) or "", use) for name, use in _PROGRAMS.items()),
    ]
    return [
        f"{name:18}{found}" if found else f"{name:18}not found{f' ({use})' if use else ''}" for name, found, use in rows
    ]
