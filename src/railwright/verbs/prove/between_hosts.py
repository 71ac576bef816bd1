"""The measurements of `prove --hosts` between hosts: pairs in disjoint rounds, rails of GPUs, and collectives."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from railwright.benchmarks.benchmark import AnyBenchmark
from railwright.benchmarks.nccl.subgroups import ALL, GROWING, RAILS
from railwright.benchmarks.options import Options
from railwright.benchmarks.registry import DECLARATIONS, EVERY
from railwright.diagnosis.fleet.between_hosts import (
    BetweenHosts,
    HostNetwork,
    PairTried,
    doubt_shared,
    filter_suspects,
    judge_pairs,
)
from railwright.diagnosis.localise.pairs import max_hosts
from railwright.diagnosis.localise.procedure import Rounds
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.errors import CannotJudge, RailwrightError, UsageError
from railwright.lab.reach import LabReach
from railwright.launch.hosts import Hosts
from railwright.launch.session import PlannedLaunch
from railwright.launch.ssh import SshReach
from railwright.locate.host_fabric import read_cluster_tree
from railwright.locate.place import Place, make_hosts_place, make_lab_place
from railwright.locate.search import search
from railwright.locate.ways import COVER_STREAM_S, STREAM_S, nccl_probes
from railwright.options.arguments import Arguments
from railwright.report.text.between_hosts import BetweenHostsResult
from railwright.results.declarations import find_benchmarks
from railwright.results.records import Fabric, ResultFile
from railwright.results.store import load
from railwright.results.workload import Collective
from railwright.run.proof import Proof
from railwright.topology.cluster import Cluster
from railwright.topology.devices import Topology
from railwright.topology.gpus import usable_gpus
from railwright.units import format_count, format_duration, format_line_rate, format_size
from railwright.verbs.prove.kept import KeptBetween, group_flows, group_rails
from railwright.workflows.judged import note, write_page
from railwright.workflows.measuring import parse_benchmarks
from railwright.workflows.time_left import TimeLeft

FOLDER, PAIRS_FILE, RAILS_FILE = "between", "pairs.jsonl", "rails.jsonl"
OF_RAILS, _NCCL_SIZES = "nccl_all_reduce", "8,1M,1G"
_NCCL_ROUND_S = STREAM_S + 2.0
"""The time of a round of NCCL's flows, with connections and the transfers that determine their number."""
_START_S, _RANK_START_S = 2.0, 0.25
"""The time to start a launch, and the additional time per rank if the hosts share CPUs (docs/measured/lab)."""
_MIN_HOSTS = 2
_REPORT_EVERY = 8
_STREAMS = re.compile(r"round (\d+).*: streams")


def find_collectives(*by: Literal["mpi", "nccl"]) -> tuple[AnyBenchmark, ...]:
    """Return the collectives that span hosts: by MPI, which run on any host, and by NCCL, which need GPUs."""
    named = {name for one in by or ("mpi", "nccl") for name in find_benchmarks(Collective, DECLARATIONS, by=one)}
    return tuple(benchmark for benchmark in EVERY if benchmark.spans_hosts and benchmark.name in named)


def refuse_collectives(names: Sequence[str]) -> None:
    """Raise UsageError for a benchmark over all hosts. Call it for a run that measures each host separately."""
    together = {benchmark.name for benchmark in find_collectives("mpi")}
    if named := [name for name in names if name in together]:
        raise UsageError(f"{named[0]} needs all hosts, but here each node measures itself",
                         hint=f"measure over all nodes with: railwright run {named[0]} --kubernetes")  # fmt: skip


