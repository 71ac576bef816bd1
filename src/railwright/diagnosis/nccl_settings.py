"""NCCL_* settings that take something away. What each does is in NVIDIA's NCCL User Guide, "Environment Variables"."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from railwright.faults.model import Certainty, Finding
from railwright.results.model import Evidence
from railwright.results.readers.nccl_log_model import NcclLog, Setting

GUIDE = "NCCL User Guide, Environment Variables"
_DEFAULT_BUFFER_BYTES = 4 * 2**20
"""src/init.cc, DEFAULT_BUFFSIZE."""
_MAY_DIFFER = frozenset({"NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE_RANK"})


class Costly(NamedTuple):
    """When a setting costs something, what it does, and what to do."""

    when: Callable[[str], bool]
    does: str
    remedy: str
    costs: str = ""


def _is(*values: str) -> Callable[[str], bool]:
    return lambda value: value.upper() in values


def _any(value: str) -> bool:
    return bool(value)


def _below(limit: int) -> Callable[[str], bool]:
    return lambda value: value.isascii() and value.isdigit() and int(value[:18]) < limit


_UNSET = "unset it; set it only for a comparison"

COSTLY: dict[str, Costly] = {
    "NCCL_ALGO": Costly(
        _any,
        "leaves NCCL only these algorithms",
        _UNSET,
        "on 2 hosts Tree and NVLSTree send S where Ring sends 2(n-1)/n S over the NICs (nccl#812)",
    ),
    "NCCL_PROTO": Costly(
        _any,
        "leaves NCCL only these protocols, for every size",
        _UNSET,
        "LL reaches 25 to 50 % of the bandwidth, Simple costs latency at small sizes (arXiv 2507.04786)",
    ),
    "NCCL_P2P_DISABLE": Costly(
        _is("1"), "takes NVLink and PCIe peer-to-peer away: GPUs of one host go through host memory", _UNSET
    ),
    "NCCL_P2P_LEVEL": Costly(
        _is("LOC", "0", "NVL", "1"), "allows peer-to-peer over NVLink at most, none at all with LOC", _UNSET
    ),
    "NCCL_P2P_DIRECT_DISABLE": Costly(
        _is("1"), "keeps threads of one process from using each other's pointers", _UNSET
    ),
    "NCCL_SHM_DISABLE": Costly(_is("1"), "sends over the network what shared memory could carry", _UNSET),
    "NCCL_IB_DISABLE": Costly(_is("1"), "turns InfiniBand and RoCE off: TCP sockets are left", _UNSET),
    "NCCL_NET": Costly(_is("SOCKET"), "takes TCP sockets even where there is RDMA", _UNSET),
    "NCCL_NET_GDR_LEVEL": Costly(
        _is("LOC", "PIX", "PHB", "SYS", "0", "1", "3", "4", "5"),
        "is not the default, PXB: below it GPUDirect RDMA is off, above it RDMA crosses the CPU",
        _UNSET + ", and measure both",
    ),
    "NCCL_NET_GDR_READ": Costly(_is("0"), "sends from host memory: GPUDirect RDMA for receives only", _UNSET),
    "NCCL_IB_CUDA_SUPPORT": Costly(_is("0"), "turns GPUDirect RDMA off (old name of NCCL_NET_GDR_LEVEL)", _UNSET),
    "NCCL_PXN_DISABLE": Costly(
        _is("1"), "each GPU sends by its own NIC only, across the CPU if it has none near", _UNSET
    ),
    "NCCL_NVLS_ENABLE": Costly(
        _is("0"),
        "turns NVLink SHARP off",
        _UNSET,
        "on 8 Hopper GPUs NCCL plans 476 GB/s busbw with it (src/graph/tuning.cc), 371 with rings (src/graph/topo.h)",
    ),
    "NCCL_CUMEM_ENABLE": Costly(_is("0"), "turns the cuMem API off, and with it NVLink SHARP buffers", _UNSET),
    "NCCL_DMABUF_ENABLE": Costly(_is("0"), "leaves GPUDirect RDMA to the nvidia-peermem module alone", _UNSET),
    "NCCL_BUFFSIZE": Costly(
        _below(_DEFAULT_BUFFER_BYTES),
        "is below the default of 4 MiB: fewer bytes are under way per connection",
        _UNSET,
        "rate <= outstanding bytes / step time (nccl#2409)",
    ),
    "NCCL_MAX_NCHANNELS": Costly(_any, "caps the channels: fewer NICs and SMs are used", _UNSET),
    "NCCL_MAX_NRINGS": Costly(_any, "caps the channels: fewer NICs and SMs are used (old name)", _UNSET),
    "NCCL_MAX_CTAS": Costly(_any, "caps the channels: fewer NICs and SMs are used", _UNSET),
    "NCCL_NTHREADS": Costly(_any, "sets the threads per block that NCCL would tune", _UNSET),
    "NCCL_IB_PCI_RELAXED_ORDERING": Costly(_is("0"), "turns relaxed ordering off, which virtual machines need", _UNSET),
    "NCCL_LAUNCH_MODE": Costly(_is("GROUP"), "launches kernels by group, for debugging", _UNSET),
    "NCCL_TOPO_FILE": Costly(
        _any, "NCCL believes this file about PCIe, not the machine", "compare it with the machine"
    ),
    "NCCL_GRAPH_FILE": Costly(_any, "NCCL takes these rings and trees, and searches none", _UNSET),
}


def costly_settings(log: NcclLog) -> tuple[Finding, ...]:
    """Settings that force something known to cost, each once with the hosts that have it."""
    groups: dict[tuple[str, str], list[Setting]] = {}
    for one in log.settings:
        rule = COSTLY.get(one.name)
        if rule is not None and rule.when(one.value):
            groups.setdefault((one.name, one.value), []).append(one)
    return tuple(
        Finding(
            fault="nccl_setting",
            where=tuple(dict.fromkeys(one.host or "log" for one in found)),
            certainty="seen",
            says=f"{name}={value} {COSTLY[name].does}",
            costs=COSTLY[name].costs,
            remedy=f"{COSTLY[name].remedy} ({GUIDE})",
            evidence=(_evidence(found[0]),),
        )
        for (name, value), found in groups.items()
    )


def differing_settings(log: NcclLog) -> tuple[Finding, ...]:
    """Settings that two processes have with different values, and those that only some hosts logged."""
    hosts = tuple(dict.fromkeys(one.host for one in log.settings))
    names: dict[str, list[Setting]] = {}
    for one in log.settings:
        if one.name not in _MAY_DIFFER:
            names.setdefault(one.name, []).append(one)
    findings = []
    for name, found in names.items():
        values = {one.value: one for one in reversed(found)}
        missing = sorted(set(hosts) - {one.host for one in found})
        if len(values) > 1:
            told = ", ".join(f"{value} on {one.host or 'the log'}" for value, one in sorted(values.items())[:6])
            says = f"{name} differs between processes: {told}"
            findings.append(_difference(found, "seen", says, list(values.values())))
        elif missing:
            says = f"{name}={found[0].value} is not logged by {', '.join(missing[:6])}"
            findings.append(_difference(found, "possible", says, found[:1]))
    return tuple(findings)


def _difference(found: list[Setting], certainty: Certainty, says: str, shown: list[Setting]) -> Finding:
    return Finding(
        fault="nccl_settings_differ",
        where=tuple(dict.fromkeys(one.host or "log" for one in found)),
        certainty=certainty,
        says=says,
        remedy="give every process the same environment: NCCL takes for granted that ranks decide alike",
        evidence=tuple(_evidence(one) for one in shown[:4]),
    )


def _evidence(one: Setting) -> Evidence:
    return Evidence(claim="setting", value=f"{one.name}={one.value}", seen=f"line {one.line} of the log")
