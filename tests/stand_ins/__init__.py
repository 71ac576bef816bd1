"""Libraries that stand in for NVIDIA's, so that control flow, bindings and data checks are tested without a GPU.

They are built here and put in front of LD_LIBRARY_PATH of a child process. Nothing that only a GPU can show is tested
with them.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
LIBRARIES = (
    ("cuda.c", "libcuda.so.1"),
    ("nccl.c", "libnccl.so.2"),
    ("nvml.c", "libnvidia-ml.so.1"),
    ("cufile.c", "libcufile.so.0"),
    ("cublas.c", "libcublas.so.13"),
    ("cusolvermp.c", "libcusolverMp.so.0"),
)
FLAGS = ("-std=c11", "-O2", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of them, for LD_LIBRARY_PATH of a child. The first of the workers builds them for all."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "stand-ins"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for source, library in LIBRARIES:
            if (FOLDER / source).exists() and not (folder / library).exists():
                build(source, folder / library)
    return folder


def build(source: str, library: Path, *flags: str) -> None:
    """A stand-in library, under the name that the loader searches."""
    soname = f"-Wl,-soname,{library.name}"
    subprocess.run(["cc", *FLAGS, soname, *flags, "-o", str(library), str(FOLDER / source), "-ldl"], check=True)


def environment(folder: Path, *addresses: str, **faults: str) -> dict[str, str]:
    """The environment in which a child finds them: GPUs at those PCI addresses, and the faults to show."""
    before = os.environ.get("LD_LIBRARY_PATH", "")
    return {
        "LD_LIBRARY_PATH": f"{folder}:{before}" if before else str(folder),
        "STANDIN_GPUS": str(len(addresses)),
        "STANDIN_GPU_ADDRESSES": ",".join(addresses),
        **faults,
    }
