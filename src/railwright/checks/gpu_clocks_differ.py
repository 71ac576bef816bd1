"""GPUs of one model with different clock limits: the slowest sets the pace of all.

The check compares the maximum SM and memory clocks and the application clock (nvidia-smi -ac) of GPUs with the same
name. Clocks under load are sampled during measurements (`diagnosis.peers.gpu_health`).
"""

from __future__ import annotations

from collections import Counter

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.groups import group_by_key
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import format_runs, nvidia_gpus

_CLOCKS = {
    "sm_clock_max_hz": "highest SM clock",
    "sm_clock_application_hz": "application clock",
    "memory_clock_max_hz": "highest memory clock",
}


def _signs(facts: Facts) -> Findings:
    named = [gpu for gpu in nvidia_gpus(facts.topology) if gpu.name]
    for _, gpus in group_by_key(named, lambda gpu: gpu.name):
        for fact, label in _CLOCKS.items():
            clocks = {gpu.id: value for gpu in gpus if (value := _hz(gpu, fact)) is not None}
            usual, _ = Counter(clocks.values()).most_common(1)[0] if clocks else (0.0, 0)
            odd = [name for name, value in clocks.items() if value != usual]
            if odd:
                values = sorted({clocks[name] / 1e6 for name in odd})
                clocks_mhz = ", ".join(f"{value:.0f}" for value in values)
                slower = min(values) * 1e6 < usual
                yield CHECK.finding(
                    odd,
                    f"the {label} of {format_runs(odd)} is {clocks_mhz} MHz,"
                    f" but most others have {usual / 1e6:.0f} MHz",
                    (label, f"{clocks_mhz} MHz", "NVML"),
                    certainty="likely" if slower else "possible",
                    costs=f"{1 - min(values) * 1e6 / usual:.1%} of work bound by that clock" if slower else "",
                )


def _hz(gpu: Device, fact: str) -> float | None:
    value = gpu.facts.get(fact)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _lacks_siblings(topology: Topology) -> str:
    names = [gpu.name for gpu in nvidia_gpus(topology)]
    return "" if len(set(names)) < len(names) else "no two NVIDIA GPUs of one model"


CHECK = Check(
    name="gpu_clocks_differ",
    summary="GPUs of one model have different clocks",
    right="GPUs of one model have the same clocks",
    remedy="nvidia-smi -q -d CLOCK; nvidia-smi -rgc, -rmc and -rac reset the clocks",
    signs=_signs,
    needs=(needs.settings, needs.nvidia_gpu, _lacks_siblings),
    asks=(needs.nvml_reports_gpus,),
)
