"""NCCL_* settings that take something away. What each does is in NVIDIA's NCCL User Guide, "Environment Variables"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from railwright.checks.finding import Certainty, Finding
from railwright.checks.settings import is_below, is_one_of
from railwright.diagnosis.nccl.evidence import named
from railwright.groups import grouped
from railwright.results.readers.nccl_log.model import NcclLog, Setting
from railwright.results.records import Evidence

_GUIDE = "NCCL User Guide, Environment Variables"
_DEFAULT_BUFFER_BYTES = 4 * 2**20
"""src/init.cc, DEFAULT_BUFFSIZE."""
_MAY_DIFFER = frozenset({"NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE_RANK"})
_UNSET = "unset it; set it only for a comparison"
_CAPPED = "caps the channels: fewer NICs and SMs are used"


class Costly(NamedTuple):
    """When a setting costs something, what it does, what it costs where that is known, and what to do."""

    when: Callable[[str], bool]
    does: str
    costs: str = ""
    remedy: str = _UNSET


COSTLY: dict[str, Costly] = {
    "NCCL_ALGO": Costly(
        bool,
        "leaves NCCL only these algorithms",
        "on 2 hosts Tree and NVLSTree send S where Ring sends 2(n-1)/n S over the NICs (nccl#812)",
    ),
    "NCCL_PROTO": Costly(
        bool,
        "leaves NCCL only these protocols, for every size",
        "LL reaches 25 to 50 % of the bandwidth, Simple costs latency at small sizes (arXiv 2507.04786)",
    ),
    "NCCL_P2P_DISABLE": Costly(
        is_one_of("1"), "takes NVLink and PCIe peer-to-peer away: GPUs of one host go through host memory"
    ),
    "NCCL_P2P_LEVEL": Costly(
        is_one_of("LOC", "0", "NVL", "1"), "allows peer-to-peer over NVLink at most, none at all with LOC"
    ),
    "NCCL_P2P_DIRECT_DISABLE": Costly(is_one_of("1"), "keeps threads of one process from using each other's pointers"),
    "NCCL_SHM_DISABLE": Costly(is_one_of("1"), "sends over the network what shared memory could carry"),
    "NCCL_IB_DISABLE": Costly(is_one_of("1"), "turns InfiniBand and RoCE off: TCP sockets are left"),
    "NCCL_NET": Costly(is_one_of("SOCKET"), "takes TCP sockets even where there is RDMA"),
    "NCCL_NET_GDR_LEVEL": Costly(
        is_one_of("LOC", "PIX", "PHB", "SYS", "0", "1", "3", "4", "5"),
        "is not the default, PXB: below it GPUDirect RDMA is off, above it RDMA crosses the CPU",
        remedy=f"{_UNSET}, and measure both",
    ),
    "NCCL_NET_GDR_READ": Costly(is_one_of("0"), "sends from host memory: GPUDirect RDMA for receives only"),
    "NCCL_IB_CUDA_SUPPORT": Costly(is_one_of("0"), "turns GPUDirect RDMA off (old name of NCCL_NET_GDR_LEVEL)"),
    "NCCL_PXN_DISABLE": Costly(
        is_one_of("1"), "each GPU sends by its own NIC only, across the CPU if it has none near"
    ),
    "NCCL_NVLS_ENABLE": Costly(
        is_one_of("0"),
        "turns NVLink SHARP off",
        "on 8 Hopper GPUs NCCL plans 476 GB/s busbw with it (src/graph/tuning.cc), 371 with rings (src/graph/topo.h)",
    ),
    "NCCL_CUMEM_ENABLE": Costly(is_one_of("0"), "turns the cuMem API off, and with it NVLink SHARP buffers"),
    "NCCL_DMABUF_ENABLE": Costly(is_one_of("0"), "leaves GPUDirect RDMA to the nvidia-peermem module alone"),
    "NCCL_BUFFSIZE": Costly(
        is_below(_DEFAULT_BUFFER_BYTES),
        "is below the default of 4 MiB: fewer bytes are under way per connection",
        "rate <= outstanding bytes / step time (nccl#2409)",
    ),
    "NCCL_MAX_NCHANNELS": Costly(bool, _CAPPED),
    "NCCL_MAX_NRINGS": Costly(bool, f"{_CAPPED} (old name)"),
    "NCCL_MAX_CTAS": Costly(bool, _CAPPED),
    "NCCL_NTHREADS": Costly(bool, "sets the threads per block that NCCL would tune"),
    "NCCL_IB_PCI_RELAXED_ORDERING": Costly(is_one_of("0"), "turns relaxed ordering off, which virtual machines need"),
    "NCCL_LAUNCH_MODE": Costly(is_one_of("GROUP"), "launches kernels by group, for debugging"),
    "NCCL_TOPO_FILE": Costly(
        bool, "NCCL believes this file about PCIe, not the machine", remedy="compare it with the machine"
    ),
    "NCCL_GRAPH_FILE": Costly(bool, "NCCL takes these rings and trees, and searches none"),
}


def costly_settings(log: NcclLog) -> Iterator[Finding]:
    """Settings that force something known to cost, each once with the hosts that have it."""
    costly = (one for one in log.settings if one.name in COSTLY and COSTLY[one.name].when(one.value))
    for (name, value), found in grouped(costly, lambda one: (one.name, one.value)):
        rule = COSTLY[name]
        yield Finding(
            fault="nccl_setting",
            where=named(one.host or "log" for one in found),
            certainty="seen",
            says=f"{name}={value} {rule.does}",
            costs=rule.costs,
            remedy=f"{rule.remedy} ({_GUIDE})",
            evidence=(_evidence(found[0]),),
        )


def differing_settings(log: NcclLog) -> Iterator[Finding]:
    """Settings that two processes have with different values, and those that only some hosts logged."""
    hosts = {one.host for one in log.settings}
    for name, found in grouped(log.settings, lambda one: one.name):
        if name in _MAY_DIFFER:
            continue
        values = {one.value: one for one in reversed(found)}
        missing = sorted(hosts - {one.host for one in found})
        if len(values) > 1:
            told = ", ".join(f"{value} on {one.host or 'the log'}" for value, one in sorted(values.items())[:6])
            yield _difference(found, "seen", f"{name} differs between processes: {told}", list(values.values()))
        elif missing:
            says = f"{name}={found[0].value} is not logged by {', '.join(missing[:6])}"
            yield _difference(found, "possible", says, found[:1])


def _difference(found: list[Setting], certainty: Certainty, says: str, shown: list[Setting]) -> Finding:
    return Finding(
        fault="nccl_settings_differ",
        where=named(one.host or "log" for one in found),
        certainty=certainty,
        says=says,
        remedy="give every process the same environment: NCCL takes for granted that ranks decide alike",
        evidence=tuple(_evidence(one) for one in shown[:4]),
    )


def _evidence(one: Setting) -> Evidence:
    return Evidence(claim="setting", value=f"{one.name}={one.value}", seen=f"line {one.line} of the log")
