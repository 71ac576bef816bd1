"""Settings of the kernel and of this process that affect the speed of paths, as facts of the host.

Each has one of three forms: its value; `none` if the machine lacks the feature (no frequency control in most
virtual machines); or an unknown fact, if it could not be read. A capture made before settings were captured
lacks them, which does not mean that the machine had none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial

from railwright.topology.devices import Scalar
from railwright.topology.settings import NONE, SETTING, UNLIMITED
from railwright.topology.sources import text
from railwright.topology.sources.cgroup import cpu_quota, rdma_limit
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.openvswitch import hw_offload
from railwright.topology.sources.root import ABSENT, Root, Unreadable

NOT_HELD = "the capture does not hold it"

_CPUS = "sys/devices/system/cpu"
_VERBS = "dev/infiniband"
_POLICIES = f"{_CPUS}/cpufreq"
_HUGE = "sys/kernel/mm/transparent_hugepage"
_SHM = "dev/shm"
_MAX_POLICIES = 4096
_MAX_STATES = 16
_MAX_CLIENTS = 64
_PEERS = "sys/kernel/mm/memory_peers"
"""Path of MLNX_OFED and DOCA-OFED (GPUDirect Storage, Troubleshooting: memory peer direct statistics)."""
_REGIONS = ("num_alloc_mrs", "num_dealloc_mrs")
_NVIDIA_CLIENTS = ("nv_mem", "nv_mem_nc", "nvidia-peermem")
_IPC_LOCK = 1 << 14
"""CAP_IPC_LOCK (Linux include/uapi/linux/capability.h): such a process may lock memory beyond its limit."""
_SYS_PTRACE = 1 << 19
"""CAP_SYS_PTRACE, likewise."""
_STATUS = "proc/self/status"
_SECCOMP = {"0": "off", "1": "strict", "2": "filter"}
_WORD = re.compile(r"[a-z0-9_ -]{1,40}", re.IGNORECASE)

SettingValue = Scalar | Unreadable


def read_settings(root: Root, notes: Notes) -> dict[str, Scalar]:
    """Return the settings of all readers below; unreadable ones go to `notes`."""
    found: dict[str, Scalar] = {}
    for name, read in _READERS.items():
        value = read(root)
        if not isinstance(value, Unreadable):
            found[name] = value
        elif value.is_absent and root.holds_settings:
            found[name] = NONE
        else:
            notes.missing(SETTING, NOT_HELD if value.is_absent else f"/{value.path} {value.reason}", name)
    return found


def read_setting(root: Root, name: str) -> SettingValue:
    """Return a setting by its name."""
    return _READERS[name](root)


def _file_reader(path: str, parse: Callable[[str], Scalar | None], otherwise: str) -> Callable[[Root], SettingValue]:
    """Return a reader that applies `parse` to a file; `otherwise` is the reason if that gives None."""

    def read(root: Root) -> SettingValue:
        content = root.read(path)
        if isinstance(content, Unreadable):
            return content
        value = parse(content)
        return Unreadable(path, otherwise) if value is None else value

    return read


def _integer_reader(path: str) -> Callable[[Root], SettingValue]:
    return _file_reader(path, text.number, "is not an integer")


def _search(pattern: str, content: str) -> str | None:
    """Return the first group of a pattern in a text."""
    match = re.search(pattern, content, re.MULTILINE)
    return match[1] if match else None


def _policies_reader(name: str) -> Callable[[Root], SettingValue]:
    """Return a reader of the values of all frequency policies, most common first: `performance`, or `powersave
    (190), schedutil`.
    """

    def read(root: Root) -> SettingValue:
        listed = root.list(_POLICIES)
        if isinstance(listed, Unreadable):
            return listed
        policies = [entry for entry in listed if re.fullmatch(r"policy\d{1,5}", entry)][:_MAX_POLICIES]
        if not policies:
            return Unreadable(_POLICIES, ABSENT)
        answers = [root.read(f"{_POLICIES}/{policy}/{name}") for policy in policies]
        if refused := next((answer for answer in answers if isinstance(answer, Unreadable)), None):
            return refused
        counts = Counter(text.word(answer) for answer in answers)
        if not all(_WORD.fullmatch(word) for word in counts):
            return Unreadable(f"{_POLICIES}/{policies[0]}/{name}", "is not a word that the kernel uses")
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(
            f"{word} ({count})" for word, count in sorted(counts.items(), key=lambda item: (-item[1], item))
        )

    return read


def _huge_pages(content: str) -> int | None:
    """Return the bytes of reserved huge pages of all sizes; before Linux 4.19 only of the default size."""
    size, count = text.kib(content, "Hugepagesize"), _search(r"^HugePages_Total:\s+(\d{1,15})$", content)
    of_usual_size = int(count) * size if count is not None and size is not None else None
    return of_usual_size if (of_all := text.kib(content, "Hugetlb")) is None else of_all


def _isolated(content: str) -> str | None:
    """Return the list of isolated CPUs, or `no CPU`, as on most machines; None for other text."""
    return None if text.id_list(content) is None else text.word(content) or "no CPU"


def _deepest_idle(root: Root) -> tuple[str, int] | Unreadable:
    """Return name and exit latency in microseconds of the deepest idle state of CPU 0 that is not disabled."""
    path = f"{_CPUS}/cpu0/cpuidle"
    listed = root.list(path)
    if isinstance(listed, Unreadable):
        return listed
    states = []
    for state in [entry for entry in listed if re.fullmatch(r"state\d{1,2}", entry)][:_MAX_STATES]:
        latency = text.number(root.read(f"{path}/{state}/latency"))
        off = text.number(root.read(f"{path}/{state}/disable"))
        name = text.word(root.read(f"{path}/{state}/name"))
        if latency is None or off is None or not _WORD.fullmatch(name):
            return Unreadable(f"{path}/{state}", "lacks its name, its latency or whether it is off")
        if not off and 0 <= latency <= 10**7:
            states.append((name, latency))
    return max(states, key=lambda state: state[1]) if states else Unreadable(path, ABSENT)


def _idle_state(root: Root) -> SettingValue:
    deepest = _deepest_idle(root)
    return deepest if isinstance(deepest, Unreadable) else deepest[0]


def _idle_exit(root: Root) -> SettingValue:
    """Return the seconds to wake up from the deepest enabled idle state, by the kernel's driver."""
    deepest = _deepest_idle(root)
    return deepest if isinstance(deepest, Unreadable) else deepest[1] * 1e-6


