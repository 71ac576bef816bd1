"""The GPUs of a machine as NVIDIA's libraries describe them, as plain lines; equal GPUs share lines."""

from __future__ import annotations

from railwright.groups import group_by_key
from railwright.report.text.topology_words import clean
from railwright.topology.devices import Device, Scalar, Topology
from railwright.topology.gpus import format_runs
from railwright.units import format_bandwidth, format_size

_FROM_LIBRARIES = frozenset({"sm_clock_max_hz", "cuda_visible", "nvml_lists", "peers", "nvlinks"})
_CAN = {
    "dma_buf": "dma-buf",
    "gpudirect_rdma": "GPUDirect RDMA",
    "fabric_handles": "fabric handles",
    "multicast": "multicast",
}


def gpu_lines(topology: Topology) -> list[str]:
    """Return parts, abilities and settings of each kind of GPU; empty if NVIDIA's libraries were not queried."""
    listed = [gpu for gpu in topology.of_kind("gpu") if _FROM_LIBRARIES & set(gpu.facts)]
    if not listed:
        return []
    host = next(iter(topology.of_kind("host")), None)
    versions = [(name, host.facts.get(key)) for name, key in (("driver", "nvidia_driver"), ("CUDA", "cuda")) if host]
    head = ", ".join(f"{name} {clean(str(value))}" for name, value in versions if value)

    def describe(gpu: Device) -> tuple[str, ...]:
        return _parts(gpu.facts), _abilities(gpu.facts), _settings(gpu.facts)

    lines = [f"GPUs  {head}".rstrip()]
    for words, gpus in group_by_key(listed, describe):
        start = clean(format_runs(gpu.id for gpu in gpus))
        for line in filter(None, words):
            lines.append(f"  {start}  {line}")
            start = " " * len(start)
    return [*lines, *_peer_lines(listed)]


def _parts(facts: dict[str, Scalar]) -> str:
    words = []
    if "compute_capability" in facts:
        words.append(f"compute capability {clean(str(facts['compute_capability']))}")
    sms, clock = facts.get("sm_count"), facts.get("sm_clock_max_hz")
    if isinstance(sms, int):
        words.append(f"{sms} SMs" + (f" at up to {clock / 1e6:.0f} MHz" if isinstance(clock, int | float) else ""))
    memory, rate = facts.get("memory_bytes"), facts.get("hbm_bandwidth_bytes_per_s")
    if isinstance(memory, int):
        words.append(format_size(memory) + (f" at {format_bandwidth(rate)}" if isinstance(rate, int | float) else ""))
    if isinstance(engines := facts.get("copy_engines"), int):
        words.append(f"{engines} copy engines")
    return ", ".join(words)


def _abilities(facts: dict[str, Scalar]) -> str:
    if hidden := _hidden(facts):
        return hidden
    has = ", ".join(name for key, name in _CAN.items() if facts.get(key) is True)
    lacks = ", ".join(f"no {name}" for key, name in _CAN.items() if facts.get(key) is False)
    return "; ".join(filter(None, (has, lacks)))


def _hidden(facts: dict[str, Scalar]) -> str:
    """Explain why no program can use the GPU; NVML lists all GPUs of the driver, CUDA_VISIBLE_DEVICES hides some."""
    visible, listed = facts.get("cuda_visible"), facts.get("nvml_lists")
    if facts.get("withheld") is True:
        return "not given to this container or job"
    if listed is False:
        driver = str(facts.get("driver", ""))
        why = "" if driver == "nvidia" else f" (driver {clean(driver)})" if driver else " (no driver)"
        return f"not listed by NVIDIA's library NVML{why}" + (", visible to CUDA" if visible is True else "")
    if visible is False:
        return "not visible to CUDA" + (" (CUDA_VISIBLE_DEVICES?)" if listed is True else "")
    return ""


def _settings(facts: dict[str, Scalar]) -> str:
    words = []
    limit, default = facts.get("power_limit_w"), facts.get("power_default_w")
    if isinstance(limit, int | float) and isinstance(default, int | float):
        words.append(f"{limit:.0f} W" if limit == default else f"{limit:.0f} W of {default:.0f} W")
    for key, name in (("ecc", "ECC"), ("persistence", "persistence"), ("mig", "MIG")):
        if key in facts:
            words.append(f"{name} {'on' if facts[key] else 'off'}")
    if (mode := str(facts.get("compute_mode", "default"))) != "default":
        words.append(f"compute mode {clean(mode)}")
    if errors := facts.get("ecc_uncorrected"):
        words.append(f"{errors} uncorrected memory errors")
    if facts.get("row_remap_pending") is True:
        words.append("memory rows wait for a reset to be remapped")
    if facts.get("row_remap_failed") is True:
        words.append("memory rows could not be remapped")
    if (throttled := str(facts.get("throttled", "no"))) != "no":
        words.append(f"slowed down: {clean(throttled)}")
    if (fabric := facts.get("nvlink_fabric")) and fabric != "not supported":
        problem = facts.get("nvlink_fabric_problem")
        words.append(f"NVLink fabric {clean(str(fabric))}" + (f" ({clean(str(problem))})" if problem else ""))
    return ", ".join(words)


def _peer_lines(gpus: list[Device]) -> list[str]:
    if len(gpus) < 2:
        return []
    reached = {gpu.id: set(str(gpu.facts.get("peers", "")).split(",")) - {""} for gpu in gpus}
    all_gpus = {gpu.id for gpu in gpus}
    if all(reached[name] >= all_gpus - {name} for name in all_gpus):
        return ["  every GPU reaches the memory of every other"]
    return [
        f"  {gpu.id} may not reach {clean(str(gpu.facts['peers_refused']))}"
        for gpu in gpus
        if gpu.facts.get("peers_refused")
    ]
