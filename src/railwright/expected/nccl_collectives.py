"""Collectives by NCCL and RCCL: the maximum concurrent flow over the links, and the band of the algorithms by size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from railwright.busbw import busbw_factor
from railwright.errors import RailwrightError, UsageError
from railwright.expected.bands import decides_nothing, extend_doubt
from railwright.expected.evidence import add_evidence
from railwright.expected.machine import Machine
from railwright.limits import nvlink
from railwright.limits.choice import build_band, choose_at_size
from railwright.limits.collectives import build_limit
from railwright.limits.limit import Bounds, Expected, Limit, NoLimit
from railwright.limits.path import link_limit
from railwright.limits.peers import disable_relay
from railwright.limits.rates import Algorithm, Rate
from railwright.limits.traffic import ALGORITHMS, disable_nvls, domains
from railwright.results.declarations import no_limit
from railwright.results.workload import Collective
from railwright.topology.changes import remove_devices
from railwright.topology.cluster import Cluster, build_cluster
from railwright.topology.devices import NvlinkLink, PcieLink
from railwright.topology.gpus import usable_gpus
from railwright.units import GIB, format_size

NVLS_VARIABLE = "NCCL_NVLS_ENABLE"
_NVB_VARIABLE = "NCCL_NVB_DISABLE"
_MIN_RANKS = 2
_ONE_LEAF_HOSTS = 32
"""Hosts of one leaf of a non-blocking fabric: half of the 64 ports of 400 Gb/s (NVIDIA QM9700, Spectrum-4 SN5600)."""
_TAPER = 1 / 3
"""Three links down for each link up, common between leaf and spine. all_reduce over 1,440 GB200 reaches half of its
rate over 144 at 16 GiB, and 0.44 at 4 GiB (CoreWeave, nccl-tests README).
"""
_TCP_SHARE = 0.5
"""The share of the low end over GPUDirect-TCPX: all_gather of 16 H100 on A3 High reached 71 GB/s at 512 MiB on one
healthy network, and 50 GB/s from 128 MiB to 8 GiB on another (Google Cloud, GKE and cluster documentation).
"""
_PCIE_3_SHARE = 0.8
"""Four V100 PCIe below one root complex, kept as a sound installation, reach 0.83 of the low end (9.4 GB/s)."""
_PCIE_3_GT_PER_S = 8.0
"""GT/s."""
_PEER_CHANNEL = 8e9
"""Bytes/s of a channel to a GPU of another host: two carried 16.5 GB/s of 25 on JUPITER, one 14 GB/s to 18 GB/s of B200
and GH200 with 16 hosts or 8 (Together AI's report on SendRecv; NCCL issue 1272).
"""
_FEW_RANKS = 64
"""Ranks, from which NCCL may give a peer one channel instead of two (NCCL issues 1272 and 1424)."""
_WHY_CHANNELS = "NCCL gives each peer in other hosts few channels: NCCL_NCHANNELS_PER_NET_PEER=4 settles it"
_WHY_RING = "within the band of the ring, which NCCL may have chosen or been configured to use"
_WHY_FABRIC = (
    "the fabric between these hosts is not described (give --cluster FILE): a taper of 2:1 or 3:1 takes half or more"
)
_WHY_TCP = "healthy networks differ as much over GPUDirect-TCPX"
_WHY_PCIE_3 = "healthy hosts differ as much in the rate of GPUs over PCIe 3.0"


class Reached(NamedTuple):
    """The algorithms that NCCL may take, and the rate of its likely choice."""

    algorithms: tuple[Algorithm, ...]
    likely: Algorithm
    rate: Rate
    """The algbw in bytes/s."""
    time: Rate | None
    """The time; None for large sizes."""


def compute_reached(workload: Collective, machine: Machine) -> Reached:
    """Return NCCL's rate at the workload's size, or at large sizes if it has none. Raises UsageError and
    CannotJudge.
    """
    cluster = select_gpus(workload, machine)
    found = _find_algorithms(workload, machine, cluster)
    protocol = "Simple" if workload.protocol.lower() == "simple" else ""
    return Reached(found, *choose_at_size(cluster, workload.operation, found, workload.size_bytes, protocol))


def expect_by_nccl(workload: Collective, machine: Machine) -> Bounds:
    """Return limit and band at the workload's size: of a time, or of a rate in the workload's unit."""
    if workload.ranks == 1 and not workload.path:
        return no_limit(workload, "a single rank has no peer to send to")
    if workload.operation not in ALGORITHMS:
        return no_limit(workload, f"no limit is derived for {workload.operation}")
    size = GIB if workload.in_buckets else workload.size_bytes or 0
    try:
        cluster = select_gpus(workload, machine)
    except UsageError as error:
        return no_limit(workload, error.message)
    if size < 1:
        return no_limit(workload, "the limit of a collective depends on its size, which is unknown or 0")
    try:
        found, likely, rate, time = compute_reached(replace(workload, size_bytes=size), machine)
    except RailwrightError as error:
        missing = tuple(f"{gpu}: NVLink" for gpu in nvlink.find_unknown_gpus(cluster.host))
        return NoLimit(quantity=workload.quantity, why=error.message, missing=missing), None
    scale = float(busbw_factor(workload.operation, cluster.ranks)) if workload.rate == "busbw" else 1.0
    limit = _mark_assumed(build_limit(found, rate.limit * scale), cluster)
    is_forced = workload.protocol.lower() not in ("free", "simple")
    if workload.quantity == "latency_s" and time is not None:
        floor = replace(limit, quantity="latency_s", value=time.limit)
        return _bound_latency(floor, build_band(time, likely, "latency_s"), size, is_forced=is_forced)
    band = build_band(rate.times(scale), likely)
    if workload.quantity != "bandwidth_bytes_per_s" or is_forced or workload.in_buckets or band is None:
        return limit, None
    ring = tuple(algorithm for algorithm in found if algorithm.name == "ring")
    if ring and likely.name != "ring" and cluster.hosts > 1:
        # Between hosts NCCL may take its ring even if another algorithm is faster, and is often configured to.
        _, of_ring, _ = choose_at_size(cluster, workload.operation, ring, size)
        band = extend_doubt(band, scale * (of_ring.expected_low or band.low), _WHY_RING)
    return limit, _add_doubts(band, cluster, workload.operation, scale)


def _mark_assumed(limit: Limit, cluster: Cluster) -> Limit:
    """Return the limit with the option that gives the rate of its bottleneck, if a shape assumes that."""
    name = re.sub("@[0-9]+", "", limit.bottleneck).partition(":")[0]
    known = (link_limit(link) for link in cluster.host.links if link.id == name)
    of_link = next((found for found in known if isinstance(found, Limit)), None)
    return replace(limit, assumed=of_link.assumed, assumed_span=of_link.assumed_span) if of_link else limit


def has_unknown_fabric(cluster: Cluster) -> bool:
    """Report whether the hosts exceed one leaf and their fabric is not described."""
    return cluster.hosts > _ONE_LEAF_HOSTS and not cluster.fabric.tiers and domains(cluster) > 1


def _add_doubts(band: Expected, cluster: Cluster, collective: str, scale: float) -> Expected:
    """Return the band with the doubtful range below it in which healthy machines of this kind differ.

    Its rates are algbw times `scale`.
    """
    band = add_evidence(band, cluster, collective)
    if collective in ("send_recv", "all_to_all") and domains(cluster) > 1:
        to_a_peer = _PEER_CHANNEL * (2 if cluster.ranks < _FEW_RANKS else 1)
        peers = cluster.ranks if collective == "all_to_all" else 1
        band = extend_doubt(band, scale * peers * to_a_peer, _WHY_CHANNELS)
    if has_unknown_fabric(cluster):
        band = extend_doubt(band, band.low * _TAPER, _WHY_FABRIC)
    if _is_over_tcp(cluster):
        band = extend_doubt(band, band.low * _TCP_SHARE, _WHY_TCP)
    if _is_over_pcie_3(cluster):
        band = extend_doubt(band, band.low * _PCIE_3_SHARE, _WHY_PCIE_3)
    return band


def _is_over_tcp(cluster: Cluster) -> bool:
    """Report whether a plugin carries TCP to GPU memory between hosts (GPUDirect-TCPX)."""
    nics = cluster.host.of_kind("nic")
    return cluster.hosts > 1 and any(nic.facts.get("gpudirect_tcp") is True for nic in nics)


def _is_over_pcie_3(cluster: Cluster) -> bool:
    """Report whether the GPUs of one host reach each other only over PCIe 3.0 or older."""
    gpus = {gpu.id for gpu in cluster.host.of_kind("gpu")}
    slots = [link.protocol for link in cluster.host.links if gpus & {link.a, link.b}]
    rates = [slot.gt_per_s for slot in slots if isinstance(slot, PcieLink) and slot.gt_per_s]
    has_nvlink = any(isinstance(link.protocol, NvlinkLink) for link in cluster.host.links)
    return cluster.hosts == 1 and not has_nvlink and bool(rates) and max(rates) <= _PCIE_3_GT_PER_S


def _find_algorithms(workload: Collective, machine: Machine, cluster: Cluster) -> tuple[Algorithm, ...]:
    """Return the algorithms that NCCL may take: those that the job requested, else all."""
    name = "auto" if workload.algorithm.lower() == "free" else workload.algorithm.lower()
    case = replace(machine.supposed, cluster=cluster)
    if name != "auto":
        case = replace(case, algorithm=name)
    key = (
        tuple(gpu.id for gpu in cluster.host.of_kind("gpu")),
        workload.operation,
        case.algorithm,
        nvls_is_off(workload.nvls, machine.environment),
        _relay_is_off(machine.environment),
    )
    found = machine.algorithms(key, case, workload.operation)
    words = {word.strip().lower() for word in machine.environment.get("NCCL_ALGO", "").split(",")}
    return tuple(algorithm for algorithm in found if algorithm.name in words) or found


def nvls_is_off(recorded: object, environment: Mapping[str, str]) -> bool:
    """Report whether NCCL had to run without NVLS, from the record or else the job's environment."""
    return str(recorded).startswith("off") or environment.get(NVLS_VARIABLE, "").strip() == "0"


def _relay_is_off(environment: Mapping[str, str]) -> bool:
    """Report whether the job forbade NCCL to pass data through a GPU between two NVLinks."""
    return environment.get(_NVB_VARIABLE, "0").strip() not in ("", "0")


def select_gpus(workload: Collective, machine: Machine) -> Cluster:
    """Return the cluster with only the GPUs that took part: those named, else all usable ones up to the path's end.

    A workload without a path uses the whole cluster; a path between hosts, as many hosts as took part. Without NVLS the
    GPUs count as GPUs without multicast. Raises UsageError if the cluster lacks those GPUs.
    """
    cluster = machine.supposed.cluster
    if workload.path or workload.gpus:
        last, _, between = workload.path.partition(">")[2].partition("@")
        all_gpus = [gpu.id for gpu in machine.host.of_kind("gpu")]
        gpus = [gpu.id for gpu in usable_gpus(machine.host)] or all_gpus  # a shape's GPUs have no address
        named = workload.gpus.split(",") if workload.gpus else gpus[: gpus.index(last) + 1] if last in gpus else []
        hosts = workload.hosts if between else 1
        if hosts * len(named) < _MIN_RANKS or not set(named) <= set(gpus):
            raise UsageError(f"the topology has no GPUs {workload.path}")
        host = remove_devices(cluster.host, set(all_gpus) - set(named))
        cluster = build_cluster(host, hosts, cluster.fabric if between else None)
    if _relay_is_off(machine.environment):
        cluster = replace(cluster, host=disable_relay(cluster.host))
    if not nvls_is_off(workload.nvls, machine.environment):
        return cluster
    return replace(cluster, host=disable_nvls(cluster.host))


def _bound_latency(floor: Limit, band: Expected | None, size_bytes: int, *, is_forced: bool) -> Bounds:
    """Return the time of an operation: a floor from its bytes alone, and the band. A forced LL or LL128 has no band."""
    if not decides_nothing(floor, band):
        return floor, None if is_forced else band
    size = format_size(size_bytes)
    if is_forced:
        return NoLimit(quantity="latency_s", why=f"no document gives the least time of an operation of {size}"), None
    return replace(floor, because=f"the start decides at {size}, not the bytes over {floor.because}"), band
