"""The launcher for `mpirun`: Open MPI (PRRTE) and MPICH (Hydra), from their wheels or from the site."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from railwright.errors import CannotJudge, UsageError
from railwright.installation import find_installation
from railwright.launch.local import RANK_PROGRAM, LocalLauncher
from railwright.process import run

Flavour = Literal["openmpi", "mpich"]

_NO_SCHEDULER = "^slurm,pbs,tm,lsf,gridengine,flux,loadleveler,alps"
"""Open MPI's readers of a scheduler's allocation, in releases 4 and 5."""
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where MPICH keeps its segments
_SEGMENTS = ("mpich_sh*_*", "ucx_shm_posix_*")
_VERSION_TIMEOUT_S = 20.0
_OPEN_MPI_RELEASE = re.compile(r"\((?:Open MPI|OpenRTE)\) (\d+)\.")
_OLDEST_WITH_PRRTE = 5
_SM_PATTERN = re.compile(r"\bsm\b")
_LIBRARY_NAMES = ("libmpi.so.40", "libmpi.so.12", "libmpi.so")


class MpiLauncher(LocalLauncher):
    """Starts ranks with an mpirun and its MPI library.

    Raises UsageError if the given mpirun is not a program, and CannotJudge if none is installed or its MPI is unknown.
    """

    name = "mpirun"

    def __init__(self, mpirun: str | None = None) -> None:
        self.mpirun = _find_mpirun(mpirun)
        self.flavour, self.version = _identify(str(self.mpirun))

    @property
    def starts_by_orte(self) -> bool:
        """True for Open MPI 4 and older, whose launcher and shared memory have other names than those of 5."""
        release = _OPEN_MPI_RELEASE.search(self.version)
        return release is not None and int(release[1]) < _OLDEST_WITH_PRRTE

    def command(self, ranks: int, _scratch: Path, _environment: Mapping[str, str]) -> list[str]:
        """Return the command line that starts `ranks` ranks on this machine. The ranks bind themselves."""
        options = ["-n", str(ranks)]
        if self.flavour == "openmpi":
            options += ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
        else:  # inside a job, Hydra would start ranks on the job's nodes
            options += ["-launcher", "fork", "-hosts", "localhost"]
        return [str(self.mpirun), *options, *RANK_PROGRAM]

    def environment(self, scratch: Path) -> dict[str, str]:
        """Return variables that put MPI's files into `scratch` and bind mpi4py to this MPI library."""
        library = self._find_library()
        variables = {"MPI4PY_LIBMPI": str(library)} if library else {}
        if not os.environ.get("HOME"):  # services have none, and Open MPI does not initialize without
            variables["HOME"] = str(scratch)
        if self.flavour == "mpich":
            # Hydra passes the topology to its ranks in a file of /tmp, which stays there if Hydra is killed. If this
            # variable is set, even to nothing, every rank discovers the topology itself.
            topology = {"HWLOC_XMLFILE": os.environ.get("HWLOC_XMLFILE", "")}
            return variables | topology | {"TMPDIR": str(scratch)}
        return variables | {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_ALLOW_RUN_AS_ROOT": "1",
            "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # Probing libfabric adds 1.05 s to each MPI_Init, and these launches do not use libfabric.
            "OMPI_MCA_mtl": os.environ.get("OMPI_MCA_mtl", "^ofi"),  # noqa: SIM112 - the names of Open MPI
            "OMPI_MCA_btl": os.environ.get("OMPI_MCA_btl", "^ofi"),  # noqa: SIM112
            # mpirun would add the nodes of a surrounding job, and take its slots for ours: Slurm gives one a node.
            "OMPI_MCA_ras" if self.starts_by_orte else "PRTE_MCA_ras": _NO_SCHEDULER,
            "PRTE_MCA_prte_tmpdir_base": str(scratch),
            "PMIX_MCA_gds": "hash",
            "OMPI_MCA_btl_sm_backing_directory": str(scratch),
            "TMPDIR": str(scratch),
        }

    def translate(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment in the words of this release: Open MPI 4 calls shared memory `vader`, 5 `sm`."""
        if not self.starts_by_orte:
            return dict(environment)
        return {
            name.replace("_btl_sm_", "_btl_vader_"): _SM_PATTERN.sub("vader", value)
            if name == "OMPI_MCA_btl"
            else value
            for name, value in environment.items()
        }

    def clean_up(self, started: float) -> None:
        """Remove shared-memory segments of MPICH and UCX that ranks of a dead launch left behind."""
        for segment in (path for pattern in _SEGMENTS for path in _SHARED_MEMORY.glob(pattern)):
            with contextlib.suppress(OSError):
                found = segment.lstat()
                if found.st_uid == os.getuid() and found.st_mtime >= started and not _is_mapped(str(segment)):
                    segment.unlink()

    def _find_library(self) -> Path | None:
        """Find the libmpi next to this mpirun by its versioned name: the wheel's plain libmpi.so is a text file.

        Debian and Ubuntu have it in a folder for each architecture, others in lib64 or lib.
        """
        root = self.mpirun.parent.parent
        folders = (*sorted(root.glob(f"lib/{os.uname().machine}-linux-*")), root / "lib64", root / "lib")
        return next((path for folder in folders for name in _LIBRARY_NAMES if (path := folder / name).exists()), None)


def _is_mapped(path: str) -> bool:
    """Report whether any process that we may inspect has the file mapped."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if path in maps.read_text(encoding="utf-8", errors="replace"):
                return True
    return False


def _find_mpirun(mpirun: str | None) -> Path:
    sibling = Path(sys.executable).with_name("mpirun")
    if mpirun is None and sibling.exists():
        return sibling
    if found := shutil.which(mpirun or "mpirun"):
        return Path(found)
    if mpirun is not None:
        raise UsageError(f"--mpirun must name a program, got {mpirun!r}", hint="give the path of an mpirun")
    raise CannotJudge("mpirun is not installed", hint=f"{find_installation().add('openmpi')}, or give --mpirun PATH")


@functools.cache
def _identify(mpirun: str) -> tuple[Flavour, str]:
    """Identify the MPI and version of an mpirun by its --version output. Raises CannotJudge for an unknown MPI."""
    finished = run([mpirun, "--version"], timeout_s=_VERSION_TIMEOUT_S)
    text = "\n".join(finished.output)
    if any(name in text for name in ("Open MPI", "OpenRTE", "PRTE", "prterun")):
        return "openmpi", finished.output[0].strip()
    if "HYDRA" in text.upper():
        version = next((line.split()[-1] for line in finished.output if "Version" in line), "")
        return "mpich", f"MPICH {version}".strip()
    first = finished.output[0][:80] if finished.output else finished.describe()
    reason = f"{mpirun} must belong to Open MPI or MPICH, got version {first!r}"
    raise CannotJudge(reason, hint="give --mpirun the path of one of them")
