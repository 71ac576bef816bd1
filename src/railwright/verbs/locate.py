"""The search for slow hosts, links and routes."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from railwright.diagnosis.localise import trial
from railwright.diagnosis.localise.cabling import check_cabling
from railwright.diagnosis.localise.cover import CoverKind
from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.fat_tree import fabric_of_cluster, parse_fat_tree
from railwright.diagnosis.localise.prescribed import cover_of, fabric_of_subnet
from railwright.diagnosis.localise.procedure import ROUND_S, Rounds
from railwright.diagnosis.localise.records import Fault, Suspect
from railwright.diagnosis.localise.simulate import Weather
from railwright.diagnosis.localise.trial import Tested
from railwright.diagnosis.localise.truth import Truth, draw, parse_draw, truth_of
from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, UsageError
from railwright.lab import state
from railwright.launch.hosts import Hosts
from railwright.locate import slurm_topology
from railwright.locate.lldp_tree import tree_of_lldp
from railwright.locate.place import Place, place_of_hosts, place_of_lab, place_of_subnet
from railwright.locate.search import Located, search
from railwright.locate.switch_tree import SwitchTree
from railwright.locate.ways import Way, mpi_way, nccl_way, tcp_way
from railwright.report.pages.locate import render_located_html
from railwright.report.text.locate import cabling_lines, located_lines, simulated_lines
from railwright.run.exclusive import measuring_alone
from railwright.topology.cabling import Cabling, parse_cables
from railwright.topology.sources import lldp
from railwright.topology.sources.ibnetdiscover import MOST_BYTES, cabling_of
from railwright.topology.sources.root import read_bounded
from railwright.topology.sources.subnet import subnet_of
from railwright.units import format_duration
from railwright.verbs import given_file
from railwright.verbs.cluster import the_cluster
from railwright.verbs.hosts import the_hosts
from railwright.verbs.write import refuse_no_page, write

_MOST_FAULTS = 100_000
_FAULTS = "rate=0.005 seed=0"


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The options of the command line."""

    lab: str | None
    hosts: str | None
    ssh_config: str | None
    interfaces: str | None
    switches: str | None
    oversubscription: float
    routing: str
    probe: str
    mpirun: str | None
    gpus: int | None
    resume: str | None
    output: str | None
    cabling: str | None
    cluster: str | None
    forwarding: str | None
    adapter: str | None
    fabric: str | None
    faults: str | None
    rounds: int
    confirm: int
    cover: CoverKind | None
    latency: bool
    load_test: bool
    most_rounds: int
    with_baselines: bool
    seed: int | None
    force: bool
    as_json: bool
    noise: float | None
    interference: float | None
    wrong_map: float | None
    lost: float | None

    @property
    def weather(self) -> dict[str, float]:
        """What is given of it."""
        given = {name: getattr(self, name) for name in ("noise", "interference", "wrong_map", "lost")}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def wanted(self) -> Rounds:
        """The rounds of the search."""
        return Rounds(screen=self.rounds, confirm=self.confirm, load_test=self.load_test)

    @property
    def checks_cables(self) -> bool:
        """Whether no packet is to be sent."""
        return self.cluster is not None or (self.cabling is not None and not (self.hosts and self.forwarding))

    @property
    def gpus_of_host(self) -> int:
        """How many of each host send; 0: not GPUs send."""
        return (self.gpus or 1) if self.probe == "nccl" else 0

    def the_hosts(self) -> Hosts:
        """Those of --hosts, which is given."""
        chosen = the_hosts(self.hosts, self.gpus_of_host or None, None, self.ssh_config, self.interfaces)
        assert chosen is not None
        return chosen


def locate(**options: Any) -> int:  # noqa: ANN401 - those of `cli/locate.py`, which `_Asked` lists
    """Search hosts, a lab or a simulated fabric, and print what was found; the exit status. Raises UsageError."""
    asked = _Asked(**options)
    if asked.checks_cables:
        return _check_cables(asked)
    refuse_no_page(asked.output)
    _refuse_mixed(asked)
    if asked.fabric is not None:
        return _simulate(asked, asked.fabric)
    place = _place(asked)
    _refuse_long_cover(place.fabric, asked.cover, asked.most_rounds)
    way = _way(asked, place)
    with measuring_alone(asked.force):
        found = search(
            place,
            asked.wanted,
            seed=asked.seed or 0,
            cover=asked.cover,
            way=way,
            latency=asked.latency,
            tell=_tell,
            journal=asked.resume,
        )
    return _show(found, asked.output, asked.as_json)


def _tell(text: str) -> None:
    click.echo(text, err=True)


def _show(found: Located, output: str | None, as_json: bool) -> int:
    """Print what was found, and write its page where one is wanted; the exit status."""
    if output is not None:
        write(output, render_located_html(found))
    _print(found, located_lines(found), as_json)
    return _status(found.suspects, found.tested, found.not_measured + len(found.unjudged))


