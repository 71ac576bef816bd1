"""A search in a lab: rounds of real probes, and what they show."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

import msgspec

from railwright.diagnosis.localise.cover import CoverKind, RouteCover
from railwright.diagnosis.localise.explain import Suspicion
from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.flows import Round
from railwright.diagnosis.localise.procedure import Rounds, carry_out, locate
from railwright.diagnosis.localise.records import Suspect
from railwright.diagnosis.localise.trial import Tested, tested
from railwright.errors import CannotJudge
from railwright.lab.nodes import LabPlan
from railwright.lab.state import Lab
from railwright.locate.lab_fabric import fabric_of_lab
from railwright.locate.lab_probes import LabProbes
from railwright.locate.signs import all_suspects

_LEAST_GAP = 0.1
"""TCP flows that share a few cores come no nearer to their rate."""
_WATCH_S = 0.5
_ROUTING = "BGP with ECMP by addresses and ports"


class PairSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One flow of one round."""

    round: int
    source: str
    destination: str
    over: tuple[str, ...]
    """The switches of the path that it was meant to take, and took."""
    source_port: int | None
    """None where no port that was tried takes this path."""
    ratio: float | None
    """The measured rate over what it should reach; None where it did not run."""
    sent: int
    lost: int
    trouble: str = ""


class Located(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="locate"):
    """The record of `railwright locate --lab`."""

    fabric: str
    routing: str
    hosts: tuple[str, ...]
    seed: int
    rounds: int
    cover_rounds: int
    seconds: float
    sent_bytes: float
    tested: Tested
    not_measured: int
    """Flows that did not run: no port took the wanted path, or an end did not answer."""
    suspects: tuple[Suspect, ...]
    pairs: tuple[PairSeen, ...]


def search(lab: Lab, rounds: Rounds, *, seed: int, cover: CoverKind | None, tell: Callable[[str], None]) -> Located:
    """Search a lab. Raises UsageError for a lab without rates, CannotJudge where no probe ran at all."""
    fabric = fabric_of_lab(lab.plan)
    random = Random(seed)
    probes = LabProbes(lab, fabric, tell)
    begun = time.monotonic()
    covering: Iterable[Round] = RouteCover(fabric, cover).rounds(random) if cover else ()
    outcome = carry_out(locate(fabric, random, replace(rounds, least_gap=_LEAST_GAP), covering), probes.measure)
    seen = [one for each in probes.seen for one in each]
    if all(math.isnan(one.ratio) for one in seen):
        why = next((one.trouble for one in seen if one.trouble), "no flow was planned")
        raise CannotJudge(f"no probe ran in lab {lab.name}: {why}", hint="railwright lab status")
    busy = _busy(lab, fabric, outcome.explanation.suspicions)
    signs = [[one.sign() for one in each] for each in probes.seen]
    return Located(
        fabric=f"lab {lab.name}: {lab.plan.summary()}",
        routing=_ROUTING,
        hosts=fabric.hosts,
        seed=seed,
        rounds=len(outcome.rounds),
        cover_rounds=outcome.cover_rounds,
        seconds=round(time.monotonic() - begun, 2),
        sent_bytes=probes.bytes_sent,
        tested=tested(outcome),
        not_measured=sum(math.isnan(one.ratio) for one in seen),
        suspects=tuple(all_suspects(outcome, signs, probes.paths, busy)),
        pairs=tuple(_pairs(fabric, probes)),
    )


def _pairs(fabric: Fabric, probes: LabProbes) -> Iterable[PairSeen]:
    for number, one in enumerate(probes.seen, 1):
        for seen in one:
            path = seen.flow.path
            ups = [fabric.node_name(fabric.upper[n // 2]) for n in path if n % 2 == 0]
            downs = [fabric.node_name(fabric.lower[n // 2]) for n in path[:-1] if n % 2]
            yield PairSeen(
                round=number,
                source=fabric.node_name(seen.flow.source),
                destination=fabric.node_name(seen.flow.destination),
                over=(*ups, *downs),
                source_port=seen.port,
                ratio=None if math.isnan(seen.ratio) else round(seen.ratio, 4),
                sent=seen.sent,
                lost=seen.sent - seen.received,
                trouble=seen.trouble,
            )


def _busy(lab: Lab, fabric: Fabric, suspicions: Iterable[Suspicion]) -> dict[int, float]:
    """The part of its rate that each suspected link carries while no probe runs, by the counters of its sender."""
    ports = {}
    for one in suspicions:
        cable, down = divmod(one.number, 2)
        end = fabric.upper[cable] if down else fabric.lower[cable]
        name = fabric.node_name(end) if end >= fabric.nics else fabric.hosts[fabric.nic_host[end]]
        ports[one.number] = name, fabric.ports[cable][down]
    before = {number: _sent(lab, *port) for number, port in ports.items()}
    begun = time.monotonic()
    time.sleep(_WATCH_S)
    after = {number: _sent(lab, *port) for number, port in ports.items()}
    took_s = time.monotonic() - begun
    rates = _rates(lab.plan)
    found = {}
    for number, port in ports.items():
        first, last = before[number], after[number]
        if first is not None and last is not None:
            found[number] = (last - first) * 8 / took_s / rates[port]
    return found


def _rates(plan: LabPlan) -> dict[tuple[str, str], float]:
    """The rate of each port, in bit/s."""
    rates: dict[tuple[str, str], float] = {}
    for cable in plan.cables:
        for end in ((cable.a, cable.a_port), (cable.b, cable.b_port)):
            rates[end] = cable.rate_bits_per_s or 1e12
    return rates


def _sent(lab: Lab, node: str, port: str) -> int | None:
    ended = lab.run(node, ["cat", f"/sys/class/net/{port}/statistics/tx_bytes"])
    text = "".join(ended.output).strip()
    return int(text) if ended.returncode == 0 and text.isdecimal() else None
