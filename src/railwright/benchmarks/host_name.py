"""The name of this host among the hosts of a launch."""

from __future__ import annotations

import os
import platform


def host_name() -> str:
    """Return Slurm's node name if Slurm started this process, because hostnames may repeat or differ; else the
    hostname.
    """
    return os.environ.get("SLURMD_NODENAME") or platform.node()
