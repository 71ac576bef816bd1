"""The replacement for ssh that `mpirun` calls inside a Slurm allocation. Run by path, standard library only.

    python -I agent.py HOST COMMAND ...

runs one task on that node by `srun`. The task shares the node with the job's other steps.
"""

from __future__ import annotations

import os
import sys

_SRUN = ("srun", "--nodes=1", "--ntasks=1", "--overlap", "--mpi=none", "--cpu-bind=none", "--chdir=/", "--quiet",
         "--kill-on-bad-exit=1", "--unbuffered")  # fmt: skip


def main() -> None:
    """Replace this process by srun. Never returns."""
    host, *words = sys.argv[1:]
    # As with ssh, mpirun passes one line for the remote shell, with its own quotes and variables.
    argv = [*_SRUN, f"--nodelist={host}", "/bin/sh", "-c", " ".join(words)]
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted here
    except OSError as error:
        sys.stderr.write(f"{host}: srun: {error.strerror}\n")
        sys.exit(126)


if __name__ == "__main__":
    main()
