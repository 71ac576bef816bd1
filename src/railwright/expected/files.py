"""The limit of files and drives: the links to a drive, the raw drive of the same run, the parts of a decoding
reader.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.expected import mounts, overlapped
from railwright.expected.bands import file_band, limit_from_baseline
from railwright.expected.baselines import Baselines
from railwright.expected.links import expect_narrowest
from railwright.expected.machine import Machine
from railwright.limits.limit import Bounds, Constant, Expected, NoLimit, Source
from railwright.limits.storage import file_limit
from railwright.results.declarations import no_limit
from railwright.results.workload import Files, Workload

_FILE_READS = Source("Railwright docs/limits.md", "direct reads of a file")
FILE_SYSTEM_SHARE = Constant(0.8, "of the raw device, direct random reads", _FILE_READS)


def expect_files(workload: Files, machine: Machine) -> Bounds:
    """Return the bounds of reads and writes on a mount, a drive or files, and of decoding or reading ahead."""
    measured = machine.measured
    if workload.of == "mount":
        return mounts.mount_limit(workload)
    if workload.of == "read ahead" and measured is not None:
        return overlapped.bound_read_ahead(measured, workload)
    if workload.of == "decoded" and measured is not None:
        return overlapped.bound_fetch_and_decode(measured, workload)
    if not workload.path:
        return _limit_all_drives(workload, machine)
    if workload.of == "drive" and not workload.upper_only:
        return expect_links(workload, machine)
    if workload.of == "files" and measured is not None:
        return _expect_from_raw_drive(workload, machine, measured)
    return _upper_limit(workload, machine)


def expect_links(workload: Workload, machine: Machine) -> Bounds:
    """Return the bounds of the narrowest link on the workload's path inside one host."""
    path = machine.find_path(workload.path)
    if path is None:
        return no_limit(workload, f"the topology has no path {workload.path}")
    if workload.quantity != "bandwidth_bytes_per_s":
        return no_limit(workload, "no document gives a latency or a rate of operations here")
    return expect_narrowest(machine.host, path)


def is_best_read(workload: Workload, baselines: Baselines) -> bool:
    """Report whether the workload is the best of the run's own reads and the raw drive was not measured."""
    return baselines.find("raw device", workload) is None and baselines.reads.is_best(workload)


def _limit_all_drives(workload: Files, machine: Machine) -> Bounds:
    """Return the limit of all drives of all hosts together, for workloads without a path."""
    if workload.quantity != "bandwidth_bytes_per_s":
        return no_limit(workload, "no limit is derived for this quantity")
    limit = file_limit(machine.cluster, machine.cluster.hosts, to_gpus=1 if workload.reaches_gpu else 0)
    return limit, file_band(limit)


def _upper_limit(workload: Files, machine: Machine) -> Bounds:
    """Return the limit of the links to a drive, without a band.

    The drive is usually slower than its links. Flash writes slower than it reads, and unevenly; its reads into host
    memory are measured by another benchmark.
    """
    limit, _ = expect_links(workload, machine)
    target = machine.host.device(workload.path.partition(">")[2])
    is_read = target is not None and target.kind in ("gpu", "memory")
    why = "no document gives the drive's own rate" if is_read else "the raw device was only read, not written"
    if isinstance(limit, NoLimit):
        return replace(limit, why=f"{limit.why}; {why}"), None
    return replace(limit, because=f"{limit.because}: only an upper limit, {why}"), None


def _expect_from_raw_drive(workload: Files, machine: Machine, baselines: Baselines) -> Bounds:
    """Return the bounds from the same reads of the raw drive, else from the best reads of the run, else from the
    drive's links.
    """
    device = baselines.find("raw device", workload)
    if device is None:
        limit, _ = expect_links(workload, machine)
        best = baselines.reads.bounds(workload)
        if best is not None and not baselines.reads.is_best(workload):
            return best
        if isinstance(limit, NoLimit):
            return replace(limit, why=f"the raw device was not measured in this run, and {limit.why}"), None
        return limit, None
    value, share = device.fastest, FILE_SYSTEM_SHARE.value
    is_latency = workload.quantity == "latency_s"
    low, high = (value, value / share) if is_latency else (share * value, value)
    because = "the same blocks read from the raw device, in this run"
    return limit_from_baseline(workload.quantity, device, value, because), Expected(
        quantity=workload.quantity,
        low=low,
        high=high,
        doubtful_to=device.slowest / share if is_latency else share * device.slowest,
        because="a file system looks up extents for each direct read",
        sources=(FILE_SYSTEM_SHARE.source,),
    )
