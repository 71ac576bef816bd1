"""Options of the RDMA benchmarks, and the ports and points that they ask for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from railwright.benchmarks.benchmark import AnyJob
from railwright.benchmarks.gpu.job import list_usable
from railwright.benchmarks.job import Case, Job, Launch, Machine
from railwright.benchmarks.options import Options, choice, option, single_choice, whole_number, whole_numbers, word_or
from railwright.errors import UsageError
from railwright.native.rdma import Shape
from railwright.native.verbs import MOST_QUEUE_PAIRS
from railwright.topology.devices import EfaLink, Scalar, Topology
from railwright.topology.near_nics import name_nic, rank_nics
from railwright.units import format_size, parse_sizes

HOST, GPU = "host", "gpu"
DMABUF, PEERMEM = "dmabuf", "peermem"
NEAR, EACH, TOGETHER = "near", "each", "together"
MOST_MESSAGE_BYTES = 2**30
_MOST_PORTS = 16
_PORT = re.compile(r"[A-Za-z0-9_.-]{1,63}(:[1-9]\d?)?")
_MTU_BYTES = (256, 512, 1024, 2048, 4096)


def parse_nics(text: str) -> tuple[str, ...]:
    """Parse `near`, `each`, `together`, or ports like `mlx5_0:1` and `mlx5_0:1+mlx5_1:1`. Raises UsageError."""
    found = []
    for part in (part.strip() for part in text.split(",")):
        names = part.split("+")
        if part not in (NEAR, EACH, TOGETHER):
            are_ports = all(_PORT.fullmatch(name) and name not in (NEAR, EACH, TOGETHER) for name in names)
            if len(names) > _MOST_PORTS or not are_ports:
                hint = "write near, each, together, or RDMA ports like mlx5_0:1 or mlx5_0:1+mlx5_1:1"
                raise UsageError(f"not an RDMA port: {part[:60]!r}", hint=hint)
            part = "+".join(name if ":" in name else f"{name}:1" for name in names)
        found.append(part)
    return tuple(dict.fromkeys(found))


def parse_ports(text: str) -> tuple[str, ...]:
    """Parse ports like `mlx5_0,mlx5_1:2` to the names of a search, `mlx5_0` and `mlx5_1/2`. Raises UsageError."""
    found = [name for part in parse_nics(text) for name in part.split("+")]
    if words := {NEAR, EACH, TOGETHER} & {*found}:
        raise UsageError(f"not an RDMA port: {min(words)!r}", hint="write RDMA ports like mlx5_0,mlx5_1")
    if len(found) > _MOST_PORTS:
        raise UsageError(f"there must be at most {_MOST_PORTS} RDMA ports, got {len(found)}")
    return name_ends(found)


def name_ends(ports: Iterable[str]) -> tuple[str, ...]:
    """Return ports like `mlx5_0:1` as a search names them, `mlx5_0`, since a colon separates them from the host."""
    return tuple(dict.fromkeys(name.removesuffix(":1").replace(":", "/") for name in ports))


def _parse_message_sizes(text: str) -> tuple[int, ...]:
    sizes = parse_sizes(text)
    if max(sizes) > MOST_MESSAGE_BYTES:
        raise UsageError(f"sizes must be at most {format_size(MOST_MESSAGE_BYTES)}, got {format_size(max(sizes))}")
    return sizes


def _parse_mtu(text: str) -> int:
    if text not in map(str, _MTU_BYTES):
        raise UsageError(f"must be auto or one of {', '.join(map(str, _MTU_BYTES))}, got {text[:40]!r}")
    return _MTU_BYTES.index(int(text)) + 1


def _auto_or(parse: Callable[[str], object]) -> Callable[[str], object]:
    return word_or("auto", None, parse)


class RdmaOptions(Options, frozen=True):
    """Options of all RDMA benchmarks. Numbers that are None follow the ports."""

    sizes: tuple[int, ...] = option("8:8M:x4", "message sizes, like 8:8M:x4", _parse_message_sizes)
    nics: tuple[str, ...] = option(
        NEAR,
        "near (the nearest port), each (each of the nearest alone), together (all of them at once), or names",
        parse_nics,
    )
    queue_pairs: tuple[int, ...] = option("1", "queue pairs of each port, like 1,4", whole_numbers(MOST_QUEUE_PAIRS, 8))
    directions: tuple[str, ...] = option("one", "one, both (ways at once), or one,both", choice("one", "both"))
    memory: tuple[str, ...] = option(HOST, "memory of the buffers: host, gpu, or both", choice(HOST, GPU))
    registration: tuple[str, ...] = option(
        "dmabuf,peermem", "how GPU memory is registered: dmabuf, peermem, or both", choice(DMABUF, PEERMEM)
    )
    mtu: int | None = option("auto", "path MTU: auto (of the ports), or 256 to 4096", _auto_or(_parse_mtu))
    gid_index: int | None = option("auto", "index of both ports' GIDs, or auto", _auto_or(whole_number(255, 0)))
    traffic_class: int = option("0", "traffic class of the packets: DSCP x 4", whole_number(255, 0))
    service_level: int = option("0", "InfiniBand's service level, or RoCE's priority", whole_number(15, 0))
    inline: int | None = option(
        "auto",
        "bytes up to which data is inline, or auto: 220 for latency, as perftest",
        _auto_or(whole_number(1024, 0)),
    )
    depth: int = option("128", "requests in flight on each queue pair", whole_number(4096))
    iterations: int = option("5000", "requests of each queue pair in a sample, at most", whole_number(1_000_000))
    relaxed_ordering: str = option(
        "on", "PCIe relaxed ordering of streams from host memory: on (as perftest), or off", single_choice("on", "off")
    )


class MemoryCase(Case, frozen=True, kw_only=True):
    """The memory of a launch's buffers, and the way to register that of a GPU."""

    memory: str = HOST
    registration: str = ""
    between: str = ""
    """The hosts, if there are other pairs."""


