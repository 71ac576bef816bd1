"""Sampling of the GPUs during one launch. Samples are attached to the launch's results by time.

A child process takes the samples. `RAILWRIGHT_GPU_SAMPLING=off` in the environment disables it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

import msgspec

from railwright.benchmarks.benchmark import AnyJob
from railwright.diagnosis.peers.gpu_health import OF_RESULT_BEFORE, SWITCHED_OFF, TOO_SHORT
from railwright.installation import PYTHON
from railwright.launch.gpus.samples import Sample, select_loaded, summarize, summarize_launch
from railwright.process import Child, describe_status
from railwright.results.records import Result

SWITCH = "RAILWRIGHT_GPU_SAMPLING"
INTERVAL_S = 0.5
_PROGRAM = (*PYTHON, "-m", "railwright.launch.gpus.sampler", "sample")
_MAX_SAMPLES = 20_000
"""The maximum number of samples to keep: those of the last 2.8 hours."""
_KEPT_SAMPLES = 240
"""The number of samples kept for results too short to be sampled: two minutes, which show most of the GPUs' states."""
_SILENT_S = 30.0
"""The time without samples after which NVML may hang. Without persistence mode, it takes 1 to 3 s to open a GPU."""
_TOGETHER_S = 0.05
"""The maximum interval between results that were measured together."""

_decoder = msgspec.json.Decoder(Sample)


class GpuWatch:
    """A context manager that samples GPUs during one launch. Does nothing without GPUs or if switched off."""

    def __init__(self, job: AnyJob, environment: Mapping[str, str]) -> None:
        self._gpus = {gpu.address: gpu for gpu in job.gpus} if job.launch.gpus else {}
        self._child: Child | None = None
        self._last_error = ""
        if self._gpus and environment.get(SWITCH, "").lower() not in ("off", "0", "no"):
            lines: deque[str] = deque(maxlen=_MAX_SAMPLES)
            taken = {job.find_cpu(rank) for rank in range(job.ranks)}
            spare = ",".join(str(cpu) for cpu in job.cpus if cpu not in taken)
            argv = [
                *_PROGRAM,
                f"{INTERVAL_S}",
                *[spare] * bool(spare),
            ]  # if every CPU has a rank, the sampler may run on any
            self._child = Child(argv, dict(environment), output=lines)
        self._taken: list[Sample] = []
        self._begun = self._since = time.monotonic()
        self._follows_result = False
        self._window = (self._since, self._since)

    def __enter__(self) -> GpuWatch:
        if self._child is not None:
            self._child.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.stop(grace_s=0.2)

    def mark(self) -> None:
        """Mark a step. The first step after a result starts the next one; later steps (`verify ...`) belong to it."""
        if self._follows_result:
            self._since, self._follows_result = time.monotonic(), False

    def add_samples(self, result: Result) -> Result:
        """Add the samples taken since the result began, or else those taken earlier in the launch."""
        if not self._gpus or result.outcome != "measured":
            return result
        now = time.monotonic()
        together = self._follows_result and now - self._since <= _TOGETHER_S
        if not together:
            self._window = (self._since, now)
        self._since, self._follows_result = now, True
        first, last = self._window
        counted = select_loaded(self._take_samples(first))
        settings, evidence = summarize([sample for sample in counted if first <= sample.at_s <= last], self._gpus)
        if settings and together:
            settings["gpu_samples_of"] = OF_RESULT_BEFORE
        if not settings:
            why = self._explain_missing()
            if why == TOO_SHORT:  # a sampler that has failed says nothing about this result
                settings, evidence = summarize_launch([sample for sample in counted if sample.at_s <= last], self._gpus)
            settings = settings or {"gpu_samples": 0, "gpu_not_watched": why}
        evidence, settings = (*result.evidence, *evidence), {**result.settings, **settings}
        return msgspec.structs.replace(result, settings=settings, evidence=evidence)

    def _explain_missing(self) -> str:
        """Return the reason why a result has no samples."""
        if self._child is None:
            return SWITCHED_OFF
        status = self._child.poll()
        if status is not None:
            return f"the sampler ended: {describe_status(status)}" + (
                f", its output: {self._last_error!r}" if self._last_error else ""
            )
        if not self._taken and time.monotonic() - self._begun > _SILENT_S:
            return "the sampler has printed nothing: NVML may hang"
        if self._taken and time.monotonic() - self._taken[-1].at_s > _SILENT_S:
            return f"the sampler has printed nothing for {_SILENT_S:.0f} s: NVML may hang"
        listed = {gpu.address for sample in self._taken for gpu in sample.gpus}
        absent = [gpu.id for address, gpu in self._gpus.items() if address not in listed]
        return f"NVML does not list {', '.join(absent)}" if self._taken and absent else TOO_SHORT

    def _take_samples(self, first_s: float) -> list[Sample]:
        """Parse new samples. Returns those since `first_s`, the two before, and at least the last `_KEPT_SAMPLES`.

        Other lines are error messages of the sampler.
        """
        lines = self._child.output if self._child is not None else deque()
        while lines:
            line = lines.popleft()
            try:
                self._taken.append(_decoder.decode(line))
            except msgspec.DecodeError:
                self._last_error = line.strip()[:200]
        before = sum(sample.at_s < first_s for sample in self._taken)
        del self._taken[: max(0, min(before - 2, len(self._taken) - _KEPT_SAMPLES))]
        return self._taken
