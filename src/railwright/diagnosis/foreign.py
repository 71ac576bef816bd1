"""The table of a known tool, held row by row against what the machine it ran on can reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import msgspec
from msgspec.structs import replace

from railwright.busbw import bus_bandwidth
from railwright.checks.parts import without
from railwright.diagnosis import doubts
from railwright.diagnosis.exchanges import find_exchange
from railwright.diagnosis.judged import Judged
from railwright.diagnosis.own_run import INSIDE, OwnRun, how_it_was_held, inside_one_host
from railwright.diagnosis.plain_limits import memory_bounds, sockets_bounds
from railwright.diagnosis.verdict import format_quantity, judged
from railwright.errors import UsageError
from railwright.limits import gpu
from railwright.limits.case import Case
from railwright.limits.choice import at_size, band_of
from railwright.limits.cluster_path import cluster_path_limit
from railwright.limits.collectives import algorithms, as_limit
from railwright.limits.limit import Bounds, Expected, Limit, NoLimit
from railwright.limits.linpack import hpl_limit
from railwright.limits.rates import Algorithm
from railwright.limits.storage import file_limit
from railwright.limits.table import PathLimit
from railwright.limits.traffic import ALGORITHMS
from railwright.results.bounds import no_limit
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.readers.subject import Subject
from railwright.results.records import Result, size_of
from railwright.topology.cluster import Cluster, cluster_of
from railwright.topology.gpu_models import is_model
from railwright.topology.shapes import SHAPES
from railwright.units import count

BOTH_WAYS = "<->"
"""The arrow of a copy in a table of nvbandwidth that goes both ways at once."""
BYTES_DECIDE = 64 * 1024
"""From this size on a stream of messages between two hosts is expected at the link's rate (perftest's own default)."""
_BOTH_WAYS_SHARE = 0.95
_NOT_PCIE = ("LOC", "NVL", "NVB", "C2C")
_MOST_MODELS = 8
"""GPU names of a table that are looked at; a job has one, or a few."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What a table is held against: the cluster, and the path where the user names one (`gpu0:gpu0@1`)."""

    cluster: Cluster
    path: str = ""
    own_run: OwnRun | None = None
    """A run of ours on that machine, which is one host then."""


def machine_for(file: ForeignFile, machine: Machine) -> Machine:
    """The machine with as many hosts and GPUs as the table has. Raises UsageError where they cannot be those.

    A table that does not say how many hosts there were is taken to be of all hosts given.
    """
    cluster = machine.cluster
    if file.subject.transport == "sockets" and file.hosts == 2 and cluster.hosts == 1 and not machine.path:
        two = cluster_of(cluster.host, 2, cluster.fabric, cluster.storage, cluster.name)
        return replace(machine, cluster=two)
    if file.ranks is None or file.subject.kind not in ("collective", "exchange", "linpack"):
        return machine
    if file.subject.kind == "linpack":  # a rank for each GPU; a machine without GPUs may have any number
        if 0 < cluster.ranks < file.ranks:
            raise UsageError(
                f"the run has {count(file.ranks, 'rank')}, {cluster.name[:80]} has {count(cluster.ranks, 'GPU')} on"
                f" {count(cluster.hosts, 'host')}",
                hint="give the number of hosts with --count",
            )
        return machine
    hosts = file.hosts or _hosts_of(file.ranks, cluster)
    if file.subject.kind == "exchange" and (file.ranks % hosts or file.ranks > hosts * cluster.gpus_per_host):
        return machine  # ranks of MPI need no GPU; then nothing is derived
    table = f"the table has {count(file.ranks, 'rank')} on {count(hosts, 'host')}"
    if file.ranks % hosts:
        raise UsageError(
            f"{table}, which is not the same number on each",
            hint="give the machine it ran on, with --count for the number of hosts; hosts that differ are not judged",
        )
    if file.hosts and 1 < cluster.hosts < file.hosts:
        raise UsageError(
            f"{table}, --count or the cluster file give {cluster.hosts}", hint=f"give --count {file.hosts}"
        )
    each = file.ranks // hosts
    if each > cluster.gpus_per_host:
        raise UsageError(
            f"{table}, so {each} on each; {cluster.host.name[:80]} has {count(cluster.gpus_per_host, 'GPU')}",
            hint="give the shape it ran on, like gpus=8" + ("" if file.hosts else ", or more hosts with --count"),
        )
    # A job on the first GPUs of a machine still has all its NICs.
    host = without(cluster.host, {gpu.id for gpu in cluster.host.of_kind("gpu")[each:]})
    smaller = cluster_of(host, hosts, cluster.fabric, cluster.storage, cluster.name)
    return replace(machine, cluster=smaller)