@dataclass
class Between:
    """The measurements between hosts."""

    hosts: Hosts
    arguments: Arguments
    parts: frozenset[str]
    """The parts to measure: `pairs`, `rails` and `collectives`."""
    cluster: Cluster | None
    chosen: list[tuple[AnyBenchmark, Options]]
    """The collectives of the parts `rails` and `collectives`, with their options."""
    here: Topology
    """This host's topology, assumed for the others in the plan."""
    left: TimeLeft = field(default_factory=lambda: TimeLeft(0.0))
    """The time that all parts still need."""

    def __post_init__(self) -> None:
        self.load: float = self.arguments.max_load
        if "pairs" in self.parts and max_hosts(len(self.hosts.names), self.load) < _MIN_HOSTS:
            raise UsageError(f"--max-load must allow one pair of {len(self.hosts.names)} hosts, got {self.load:g}",
                             hint=f"give {_MIN_HOSTS / len(self.hosts.names):.3g} or more")  # fmt: skip

    @property
    def folder(self) -> Path:
        """The folder for the records of the collectives and of the search."""
        return Path(self.arguments.output) / FOLDER

    def plan(self) -> tuple[list[str], float]:
        """Return the lines that describe the plan between the hosts, and its duration."""
        names = len(self.hosts.names)
        lines, seconds = [], 0.0
        if "pairs" in self.parts:
            rounds, at_once = self._count_rounds()
            last_s = rounds * self._pair_round_s()
            flows = names * (names - 1)
            port = self._port_bytes_per_s()
            most = f"at most {format_size(int(flows * COVER_STREAM_S * port))}" if port else "as much as the ports take"
            rate = f" of {format_line_rate(8 * port)} of payload" if port else ""
            lines += [
                f"pairs: {rounds} rounds of disjoint pairs, one launch a round, and the search of `locate` before them",
                f"  about {format_duration(last_s)}; each flow is TCP for {COVER_STREAM_S:g} s: {most} in all",
                f"  load: {at_once} of {names} hosts at once, each fills one port{rate} both ways",
            ]
            seconds += last_s
        for said, more_s in (self._plan_rails(), self._plan_collectives()):
            lines += said
            seconds += more_s
        return lines, seconds

    def assume_port_rate(self) -> None:
        """Plan with the ports of the cluster file for hosts that are not asked."""
        reach, port = self.hosts.reach, self._port_bytes_per_s()
        if self.cluster is not None and isinstance(reach, SshReach) and port:
            self.hosts = dataclasses.replace(self.hosts, reach=dataclasses.replace(reach, rate_bytes_per_s=port))

    def planned_launches(self) -> list[PlannedLaunch]:
        """Return the launches of the collectives, of the rails too."""
        machine = self._find_machine({})
        if self.load < 1 or not self._list_chosen(machine):
            return []
        return self._build_proof(self.hosts, None, machine).plan

    def _pair_round_s(self) -> float:
        """Return the planned duration of a round of pairs."""
        return _START_S + _RANK_START_S * len(self.hosts.names) * self._shares_cpus() + COVER_STREAM_S

    def _plan_rails(self) -> tuple[list[str], float]:
        """Return the lines and the duration of the search between GPUs."""
        names = len(self.hosts.names)
        gpus = self._count_gpus(self._find_machine({}), names)
        if "rails" not in self.parts or not gpus:
            return [], 0.0
        rounds = Rounds(load=self.load)
        start_s = _START_S + _RANK_START_S * names * gpus * self._shares_cpus()
        seconds = 3 * start_s + (rounds.screen + rounds.confirm) * _NCCL_ROUND_S
        return [
            f"rails: a search by NCCL between {format_count(gpus, 'GPU')} of each host, then one GPU of each together",
            f"  about {format_duration(seconds)} for the search; each flow is NCCL's for {STREAM_S:g} s",
        ], seconds

    def _plan_collectives(self) -> tuple[list[str], float]:
        """Return the lines and the duration of the collectives, of the rails too."""
        chosen = self._list_chosen(self._find_machine({}))
        if not chosen:
            return [], 0.0
        if self.load < 1:
            return [f"collectives: not run, because they load all hosts and --max-load is {self.load:g}"], 0.0
        proof = self._build_proof(self.hosts, None, self._find_machine({}))
        moved = sum(one.plan.moved_bytes for one in proof.plan)
        named, count = ", ".join(one.name for one, _ in chosen), len(self.hosts.names)
        launches = format_count(self.arguments.launches, "launch", "launches")
        return [
            f"collectives: {named} over all {count} hosts, {launches} each",
            f"  about {format_duration(proof.seconds)}, {format_size(moved)}; load: all hosts at once",
        ], proof.seconds

    def _find_machine(self, machines: Mapping[str, Topology]) -> Topology:
        """Return the machine for the collectives: the cluster file's, the first host's with GPUs, or this host's."""
        if self.cluster is not None:
            return self.cluster.host
        return next((machine for machine in machines.values() if usable_gpus(machine)), self.here)

    def _count_gpus(self, machine: Topology, hosts: int) -> int:
        """Return the number of GPUs of each host. Namespaces of one machine share its GPUs out."""
        gpus = len(usable_gpus(machine))
        return max(1, gpus // hosts) if gpus and self.hosts.reach.shares_files else gpus

    def _list_chosen(self, machine: Topology) -> list[tuple[AnyBenchmark, Options]]:
        """Return the collectives that can run on hosts like this machine: without GPUs, those of MPI."""
        return [one for one in self.chosen if usable_gpus(machine) or not one[0].rank_for_each_gpu]

    def _count_rounds(self) -> tuple[int, int]:
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

    def run(self, machines: Mapping[str, Topology], left_out: Mapping[str, str], *, resume: bool) -> BetweenHostsResult:
        """Measure pairs, then collectives, between the hosts that are not left out."""
        names = tuple(name for name in self.hosts.names if name not in left_out)
        if len(names) < _MIN_HOSTS:
            why = f"{format_count(len(names), 'host')} of {len(self.hosts.names)} could be measured"
            said = BetweenHosts(described="nothing between hosts", hosts=names, left_out=dict(left_out),
                                not_measured=dict.fromkeys(sorted(self.parts), why))  # fmt: skip
            return BetweenHostsResult(said)
        self.folder.mkdir(parents=True, exist_ok=True)
        hosts = self.hosts.part(names)
        compare = not hosts.reach.shares_cpus
        if self.cluster is not None:
            machines = dict.fromkeys(names, self.cluster.host)
        elif not compare:
            machines = {}  # the hosts are parts of one machine and are not connected by its ports
        joined = HostNetwork(machines, hosts.interfaces, hosts.fabric, compare)
        found = BetweenHostsResult(BetweenHosts(described=f"{len(names)} hosts", hosts=names, left_out=dict(left_out)))
        if "pairs" in self.parts:
            found = self._measure_pairs(found, hosts, joined, resume=resume)
        machine = self._find_machine(machines)
        names = tuple(name for name in names if name not in found.said.left_out)
        gpus = self._count_gpus(machine, len(names))
        if "rails" in self.parts and gpus and len(names) >= _MIN_HOSTS:
            found = self._search_rails(found, names, gpus, joined, resume=resume)
            names = tuple(name for name in names if name not in found.said.left_out)
        if self._list_chosen(machine):
            found = self._measure_collectives(found, names, joined, machine, resume=resume)
        return found

    def keep(self, found: BetweenHostsResult) -> KeptBetween:
        """Return the record of the measurements, without verdicts."""
        machine = self.cluster.host if self.cluster is not None else None
        return KeptBetween(said=found.said, located=found.located, rails=found.rails, machine=machine,
                           interfaces=self.hosts.interfaces, fabric=self.hosts.fabric)  # fmt: skip

    def _search_rails(
        self, found: BetweenHostsResult, names: Sequence[str], gpus: int, joined: HostNetwork, *, resume: bool
    ) -> BetweenHostsResult:
        """Search for slow GPUs and NICs by NCCL, which takes paths that TCP cannot see."""
        journal = self.folder / RAILS_FILE
        if not resume:
            journal.unlink(missing_ok=True)
        hosts = dataclasses.replace(self.hosts.part(tuple(names)), ranks_per_host=gpus)
        wanted = Rounds(load=self.load) if joined.compare else Rounds(load=self.load, confirm=0)
        try:
            place = make_hosts_place(hosts, gpus=gpus)
            way = nccl_probes(hosts, self.arguments.mpirun, gpus)
            tell = functools.partial(self._tell, "rails")
            located = search(place, wanted, seed=0, cover=None, way=way, tell=tell, journal=str(journal))
        except RailwrightError as error:
            return _mark_unmeasured(found, "rails", error.message)
        suspects, doubted = filter_suspects(located.suspects, compare=joined.compare)
        said = replace(
            found.said,
            rounds=found.said.rounds + located.rounds,
            seconds=found.said.seconds + located.seconds,
            sent_bytes=found.said.sent_bytes + located.sent_bytes,
            suspects=(*found.said.suspects, *suspects),
            unjudged=(*found.said.unjudged, *located.unjudged, *doubted),
            left_out=found.said.left_out | located.set_aside,
        )
        return found._replace(said=said, rails=tuple(group_rails(located)))

    def _measure_pairs(
        self, found: BetweenHostsResult, hosts: Hosts, joined: HostNetwork, *, resume: bool
    ) -> BetweenHostsResult:
        journal = self.folder / PAIRS_FILE
        if not resume:
            journal.unlink(missing_ok=True)
        wanted = Rounds(load=self.load, cover_at_once=1)
        if not joined.compare:
            wanted = Rounds(load=self.load, cover_at_once=1, confirm=0, again=0)
        try:
            place = self._make_place(hosts)
            tell = functools.partial(self._tell, "pairs")
            located = search(place, wanted, seed=0, cover="hosts", tell=tell, journal=str(journal))
        except RailwrightError as error:
            return _mark_unmeasured(found, "pairs", error.message)
        suspects, doubted = filter_suspects(located.suspects, compare=joined.compare)
        pairs = judge_pairs(list(group_flows(located)), joined)
        said = replace(
            found.said,
            described=located.fabric,
            rounds=located.rounds + located.cover_rounds,
            seconds=located.seconds,
            sent_bytes=located.sent_bytes,
            suspects=suspects,
            unjudged=(*located.unjudged, *doubted),
            cannot_tell=located.cannot_tell,
            left_out=found.said.left_out | located.set_aside,
        )
        return found._replace(said=said, pairs=pairs, located=located)

    def _make_place(self, hosts: Hosts) -> Place:
        if isinstance(hosts.reach, LabReach):
            return make_lab_place(hosts.reach.lab, hosts.names)
        if self.cluster is None:
            return make_hosts_place(hosts)
        tree = read_cluster_tree(hosts.names, self.cluster)
        above = self.cluster.fabric.tiers[0].oversubscription if tree is not None else 1.0
        return make_hosts_place(hosts, tree=tree, oversubscription=max(1.0, above))

    def _tell(self, part: str, text: str) -> None:
        """Print messages of a part, and every eighth round of the pairs."""
        if not text.startswith("round "):
            note(f"{part}: {text}")
        elif found := _STREAMS.fullmatch(text):
            number, of_pairs = int(found[1]), part == "pairs"
            if of_pairs and number <= self._count_rounds()[0]:
                self.left.advance(self._pair_round_s())
            if number % _REPORT_EVERY == 1:
                note(f"{part}: round {number}" + f" of {self._count_rounds()[0]}" * of_pairs + f", {self.left}")

    def _count_launch(self, launch: PlannedLaunch) -> None:
        self.left.advance(launch.plan.seconds)
        note(f"done: {launch.benchmark.name}, {self.left}")

    def _measure_collectives(
        self, found: BetweenHostsResult, names: Sequence[str], joined: HostNetwork, machine: Topology, *, resume: bool
    ) -> BetweenHostsResult:
        if self.load < 1:
            return _mark_unmeasured(found, "collectives", f"they load all hosts, but --max-load is {self.load:g}")
        if len(names) < _MIN_HOSTS:
            return _mark_unmeasured(found, "collectives", f"{format_count(len(names), 'host')} left to measure")
        hosts = self.hosts.part(tuple(names))
        measured = [pair for pair in found.pairs if pair.source in names and pair.destination in names]
        proof = self._build_proof(hosts, joined.fabric(names, measured), machine)
        proof.on_done = self._count_launch
        try:
            file = self._load_complete(proof) if resume else None
            if file is None:
                proof.run(self.folder)
                file = load(self.folder)
        except RailwrightError as error:
            return _mark_unmeasured(found, "collectives", error.message)
        diagnosis = doubt_shared(diagnose(file, DECLARATIONS), compare=joined.compare)
        write_page(file, diagnosis, self.folder)
        said = replace(found.said, left_out=found.said.left_out | proof.lost)
        return found._replace(said=said, collectives=diagnosis)

    def _load_complete(self, proof: Proof) -> ResultFile | None:
        """Return the records of an earlier run of the same collectives over the same hosts, if it was complete."""
        try:
            file = load(self.folder)
        except RailwrightError:
            return None
        planned = {one.benchmark.name for one in proof.plan}
        hosts = proof.hosts.names if proof.hosts is not None else ()
        largest = max((str(one.settings.get("hosts", "")) for one in file.results), key=len, default="")
        same = planned == {one.benchmark for one in file.results} and largest == ",".join(hosts)
        return file if same and file.end is not None and not file.end.interrupted else None

    def _build_proof(self, hosts: Hosts, fabric: Fabric | None, machine: Topology) -> Proof:
        return Proof(
            topology=machine if usable_gpus(machine) else self.here,
            chosen=self._list_chosen(machine),
            launches=self.arguments.launches,
            command=("railwright", "prove", "--hosts"),
            mpirun=self.arguments.mpirun,
            hosts=hosts,
            fabric=fabric,
            switches=self.cluster.fabric if self.cluster is not None else None,
            silence_s=self.arguments.silence,
            force=True,  # `prove_hosts` holds the lock during all parts
        )


def _mark_unmeasured(found: BetweenHostsResult, part: str, why: str) -> BetweenHostsResult:
    note(f"{part}: {why}")
    return found._replace(said=replace(found.said, not_measured=found.said.not_measured | {part: why}))


def split_options(given: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the options into those for each host's benchmarks and those for the collectives."""
    named = {benchmark.name for benchmark in find_collectives()}
    for_collectives = tuple(text for text in given if text.partition("=")[0].rpartition(".")[0] in named)
    return tuple(text for text in given if text not in for_collectives), for_collectives


def parse_collectives(
    only: Sequence[str], options: tuple[str, ...], parts: Collection[str]
) -> list[tuple[AnyBenchmark, Options]]:
    """Parse the options of the collectives in `only`, or of all if it is empty, for the parts. Raises UsageError."""
    among = [word for part, word in (("collectives", f"{ALL},{GROWING}"), ("rails", RAILS)) if part in parts]
    every = find_collectives() if "collectives" in parts else find_collectives("nccl") if "rails" in parts else ()
    names = [one.name for one in every if not only or one.name in only]
    if "collectives" not in parts:
        names = [name for name in names if name == OF_RAILS]
    defaults = [f"{name}.sizes={_NCCL_SIZES}" for name in names if name.startswith("nccl_")]
    defaults += [f"{OF_RAILS}.among={','.join(among)}"] * (OF_RAILS in names)
    kept = tuple(text for text in options if text.partition("=")[0].rpartition(".")[0] in names)
    return parse_benchmarks(tuple(names), (*defaults, *kept))
