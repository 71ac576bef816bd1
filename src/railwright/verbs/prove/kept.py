"""The record of `prove --hosts` in its folder, with which `judge` judges the hosts and the paths between them again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import permutations
from pathlib import Path

import msgspec
from msgspec.structs import replace

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.fleet.between_hosts import (
    BetweenHosts,
    HostNetwork,
    PairTried,
    RailTried,
    doubt_shared,
    judge_by_both,
    judge_pairs,
)
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.diagnosis.verdicts.pair import PairJudged
from railwright.errors import UsageError
from railwright.locate.probes import NOT_ASKED
from railwright.locate.search import Located
from railwright.reading import InvalidContent, decode_json, read_bounded
from railwright.report.text.between_hosts import BetweenHostsResult
from railwright.results.records import Fabric
from railwright.results.store import RESULTS_NAME, load
from railwright.run.host_screen import FOLDER as HOSTS_FOLDER
from railwright.run.screened import RESULTS
from railwright.topology.devices import Topology
from railwright.workflows.judged import write_page
from railwright.writing import record_mode, write_file

FILE = "cluster.json"
_MAX_BYTES = 2**28


class RdmaPairs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The measurements of pairs of hosts by RDMA."""

    ports: dict[str, str]
    """The near RDMA ports of each host that has any, as `mlx5_0+mlx5_1`."""
    located: Located | None = None
    trouble: str = ""
    """The reason why no pair was measured."""
    was_tried: bool = True
    """Whether RDMA was tried at all."""


