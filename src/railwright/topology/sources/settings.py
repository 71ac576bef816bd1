"""Settings of the kernel and of this process that decide how fast a path can be, as facts of the host.

Each is told in one of three ways: its value; `none` where the machine has no such thing (no frequency control in most
virtual machines); or an entry of what is unknown, where nobody could look. A capture from before settings were captured
does not hold them, which is no sign that the machine had none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from railwright.topology.devices import Scalar
from railwright.topology.settings import NONE, SETTING, UNLIMITED
from railwright.topology.sources import text
from railwright.topology.sources.cgroup import cpu_quota
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.openvswitch import hw_offload
from railwright.topology.sources.process_settings import PROCESS_FILES
from railwright.topology.sources.root import ABSENT, Root, Unreadable

NOT_HELD = "the capture does not hold it"

_CPUS = "sys/devices/system/cpu"
_USUAL_PAGES = ("HugePages_Total", "Hugepagesize")
_VERBS = "dev/infiniband"
_POLICIES = f"{_CPUS}/cpufreq"
_HUGE = "sys/kernel/mm/transparent_hugepage"
_SHM = "dev/shm"
_MOST_POLICIES = 4096
_MOST_STATES = 16
_MOST_CLIENTS = 64
_PEERS = "sys/kernel/mm/memory_peers"
"""Of MLNX_OFED and DOCA-OFED (GPUDirect Storage, Troubleshooting: memory peer direct statistics)."""
_REGIONS = ("num_alloc_mrs", "num_dealloc_mrs")
_OF_NVIDIA = ("nv_mem", "nv_mem_nc", "nvidia-peermem")
_IPC_LOCK = 1 << 14
"""CAP_IPC_LOCK (Linux include/uapi/linux/capability.h): such a process may lock memory beyond its limit."""
_WORD = re.compile(r"[a-z0-9_ -]{1,40}", re.IGNORECASE)

Told = Scalar | Unreadable


def read_settings(root: Root, notes: Notes) -> dict[str, Scalar]:
    """What every reader below says; what nobody could read goes to `notes`."""
    found: dict[str, Scalar] = {}
    for name, read in _READERS.items():
        told = read(root)
        if not isinstance(told, Unreadable):
            found[name] = told
        elif told.is_absent and root.holds_settings:
            found[name] = NONE
        else:
            notes.missing(SETTING, NOT_HELD if told.is_absent else f"/{told.path} {told.reason}", name)
    return found


def _parsed(path: str, parse: Callable[[str], Scalar | None], otherwise: str) -> Callable[[Root], Told]:
    """What `parse` makes of a file; `otherwise` says why, where it makes nothing of it."""

    def read(root: Root) -> Told:
        content = root.read(path)
        if isinstance(content, Unreadable):
            return content
        value = parse(content)
        return Unreadable(path, otherwise) if value is None else value

    return read


def _chosen(content: str) -> str | None:
    """The word in brackets: `always [madvise] never`."""
    match = re.search(r"\[([a-z+_-]{1,30})\]", content)
    return match.group(1) if match else None


def _of_policies(name: str) -> Callable[[Root], Told]:
    """The values of all frequency policies, the most common first: `performance`, or `powersave (190), schedutil`."""

    def read(root: Root) -> Told:
        listed = root.list(_POLICIES)
        if isinstance(listed, Unreadable):
            return listed
        policies = [entry for entry in listed if re.fullmatch(r"policy\d{1,5}", entry)][:_MOST_POLICIES]
        if not policies:
            return Unreadable(_POLICIES, ABSENT)
        answers = [root.read(f"{_POLICIES}/{policy}/{name}") for policy in policies]
        if refused := next((one for one in answers if isinstance(one, Unreadable)), None):
            return refused
        counts = Counter(text.word(one) for one in answers)
        if not all(_WORD.fullmatch(word) for word in counts):
            return Unreadable(f"{_POLICIES}/{policies[0]}/{name}", "is no word that the kernel uses")
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{word} ({count})" for word, count in sorted(counts.items(), key=lambda one: (-one[1], one)))

    return read


def _huge_pages(content: str) -> int | None:
    """Bytes of memory in huge pages that were set aside, of all sizes."""
    if match := re.search(r"(?m)^Hugetlb:\s+(\d{1,15}) kB$", content):
        return int(match.group(1)) * 1024
    # Before Linux 4.19 only those of the usual size are told.
    count, size = (re.search(rf"(?m)^{name}:\s+(\d{{1,15}})( kB)?$", content) for name in _USUAL_PAGES)
    return int(count.group(1)) * int(size.group(1)) * 1024 if count and size else None


def _isolated(content: str) -> str | None:
    """A list of CPUs; it is empty on most machines."""
    return None if text.id_list(content) is None else text.word(content) or "no CPU"


def _deepest_idle(root: Root) -> list[tuple[str, int]] | Unreadable:
    """Name and exit latency in microseconds of the idle states of CPU 0 that are not switched off."""
    path = f"{_CPUS}/cpu0/cpuidle"
    listed = root.list(path)
    if isinstance(listed, Unreadable):
        return listed
    states = []
    for state in [entry for entry in listed if re.fullmatch(r"state\d{1,2}", entry)][:_MOST_STATES]:
        latency = text.number(root.read(f"{path}/{state}/latency"))
        off = text.number(root.read(f"{path}/{state}/disable"))
        name = text.word(root.read(f"{path}/{state}/name"))
        if latency is None or off is None or not _WORD.fullmatch(name):
            return Unreadable(f"{path}/{state}", "does not tell its name, latency and whether it is off")
        if not off and 0 <= latency <= 10**7:
            states.append((name, latency))
    return states or Unreadable(path, ABSENT)


def _idle_state(root: Root) -> Told:
    states = _deepest_idle(root)
    return states if isinstance(states, Unreadable) else max(states, key=lambda one: one[1])[0]


def _idle_exit(root: Root) -> Told:
    """Seconds to wake up from the deepest idle state that is allowed, as the kernel's driver has it."""
    states = _deepest_idle(root)
    return states if isinstance(states, Unreadable) else max(latency for _, latency in states) * 1e-6


