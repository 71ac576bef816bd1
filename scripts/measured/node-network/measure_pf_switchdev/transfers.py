"""Measures the same transfers over each way, in rounds whose order alternates."""

from __future__ import annotations

import datetime as dt
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from railwright import __version__
from railwright.benchmarks.registry import find
from railwright.lab.netns_reach import NetnsReach
from railwright.launch.hosts import Hosts
from railwright.launch.session import PlannedLaunch
from railwright.results.records import End, Result, Run
from railwright.results.store import RESULTS_NAME, Writer
from railwright.run.context import gather_context
from railwright.run.measure import Measurement
from railwright.run.plan import plan_launches
from railwright.topology.devices import Topology

NODES = ("node-1", "node-2")
MAX_SAMPLES = 250
Transfers = tuple[tuple[str, dict[str, str]], ...]
COLLECTIVES = ("mpi_all_reduce", "mpi_all_gather", "mpi_reduce_scatter", "mpi_all_to_all")
TRANSFERS: Transfers = (
    ("mpi_latency", {"sizes": "8,16K,64K"}),
    ("mpi_bandwidth", {"sizes": "1K,8K,64K"}),
    ("mpi_bidirectional", {"sizes": "1K,8K,64K"}),
    *((name, {"sizes": "16K,64K,2M"}) for name in COLLECTIVES),
    ("kv_transfer", {"sizes": "4K,64K"}),
)
# Above the sizes that are repeated 10 times as often: with others beside it a message takes milliseconds.
BRIEF: Transfers = (
    ("mpi_latency", {"sizes": "9K"}),
    ("mpi_bandwidth", {"sizes": "1K,16K"}),
    *((name, {"sizes": "16K,1536K"}) for name in COLLECTIVES),
    ("kv_transfer", {"sizes": "4K,64K"}),
)
ON_GPUS: Transfers = (
    ("nccl_all_reduce", {"sizes": "64K,1M", "placements": "out of place"}),
    ("nccl_send_recv", {"sizes": "64K,1M"}),
    ("kv_cache", {"tokens": "64", "access": "whole"}),
)
PATIENCE_S = 300.0
"""The time limit of a step: a packet that passes five namespaces in software waits for a core in each."""
MIN_ROUNDS = 3


@dataclass
class Way:
    """Two namespaces that act as node-1 and node-2, and the results over the way between them."""

    name: str
    namespaces: tuple[str, str]
    face: str
    planned: list[PlannedLaunch] = field(default_factory=list)
    measurement: Measurement | None = None
    switched_bytes: int = 0
    """The bytes that Open vSwitch's uplinks counted during the launches."""

    def prepare(self, topology: Topology, rounds: int, transfers: Transfers) -> None:
        """Plan all launches."""
        reach = NetnsReach(NODES, (self.face,), dict(zip(NODES, self.namespaces, strict=True)))
        hosts = Hosts(NODES, 1, reach, (self.face,))
        reach.check()
        self.measurement = Measurement(hosts, silence_s=PATIENCE_S)
        found = [(find(name), options) for name, options in transfers]
        chosen = [(benchmark, benchmark.parse(options)) for benchmark, options in found]
        self.planned = [one for number in range(rounds) for one in plan_launches(topology, chosen, number, hosts)]


def turns(ways: Sequence[Way], number: int) -> list[Way]:
    """Return the ways in the order of a round: alternately forward and reversed; the first changes every two rounds."""
    shift = number // 2 % len(ways)
    order = [*ways[shift:], *ways[:shift]]
    return order if number % 2 == 0 else order[::-1]


def thin_samples(result: Result) -> Result:
    """Return a result with only every k-th sample if it has many; its summary covers all of them."""
    every = -(-len(result.samples) // MAX_SAMPLES)
    if every <= 1:
        return result
    settings = {**result.settings, "samples_kept": f"1 of {every}"}
    return msgspec.structs.replace(result, samples=result.samples[::every], settings=settings)


def measure(
    ways: Sequence[Way],
    rounds: int,
    most_s: float,
    transfers: Transfers,
    output: Path,
    switched: Callable[[], int],
    topology: Topology,
) -> int:
    """Measure and write WAY.jsonl for each way to `output`. Returns the number of complete rounds.

    No round starts after `most_s` unless there were too few to compare. `switched` returns the bytes that Open vSwitch
    has passed so far.
    """
    begun, done = time.monotonic(), 0
    for way in ways:
        way.prepare(topology, rounds, transfers)
    run = Run(railwright=__version__, started_at=_now(), command=command(sys.argv[1:]),
              context=gather_context(topology), topology=topology)  # fmt: skip
    with tempfile.TemporaryDirectory(dir=output) as folder:
        writers = {way.name: Writer(Path(folder, way.name), run) for way in ways}
        while done < rounds and (done < MIN_ROUNDS or time.monotonic() - begun < most_s):
            for turn in range(len(transfers)):
                for way in turns(ways, done + turn):
                    before = switched()
                    _launch(way, done * len(transfers) + turn, done + 1, writers[way.name])
                    way.switched_bytes += switched() - before
            done += 1
        for way in ways:
            writers[way.name].append(End(finished_at=_now()))
            writers[way.name].close()
            Path(folder, way.name, RESULTS_NAME).replace(output / f"{way.name}.jsonl")
    return done


def _launch(way: Way, index: int, number: int, writer: Writer) -> None:
    one = way.planned[index]
    assert way.measurement is not None
    last = None
    for result in way.measurement.results(one):
        if result.outcome != "measured":
            print(f"{way.name} {result.benchmark}: {result.outcome}: {result.reason}", file=sys.stderr)
        last = result
        writer.append(thin_samples(result))
    seen = last.summary.median if last is not None and last.summary is not None else float("nan")
    what = f"round {number} {one.benchmark.name} {way.name}"
    print(f"{what}: {seen:.3g}, load {os.getloadavg()[0]:.1f}", flush=True)


def command(words: Sequence[str]) -> tuple[str, ...]:
    """Return the command that repeats the measurement, without the local output folder."""
    kept = [word for word, before in zip(words, ["", *words], strict=False) if "--output" not in (word, before)]
    return ("scripts/measured/node-network/measure-pf-switchdev", *kept)


def _now() -> str:
    return dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
