"""The program that queries NVIDIA's libraries: `python -m railwright.topology.sources.nvidia_probe`, not for users.

It is a process of its own because a broken driver may hang or crash in any of these calls.
It prints two lines of JSON, first NVML's answer, then CUDA's: NVML's answer is kept if CUDA hangs.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pynvml

from railwright.process import die_with_parent
from railwright.topology.sources import nvidia_nvml
from railwright.topology.sources.nvidia_cuda import ask_cuda
from railwright.topology.sources.nvidia_model import MOST_PAIRED, NO_ADDRESS, Gpu, Nvlink, NvmlAnswer, Pair, Remote
from railwright.topology.sources.nvidia_nvml import ask, scale

_DEVICES = Path("/dev")
# Keys are the numbers of nvml.h.
_REMOTES: dict[int, Remote] = {0: "gpu", 1: "npu", 2: "switch"}
_FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_PEER_STATUS = {
    pynvml.NVML_P2P_STATUS_OK: "ok",
    pynvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED: "chipset not supported",
    pynvml.NVML_P2P_STATUS_GPU_NOT_SUPPORTED: "GPU not supported",
    pynvml.NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: "IOH topology not supported",
    pynvml.NVML_P2P_STATUS_DISABLED_BY_REGKEY: "disabled by regkey",
    pynvml.NVML_P2P_STATUS_NOT_SUPPORTED: "not supported",
    pynvml.NVML_P2P_STATUS_UNKNOWN: "unknown",
}
# pynvml gives this one index as a tuple (nvml.h: NVML_P2P_CAPS_INDEX_READ = 0).
_PEER_READ, _PEER_WRITE, _PEER_NVLINK = 0, pynvml.NVML_P2P_CAPS_INDEX_WRITE, pynvml.NVML_P2P_CAPS_INDEX_NVLINK
_ANCESTORS = {0: "same board", 10: "one switch", 20: "several switches", 30: "host bridge", 40: "CPU", 50: "system"}


def ask_nvml() -> NvmlAnswer:
    """Return all answers of NVML. Raises nothing."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return NvmlAnswer(problem="libnvidia-ml.so.1 cannot be loaded")
    except pynvml.NVMLError as error:
        return NvmlAnswer(problem=f"NVML cannot be used: {str(error)[:120]}")
    version = ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    listed = nvidia_nvml.handles()
    return NvmlAnswer(
        problem="" if listed else "NVML lists no GPU",
        driver=_text(ask(pynvml.nvmlSystemGetDriverVersion)),
        cuda=f"{version // 1000}.{version % 1000 // 10}" if version else "",
        gpus=tuple(_read_gpu(address, handle) for address, handle in listed),
        pairs=_read_pairs(listed) if len(listed) <= MOST_PAIRED else (),
        **_count_device_nodes(),
    )


def _count_device_nodes() -> dict[str, int]:
    """Return the number of /dev/nvidiaN, and of those that this process may read and write; empty if /dev cannot be
    listed.

    A container has only some of the nodes, and a job's cgroup denies some. access(2) checks the device cgroup too and
    opens nothing: a GPU that has fallen off the bus may hang in open(2).
    """
    try:
        nodes = [node for node in _DEVICES.iterdir() if re.fullmatch(r"nvidia[0-9]+", node.name)]
    except OSError:
        return {}
    allowed = sum(os.access(node, os.R_OK | os.W_OK) for node in nodes)
    return {"device_nodes": len(nodes), "device_nodes_allowed": allowed}