def _lockable(content: str) -> Scalar | None:
    """Bytes that this process may lock (the soft limit), or `unlimited`."""
    match = re.search(r"(?m)^Max locked memory\s+(unlimited|\d{1,20})\s", content)
    if match is None:
        return None
    return UNLIMITED if match.group(1) == UNLIMITED else int(match.group(1))


def _may_lock(content: str) -> bool | None:
    """Whether this process may lock more than its limit."""
    match = re.search(r"(?m)^CapEff:\s+([0-9a-f]{1,16})$", content)
    return bool(int(match.group(1), 16) & _IPC_LOCK) if match else None


def _shared_memory(root: Root) -> Told:
    """Bytes that /dev/shm holds; a tmpfs without `size=` holds half of the memory (Linux, tmpfs)."""
    content = root.read("proc/self/mounts")
    if isinstance(content, Unreadable):
        return content
    mounts = [line.split(" ") for line in content.splitlines()]
    options = next((one[3] for one in reversed(mounts) if len(one) > 3 and one[1] == f"/{_SHM}"), None)
    if options is None:
        return Unreadable(_SHM, ABSENT)
    if match := re.search(r"(?:^|,)size=(\d{1,15})k(?:,|$)", options):
        return int(match.group(1)) * 1024
    total = re.search(r"(?m)^MemTotal:\s+(\d{1,15}) kB$", root.text("proc/meminfo"))
    return int(total.group(1)) * 1024 // 2 if total else Unreadable(_SHM, "has no size")


def _ofed(content: str) -> str:
    """The release of MLNX_OFED or DOCA-OFED whose driver is loaded; the kernel's own mlx5_core names none."""
    version = text.word(content)
    return version if re.fullmatch(r"\d{1,2}\.\d{1,2}-\d{1,3}(\.\d{1,3}){1,3}", version) else NONE


def _nvidia_module(content: str) -> str | None:
    """`open` or `proprietary`: which of NVIDIA's kernel modules is loaded."""
    line = text.word(content)
    if not line.startswith("NVRM version:"):
        return None
    return "open" if "Open Kernel Module" in line else "proprietary"


