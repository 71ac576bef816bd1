"""The measurements of `prove --hosts` between hosts: pairs in disjoint rounds, rails, collectives, NIXL, and RDMA."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.fleet.between_hosts import (
    BetweenHosts,
    HostNetwork,
    doubt_shared,
)
from railwright.diagnosis.fleet.shared_cpus import are_limited_by_links, filter_suspects
from railwright.diagnosis.localise.procedure import Rounds
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.errors import RailwrightError
from railwright.lab.reach import LabReach
from railwright.launch.hosts import Hosts
from railwright.launch.session import PlannedLaunch
from railwright.locate.host_fabric import read_cluster_tree
from railwright.locate.place import Place, make_hosts_place, make_lab_place
from railwright.locate.search import search
from railwright.locate.ways import ProbeKind, nccl_probes, rdma_probes
from railwright.report.text.between_hosts import BetweenHostsResult
from railwright.results.records import Fabric, ResultFile
from railwright.results.store import load
from railwright.run.other_work import IdleCpus
from railwright.run.proof import Proof
from railwright.topology.devices import Topology
from railwright.units import format_count
from railwright.verbs.prove.between_plan import MIN_HOSTS, ROUNDS_PER_LAUNCH, PlannedBetween
from railwright.verbs.prove.kept import KeptBetween, RdmaPairs, group_rails, judge_kept_pairs
from railwright.workflows.judged import note, write_page
from railwright.workflows.time_left import TimeLeft

FOLDER, PAIRS_FILE, RAILS_FILE, PORTS_FILE = "between", "pairs.jsonl", "rails.jsonl", "ports.jsonl"
RDMA_PAIRS_FILE = "rdma-pairs.jsonl"
_REPORT_EVERY = 8
_RANKS_PER_CPU = 8
_STREAMS = re.compile(r"round (\d+).*: streams")


@dataclass(frozen=True)
class _Ends:
    """The ends of a host that a search of rails compares: GPUs by NCCL, or RDMA ports by RDMA."""

    gpus: int = 0
    ports: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of ends of a host."""
        return self.gpus or len(self.ports)

    def make_probes(self, hosts: Hosts, mpirun: str | None) -> ProbeKind:
        """Return the probes between these ends. Raises CannotJudge without mpirun, UsageError for a wrong one."""
        return nccl_probes(hosts, mpirun, self.gpus) if self.gpus else rdma_probes(hosts, mpirun, len(self.ports))


