"""What every benchmark of GPUs asks of its machine and its job before it starts."""

from __future__ import annotations

from railwright.benchmarks.benchmark import AnyJob
from railwright.benchmarks.job import Case, Launch, Machine
from railwright.benchmarks.options import Options
from railwright.topology.gpus import nvidia_gpus, usable_gpus, why_unusable


def usable_of(machine: Machine) -> tuple[str, ...]:
    """The ids of the GPUs that CUDA can use as a whole, by their PCI addresses."""
    return tuple(gpu.id for gpu in usable_gpus(machine.topology))


def on_all_gpus(_options: Options, machine: Machine) -> tuple[Launch[Case], ...]:
    """One launch of a process that works with every GPU."""
    return (Launch(case=Case(), gpus=usable_of(machine)),)


def waived(job: AnyJob, least: int = 1) -> str:
    """Why a benchmark that needs at least so many whole NVIDIA GPUs cannot run here; empty where it can."""
    found = len(job.gpus)
    if found >= least:
        return ""
    unusable = "; ".join(why for gpu in nvidia_gpus(job.topology) if (why := why_unusable(gpu)))
    if not found:
        return f"no NVIDIA GPU can be used: {unusable}" if unusable else "no NVIDIA GPU was found"
    were = f"{least} GPUs are needed, {found} {'was' if found == 1 else 'were'} found"
    return f"{were}: {unusable}" if unusable else were