def _read_gpu(address: str, handle: object) -> Gpu:
    capability = ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    fabric_state, fabric_problem = _read_fabric(handle)
    count, nvlinks = _read_nvlinks(handle)
    memory = nvidia_nvml.read_memory(handle)
    return Gpu(
        address=address,
        name=_text(ask(pynvml.nvmlDeviceGetName, handle)),
        uuid=_text(ask(pynvml.nvmlDeviceGetUUID, handle)),
        compute_capability=f"{capability[0]}.{capability[1]}" if capability else "",
        pcie_generation=ask(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        pcie_width=ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        pcie_max_generation=ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_max_width=ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        pcie_max_generation_of_gpu=ask(pynvml.nvmlDeviceGetGpuMaxPcieLinkGeneration, handle),
        nvlink_count=count,
        nvlinks=nvlinks,
        c2c_links=_read_field(handle, pynvml.NVML_FI_DEV_C2C_LINK_COUNT),
        c2c_link_bytes_per_s=nvidia_nvml.scale(_read_field(handle, pynvml.NVML_FI_DEV_C2C_LINK_GET_MAX_BW), 1e6),
        fabric_state=fabric_state,
        fabric_problem=fabric_problem,
        memory_bytes=memory.total if memory else None,
        memory_used_bytes=memory.used if memory else None,
        memory_bus_bits=ask(pynvml.nvmlDeviceGetMemoryBusWidth, handle),
        processes=nvidia_nvml.process_count(handle),
        utilisation=nvidia_nvml.utilisation(handle),
        **_read_health(handle),
    )


def _read_health(handle: object) -> dict[str, Any]:
    """Return clocks, power, temperature, memory errors and modes."""
    sm, memory = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
    uncorrected = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    rows = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    persistence = ask(pynvml.nvmlDeviceGetPersistenceMode, handle)
    return {
        "ecc": _first_flag(ask(pynvml.nvmlDeviceGetEccMode, handle)),
        "ecc_uncorrected": ask(pynvml.nvmlDeviceGetTotalEccErrors, handle, *uncorrected),
        "row_remap_pending": bool(rows[2]) if rows else None,
        "row_remap_failed": bool(rows[3]) if rows else None,
        "sm_clock_hz": nvidia_nvml.clock_hz(handle, sm),
        "sm_clock_max_hz": scale(ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, sm), 1e6),
        "sm_clock_application_hz": scale(ask(pynvml.nvmlDeviceGetApplicationsClock, handle, sm), 1e6),
        "memory_clock_hz": nvidia_nvml.clock_hz(handle, memory),
        "memory_clock_max_hz": scale(ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, memory), 1e6),
        "power_w": nvidia_nvml.power_w(handle),
        "power_limit_w": scale(ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle), 1e-3),
        "power_default_w": scale(ask(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle), 1e-3),
        "temperature_c": nvidia_nvml.temperature_c(handle),
        "event_reasons": nvidia_nvml.event_reasons(handle),
        "persistence": None if persistence is None else bool(persistence),
        "compute_mode": _COMPUTE_MODES.get(ask(pynvml.nvmlDeviceGetComputeMode, handle), ""),
        "mig": _first_flag(ask(pynvml.nvmlDeviceGetMigMode, handle)),
    }


def _read_nvlinks(handle: object) -> tuple[int | None, tuple[Nvlink, ...]]:
    """Return the number of NVLinks, and each link whose state NVML gives."""
    count = _read_field(handle, pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT)
    speed = _read_field(handle, pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON)
    found = []
    for link in range(min(count, 64) if count is not None else pynvml.NVML_NVLINK_MAX_LINKS):
        is_active = ask(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if is_active:
            found.append(_active_nvlink(handle, link, speed))
        elif is_active is not None:
            found.append(Nvlink(link=link, active=False))
    return count if count is not None else (len(found) or None), tuple(found)


def _active_nvlink(handle: object, link: int, speed_mb_per_s: int | None) -> Nvlink:
    pci = ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    address = nvidia_nvml.format_address(pci) if pci is not None else None
    return Nvlink(
        link=link,
        active=True,
        version=ask(pynvml.nvmlDeviceGetNvLinkVersion, handle, link),
        bytes_per_s=speed_mb_per_s * 1e6 if speed_mb_per_s else None,
        remote=_REMOTES.get(ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link), "unknown"),
        remote_address=None if address in NO_ADDRESS else address,
    )


def _read_field(handle: object, number: int) -> int | None:
    """Return one of NVML's numbered fields that holds an unsigned int."""
    values = ask(pynvml.nvmlDeviceGetFieldValues, handle, [number])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal) if values[0].valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT else None


def _read_fabric(handle: object) -> tuple[str, str]:
    """Return the state of joining the fabric manager's NVLink fabric, and the reason if it did not join."""
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    if ask(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, pynvml.byref(info)) is None:
        info = pynvml.c_nvmlGpuFabricInfo_t()
        if ask(pynvml.nvmlDeviceGetGpuFabricInfo, handle, pynvml.byref(info)) is None:
            return "", ""
    state = _FABRIC_STATES.get(info.state, "")
    joined = state != "completed" or info.status == pynvml.NVML_SUCCESS
    return state, "" if joined else str(pynvml.NVMLError(info.status))[:120]


def _read_pairs(gpus: list[tuple[str, Any]]) -> tuple[Pair, ...]:
    return tuple(
        Pair(
            source=source,
            target=target,
            nvlink=_peer_status(first, second, _PEER_NVLINK),
            read=_peer_status(first, second, _PEER_READ),
            write=_peer_status(first, second, _PEER_WRITE),
            ancestor=_ANCESTORS.get(ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, first, second), ""),
        )
        for (source, first), (target, second) in itertools.permutations(gpus, 2)
    )


def _peer_status(first: object, second: object, index: int) -> str:
    return _PEER_STATUS.get(ask(pynvml.nvmlDeviceGetP2PStatus, first, second, index), "")


def _text(answer: object) -> str:
    return str(answer)[:200] if answer is not None else ""


def _first_flag(answer: list[int] | None) -> bool | None:
    """Return the first of (current, pending)."""
    return bool(answer[0]) if answer else None


def main() -> None:
    """Print both answers, without the libraries' own output."""
    die_with_parent()
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with os.fdopen(answer, "wb", buffering=0) as stream:
        for name, question in (("nvml", ask_nvml), ("cuda", ask_cuda)):
            # ASCII only, so that the reader may cut the line anywhere.
            stream.write(json.dumps({name: msgspec.to_builtins(question())}).encode("ascii") + b"\n")
    os._exit(0)  # without the exit handlers of libraries that may hang


if __name__ == "__main__":
    main()