@dataclass
class Between(PlannedBetween):
    """The measurements between hosts."""

    hosts: Hosts
    left: TimeLeft = field(default_factory=lambda: TimeLeft(0.0))
    """The time that all parts still need."""
    by_rdma: RdmaPairs | None = None
    """The measurements of pairs by RDMA, if hosts have RDMA ports."""

    @property
    def folder(self) -> Path:
        """The folder for the records of the collectives and of the search."""
        return Path(self.arguments.output) / FOLDER

    def run(self, machines: Mapping[str, Topology], left_out: Mapping[str, str], *, resume: bool) -> BetweenHostsResult:
        """Measure all parts between the hosts that are not left out."""
        names = tuple(name for name in self.hosts.names if name not in left_out)
        if len(names) < MIN_HOSTS:
            why = f"{format_count(len(names), 'host')} of {len(self.hosts.names)} could be measured"
            said = BetweenHosts(described="nothing between hosts", hosts=names, left_out=dict(left_out),
                                not_measured=dict.fromkeys(sorted(self.parts), why))  # fmt: skip
            return BetweenHostsResult(said)
        self.folder.mkdir(parents=True, exist_ok=True)
        hosts = self.hosts.part(names)
        compare = not hosts.reach.shares_cpus
        self.seen = machines if compare else {}
        if self.cluster is not None:
            machines = dict.fromkeys(names, self.cluster.host)
        elif not compare:
            machines = {}  # the hosts are parts of one machine and are not connected by its ports
        joined = HostNetwork(machines, hosts.interfaces, hosts.fabric, compare, self.seen)
        found = BetweenHostsResult(BetweenHosts(described=f"{len(names)} hosts", hosts=names, left_out=dict(left_out)))
        if "pairs" in self.parts:
            found = self._measure_pairs(found, hosts, joined, resume=resume)
        if found.located is not None:
            near = self.list_near_ports(names, machines, found.said.left_out)
            if len(near) >= MIN_HOSTS and not isinstance(hosts.reach, LabReach):
                found = self._measure_rdma_pairs(found, near, joined, resume=resume)
        machine = self.find_machine(machines)
        names = tuple(name for name in names if name not in found.said.left_out)
        gpus, ports = self.count_gpus(machine, len(names)), self.list_ports(machine)
        for ends in (_Ends(gpus=gpus), _Ends(ports=ports)):
            if "rails" in self.parts and ends.count and len(names) >= MIN_HOSTS:
                found = self._search_rails(found, names, ends, joined, resume=resume)
                names = tuple(name for name in names if name not in found.said.left_out)
        if self.list_chosen(machine):
            found = self._run_benchmarks(found, names, joined, machine, resume=resume)
        return found

    def keep(self, found: BetweenHostsResult) -> KeptBetween:
        """Return the record of the measurements, without verdicts."""
        machine = self.cluster.host if self.cluster is not None else None
        return KeptBetween(said=found.said, located=found.located, by_rdma=self.by_rdma, rails=found.rails,
                           machine=machine,
                           interfaces=self.hosts.interfaces, fabric=self.hosts.fabric)  # fmt: skip

    def _search_rails(
        self, found: BetweenHostsResult, names: Sequence[str], ends: _Ends, joined: HostNetwork, *, resume: bool
    ) -> BetweenHostsResult:
        """Search for slow GPUs by NCCL, or slow RDMA ports, over paths that TCP cannot see."""
        journal = self.folder / (RAILS_FILE if ends.gpus else PORTS_FILE)
        if not resume:
            journal.unlink(missing_ok=True)
        hosts = dataclasses.replace(self.hosts.part(tuple(names)), ranks_per_host=ends.count)
        # Many ranks on few CPUs decide the rates themselves, so that no round could confirm a suspect.
        ranks = len(names) * ends.count
        is_crowded = ranks > _RANKS_PER_CPU * len(os.sched_getaffinity(0))
        wanted = Rounds(load=self.load, confirm=0) if is_crowded and not joined.compare else Rounds(load=self.load)
        try:
            place = make_hosts_place(hosts, gpus=ends.gpus, rdma=ends.ports)
            way = ends.make_probes(hosts, self.arguments.mpirun)
            tell = functools.partial(self._tell, "rails")
            idle = IdleCpus()
            located = search(place, wanted, seed=0, cover=None, way=way, tell=tell, journal=str(journal))
        except RailwrightError as error:
            return _mark_unmeasured(found, "rails", error.message)
        ratios = [(one.source, one.destination, one.ratio) for one in located.pairs if one.ratio is not None]
        are_idle = (idle.count() or 0.0) >= ranks
        cpus_suffice = are_idle or (not is_crowded and are_limited_by_links(ratios, located.suspects))
        suspects, doubted = filter_suspects(located.suspects, compare=joined.compare, cpus_suffice=cpus_suffice)
        said = replace(
            found.said,
            rounds=found.said.rounds + located.rounds,
            seconds=found.said.seconds + located.seconds,
            sent_bytes=found.said.sent_bytes + located.sent_bytes,
            suspects=(*found.said.suspects, *suspects),
            unjudged=(*found.said.unjudged, *located.unjudged, *doubted),
            left_out=found.said.left_out | located.set_aside,
        )
        return found._replace(said=said, rails=(*found.rails, *group_rails(located)))

    def _measure_pairs(
        self, found: BetweenHostsResult, hosts: Hosts, joined: HostNetwork, *, resume: bool
    ) -> BetweenHostsResult:
        journal = self.folder / PAIRS_FILE
        if not resume:
            journal.unlink(missing_ok=True)
        wanted = self._plan_rounds(joined)
        try:
            place = self._make_place(hosts)
            tell = functools.partial(self._tell, "pairs")
            located = search(place, wanted, seed=0, cover="hosts", tell=tell, journal=str(journal))
        except RailwrightError as error:
            return _mark_unmeasured(found, "pairs", error.message)
        suspects, doubted = filter_suspects(located.suspects, compare=joined.compare)
        pairs = judge_kept_pairs(located, None, joined)
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

    def _measure_rdma_pairs(
        self, found: BetweenHostsResult, ports: Mapping[str, str], joined: HostNetwork, *, resume: bool
    ) -> BetweenHostsResult:
        """Measure the pairs of the hosts that have RDMA ports by writes over all near ports at once."""
        journal = self.folder / RDMA_PAIRS_FILE
        if not resume:
            journal.unlink(missing_ok=True)
        hosts = dataclasses.replace(self.hosts.part(tuple(ports)), ranks_per_host=1)
        wanted = self._plan_rounds(joined)
        self.by_rdma = RdmaPairs(ports=dict(ports), was_tried=False)
        located = None
        try:
            place = self._make_place(hosts, {name: (own,) for name, own in ports.items()})
            way = rdma_probes(hosts, self.arguments.mpirun)
            self.by_rdma = replace(self.by_rdma, was_tried=True)
            tell = functools.partial(self._tell, "pairs by RDMA")
            located = search(place, wanted, seed=0, cover="hosts", way=way, tell=tell, journal=str(journal))
            self.by_rdma = replace(self.by_rdma, located=located)
        except RailwrightError as error:
            self.by_rdma = replace(self.by_rdma, trouble=error.message)
            found = _mark_unmeasured(found, "pairs by RDMA", error.message)
        said = found.said
        if located is not None:
            suspects, doubted = filter_suspects(located.suspects, compare=joined.compare)
            known = {one.id for one in said.suspects}
            said = replace(
                said,
                rounds=said.rounds + located.rounds + located.cover_rounds,
                seconds=said.seconds + located.seconds,
                sent_bytes=said.sent_bytes + located.sent_bytes,
                suspects=(*said.suspects, *(one for one in suspects if one.id not in known)),
                unjudged=(*said.unjudged, *located.unjudged, *doubted),
            )
        assert found.located is not None
        pairs = judge_kept_pairs(found.located, self.by_rdma, joined)
        return found._replace(said=said, pairs=pairs, by_rdma=located)

    def _plan_rounds(self, joined: HostNetwork) -> Rounds:
        """Plan the rounds of pairs. Suspects are confirmed only if the hosts share no CPUs."""
        if joined.compare:
            return Rounds(load=self.load, cover_at_once=ROUNDS_PER_LAUNCH)
        return Rounds(load=self.load, cover_at_once=ROUNDS_PER_LAUNCH, confirm=0, again=0)

    def _make_place(self, hosts: Hosts, rdma: Mapping[str, tuple[str, ...]] | None = None) -> Place:
        """Return the place of one port of each host, or of its RDMA ports as one."""
        if isinstance(hosts.reach, LabReach):
            return make_lab_place(hosts.reach.lab, hosts.names)
        if self.cluster is None:
            return make_hosts_place(hosts, rdma=rdma or ())
        tree = read_cluster_tree(hosts.names, self.cluster)
        above = self.cluster.fabric.tiers[0].oversubscription if tree is not None else 1.0
        return make_hosts_place(hosts, tree=tree, oversubscription=max(1.0, above), rdma=rdma or ())

    def _tell(self, part: str, text: str) -> None:
        """Print messages of a part, and every eighth round of the pairs."""
        if not text.startswith("round "):
            note(f"{part}: {text}")
        elif found := _STREAMS.fullmatch(text):
            number, of_pairs = int(found[1]), part.startswith("pairs")
            if of_pairs and number <= self.count_rounds()[0]:
                self.left.advance(self.pair_round_s())
            if number % _REPORT_EVERY == 1:
                note(f"{part}: round {number}" + f" of {self.count_rounds()[0]}" * of_pairs + f", {self.left}")

    def _count_launch(self, launch: PlannedLaunch) -> None:
        self.left.advance(launch.plan.seconds)
        note(f"done: {launch.benchmark.name}, {self.left}")

    def _run_benchmarks(
        self, found: BetweenHostsResult, names: Sequence[str], joined: HostNetwork, machine: Topology, *, resume: bool
    ) -> BetweenHostsResult:
        """Run collectives over all hosts, and NIXL's transfers and RDMA between pairs of them."""
        if self.load < 1 and not all(one.in_pairs for one, _ in self.chosen):
            why = f"they load all hosts, but --max-load is {self.load:g}"
            found = _mark_unmeasured(found, "collectives", why)
            self.chosen = [one for one in self.chosen if one[0].in_pairs]
        if len(names) < MIN_HOSTS:
            able = {"collectives", "kv", *(["rdma"] if self.list_ports(machine) else [])}
            parts = [part for part in ("collectives", "kv", "rdma") if part in self.parts & able]
            why = f"{format_count(len(names), 'host')} left to measure"
            return functools.reduce(lambda one, part: _mark_unmeasured(one, part, why), parts, found)
        if not self.list_chosen(machine):
            return found
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
        """Return the records of an earlier run of the same benchmarks over the same hosts, if it was complete."""
        try:
            file = load(self.folder)
        except RailwrightError:
            return None
        planned = {one.benchmark.name for one in proof.plan}
        hosts = proof.hosts.names if proof.hosts is not None else ()
        seen = {host for one in file.results for host in str(one.settings.get("hosts", "")).split(",") if host}
        same = planned == {one.benchmark for one in file.results} and seen == set(hosts)
        return file if same and file.end is not None and not file.end.interrupted else None

    def _build_proof(self, hosts: Hosts, fabric: Fabric | None, machine: Topology) -> Proof:
        return Proof(
            topology=self.find_topology(machine),
            chosen=self.list_chosen(machine),
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