def _lockable(content: str) -> Scalar | None:
    """Return the bytes that this process may lock (the soft limit), or `unlimited`."""
    limit = _search(r"^Max locked memory\s+(unlimited|\d{1,20})\s", content)
    return limit if limit in (None, UNLIMITED) else int(limit)


def _has_capability(which: int, content: str) -> bool | None:
    """Return whether this process has the capability; a container gets its capabilities from its starter."""
    held = _search(r"^CapEff:\s+([0-9a-f]{1,16})$", content)
    return None if held is None else bool(int(held, 16) & which)


def _cpus_allowed(content: str) -> str | None:
    listed = _search(r"^Cpus_allowed_list:\s+([0-9,-]{1,4096})$", content)
    return listed if listed and text.id_list(listed) else None


def _seccomp(content: str) -> str | None:
    return _SECCOMP.get(_search(r"^Seccomp:\s+(\d)$", content) or "")


def _shared_memory(root: Root) -> SettingValue:
    """Return the capacity of /dev/shm in bytes: half of the memory for a tmpfs without `size=` (Linux, tmpfs)."""
    content = root.read("proc/self/mounts")
    if isinstance(content, Unreadable):
        return content
    mounts = [line.split(" ") for line in content.splitlines()]
    options = next((mount[3] for mount in reversed(mounts) if len(mount) > 3 and mount[1] == f"/{_SHM}"), None)
    if options is None:
        return Unreadable(_SHM, ABSENT)
    if match := re.search(r"(?:^|,)size=(\d{1,15})k(?:,|$)", options):
        return int(match.group(1)) * 1024
    total = text.kib(root.text("proc/meminfo"), "MemTotal")
    return total // 2 if total is not None else Unreadable(_SHM, "has no size")


def _ofed(content: str) -> str:
    """Return the release of the loaded driver of MLNX_OFED or DOCA-OFED; the kernel's own mlx5_core names none."""
    version = text.word(content)
    return version if re.fullmatch(r"\d{1,2}\.\d{1,2}-\d{1,3}(\.\d{1,3}){1,3}", version) else NONE


def _nvidia_module(content: str) -> str | None:
    """Return the kind of NVIDIA's loaded kernel module: `open` or `proprietary`."""
    line = text.word(content)
    if not line.startswith("NVRM version:"):
        return None
    return "open" if "Open Kernel Module" in line else "proprietary"


def _netns_mode(content: str) -> str | None:
    """Return whether all network namespaces share the RDMA devices, or each has its own (rdma-system(8))."""
    return {"Y": "shared", "N": "exclusive"}.get(text.word(content))


def _yes_or_no(content: str) -> str | None:
    """Return the kernel's form of a boolean parameter."""
    return word if (word := text.word(content)) in ("Y", "N") else None


