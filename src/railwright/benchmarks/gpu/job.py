"""Requirements of GPU benchmarks on the machine and the job."""

from __future__ import annotations

from railwright.benchmarks.benchmark import AnyJob
from railwright.benchmarks.job import Case, Launch, Machine
from railwright.benchmarks.options import Options
from railwright.errors import CannotJudge
from railwright.native import cuda
from railwright.topology.gpus import nvidia_gpus, usable_gpus, why_unusable


def list_usable(machine: Machine) -> tuple[str, ...]:
    """Return the ids of the GPUs that CUDA can use as a whole, by PCI address."""
    return tuple(gpu.id for gpu in usable_gpus(machine.topology))


def launch_all_gpus(_options: Options, machine: Machine) -> tuple[Launch[Case], ...]:
    """Return a launch of one process that uses every GPU."""
    return (Launch(case=Case(), gpus=list_usable(machine)),)


def waiver_reason(job: AnyJob, least: int = 1) -> str:
    """Return the reason why a benchmark that needs `least` whole NVIDIA GPUs cannot run, or an empty string."""
    found = len(job.gpus)
    if found >= least:
        return ""
    unusable = "; ".join(why for gpu in nvidia_gpus(job.topology) if (why := why_unusable(gpu)))
    if not found:
        return f"no NVIDIA GPU can be used: {unusable}" if unusable else "no NVIDIA GPU was found"
    were = f"{least} GPUs are needed, {found} {'was' if found == 1 else 'were'} found"
    return f"{were}: {unusable}" if unusable else were


def find_address(job: AnyJob, rank: int) -> str:
    """Return the PCI address of a rank's GPU. On a host whose addresses differ, it is the one at the same place."""
    gpu, found = job.find_gpu(rank), cuda.device_addresses()
    if not job.hosts or gpu.address in found:
        return gpu.address
    place = [one.id for one in usable_gpus(job.topology)].index(gpu.id)
    if place >= len(found):
        raise CannotJudge(f"{place + 1} GPUs are needed on this host, found {len(found)}")
    return found[place]