def _hosts_of(ranks: int, cluster: Cluster) -> int:
    """The hosts of a table that does not say how many there were.

    The given ones, where each has the same number of ranks and enough GPUs for them, and whole hosts otherwise: jobs
    on a part of each host's GPUs are rare. A table of fewer ranks than the machine has is of whole hosts too.
    """
    each = cluster.gpus_per_host
    if ranks == cluster.ranks or not each or ranks % each:
        return min(cluster.hosts, ranks)
    return ranks // each


def differences(file: ForeignFile, given: Machine, placed: Machine) -> tuple[str, ...]:
    """What the reader must know where the table is not of exactly the machine that was given."""
    notes = [how_it_was_held(file)] if file.subject.pages and given.own_run is not None else []
    return (*notes, *_of_another_size(file, given.cluster, placed.cluster))


def _of_another_size(file: ForeignFile, given: Cluster, placed: Cluster) -> tuple[str, ...]:
    notes = []
    if file.ranks is None and is_collective(file):
        notes.append(f"the table does not say how many ranks there were: all {given.ranks} of the machine are assumed")
    if placed.hosts < given.hosts:
        notes.append(f"the table has {count(placed.hosts, 'host')} of the {given.hosts} given")
    if placed.gpus_per_host < given.gpus_per_host:
        notes.append(
            f"{placed.gpus_per_host} of the {given.gpus_per_host} GPUs of each host took part; all its NICs are counted"
        )
    return tuple(notes)