def _static_bar1(content: str) -> bool | None:
    """Return whether NVIDIA's driver maps all of a GPU's memory in BAR1 permanently, as P2PDMA needs it on x86."""
    words = _search(r'^RegistryDwords: "([^"\n]{0,500})"$', content)
    return None if words is None else bool(re.search(r"(?i)(^|;)\s*RMForceStaticBar1=1\b", words))


def _verbs_devices(root: Root) -> SettingValue:
    """Return the number of RDMA devices in /dev; a container may have none of the host's."""
    listed = root.list(_VERBS)
    if isinstance(listed, Unreadable):
        return listed
    return sum(re.fullmatch(r"uverbs\d{1,5}", name) is not None for name in listed) or Unreadable(_VERBS, ABSENT)


def _peer_clients(root: Root) -> SettingValue:
    """Return the clients that give NICs the memory of other devices, from the RDMA core's own list: `nv_mem
    nvidia-fs`.
    """
    regions = _peer_regions(root)
    return regions if isinstance(regions, Unreadable) else " ".join(regions)


def _count_gpu_regions(root: Root) -> SettingValue:
    """Return the number of regions of GPU memory registered with NICs now by PeerDirect, without dma-bufs."""
    regions = _peer_regions(root)
    return regions if isinstance(regions, Unreadable) else sum(regions.get(name, 0) for name in _NVIDIA_CLIENTS)


def _peer_regions(root: Root) -> dict[str, int] | Unreadable:
    """Return client to the number of regions that it has registered now."""
    listed = root.list(_PEERS)
    if isinstance(listed, Unreadable):
        return listed
    found: dict[str, int] = {}
    for client in [name for name in listed if _WORD.fullmatch(name)][:_MAX_CLIENTS]:
        made, freed = (text.number(root.read(f"{_PEERS}/{client}/{name}")) for name in _REGIONS)
        if made is None or freed is None:
            return Unreadable(f"{_PEERS}/{client}", "does not count its regions")
        found[client] = max(0, made - freed)
    return found or Unreadable(_PEERS, ABSENT)


_READERS: dict[str, Callable[[Root], SettingValue]] = {
    "thp": _file_reader(
        f"{_HUGE}/enabled", partial(_search, r"\[([a-z+_-]{1,30})\]"), "does not mark one of its words as chosen"
    ),
    "hugepages_bytes": _file_reader("proc/meminfo", _huge_pages, ABSENT),
    "numa_balancing": _integer_reader("proc/sys/kernel/numa_balancing"),
    "cpu_governor": _policies_reader("scaling_governor"),
    "cpu_frequency_driver": _policies_reader("scaling_driver"),
    "cpu_energy_preference": _policies_reader("energy_performance_preference"),
    "idle_state": _idle_state,
    "idle_exit_s": _idle_exit,
    "isolated_cpus": _file_reader(f"{_CPUS}/isolated", _isolated, "is not a list of CPUs"),
    "memlock_bytes": _file_reader("proc/self/limits", _lockable, "has no line for locked memory"),
    "may_lock_memory": _file_reader(_STATUS, partial(_has_capability, _IPC_LOCK), "has no CapEff"),
    "dev_shm_bytes": _shared_memory,
    "ofed": _file_reader("sys/module/mlx5_core/version", _ofed, ""),
    "nvidia_module": _file_reader("proc/driver/nvidia/version", _nvidia_module, "does not begin with NVRM version"),
    "nvme_multipath": _file_reader("sys/module/nvme_core/parameters/multipath", _yes_or_no, "is neither Y nor N"),
    "static_bar1": _file_reader("proc/driver/nvidia/params", _static_bar1, "has no RegistryDwords"),
    "ovs_hw_offload": hw_offload,
    "verbs_devices": _verbs_devices,
    "peer_clients": _peer_clients,
    "peer_regions": _count_gpu_regions,
    "cpu_quota": cpu_quota,
    "cpus_allowed": _file_reader(_STATUS, _cpus_allowed, "has no Cpus_allowed_list"),
    "may_trace": _file_reader(_STATUS, partial(_has_capability, _SYS_PTRACE), "has no CapEff"),
    "seccomp": _file_reader(_STATUS, _seccomp, "has no Seccomp"),
    "ptrace_scope": _integer_reader("proc/sys/kernel/yama/ptrace_scope"),
    "io_uring_disabled": _integer_reader("proc/sys/kernel/io_uring_disabled"),
    "rdma_netns": _file_reader("sys/module/ib_core/parameters/netns_mode", _netns_mode, "is neither Y nor N"),
    "rdma_limit": rdma_limit,
}