def _refuse_mixed(asked: _Asked) -> None:
    """Raises UsageError for two places or none, and for options of the other kind of search."""
    if sum(one is not None for one in (asked.lab, asked.hosts, asked.fabric)) != 1:
        hint = "give one of --hosts HOST,HOST, --lab NAME and --simulate FABRIC"
        raise UsageError("what to search is not clear", hint=hint)
    of_probes = {"--resume": asked.resume, "--output": asked.output, "--latency": asked.latency,
                 "--switches": asked.switches, "--oversubscription": asked.oversubscription != 1,
                 "--probe": asked.probe != "tcp", "--mpirun": asked.mpirun, "--gpus": asked.gpus}  # fmt: skip
    of_simulation = {f"--{name.replace('_', '-')}": True for name in asked.weather}
    of_simulation |= {"--faults": asked.faults is not None, "--baselines": asked.with_baselines}
    of_simulation |= {"--forwarding": asked.forwarding is not None and asked.cabling is None}
    for name, is_given in of_probes.items() if asked.fabric is not None else ():
        if is_given:
            raise UsageError(f"{name} is for real probes", hint="leave it out: a simulation is repeated by its seed")
    for name, is_given in of_simulation.items() if asked.fabric is None else ():
        if is_given:
            raise UsageError(f"{name} is for a simulation", hint="leave it out; faults of a lab: railwright lab fault")


def _check_cables(asked: _Asked) -> int:
    """Hold cables that were seen against those of a cluster file; no packet is sent."""
    seen, cluster = asked.cabling, asked.cluster
    if asked.lab or asked.hosts or asked.fabric:
        hint = "leave out --lab, --hosts and --simulate; a search over a subnet wants its --forwarding, too"
        raise UsageError("--cabling is a check of its own", hint=hint)
    if seen is None or cluster is None:
        missing = "--cabling" if seen is None else "--cluster"
        hint = "cables are compared with --cluster FILE --cabling FILE"
        raise UsageError(f"{missing} is missing", hint=hint)
    planned = parse_cables(the_cluster(None, None, cluster).fabric.cables)
    if not planned:
        raise UsageError(f"{cluster[:200]} names no cables", hint="see fabric.cables in docs/cluster-file.md")
    found = check_cabling(planned, _cabling(Path(seen)))
    _print(found, cabling_lines(found), asked.as_json)
    if found.findings:
        return EXIT_SLOW
    return EXIT_UNJUDGED if found.not_looked_at else EXIT_OK


def _cabling(seen: Path) -> Cabling:
    """What ibnetdiscover printed, or a folder of what lldpctl printed on each node. Raises UsageError."""
    if not seen.is_dir():
        return cabling_of(_text(str(seen)))
    files = sorted(islice(seen.glob("*.json"), lldp.MOST_FILES))
    if not files:
        raise UsageError(f"{str(seen)[:200]} holds no .json file", hint="on each node: lldpctl -f json > NAME.json")
    texts = {file.stem: read_bounded(file, lldp.MOST_BYTES).decode("utf-8", "replace") for file in files}
    return lldp.cabling_of_lldp(texts)


def _place(asked: _Asked) -> Place:
    subnet = subnet_of(_text(asked.cabling), _text(asked.forwarding)) if asked.cabling and asked.forwarding else None
    if asked.adapter is not None and subnet is None:
        raise UsageError("--adapter is a port in a subnet", hint="describe it: --cabling FILE --forwarding FILE")
    if asked.lab is None:
        chosen = asked.the_hosts()
        if asked.oversubscription != 1 and not asked.switches:
            raise UsageError("--oversubscription is of leaves", hint="name them: --switches topology.conf")
        if subnet is not None:
            if asked.switches:
                raise UsageError("--switches and --cabling both describe the network", hint="give one of them")
            return place_of_subnet(chosen, subnet, asked.routing, asked.adapter or "")
        tree = _switch_tree(asked.switches, chosen) if asked.switches else None
        return place_of_hosts(chosen, asked.routing, tree, asked.oversubscription, asked.gpus_of_host)
    of_hosts = {"--ssh-config": asked.ssh_config, "--interfaces": asked.interfaces, "--switches": asked.switches,
                "--oversubscription": asked.oversubscription != 1, "--routing": asked.routing != "unknown"}  # fmt: skip
    given = next((name for name, is_given in of_hosts.items() if is_given), "")
    if given:
        raise UsageError(f"{given} is for --hosts", hint="leave it out: a lab's hosts are entered without ssh")
    state.require_root()
    return place_of_lab(state.open_lab(asked.lab))


