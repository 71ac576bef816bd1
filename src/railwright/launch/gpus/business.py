"""Whether GPUs are used by somebody else, asked just before they are measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping

import msgspec

from railwright.errors import UsageError
from railwright.launch.gpus.samples import GpuUse
from railwright.process import ask
from railwright.topology.devices import Device
from railwright.units import format_size

BUSY_ABOVE_PERCENT = 10
MEMORY_ABOVE_BYTES = 2**30
"""Display servers and monitors keep some hundred MiB."""
_PROGRAM = (sys.executable, "-P", "-W", "ignore", "-m", "railwright.launch.gpus.sampler", "business")
_TIMEOUT_S = 30.0
_NVML_AVERAGES_OVER_S = 1.2
"""NVML's utilisation is of the last second or less (nvml.h): what ended just now has left it after that."""


def refuse_busy_gpus(gpus: Iterable[Device], *, force: bool) -> str:
    """The GPUs that may be busy for all that is known, with the reason. Empty if the state of every GPU is known.

    Raises UsageError for a busy GPU.
    """
    ids = {gpu.address: gpu.id for gpu in gpus}
    if force or not ids:
        return ""
    for wait_s in (0.0, _NVML_AVERAGES_OVER_S):
        time.sleep(wait_s)
        found, trouble = _ask()
        busy = [
            f"{ids[one.address]} is busy: {why}" for one in found if one.address in ids and (why := describe_use(one))
        ]
        if not busy:
            return trouble or _unread(ids, found)
    hint = "wait until it is idle (nvidia-smi names the processes), or measure all the same with --force"
    raise UsageError("; ".join(busy), hint=hint)


def _unread(ids: Mapping[str, str], found: Iterable[GpuUse]) -> str:
    """The GPUs that NVML does not list, or gives no state of."""
    told = {one.address for one in found if (one.processes, one.utilisation, one.memory_used_bytes) != (None,) * 3}
    unread = [name for address, name in ids.items() if address not in told]
    verb = "is" if len(unread) == 1 else "are"
    return f"whether {', '.join(unread)} {verb} idle could not be read: NVML does not say" if unread else ""


def describe_use(gpu: GpuUse) -> str:
    """The use of a GPU in words; empty for an idle GPU."""
    words = []
    if gpu.processes:
        words.append(f"{gpu.processes} process{'es' * (gpu.processes > 1)}")
    if gpu.utilisation is not None and gpu.utilisation > BUSY_ABOVE_PERCENT:
        words.append(f"at work {gpu.utilisation} % of the time")
    if gpu.memory_used_bytes is not None and gpu.memory_used_bytes > MEMORY_ABOVE_BYTES:
        words.append(f"{format_size(gpu.memory_used_bytes)} of its memory in use")
    return ", ".join(words)


def _ask() -> tuple[list[GpuUse], str]:
    """The state of each GPU by NVML, or the reason why there is none."""
    finished = ask(_PROGRAM, timeout_s=_TIMEOUT_S)
    try:
        return msgspec.json.decode("".join(finished.output), type=list[GpuUse]), ""
    except msgspec.DecodeError:
        ended = f"gave no answer within {_TIMEOUT_S:g} s" if finished.timed_out else finished.describe()
        return [], f"whether the GPUs are idle could not be read: NVML's reader {ended}"
