"""What `mpirun` takes for ssh inside a Slurm allocation. Alone, by path, with the standard library only.

    python -I agent.py HOST COMMAND ...

becomes an `srun` of one task on that node. It shares the node with the job's other steps.
"""

from __future__ import annotations

import os
import sys

_SRUN = ("srun", "--nodes=1", "--ntasks=1", "--overlap", "--mpi=none", "--cpu-bind=none", "--chdir=/", "--quiet",
         "--kill-on-bad-exit=1", "--unbuffered")  # fmt: skip


def main() -> None:
    """Never returns normally."""
    host, *words = sys.argv[1:]
    # As ssh does: what mpirun gives is one line for the other side's shell, with quotes and variables of its own.
    argv = [*_SRUN, f"--nodelist={host}", "/bin/sh", "-c", " ".join(words)]
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted here
    except OSError as error:
        sys.stderr.write(f"{host}: srun: {error.strerror}\n")
        sys.exit(126)


if __name__ == "__main__":
    main()
