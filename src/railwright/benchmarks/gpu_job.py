"""What every benchmark of GPUs asks of its job before it starts."""

from __future__ import annotations

from railwright.benchmarks.base import Job


def waived(job: Job, least: int = 1) -> str:
    """Why a benchmark that needs at least so many NVIDIA GPUs cannot run here; empty where it can."""
    found = len(job.gpus)
    if found >= least:
        return ""
    if not found:
        return "no NVIDIA GPU was found"
    return f"{least} GPUs are needed, {found} {'was' if found == 1 else 'were'} found"
