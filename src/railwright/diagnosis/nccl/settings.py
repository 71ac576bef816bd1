"""NCCL_* settings that cost performance (NVIDIA, NCCL User Guide, "Environment Variables")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from railwright.checks.finding import Certainty, Finding
from railwright.checks.settings import is_below, is_one_of
from railwright.diagnosis.nccl.evidence import log_places
from railwright.groups import group_by_key
from railwright.results.readers.nccl_log.model import NcclLog, Setting
from railwright.results.records import Evidence

_GUIDE = "NCCL User Guide, Environment Variables"
_DEFAULT_BUFFER_BYTES = 4 * 2**20
"""src/init.cc, DEFAULT_BUFFSIZE."""
_MAY_DIFFER = frozenset({"NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE_RANK"})
_UNSET = "unset it; set it only for a comparison"
_CAPS_CHANNELS = "caps the channels: fewer NICs and SMs are used"


class Costly(NamedTuple):
    """A predicate for costly values of a setting, their effect, their cost if known, and the remedy."""

    when: Callable[[str], bool]
    does: str
    costs: str = ""
    remedy: str = _UNSET


COSTLY: dict[str, Costly] = {
    "NCCL_ALGO": Costly(
        bool,
        "restricts NCCL to these algorithms",
        "on 2 hosts Tree and NVLSTree send S where Ring sends 2(n-1)/n S over the NICs (nccl#812)",
    ),
    "NCCL_PROTO": Costly(
        bool,
        "restricts NCCL to these protocols at every size",
        "LL reaches 25 to 50 % of the bandwidth, Simple costs latency at small sizes (arXiv 2507.04786)",
    ),
    "NCCL_P2P_DISABLE": Costly(
        is_one_of("1"), "turns NVLink and PCIe peer-to-peer off: GPUs of one host communicate through host memory"
    ),
    "NCCL_P2P_LEVEL": Costly(
        is_one_of("LOC", "0", "NVL", "1"), "allows peer-to-peer only over NVLink, or not at all with LOC"
    ),
    "NCCL_P2P_DIRECT_DISABLE": Costly(is_one_of("1"), "keeps threads of one process from using each other's pointers"),
    "NCCL_SHM_DISABLE": Costly(is_one_of("1"), "replaces shared memory with the network"),
    "NCCL_IB_DISABLE": Costly(is_one_of("1"), "turns InfiniBand and RoCE off and leaves TCP sockets"),
    "NCCL_NET": Costly(is_one_of("SOCKET"), "uses TCP sockets even if RDMA is available"),
    "NCCL_NET_GDR_LEVEL": Costly(
        is_one_of("LOC", "PIX", "PHB", "SYS", "0", "1", "3", "4", "5"),
        "is not the default, PXB: below it GPUDirect RDMA is off, above it RDMA crosses the CPU",
        remedy=f"{_UNSET}, and measure both",
    ),
    "NCCL_NET_GDR_READ": Costly(is_one_of("0"), "sends from host memory and uses GPUDirect RDMA only for receives"),
    "NCCL_IB_CUDA_SUPPORT": Costly(is_one_of("0"), "turns GPUDirect RDMA off (old name of NCCL_NET_GDR_LEVEL)"),
    "NCCL_PXN_DISABLE": Costly(
        is_one_of("1"), "makes each GPU send only through its own NIC, across the CPU if none is near"
    ),
    "NCCL_NVLS_ENABLE": Costly(
        is_one_of("0"),
        "turns NVLink SHARP off",
        "on 8 Hopper GPUs NCCL plans 476 GB/s busbw with it (src/graph/tuning.cc), 371 with rings (src/graph/topo.h)",
    ),
    "NCCL_CUMEM_ENABLE": Costly(is_one_of("0"), "turns the cuMem API off, and with it NVLink SHARP buffers"),
    "NCCL_DMABUF_ENABLE": Costly(is_one_of("0"), "restricts GPUDirect RDMA to the nvidia-peermem module"),
    "NCCL_BUFFSIZE": Costly(
        is_below(_DEFAULT_BUFFER_BYTES),
        "is below the default of 4 MiB: fewer bytes are in flight per connection",
        "rate <= outstanding bytes / step time (nccl#2409)",
    ),
    "NCCL_MAX_NCHANNELS": Costly(bool, _CAPS_CHANNELS),
    "NCCL_MAX_NRINGS": Costly(bool, f"{_CAPS_CHANNELS} (old name)"),
    "NCCL_MAX_CTAS": Costly(bool, _CAPS_CHANNELS),
    "NCCL_NTHREADS": Costly(bool, "overrides NCCL's tuning of threads per block"),
    "NCCL_IB_PCI_RELAXED_ORDERING": Costly(is_one_of("0"), "turns relaxed ordering off, which virtual machines need"),
    "NCCL_LAUNCH_MODE": Costly(is_one_of("GROUP"), "launches kernels by group, for debugging"),
    "NCCL_TOPO_FILE": Costly(
        bool, "replaces the machine's PCIe topology with this file", remedy="compare it with the machine"
    ),
    "NCCL_GRAPH_FILE": Costly(bool, "replaces NCCL's search with these rings and trees"),
}


def costly_settings(log: NcclLog) -> Iterator[Finding]:
    """Report settings with a known cost, each once with the hosts that have it."""
    costly = (
        setting for setting in log.settings if setting.name in COSTLY and COSTLY[setting.name].when(setting.value)
    )
    for (name, value), found in group_by_key(costly, lambda setting: (setting.name, setting.value)):
        rule = COSTLY[name]
        yield Finding(
            fault="nccl_setting",
            where=log_places(setting.host or "log" for setting in found),
            certainty="seen",
            says=f"{name}={value} {rule.does}",
            costs=rule.costs,
            remedy=f"{rule.remedy} ({_GUIDE})",
            evidence=(_build_evidence(found[0]),),
        )


def differing_settings(log: NcclLog) -> Iterator[Finding]:
    """Report settings that differ between processes, and those that only some hosts logged."""
    hosts = sorted({setting.host for setting in log.settings} - {""})  # the command's settings have no host
    for name, found in group_by_key(log.settings, lambda setting: setting.name):
        if name in _MAY_DIFFER:
            continue
        values = {setting.value: setting for setting in reversed(found)}
        with_it = {setting.host for setting in found}
        missing = list(islice((host for host in hosts if host not in with_it), 6))
        if len(values) > 1:
            listed = ", ".join(
                f"{value} on {setting.host or 'the log'}" for value, setting in sorted(values.items())[:6]
            )
            yield _build_difference(found, "seen", f"{name} differs between processes: {listed}", list(values.values()))
        elif missing and any(setting.host for setting in found):
            says = f"{name}={found[0].value} is not logged by {', '.join(missing)}"
            yield _build_difference(found, "possible", says, found[:1])


def _build_difference(found: list[Setting], certainty: Certainty, says: str, shown: list[Setting]) -> Finding:
    return Finding(
        fault="nccl_settings_differ",
        where=log_places(setting.host or "log" for setting in found),
        certainty=certainty,
        says=says,
        remedy="give every process the same environment: NCCL assumes that all ranks decide alike",
        evidence=tuple(_build_evidence(setting) for setting in shown[:4]),
    )


def _build_evidence(setting: Setting) -> Evidence:
    return Evidence(claim="setting", value=f"{setting.name}={setting.value}", seen=f"line {setting.line} of the log")