class KeptBetween(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The measurements between hosts, before any verdict."""

    said: BetweenHosts
    located: Located | None = None
    by_rdma: RdmaPairs | None = None
    rails: tuple[RailTried, ...] = ()
    interfaces: tuple[str, ...] = ()
    fabric: Fabric | None = None
    """The links between the hosts, if their reach knows them."""
    machine: Topology | None = None
    """The host of the cluster file, if one was given."""


class KeptCluster(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record", tag="cluster_proof"
):
    """The hosts of a proof, each with its trouble or an empty text, and the measurements between them."""

    hosts: dict[str, str]
    launches: int
    shares_cpus: bool = False
    between: KeptBetween | None = None


def write_kept(folder: Path, kept: KeptCluster) -> None:
    """Write the record into the folder of a proof. Raises UsageError if that fails."""
    try:
        write_file(folder / FILE, msgspec.json.encode(kept) + b"\n", record_mode())
    except OSError as error:
        raise UsageError(f"cannot write {folder / FILE}: {error.strerror}", hint="choose another --output") from error


def read_kept(folder: Path) -> KeptCluster | None:
    """Read the record in a folder. None if the folder is not that of a proof of several hosts.

    Without the record, as after an interruption, the hosts are those that sent results. Raises UsageError for an
    invalid record.
    """
    file = folder / FILE
    if not file.exists():
        names = sorted(path.parent.name for path in (folder / HOSTS_FOLDER).glob(f"*/{RESULTS}"))
        return KeptCluster(hosts=dict.fromkeys(names, ""), launches=1) if names else None
    try:
        return decode_json(read_bounded(file, _MAX_BYTES), KeptCluster)
    except InvalidContent as error:
        hint = "remove it to judge each host alone, or measure again"
        raise UsageError(f"{file} is not the record of railwright prove --hosts", hint=hint) from error


def judge_between(
    folder: Path, kept: KeptBetween, machines: Mapping[str, Topology], *, compare: bool
) -> BetweenHostsResult:
    """Judge recorded measurements between hosts again, with the collectives in the folder."""
    own = machines if compare else {}
    if kept.machine is not None:
        machines = dict.fromkeys(kept.said.hosts, kept.machine)
    joined = HostNetwork(machines if compare else {}, kept.interfaces, kept.fabric, compare, own)
    pairs = judge_kept_pairs(kept.located, kept.by_rdma, joined) if kept.located is not None else ()
    collectives = None
    if (folder / RESULTS_NAME).exists():
        file = load(folder)
        collectives = doubt_shared(diagnose(file, DECLARATIONS), compare=compare)
        write_page(file, collectives, folder)
    by_rdma = kept.by_rdma.located if kept.by_rdma is not None else None
    return BetweenHostsResult(kept.said, pairs, kept.located, by_rdma, kept.rails, collectives)


def judge_kept_pairs(by_tcp: Located, by_rdma: RdmaPairs | None, joined: HostNetwork) -> tuple[PairJudged, ...]:
    """Judge the pairs of hosts: by RDMA where both hosts have it, else by TCP."""
    tcp = list(group_flows(by_tcp))
    if by_rdma is None:
        return judge_pairs(tcp, joined)
    not_tried = "" if by_rdma.was_tried else by_rdma.trouble
    return judge_by_both(tcp, list(list_rdma_pairs(by_rdma, by_tcp.set_aside)), joined, not_tried)


def list_rdma_pairs(by_rdma: RdmaPairs, gone: Collection[str]) -> Iterator[PairTried]:
    """Yield every pair of hosts that have RDMA, except those `gone` before it.

    A pair of which a try failed has the reason.
    """
    located = by_rdma.located
    tried = {(one.source, one.destination): one for one in group_flows(located)} if located is not None else {}
    lost = located.set_aside if located is not None else {}
    troubles: dict[tuple[str, str], str] = {}
    for flow in located.pairs if located is not None else ():
        if flow.trouble and flow.trouble != NOT_ASKED:
            troubles.setdefault((flow.source.rpartition(":")[0], flow.destination.rpartition(":")[0]), flow.trouble)
    for ends in permutations((host for host in by_rdma.ports if host not in gone), 2):
        source, destination = ends
        trouble = lost.get(source) or lost.get(destination) or troubles.get(ends) or by_rdma.trouble
        one = tried.get(ends, PairTried(source, destination, ()))
        ports = by_rdma.ports[source], by_rdma.ports[destination]
        yield replace(one, ports=ports, trouble=troubles.get(ends, "") if one.values else trouble)


def group_flows(located: Located) -> Iterator[PairTried]:
    """Yield the pairs of hosts with the rates of their flows. Flows of several ports belong to the same pair.

    A pair that was measured with several shares of the hosts keeps the rates of the largest share.
    """
    values: dict[tuple[str, str, float], list[float]] = {}
    mtus: dict[tuple[str, str], int] = {}
    for flow in located.pairs:
        ends = flow.source.rpartition(":")[0], flow.destination.rpartition(":")[0]
        if set(ends) & set(located.set_aside):
            continue
        rates = values.setdefault((*ends, flow.share), [])
        if flow.bandwidth_bytes_per_s and flow.ratio is not None:
            rates.append(flow.bandwidth_bytes_per_s)
            mtus[ends] = flow.mtu_bytes or 0
    best: dict[tuple[str, str], PairTried] = {}
    for (source, destination, share), rates in values.items():
        before = best.get((source, destination))
        if before is None or (share, len(rates)) > (before.share, len(before.values)) or not before.values:
            mtu = mtus.get((source, destination), 0)
            best[source, destination] = PairTried(source, destination, tuple(rates), share, mtu_bytes=mtu)
    yield from best.values()


def group_rails(located: Located) -> Iterator[RailTried]:
    """Yield the flows between GPUs or RDMA ports, each with its best rate."""
    best: dict[tuple[str, str], float] = {}
    for flow in located.pairs:
        ends = flow.source, flow.destination
        if {end.rpartition(":")[0] for end in ends} & set(located.set_aside):
            continue
        best[ends] = max(best.get(ends, 0.0), flow.bandwidth_bytes_per_s or 0.0)
    for (source, destination), value in best.items():
        yield RailTried(source, destination, value)
