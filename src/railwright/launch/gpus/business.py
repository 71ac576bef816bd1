"""Detection of other users of GPUs, just before a measurement."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import msgspec

from railwright.errors import CannotJudge
from railwright.installation import PYTHON
from railwright.launch.gpus.samples import GpuUse
from railwright.process import query
from railwright.topology.devices import Device
from railwright.units import format_size

BUSY_ABOVE_PERCENT = 10
MEMORY_ABOVE_BYTES = 2**30
"""The used memory above which a GPU counts as busy. Display servers and monitors use a few hundred MiB."""
_PROGRAM = (*PYTHON, "-W", "ignore", "-m", "railwright.launch.gpus.sampler", "business")
_TIMEOUT_S = 30.0
_NVML_AVERAGES_OVER_S = 1.2
"""NVML averages utilisation over the last second or less (nvml.h). After this time, ended work no longer counts."""


def refuse_busy_gpus(gpus: Iterable[Device], *, force: bool) -> str:
    """Refuse to measure on busy GPUs, unless `force` is set.

    Raises CannotJudge that names the busy GPUs. Returns a warning if the state of some or all GPUs is unknown, or else
    an empty string.
    """
    ids = {gpu.address: gpu.id for gpu in gpus}
    if force or not ids:
        return ""
    for wait_s in (0.0, _NVML_AVERAGES_OVER_S):
        time.sleep(wait_s)
        found, trouble = _read_gpu_use()
        busy = [
            f"{ids[use.address]} is busy: {why}" for use in found if use.address in ids and (why := describe_use(use))
        ]
        if not busy:
            return trouble or _describe_unreported(ids, found)
    hint = "wait until it is idle (nvidia-smi lists the processes), or use --force"
    raise CannotJudge("; ".join(busy), hint=hint)


def _describe_unreported(ids: Mapping[str, str], found: Iterable[GpuUse]) -> str:
    """Return a warning that names the GPUs that NVML does not list or report. Empty if there are none."""
    known = {use.address for use in found if (use.processes, use.utilisation, use.memory_used_bytes) != (None,) * 3}
    unread = [name for address, name in ids.items() if address not in known]
    verb = "is" if len(unread) == 1 else "are"
    return f"whether {', '.join(unread)} {verb} idle is unknown: NVML does not report it" if unread else ""


def describe_use(gpu: GpuUse) -> str:
    """Describe the use of a GPU. Empty for an idle GPU."""
    words = []
    if gpu.processes:
        words.append(f"{gpu.processes} process{'es' * (gpu.processes > 1)}")
    if gpu.utilisation is not None and gpu.utilisation > BUSY_ABOVE_PERCENT:
        words.append(f"{gpu.utilisation} % utilisation")
    if gpu.memory_used_bytes is not None and gpu.memory_used_bytes > MEMORY_ABOVE_BYTES:
        words.append(f"{format_size(gpu.memory_used_bytes)} of its memory in use")
    return ", ".join(words)


def _read_gpu_use() -> tuple[list[GpuUse], str]:
    """Read the use of each GPU from NVML. Returns an empty list and the reason if that fails."""
    finished = query(_PROGRAM, timeout_s=_TIMEOUT_S)
    try:
        return msgspec.json.decode("".join(finished.output), type=list[GpuUse]), ""
    except msgspec.DecodeError:
        ended = f"gave no answer within {_TIMEOUT_S:g} s" if finished.timed_out else finished.describe()
        return [], f"whether the GPUs are idle is unknown: NVML's reader {ended}"
