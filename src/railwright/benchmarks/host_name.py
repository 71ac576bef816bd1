"""What this host is called among those of a launch."""

from __future__ import annotations

import os
import platform


def host_name() -> str:
    """Slurm's name of the node where Slurm started us, since hostnames may be alike or others; else the hostname."""
    return os.environ.get("SLURMD_NODENAME") or platform.node()
