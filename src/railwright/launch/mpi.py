"""Ranks under `mpirun`: Open MPI (PRRTE) and MPICH (Hydra), from their wheels or from the site."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from railwright.errors import CannotJudge, UsageError
from railwright.launch.local import RANK_PROGRAM, LocalLauncher
from railwright.process import run

Flavour = Literal["openmpi", "mpich"]

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where MPICH keeps its segments
_SEGMENTS = ("mpich_sh*_*", "ucx_shm_posix_*")
_VERSION_TIMEOUT_S = 20.0
_LIBRARY_NAMES = ("libmpi.so.40", "libmpi.so.12", "libmpi.so")


class MpiLauncher(LocalLauncher):
    """An mpirun and the MPI library that belongs to it. Raises CannotJudge where there is none."""

    name = "mpirun"

    def __init__(self, mpirun: str | None = None) -> None:
        self.mpirun = _find(mpirun)
        self.flavour, self.version = _identify(str(self.mpirun))

    def command(self, ranks: int, _scratch: Path, _environment: Mapping[str, str]) -> list[str]:
        """The command line that starts `ranks` ranks on this machine; ranks bind themselves."""
        options = ["-n", str(ranks)]
        if self.flavour == "openmpi":
            options += ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
        return [str(self.mpirun), *options, *RANK_PROGRAM]

    def environment(self, scratch: Path) -> dict[str, str]:
        """What the launcher and its MPI need: their files in `scratch`, and mpi4py on this very library."""
        library = self._library()
        variables = {"MPI4PY_LIBMPI": str(library)} if library else {}
        if self.flavour == "mpich":
            # Hydra hands the machine's topology to its ranks in a file of /tmp, which stays there when it is killed;
            # with this variable set, also to nothing, every rank looks for itself.
            topology = {"HWLOC_XMLFILE": os.environ.get("HWLOC_XMLFILE", "")}
            return variables | topology | {"TMPDIR": str(scratch)}
        return variables | {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_ALLOW_RUN_AS_ROOT": "1",
            "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # Probing libfabric costs 1.05 s per MPI_Init and finds nothing that these launches use.
            "OMPI_MCA_mtl": os.environ.get("OMPI_MCA_mtl", "^ofi"),  # noqa: SIM112 - the names of Open MPI
            "OMPI_MCA_btl": os.environ.get("OMPI_MCA_btl", "^ofi"),  # noqa: SIM112
            "PRTE_MCA_prte_tmpdir_base": str(scratch),
            "PMIX_MCA_gds": "hash",
            "OMPI_MCA_btl_sm_backing_directory": str(scratch),
            "TMPDIR": str(scratch),
        }

    def clean_up(self, started: float) -> None:
        """Remove segments of MPICH and UCX that ranks of a launch that died could not unlink any more."""
        for segment in (path for pattern in _SEGMENTS for path in _SHARED_MEMORY.glob(pattern)):
            with contextlib.suppress(OSError):
                found = segment.lstat()
                if found.st_uid == os.getuid() and found.st_mtime >= started and not _is_mapped(str(segment)):
                    segment.unlink()

    def _library(self) -> Path | None:
        """The libmpi beside this mpirun, by its versioned name: the wheel's plain libmpi.so is a text file."""
        folder = self.mpirun.parent.parent / "lib"
        return next((path for name in _LIBRARY_NAMES if (path := folder / name).exists()), None)


def _is_mapped(path: str) -> bool:
    """Whether a process has the file mapped, of those that we may inspect."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if path in maps.read_text(encoding="utf-8", errors="replace"):
                return True
    return False


def _find(mpirun: str | None) -> Path:
    beside = Path(sys.executable).with_name("mpirun")
    if mpirun is None and beside.exists():
        return beside
    if found := shutil.which(mpirun or "mpirun"):
        return Path(found)
    if mpirun is not None:
        raise UsageError(f"no program at {mpirun!r}", hint="give --mpirun the path of an mpirun")
    raise CannotJudge("no mpirun was found", hint="install the `openmpi` package, or give --mpirun PATH")


@functools.cache
def _identify(mpirun: str) -> tuple[Flavour, str]:
    """Which MPI an mpirun belongs to, by its own words."""
    finished = run([mpirun, "--version"], timeout_s=_VERSION_TIMEOUT_S)
    text = "\n".join(finished.output)
    if "Open MPI" in text or "PRTE" in text or "prterun" in text.lower():
        return "openmpi", finished.output[0].strip()
    if "HYDRA" in text.upper():
        version = next((line.split()[-1] for line in finished.output if "Version" in line), "")
        return "mpich", f"MPICH {version}".strip()
    first = finished.output[0][:80] if finished.output else finished.describe()
    reason = f"{mpirun} is neither Open MPI's nor MPICH's: it says {first!r}"
    raise CannotJudge(reason, hint="give --mpirun PATH of one of them")