def _yes_or_no(content: str) -> str | None:
    """How the kernel writes a parameter that is a switch."""
    return word if (word := text.word(content)) in ("Y", "N") else None


def _static_bar1(content: str) -> bool | None:
    """Whether NVIDIA's driver maps all of a GPU's memory in BAR1 for good, as P2PDMA needs it on x86."""
    match = re.search(r'(?m)^RegistryDwords: "([^"\n]{0,500})"$', content)
    return bool(re.search(r"(?i)(^|;)\s*RMForceStaticBar1=1\b", match.group(1))) if match else None


def _verbs_devices(root: Root) -> Told:
    """How many RDMA devices this process finds in /dev; a container may have none of the host's."""
    listed = root.list(_VERBS)
    if isinstance(listed, Unreadable):
        return listed
    return sum(re.fullmatch(r"uverbs\d{1,5}", name) is not None for name in listed) or Unreadable(_VERBS, ABSENT)


def _peer_clients(root: Root) -> Told:
    """Who gives NICs the memory of other devices, by the RDMA core's own list: `nv_mem nvidia-fs`."""
    regions = _peer_regions(root)
    return regions if isinstance(regions, Unreadable) else " ".join(regions)


def _regions_of_gpus(root: Root) -> Told:
    """Regions of GPU memory that are registered with NICs now, by PeerDirect; dma-bufs are not counted."""
    regions = _peer_regions(root)
    return regions if isinstance(regions, Unreadable) else sum(regions.get(name, 0) for name in _OF_NVIDIA)


def _peer_regions(root: Root) -> dict[str, int] | Unreadable:
    """Client to the regions that it has registered now."""
    listed = root.list(_PEERS)
    if isinstance(listed, Unreadable):
        return listed
    found: dict[str, int] = {}
    for client in [name for name in listed if _WORD.fullmatch(name)][:_MOST_CLIENTS]:
        made, freed = (text.number(root.read(f"{_PEERS}/{client}/{name}")) for name in _REGIONS)
        if made is None or freed is None:
            return Unreadable(f"{_PEERS}/{client}", "does not count its regions")
        found[client] = max(0, made - freed)
    return found or Unreadable(_PEERS, ABSENT)


_READERS: dict[str, Callable[[Root], Told]] = {
    "thp": _parsed(f"{_HUGE}/enabled", _chosen, "marks none of its words as chosen"),
    "hugepages_bytes": _parsed("proc/meminfo", _huge_pages, ABSENT),
    "numa_balancing": _parsed("proc/sys/kernel/numa_balancing", text.number, "is not a whole number"),
    "cpu_governor": _of_policies("scaling_governor"),
    "cpu_frequency_driver": _of_policies("scaling_driver"),
    "cpu_energy_preference": _of_policies("energy_performance_preference"),
    "idle_state": _idle_state,
    "idle_exit_s": _idle_exit,
    "isolated_cpus": _parsed(f"{_CPUS}/isolated", _isolated, "is not a list of CPUs"),
    "memlock_bytes": _parsed("proc/self/limits", _lockable, "has no line for locked memory"),
    "may_lock_memory": _parsed("proc/self/status", _may_lock, "has no CapEff"),
    "dev_shm_bytes": _shared_memory,
    "ofed": _parsed("sys/module/mlx5_core/version", _ofed, ""),
    "nvidia_module": _parsed("proc/driver/nvidia/version", _nvidia_module, "does not begin with NVRM version"),
    "nvme_multipath": _parsed("sys/module/nvme_core/parameters/multipath", _yes_or_no, "is neither Y nor N"),
    "static_bar1": _parsed("proc/driver/nvidia/params", _static_bar1, "has no RegistryDwords"),
    "ovs_hw_offload": hw_offload,
    "verbs_devices": _verbs_devices,
    "peer_clients": _peer_clients,
    "peer_regions": _regions_of_gpus,
    "cpu_quota": cpu_quota,
    **{name: _parsed(*how) for name, how in PROCESS_FILES.items()},
}
