"""The plan of `prove --hosts` between hosts: rounds, minutes and bytes of each part."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from railwright.benchmarks.benchmark import AnyBenchmark
from railwright.benchmarks.options import Options
from railwright.benchmarks.rdma.options import list_near, list_ports, name_ends
from railwright.diagnosis.fleet.between_hosts import HostNetwork, PairTried
from railwright.diagnosis.localise.pairs import max_hosts
from railwright.diagnosis.localise.procedure import Rounds
from railwright.errors import CannotJudge, UsageError
from railwright.launch.hosts import PlannedHosts
from railwright.launch.session import PlannedLaunch
from railwright.locate.ways import COVER_STREAM_S, STREAM_S
from railwright.options.arguments import Arguments
from railwright.run.plan import PlannedProof
from railwright.topology.cluster import Cluster
from railwright.topology.devices import Topology
from railwright.topology.gpus import usable_gpus
from railwright.units import format_count, format_duration, format_line_rate, format_size
from railwright.verbs.prove.between_benchmarks import OF_RDMA

_RAIL_ROUND_S = STREAM_S + 2.0
"""The time of a round of NCCL's or RDMA's flows, with connections and the transfers that determine their number."""
_START_S, _RANK_START_S = 2.0, 0.25
"""The time to start a launch, and the additional time per rank if the hosts share CPUs (docs/measured/lab)."""
_RDMA_ROUND_S = 1.0
"""The time to connect a round of RDMA."""
MEMORY = "memory0"
"""The memory whose nearest RDMA ports a pair uses."""
MIN_HOSTS = 2
ROUNDS_PER_LAUNCH = 8
"""The rounds of pairs in a launch: a host that dies or an interruption loses at most these."""


@dataclass
class PlannedBetween:
    """The measurements between hosts, before they start."""

    hosts: PlannedHosts
    arguments: Arguments
    parts: frozenset[str]
    """The parts to measure: `pairs`, `rails`, `collectives`, `kv` and `rdma`."""
    cluster: Cluster | None
    chosen: list[tuple[AnyBenchmark, Options]]
    """The benchmarks of the parts `rails`, `collectives`, `kv` and `rdma`, with their options."""
    here: Topology
    """This host's topology, assumed for the others in the plan."""
    seen: Mapping[str, Topology] = field(default_factory=dict)
    """The topologies that the hosts themselves have sent."""

    def __post_init__(self) -> None:
        self.load: float = self.arguments.max_load
        if "pairs" in self.parts and max_hosts(len(self.hosts.names), self.load) < MIN_HOSTS:
            raise UsageError(f"--max-load must allow one pair of {len(self.hosts.names)} hosts, got {self.load:g}",
                             hint=f"give {MIN_HOSTS / len(self.hosts.names):.3g} or more")  # fmt: skip

    def plan(self) -> tuple[list[str], float]:
        """Return the lines that describe the plan between the hosts, and its duration."""
        names = len(self.hosts.names)
        lines, seconds = [], 0.0
        if "pairs" in self.parts:
            rounds, at_once = self.count_rounds()
            last_s = rounds * self.pair_round_s()
            flows = names * (names - 1)
            port = self._port_bytes_per_s()
            most = f"at most {format_size(int(flows * COVER_STREAM_S * port))}" if port else "as much as the ports take"
            rate = f" of {format_line_rate(8 * port)} of payload" if port else ""
            counted = f"{format_count(rounds, 'round')} of disjoint pairs, up to {ROUNDS_PER_LAUNCH} in a launch"
            lines += [
                f"pairs: {counted}, and before them the search of `locate`",
                f"  about {format_duration(last_s)}; each flow is TCP for {COVER_STREAM_S:g} s: {most} in all",
                f"  load: {at_once} of {names} hosts at once, each fills one port{rate} both ways",
            ]
            seconds += last_s
            if ports := list_near(self.find_topology(self.find_machine({})), MEMORY):
                again_s = last_s + rounds * _RDMA_ROUND_S
                over = f"{format_count(len(ports), 'near port')} of each host at once"
                lines.append(f"  then by RDMA over {over}: about {format_duration(again_s)}, as much as the ports take")
                seconds += again_s
        for said, more_s in (self._plan_rails(), self._plan_benchmarks()):
            lines += said
            seconds += more_s
        return lines, seconds

    def _plan_rails(self) -> tuple[list[str], float]:
        """Return the lines and the duration of the searches between GPUs and between RDMA ports."""
        machine = self.find_machine({})
        gpus, ports = self.count_gpus(machine, len(self.hosts.names)), len(self.list_ports(machine))
        lines, seconds = list[str](), 0.0
        for count, by, ends in (
            (gpus, "NCCL", f"{format_count(gpus, 'GPU')} of each host, then one GPU of each together"),
            (ports, "RDMA", f"{format_count(ports, 'RDMA port')} of each host"),
        ):
            if count and "rails" in self.parts:
                told, more_s = self._plan_search(count, by)
                lines += [f"rails: a search by {by} between {ends}", told]
                seconds += more_s
        return lines, seconds

    def _plan_search(self, ends: int, by: str) -> tuple[str, float]:
        """Return the cost in words, and the duration, of a search between a number of ends of each host."""
        names, rounds = len(self.hosts.names), Rounds(load=self.load)
        start_s = _START_S + _RANK_START_S * names * ends * self._shares_cpus()
        count = rounds.screen + rounds.confirm
        seconds, port = 3 * start_s + count * _RAIL_ROUND_S, self._port_bytes_per_s()
        flows = f"each of {format_count(count * names * ends, 'flow')} is {by}'s for {STREAM_S:g} s"
        most = format_size(int(count * names * ends * STREAM_S * port)) if port else "as much as the ports take"
        told = f"  about {format_duration(seconds)} for the search; {flows}: {'at most ' * bool(port)}{most} in all"
        return told, seconds

    def _plan_benchmarks(self) -> tuple[list[str], float]:
        """Return the lines and the duration of the collectives, of the rails too, of NIXL's transfers and of RDMA."""
        lines, seconds, count = list[str](), 0.0, len(self.hosts.names)
        over = {
            "collectives": (f"over all {count} hosts", "all hosts at once"),
            "kv": ("between hosts in pairs", f"2 of {count} hosts at once"),
            "rdma": ("between hosts in pairs", f"2 of {count} hosts at once"),
        }
        for part, planned in self._plan_parts().items():
            if part == "collectives" and self.load < 1:
                lines.append(f"collectives: not run, because they load all hosts and --max-load is {self.load:g}")
                continue
            moved = sum(one.plan.moved_bytes for one in planned.plan if not one.plan.waived)
            named = ", ".join(one.name for one, _ in planned.chosen)
            launches = format_count(self.arguments.launches, "launch", "launches")
            lines += [
                f"{part}: {named} {over[part][0]}, {launches} each",
                f"  about {format_duration(planned.seconds)}, {format_size(moved)}; load: {over[part][1]}",
            ]
            seconds += planned.seconds
        return lines, seconds

    def _plan_parts(self) -> dict[str, PlannedProof]:
        """Plan the benchmarks of the parts that have any."""
        machine = self.find_machine({})
        chosen = self.list_chosen(machine)
        paired = [one for one in chosen if one[0].in_pairs]
        parts = {
            "collectives": [one for one in chosen if one not in paired],
            "kv": [one for one in paired if one[0].name not in OF_RDMA],
            "rdma": [one for one in paired if one[0].name in OF_RDMA],
        }
        return {
            part: PlannedProof(self.find_topology(machine), chosen, self.arguments.launches, self.hosts)
            for part, chosen in parts.items()
            if chosen
        }

    def planned_launches(self) -> list[PlannedLaunch]:
        """Return the launches of the collectives, of the rails too, of NIXL's transfers and of RDMA."""
        parts = self._plan_parts()
        return [
            one for part, planned in parts.items() if part != "collectives" or self.load >= 1 for one in planned.plan
        ]

    def pair_round_s(self) -> float:
        """Return the planned duration of a round of pairs."""
        start_s = _START_S + _RANK_START_S * len(self.hosts.names) * self._shares_cpus()
        return start_s / ROUNDS_PER_LAUNCH + COVER_STREAM_S

    def find_machine(self, machines: Mapping[str, Topology]) -> Topology:
        """Return the machine for the collectives and RDMA: the cluster file's, the first host's with GPUs or else with
        RDMA ports, or this host's.
        """
        if self.cluster is not None:
            return self.cluster.host
        found = [machine for machine in machines.values() if usable_gpus(machine)]
        found += [machine for machine in machines.values() if list_ports(machine)]
        return found[0] if found else self.here

    def list_ports(self, machine: Topology) -> tuple[str, ...]:
        """Return the RDMA ports of each host that are up, as a search names them."""
        return name_ends(list_ports(self.find_topology(machine)))

    def list_near_ports(
        self, names: Iterable[str], machines: Mapping[str, Topology], gone: Collection[str] = ()
    ) -> dict[str, str]:
        """Return the RDMA ports near the memory of each host that has any, as a search names them: `mlx5_0+mlx5_1`.

        A host's own topology counts before that of a cluster file.
        """
        found = {}
        for name in names:
            known = [one for one in (self.seen.get(name), machines.get(name)) if one is not None]
            near = next(filter(None, (list_near(one, MEMORY) for one in known)), None)
            if near and name not in gone:
                found[name] = "+".join(name_ends(near))
        return found

    def find_topology(self, machine: Topology) -> Topology:
        """Return the topology of the launches: that machine if it has GPUs or RDMA devices, as a shape without
        addresses and names does not, else a host's with RDMA devices, or this host's.
        """
        if usable_gpus(machine):
            return machine
        return next((one for one in (machine, *self.seen.values()) if list_ports(one)), self.here)

    def count_gpus(self, machine: Topology, hosts: int) -> int:
        """Return the number of GPUs of each host. Namespaces of one machine share its GPUs out."""
        gpus = len(usable_gpus(machine))
        return max(1, gpus // hosts) if gpus and self.hosts.reach.shares_files else gpus

    def list_chosen(self, machine: Topology) -> list[tuple[AnyBenchmark, Options]]:
        """Return the benchmarks that can run on hosts like this machine: without GPUs, the collectives of MPI, and
        without RDMA ports none of RDMA.
        """
        able = [one for one in self.chosen if usable_gpus(machine) or not one[0].rank_for_each_gpu]
        return [one for one in able if self.list_ports(machine) or one[0].name not in OF_RDMA]

    def count_rounds(self) -> tuple[int, int]:
        """Return the number of rounds of pairs, and the maximum number of hosts that a round loads."""
        names = len(self.hosts.names)
        whole = names - 1 + names % 2
        at_once = min(names - names % 2, 2 * (max_hosts(names, self.load) // 2))
        return whole * -(-(names - names % 2) // at_once), at_once

    def _shares_cpus(self) -> bool:
        with contextlib.suppress(CannotJudge):
            return self.hosts.reach.shares_cpus
        return False

    def _port_bytes_per_s(self) -> float:
        """Return the rate of a host's fastest port from the cluster file, the lab or this host. 0 if it is unknown."""
        fabric = self.hosts.fabric
        if fabric is not None:
            return fabric.flow_bytes_per_s
        machine = self.cluster.host if self.cluster is not None else self.here
        tried = PairTried("a", "a", ())
        limit, _ = HostNetwork({"a": machine}, self.hosts.interfaces).pair_bounds(tried)
        return getattr(limit, "value", 0.0)
