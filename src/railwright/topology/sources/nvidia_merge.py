"""A machine from sysfs with NVIDIA's answers added: facts of the GPUs, their PCIe links, NVLink.

sysfs has precedence: its facts are kept, facts that it hides (in most virtual machines) are filled in.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from railwright.topology.devices import GT_PER_S, C2cLink, Device, InternalLink, Link, NvlinkLink, PcieLink, Scalar
from railwright.topology.gpus import is_nvidia, memory_rate
from railwright.topology.parts import Parts, known_facts
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.nvidia_model import NO_ADDRESS, CudaAnswer, Gpu, Nvlink, NvmlAnswer, Probe
from railwright.topology.sources.root import Unreadable, printable

_ONLY_NVML = "sysfs does not show it, only NVIDIA's library does"
_PCIE_WIDTHS = frozenset({1, 2, 4, 8, 16, 32})
# One generation for each architecture: Pascal, Volta, Ampere, Hopper, Blackwell (their white papers).
_GENERATION_OF_MAJOR = {6: 1, 7: 2, 8: 3, 9: 4, 10: 5}
# nvml.h, NVML_NVLINK_VERSION_*: for architectures that came later.
_GENERATION_OF_VERSION = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
# nvml.h, nvmlClocksEventReasons. The reasons that hold a GPU below its own clocks.
THROTTLES = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
GPU_IDLE = 0x01


def throttle_names(event_reasons: int) -> tuple[str, ...]:
    """Return the names of the bits that slow a GPU down; idle and clocks set by a user do not count."""
    return tuple(name for bit, name in THROTTLES.items() if event_reasons & bit)


def add_nvidia_answers(
    parts: Parts, gpus: Iterable[Device], answer: Probe | Unreadable, notes: Notes
) -> tuple[tuple[Device, ...], tuple[Link, ...]]:
    """Return all devices and links, with the answers of NVIDIA's libraries about `gpus`, NVLinks and the host's
    driver.
    """
    if isinstance(answer, Unreadable):
        for gpu in gpus:
            notes.missing("NVLink", _ONLY_NVML if answer.is_absent else answer.reason, gpu.id)
        return parts.devices(), parts.links()
    known = {gpu.address: gpu for gpu in answer.nvml.gpus}
    attributes = {gpu.address for gpu in answer.cuda.gpus}
    for gpu in gpus:
        if answer.nvml.problem or gpu.address not in known:
            why = _clean(answer.nvml.problem) or "NVIDIA's library does not list this GPU"
            notes.missing("NVLink", why, gpu.id)
        if gpu.address not in attributes:
            why = _clean(answer.cuda.problem) or "CUDA does not list this GPU"
            notes.missing("CUDA attributes", why, gpu.id)
    _add_nvlinks(parts, {gpu.id: known[gpu.address] for gpu in gpus if gpu.address in known}, answer.nvml, notes)
    _add_c2c(parts, {gpu.id: known[gpu.address] for gpu in gpus if gpu.address in known})
    devices = _add_facts(parts.devices(), known, answer)
    of_device = {device.id: known[device.address] for device in devices if device.address in known}
    return devices, tuple(_fill_pcie(link, of_device.get(link.b)) for link in parts.links())


def _add_nvlinks(parts: Parts, gpus: Mapping[str, Gpu], nvml: NvmlAnswer, notes: Notes) -> None:
    """Join GPUs behind switches to one device that stands for all switches, and other GPUs to each other."""
    ids = {gpu.address: name for name, gpu in gpus.items()}
    known = {name: gpu for name, gpu in gpus.items() if _generation(gpu)}
    switched = {name for name, gpu in known.items() if _count_active(gpu) and _leads_to_switch(gpu, nvml, len(gpus))}
    linked = set(switched) if len(switched) > 1 else set()
    if linked:
        nvswitch = _add_nvswitch(parts, (gpus[name] for name in switched), notes)
        for name in sorted(switched, key=lambda name: (len(name), name)):
            gpu = gpus[name]
            maximum = max(gpu.nvlink_count or 0, _count_active(gpu))
            parts.link(
                nvswitch, name, NvlinkLink(generation=_generation(gpu), links=_count_active(gpu), max_links=maximum)
            )
    joined: Counter[tuple[str, str]] = Counter()
    for name, gpu in known.items():
        for link in gpu.nvlinks:
            second = ids.get(_other_end(link) or "", "")
            if link.active and name not in switched and second in known and name < second:
                joined[(name, second)] += 1
    for (first, second), links in sorted(joined.items()):
        parts.link(first, second, NvlinkLink(generation=_generation(gpus[first]), links=links))
        linked |= {first, second}
    for name, gpu in gpus.items():
        if len(gpus) > 1 and _count_active(gpu) and name not in linked:
            lacking = "where they lead" if name in known else "of which generation they are"
            notes.missing("NVLink", f"the links are active, and NVIDIA's library does not say {lacking}", name)


def _add_c2c(parts: Parts, gpus: Mapping[str, Gpu]) -> None:
    """Join each GPU that has NVLink-C2C to the CPU of its NUMA node, at the rate of its own links, as NCCL does
    (src/graph/xml.cc).
    """
    devices = parts.devices()
    cpus = {device.numa: device.id for device in reversed(devices) if device.kind == "cpu"}
    at = {device.id: device.numa for device in devices}
    for name, gpu in gpus.items():
        cpu = cpus.get(at[name])
        if gpu.c2c_links and cpu is not None:
            rate = gpu.c2c_links * gpu.c2c_link_bytes_per_s if gpu.c2c_link_bytes_per_s else None
            parts.link(cpu, name, C2cLink(bytes_per_s=rate))


def _add_nvswitch(parts: Parts, gpus: Iterable[Gpu], notes: Notes) -> str:
    """Add the device that stands for all switches. Their number is known only if every other end has an address."""
    ends = {_other_end(link) for gpu in gpus for link in gpu.nvlinks if link.active}
    known = None if None in ends else len(ends)
    name = "NVSwitches" if known is None else f"{known} NVSwitch{'es' if known > 1 else ''}"
    nvswitch = parts.add("nvswitch", name=name, facts={"chips": known})
    if known is None:
        notes.missing("number of NVSwitches", "NVIDIA's library does not say where each NVLink leads")
    return nvswitch


def _other_end(link: Nvlink) -> str | None:
    """Return the PCI address of the other end, None if NVML does not give it, which some captures mark by a false
    address.
    """
    return None if link.remote_address in NO_ADDRESS else link.remote_address


def _leads_to_switch(gpu: Gpu, nvml: NvmlAnswer, gpus: int) -> bool:
    """Report whether a GPU's NVLinks lead to switches.

    In virtual machines the links do not say. There a GPU counts as behind switches if it has joined a fabric, which
    only switches have, or has NVLink to every other GPU: for two GPUs that gives the same rate as direct links.
    """
    active = [link for link in gpu.nvlinks if link.active]
    if any(link.remote == "switch" for link in active):
        return True
    if any(_other_end(link) for link in active):
        return False
    peers = {pair.target for pair in nvml.pairs if pair.source == gpu.address and pair.nvlink == "ok"}
    return gpu.fabric_state == "completed" or (gpus > 1 and len(peers) == gpus - 1)


def _count_active(gpu: Gpu) -> int:
    return sum(link.active for link in gpu.nvlinks)


def _generation(gpu: Gpu) -> int:
    """Return 1 to 6; 0 if neither the architecture nor the version is known."""
    major = gpu.compute_capability.partition(".")[0]
    found = _GENERATION_OF_MAJOR.get(int(major)) if major.isascii() and major.isdecimal() and len(major) < 4 else None
    version = next((link.version for link in gpu.nvlinks if link.active and link.version), 0)
    return found or _GENERATION_OF_VERSION.get(version, 0)


def _add_facts(devices: tuple[Device, ...], known: Mapping[str, Gpu], answer: Probe) -> tuple[Device, ...]:
    """Return the devices with the answers of NVIDIA's libraries about GPUs and the host's driver."""
    ids = {device.address: device.id for device in devices if device.kind == "gpu"}
    in_container = any(device.kind == "host" and "container" in device.facts for device in devices)
    found = []
    for device in devices:
        facts: dict[str, Scalar | None] = {}
        name = device.name
        if device.kind == "host":
            facts = {"nvidia_driver": _clean(answer.nvml.driver), "cuda": _clean(answer.nvml.cuda)}
        elif device.kind == "gpu":
            if gpu := known.get(device.address):
                name = _clean(gpu.name) or name
                facts = _gpu_facts(gpu) | _peer_facts(answer, device.address, ids)
            facts |= _cuda_facts(answer.cuda, device.address) | _listing_facts(
                answer.nvml, device, in_container=in_container
            )
        found.append(replace(device, name=name, facts={**device.facts, **known_facts(facts)}))
    return tuple(found)


def _listing_facts(nvml: NvmlAnswer, gpu: Device, *, in_container: bool) -> dict[str, Scalar | None]:
    """Return `nvml_lists`, and `withheld` if a container or a job's cgroup was given exactly the GPUs that NVML lists.

    sysfs shows all GPUs of the host in both, so a GPU of another job must not count as lost.
    """
    if nvml.problem or not nvml.gpus or not is_nvidia(gpu):
        return {}
    listed = any(listed_gpu.address == gpu.address for listed_gpu in nvml.gpus)
    refuses = (nvml.device_nodes or 0) > (nvml.device_nodes_allowed or 0)
    given = nvml.device_nodes_allowed == len(nvml.gpus) and (in_container or refuses)
    return {"nvml_lists": listed, "withheld": True if given and not listed else None}


def _gpu_facts(gpu: Gpu) -> dict[str, Scalar | None]:
    return {
        "vendor": "nvidia",
        "compute_capability": _clean(gpu.compute_capability),
        "memory_bytes": gpu.memory_bytes,
        "memory_bus_bits": gpu.memory_bus_bits or None,
        "memory_clock_max_hz": gpu.memory_clock_max_hz,
        "hbm_bandwidth_bytes_per_s": memory_rate(gpu.memory_bus_bits or 0, gpu.memory_clock_max_hz or 0) or None,
        "sm_clock_max_hz": gpu.sm_clock_max_hz,
        "sm_clock_application_hz": gpu.sm_clock_application_hz,
        "power_limit_w": gpu.power_limit_w,
        "power_default_w": gpu.power_default_w,
        "nvlinks_active": _count_active(gpu) if gpu.nvlink_count is not None else None,
        "nvlinks": gpu.nvlink_count,
        "nvlink_fabric": _clean(gpu.fabric_state),
        "nvlink_fabric_problem": _clean(gpu.fabric_problem),
        "ecc": gpu.ecc,
        "ecc_uncorrected": gpu.ecc_uncorrected,
        "row_remap_pending": gpu.row_remap_pending,
        "row_remap_failed": gpu.row_remap_failed,
        "persistence": gpu.persistence,
        "compute_mode": _clean(gpu.compute_mode),
        "mig": gpu.mig,
        "throttled": None if gpu.event_reasons is None else ", ".join(throttle_names(gpu.event_reasons)) or "no",
    }


def _peer_facts(answer: Probe, address: str, ids: Mapping[str, str]) -> dict[str, Scalar | None]:
    """Return the GPUs whose memory this GPU reaches, by CUDA or else NVML, and the others with the reason."""
    refused: dict[str, list[str]] = defaultdict(list)
    reached: list[str] = []
    access = {pair.target: pair.access for pair in answer.cuda.pairs if pair.source == address}
    status = {pair.target: pair for pair in answer.nvml.pairs if pair.source == address}
    for target, name in ids.items():
        pair, says = status.get(target), access.get(target)
        if says is None and pair is not None and pair.read and pair.write:
            says = pair.read == pair.write == "ok"
        if says:
            reached.append(name)
        elif says is False:
            words = [text for text in (pair.read, pair.write) if text != "ok"] if pair is not None else []
            refused[_clean(words[0]) if words and words[0] else "no reason given"].append(name)
    atomics = [ids[p.target] for p in answer.cuda.pairs if p.source == address and p.atomics and p.target in ids]
    return {
        "peers": ",".join(reached),
        "peers_refused": "; ".join(f"{','.join(names)} ({why})" for why, names in refused.items()),
        "peers_with_atomics": ",".join(atomics),
    }


def _cuda_facts(cuda: CudaAnswer, address: str) -> dict[str, Scalar | None]:
    """Return attributes of the CUDA driver; `cuda_visible` is False if CUDA works and does not list the GPU."""
    if cuda.problem or not cuda.gpus:
        return {}
    attributes = next((gpu.attributes for gpu in cuda.gpus if gpu.address == address), None)
    if attributes is None:
        return {"cuda_visible": False}
    flags = ("dma_buf", "gpudirect_rdma", "fabric_handles", "multicast")
    found: dict[str, Scalar | None] = {name: bool(attributes[name]) for name in flags if name in attributes}
    counts = ("sm_count", "copy_engines", "l2_bytes")
    found |= {name: attributes[name] for name in counts if attributes.get(name, 0) > 0}
    return {"cuda_visible": True, **found}


def _fill_pcie(link: Link, gpu: Gpu | None) -> Link:
    """Return the link above a GPU with NVML's facts where sysfs shows none."""
    if gpu is None or not isinstance(link.protocol, PcieLink | InternalLink):
        return link
    rate, width = GT_PER_S.get(gpu.pcie_generation or 0), gpu.pcie_width
    if rate is None or width not in _PCIE_WIDTHS:
        return link
    # An internal link stands for a link that the kernel does not see.
    shown = link.protocol if isinstance(link.protocol, PcieLink) else PcieLink()
    most_width = gpu.pcie_max_width if gpu.pcie_max_width in _PCIE_WIDTHS else None
    filled = replace(
        shown,
        gt_per_s=shown.gt_per_s or rate,
        width=shown.width or width,
        max_gt_per_s=shown.max_gt_per_s or GT_PER_S.get(gpu.pcie_max_generation or 0),
        max_width=shown.max_width or most_width,
    )
    return replace(link, protocol=filled)


def _clean(text: str) -> str:
    return printable(text.encode("utf-8", "replace")).replace("\n", " ").strip()
