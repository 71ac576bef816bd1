"""What every benchmark of GPUs asks of its job before it starts."""

from __future__ import annotations

from railwright.benchmarks.base import Job
from railwright.topology.gpus import nvidia_gpus, why_unusable


def waived(job: Job, least: int = 1) -> str:
    """Why a benchmark that needs at least so many whole NVIDIA GPUs cannot run here; empty where it can."""
    found = len(job.gpus)
    if found >= least:
        return ""
    unusable = "; ".join(why for gpu in nvidia_gpus(job.topology) if (why := why_unusable(gpu)))
    if not found:
        return f"no NVIDIA GPU can be used: {unusable}" if unusable else "no NVIDIA GPU was found"
    were = f"{least} GPUs are needed, {found} {'was' if found == 1 else 'were'} found"
    return f"{were}: {unusable}" if unusable else were