def _way(asked: _Asked, place: Place) -> Way:
    """How flows are sent. Raises UsageError for what the place or the other options rule out."""
    if asked.gpus is not None and asked.probe != "nccl":
        raise UsageError("--gpus are those of NCCL's probes", hint="ask for --probe nccl")
    if asked.probe == "tcp":
        if asked.mpirun is not None:
            raise UsageError("--mpirun starts the ranks of MPI's probes", hint="ask for --probe mpi or --probe nccl")
        return tcp_way(place)
    if asked.lab is not None:
        raise UsageError(f"--probe {asked.probe} takes its own ways, and a lab's are pinned", hint="leave --probe out")
    if asked.probe == "nccl" and asked.cabling is not None:
        raise UsageError("GPUs are not searched over a subnet's tables", hint="leave out --cabling and --forwarding")
    if asked.latency:
        raise UsageError("--latency is of the kernels' own answers", hint="leave --probe out for it")
    if asked.probe == "nccl":
        return nccl_way(asked.the_hosts(), asked.mpirun, asked.gpus_of_host)
    return mpi_way(asked.the_hosts(), asked.mpirun)


def _switch_tree(path: str, hosts: Hosts) -> SwitchTree:
    """Slurm's topology.conf, or a folder of what lldpctl printed on each host. Raises UsageError."""
    if Path(path).is_dir():
        return tree_of_lldp(_cabling(Path(path)), hosts.names, "".join(hosts.used_interfaces[:1]))
    text = read_bounded(Path(path), slurm_topology.MOST_BYTES).decode("utf-8", "replace")
    try:
        return slurm_topology.switch_tree_of(text)
    except UsageError as error:
        raise UsageError(f"{path[:200]}: {error.message}", hint=error.hint) from error


def _simulate(asked: _Asked, fabric: str) -> int:
    with _without_garbage_collection():
        there = _fabric(fabric, asked.forwarding)
        _refuse_long_cover(there, asked.cover, asked.most_rounds)
        truth, drawn = _truth(there, asked.faults or _FAULTS)
        found = trial.run(
            there,
            fabric,
            truth,
            Weather(**asked.weather),
            seed=drawn if asked.seed is None else asked.seed,
            rounds=asked.wanted,
            cover=asked.cover,
            with_baselines=asked.with_baselines,
        )
    _print(found, simulated_lines(found), asked.as_json)
    return _status(found.suspects, found.tested, 0)


def _print(record: msgspec.Struct, lines: Iterable[str], as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(record).decode())
        return
    for line in lines:
        click.echo(line)


def _status(suspects: tuple[Suspect, ...], tested: Tested, not_measured: int) -> int:
    if suspects:
        return EXIT_SLOW
    return EXIT_UNJUDGED if tested.links_filled < tested.links or not_measured else EXIT_OK


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Millions of tuples that are in no circle: looking through them again and again would double the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _fabric(text: str, forwarding: str | None) -> Fabric:
    words = text.split()
    is_subnet = len(words) == 1 and Path(text).suffix not in (".toml", ".json") and Path(text).is_file()
    if forwarding is not None and not is_subnet:
        raise UsageError(
            "--forwarding is of an InfiniBand subnet", hint="give the file of ibnetdiscover: --simulate FILE"
        )
    if is_subnet:
        return fabric_of_subnet(subnet_of(_text(text), _text(forwarding) if forwarding is not None else ""))
    if words[:1] == ["fat-tree"]:
        return parse_fat_tree(words[1:])
    if len(words) == 1 and Path(text).suffix in (".toml", ".json"):
        return fabric_of_cluster(the_cluster(None, None, text))
    hint = "give a cluster file, what ibnetdiscover printed, or 'fat-tree hosts=1280 gpus=8'"
    raise UsageError(f"{text[:60]!r} is no fabric", hint=hint)


def _text(path: str) -> str:
    return read_bounded(Path(path), MOST_BYTES).decode("utf-8", "replace")


def _refuse_long_cover(fabric: Fabric, cover: CoverKind | None, most: int) -> None:
    """Say what a cover costs before it is run. Raises UsageError for one that is too long."""
    if cover is None:
        return
    cost = cover_of(fabric, cover).cost
    lasts = format_duration(cost.rounds * ROUND_S)
    says = f"{cost.leaf_pairs} leaf pairs x {cost.paths} paths: about {cost.rounds} rounds, {lasts} at most"
    if cost.rounds > most:
        raise UsageError(f"this route cover is too long: {says}", hint="see --most-rounds, or cover leaf routes only")
    click.echo(f"route cover of every {cover} route, {says}", err=True)


def _truth(fabric: Fabric, text: str) -> tuple[Truth, int]:
    """The faults, and the seed of their words."""
    words = text.split()
    if words and all("=" in word for word in words):
        given = parse_draw(words)
        return draw(fabric, given), int(given["seed"])
    raw = given_file.short_text(text)
    try:
        listed = msgspec.json.decode(raw, type=list[Fault])
    except msgspec.DecodeError as error:
        hint = "give a JSON list of {kind, id, direction, capacity}"
        raise UsageError(f"{given_file.name_of(text)} is no list of faults: {error}", hint=hint) from error
    if len(listed) > _MOST_FAULTS:
        raise UsageError(f"{len(listed)} faults", hint=f"give at most {_MOST_FAULTS}")
    return truth_of(fabric, listed), 0