def shapes_for(file: ForeignFile) -> tuple[str, ...]:
    """The names of the shapes that have the GPU that the table names, and enough of them in one host."""
    each = -(-file.ranks // (file.hosts or 1)) if file.ranks else 1
    return tuple(
        name
        for name, shape in SHAPES.items()
        if shape.gpu is not None
        and (each <= shape.layout.gpus or not file.hosts)
        and any(is_model(seen, shape.gpu.name) for seen in file.gpus[:_MOST_MODELS])
    )


def judge_rows(file: ForeignFile, machine: Machine) -> tuple[Judged, ...]:
    """Every row with limit, band and verdict. Tools that do not check their data are judged without that check."""
    find = limit_finder(file, machine)
    return tuple(_judged(result, *find(result), file, machine.cluster) for result in file.results)


def is_busbw(file: ForeignFile) -> bool:
    """Whether the table's rates are judged and shown as busbw, as its readers are used to; that of one rank is 0."""
    return file.subject.kind == "collective" and file.ranks is not None and file.ranks > 1


def busbw_scale(file: ForeignFile) -> float:
    """What the table's rates, which are algbw, are multiplied by."""
    return bus_bandwidth(file.test, file.ranks, 1.0) if is_busbw(file) and file.ranks is not None else 1.0


def is_collective(file: ForeignFile) -> bool:
    """Whether the table is of a collective whose algorithms are known."""
    return file.subject.kind == "collective" and file.test in ALGORITHMS


def operation_of(file: ForeignFile) -> str:
    """The collective that the table is of, as NCCL calls it; empty where it is of none."""
    return file.subject.operation or (file.test if file.subject.kind == "collective" else "")


def _judged(
    result: Result, limit: Limit | NoLimit, expected: Expected | None, file: ForeignFile, cluster: Cluster
) -> Judged:
    scale = busbw_scale(file)
    value = result.summary.median * scale if result.summary else None
    if isinstance(limit, Limit):
        limit = replace(limit, value=limit.value * scale)
    if expected is not None:
        expected = _scaled(expected, scale, scale)
    row = judged(result, value, (limit, expected), result.verification, must_check=False)
    is_derived = isinstance(limit, Limit) and limit.kind == "derived"
    if row.verdict.state == "unknown" and row.value and expected is not None and is_derived:
        latency = expected.quantity == "latency_s" and expected.high is not None
        end = format_quantity(expected.quantity, (expected.high if latency else None) or expected.low)
        why = f"{format_quantity(expected.quantity, row.value)} is {'above' if latency else 'below'} the expected {end}"
        why += ", but "
        why += doubts.why_doubtful(file.subject, size_of(result.parameters) or 0, cluster)
        return replace(row, verdict=replace(row.verdict, why=why))
    return row


def _scaled(band: Expected, low: float, high: float) -> Expected:
    doubtful_to = None if band.doubtful_to is None else band.doubtful_to * low
    ways = tuple(replace(way, low=way.low * low, high=way.high * high) for way in band.ways)
    return replace(
        band,
        low=band.low * low,
        high=None if band.high is None else band.high * high,
        doubtful_to=doubtful_to,
        ways=ways,
    )


def limit_finder(file: ForeignFile, machine: Machine) -> Callable[[Result], Bounds]:
    """What gives each row its limit and band. Raises UsageError and CannotJudge."""
    kind, cluster = file.subject.kind, machine.cluster
    if kind == "collective" and file.ranks == 1:
        return lambda result: no_limit(result, "one rank alone sends nothing to another")
    if is_collective(file):
        found = algorithms(Case(cluster=cluster), file.test)
        found = _allowed(found, file.environment) or found
        return lambda result: collective_row(cluster, file.test, found, result)
    if kind == "exchange":
        return find_exchange(file, cluster)
    if kind == "messages" and file.subject.transport == "sockets":
        return lambda result: sockets_bounds(result, cluster, machine.path)
    if kind == "memory":
        return lambda result: memory_bounds(result, file.subject, cluster)
    path = path_of(file, machine)
    if file.subject.pages and machine.own_run is not None:
        limits = machine.own_run.limits()
        return lambda result: inside_one_host(result, file, path, limits)
    if kind == "messages":
        row_of = cache(partial(cluster_path_limit, cluster))  # the same for every size
        return lambda result: _stream(result, file, path, row_of)
    if kind == "copies":
        return lambda result: copy_bounds(result, cluster)
    if kind == "files":
        return lambda result: _file(result, file.subject, cluster)
    if kind == "linpack":
        return lambda result: _hpl(result, cluster)
    return lambda result: no_limit(result, f"no limit is derived for {file.test}")


def _allowed(found: tuple[Algorithm, ...], environment: Mapping[str, str]) -> tuple[Algorithm, ...]:
    """The algorithms that NCCL_ALGO leaves: what was asked for is what the run is held against."""
    words = {word.strip().lower() for word in environment.get("NCCL_ALGO", "").split(",")}
    return tuple(one for one in found if one.name in words)


def copy_bounds(result: Result, cluster: Cluster) -> Bounds:
    """A copy between two memories of one host, one way; both ways at once have no band."""
    if added := result.settings.get("added_gpus"):
        return no_limit(result, f"the rates of {added} GPUs are added up")
    first, _, last = result.path.partition(">")
    inside = next((one for one in cluster.host.of_kind("gpu") if one.id == first), None) if first == last else None
    if inside is not None:
        # Half of the memory's rate holds for all; what engines reach of it was seen on an H200 alone.
        return gpu.local_copy_limit(inside)[0], None
    try:
        row = cluster_path_limit(cluster, result.path.replace(">", ":"))
    except UsageError as error:
        return no_limit(result, error.message)
    through_host = result.settings.get("peer_access") is False or result.settings.get("memory") == "pageable"
    if result.settings.get("arrow") == BOTH_WAYS or through_host:
        return row.limit, None
    band = row.expected or doubts.of_a_link(row.limit)
    by_kernel = str(result.parameters.get("test", "")).endswith("_sm")
    if row.expected is not None and row.kind not in _NOT_PCIE and not by_kernel:
        band = doubts.of_pcie_copies(row.expected)
    if band is not None and by_kernel and "memory" in result.path:
        reads_host = result.path.startswith("memory")
        return row.limit, gpu.over_pcie(band, by_kernel=True, both_ways=False, reads_host=reads_host)
    return row.limit, band


def collective_row(cluster: Cluster, collective: str, found: tuple[Algorithm, ...], result: Result) -> Bounds:
    """Limit and band of algbw at the row's size."""
    size = size_of(result.parameters) or 0
    if result.quantity != "bandwidth_bytes_per_s" or size < 1:
        return no_limit(result, f"no limit is derived for {result.quantity} of a collective")
    likely, rate, _ = at_size(cluster, collective, found, size)
    band = band_of(rate, likely)
    ring = tuple(one for one in found if one.name == "ring")
    if band is not None and ring and likely.name != "ring" and cluster.hosts > 1:
        # Between hosts NCCL may take its ring where another algorithm would be faster, and is often told to.
        _, of_ring, _ = at_size(cluster, collective, ring, size)
        band = replace(band, doubtful_to=min(band.low, of_ring.expected_low or band.low))
    if band is not None:
        band = doubts.of_old_links(doubts.of_many_hosts(band, cluster), cluster)
    return as_limit(found, rate.limit), band


def path_of(file: ForeignFile, machine: Machine) -> str:
    """The path of a stream of messages: the one the user named, else between the first GPUs or memories."""
    if machine.path:
        return machine.path
    first, last = ("gpu0" if gpu else "memory0" for gpu in (file.subject.from_gpu, file.subject.to_gpu))
    if machine.cluster.hosts > 1:
        return f"{first}:{last}@1"
    return "gpu0:gpu1" if (first, last) == ("gpu0", "gpu0") else f"{first}:{last}"


def _stream(result: Result, file: ForeignFile, path: str, row_of: Callable[[str], PathLimit]) -> Bounds:
    if result.quantity != "bandwidth_bytes_per_s":
        return no_limit(result, "only the bandwidth of messages has a limit here")
    if path == INSIDE:
        ask = "give --beside RUN, a run of ours on it; " if file.subject.pages else ""
        why = f"inside one host no limit is known; {ask}if it ran between two hosts, give --count 2"
        return no_limit(result, why)
    row = row_of(path)
    limit, expected = row.limit, row.expected
    if isinstance(limit, NoLimit):
        return limit, None
    if file.subject.both_ways:
        limit = replace(limit, value=limit.value * 2, because=f"both ways at once: {limit.because}")
        # Both ways at once reach a little less than twice: 46.4 of 49.7 GB/s on Slingshot (CSCS documentation).
        expected = _scaled(expected, 2 * _BOTH_WAYS_SHARE, 2) if expected is not None else None
    size = size_of(result.parameters) or 0
    if file.subject.transport == "library" and _is_between_gpus_of_a_host(path):
        return doubts.of_copied_messages((limit, expected if size >= BYTES_DECIDE else None), size)
    if expected is None and size >= doubts.RENDEZVOUS_ENDS:
        return limit, doubts.of_a_link(limit)
    if file.subject.one_at_a_time:
        return doubts.of_single_messages((limit, expected), size)
    return doubts.of_messages((limit, expected if size >= BYTES_DECIDE else None), file.subject, size)


def _is_between_gpus_of_a_host(path: str) -> bool:
    (first, _, one), (last, _, other) = (end.partition("@") for end in path.partition(":")[::2])
    return first.startswith("gpu") and last.startswith("gpu") and (one or "0") == (other or "0")


def _file(result: Result, subject: Subject, cluster: Cluster) -> Bounds:
    if result.quantity != "bandwidth_bytes_per_s":
        return no_limit(result, "no limit is derived for this quantity of files")
    crosses = str(result.settings.get("crosses", result.parameters.get("transfer", "")))
    to_gpu = "gpu" in crosses.lower() or subject.from_gpu
    limit = file_limit(cluster, cluster.hosts, to_gpus=1 if to_gpu else 0)
    return limit, doubts.of_files(limit)


def _hpl(result: Result, cluster: Cluster) -> Bounds:
    order, rows, columns = (result.parameters.get(key) for key in ("n", "p", "q"))
    if (
        isinstance(order, int)
        and isinstance(rows, int)
        and isinstance(columns, int)
        and result.quantity == "flop_per_s"
    ):
        return hpl_limit(cluster.host, rows * columns, order)
    return no_limit(result, "no limit is derived for this row")