class Point(Case, frozen=True, kw_only=True):
    """The parameters of a measurement."""

    size_bytes: int
    nics: str
    queue_pairs: int = 1
    direction: str = "one"
    memory: str = HOST
    registration: str = ""
    between: str = ""


RdmaJob = Job[RdmaOptions, MemoryCase]


class Setup(NamedTuple):
    """Ports and queue pairs that are connected once for all sizes and directions."""

    nics: str
    queue_pairs: int

    @property
    def ports(self) -> list[tuple[str, int]]:
        """The device and number of each port."""
        return [(name.partition(":")[0], int(name.partition(":")[2])) for name in self.nics.split("+")]

    def parameters(self) -> dict[str, Scalar]:
        """Return the setup as parameters of a record."""
        return {"nics": self.nics} | ({"queue_pairs": self.queue_pairs} if self.queue_pairs > 1 else {})


def launch_memories(options: RdmaOptions, machine: Machine) -> tuple[Launch[MemoryCase], ...]:
    """Return a launch of two processes for host memory, and for each way to register GPU memory."""
    between = ",".join(machine.hosts) if machine.paired else ""
    found = [Launch(case=MemoryCase(between=between), ranks=2)] if HOST in options.memory else []
    if GPU in options.memory:
        gpus = list_usable(machine)
        own = gpus[:1] * 2 if machine.hosts and not machine.hosts_share_gpus else (gpus * 2)[:2]
        cases = [MemoryCase(memory=GPU, registration=way, between=between) for way in options.registration]
        found += [Launch(case=case, ranks=2, gpus=own) for case in cases]
    return tuple(found)


def list_ports(topology: Topology) -> list[str]:
    """Return the names of all RDMA ports that are up, without those of EFA and iWARP."""
    nics = {nic.id: nic for nic, _ in topology.ports_out if nic.facts.get("state") != "down"}
    return [name_nic(nic) for nic in nics.values() if _can_connect(topology, nic.id)][:_MOST_PORTS]


def list_near(topology: Topology, device: str) -> list[str]:
    """Return the names of the RDMA ports that are up and nearest to a device."""
    ranked = [(rank, nic) for rank, nic in rank_nics(topology, device) if _can_connect(topology, nic.id)]
    return [name_nic(nic) for rank, nic in ranked if rank == ranked[0][0]][:_MOST_PORTS]


def _can_connect(topology: Topology, nic: str) -> bool:
    """Report whether a NIC has the reliable queue pairs of InfiniBand and RoCE."""
    device = topology.device(nic)
    links = [link.protocol for found, link in topology.ports_out if found.id == nic]
    return (
        device is not None
        and bool(device.facts.get("rdma_device"))
        and device.facts.get("rdma_transport") != "iWARP"
        and not any(isinstance(protocol, EfaLink) for protocol in links)
    )


def find_end(job: AnyJob, rank: int) -> str:
    """Return the id of a rank's memory or GPU, without its host."""
    if job.case.memory == GPU and job.gpus:
        return job.find_gpu(rank).id
    return job.find_memory(rank).partition("@")[0]


def name_path(job: AnyJob) -> str:
    """Return the path between the buffers of the two ranks."""
    hosts = [f"@{rank * len(job.hosts) // job.ranks}" if job.hosts else "" for rank in (0, 1)]
    return f"{find_end(job, 0)}{hosts[0]}>{find_end(job, 1)}{hosts[1]}"


def list_setups(job: RdmaJob) -> list[Setup]:
    """Return the ports and queue pairs to measure: near ports by the machine's topology, and those named."""
    near = list_near(job.topology, find_end(job, 0))
    groups: list[str] = []
    for word in job.options.nics:
        groups += {NEAR: near[:1], EACH: near, TOGETHER: ["+".join(near)] if len(near) > 1 else []}.get(word, [word])
    return [Setup(nics, pairs) for nics in dict.fromkeys(groups) for pairs in job.options.queue_pairs]


def explain_no_port(job: RdmaJob) -> str:
    """Return the reason why no port can be measured, or an empty string."""
    if list_setups(job):
        return ""
    if any(isinstance(link.protocol, EfaLink) for _, link in job.topology.ports_out):
        return "an EFA has no reliable queue pairs of verbs"
    if job.options.nics == (TOGETHER,) and list_near(job.topology, find_end(job, 0)):
        return "only one RDMA port is near, so there are no ports to use together"
    return "no RDMA port is up: check with `rdma link`"


def list_points(job: RdmaJob, setup: Setup) -> list[Point]:
    """Return the points of a setup."""
    case = job.case
    return [
        Point(
            size_bytes=size,
            nics=setup.nics,
            queue_pairs=setup.queue_pairs,
            direction=direction,
            memory=case.memory,
            registration=case.registration,
            between=case.between,
        )
        for direction in job.options.directions
        for size in job.options.sizes
    ]


def region_bytes(options: RdmaOptions, setup: Setup) -> int:
    """Return the bytes of a region that holds the messages of all queue pairs of a setup."""
    return setup.queue_pairs * len(setup.ports) * max(Shape(size).area_bytes for size in options.sizes)
