"""The results between hosts as records in a file, so that a job's pods can send them to the machine that reports."""

from __future__ import annotations

from pathlib import Path

import msgspec

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.fleet.between_hosts import BetweenHosts, RailTried, doubt_shared
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.diagnosis.verdicts.pair import PairJudged
from railwright.errors import CannotJudge, RailwrightError
from railwright.locate.search import Located
from railwright.report.text.between_hosts import BetweenHostsResult
from railwright.results.records import End
from railwright.results.store import load
from railwright.workflows.judged import write_page

FILE = "between.jsonl"
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(BetweenHosts | PairJudged | RailTried | Located | End)


def write_between(folder: Path, found: BetweenHostsResult) -> None:
    """Write the results, except those of benchmarks, which have a file of their own."""
    searches = [found.located] if found.located is not None else []
    folder.mkdir(parents=True, exist_ok=True)
    records = (found.said, *found.pairs, *found.rails, *searches)
    (folder / FILE).write_bytes(b"".join(_encoder.encode(record) + b"\n" for record in records))


def read_between(folder: Path) -> BetweenHostsResult:
    """Read the results and judge those of benchmarks. Raises CannotJudge if the records are incomplete or invalid."""
    try:
        records = [_decoder.decode(line) for line in (folder / FILE).read_bytes().splitlines()]
    except msgspec.MsgspecError as error:
        raise CannotJudge(f"{folder / FILE} has an invalid record: {error}") from error
    said = next((one for one in records if isinstance(one, BetweenHosts)), None)
    if said is None:
        raise CannotJudge(f"{folder / FILE} has no record of the hosts", hint="see the job's output above")
    try:
        file = load(folder)
    except RailwrightError:  # no benchmark was measured
        collectives = None
    else:
        collectives = doubt_shared(diagnose(file, DECLARATIONS), compare=not said.shares_cpus)
        write_page(file, collectives, folder)
    return BetweenHostsResult(
        said,
        pairs=tuple(one for one in records if isinstance(one, PairJudged)),
        located=next((one for one in records if isinstance(one, Located)), None),
        rails=tuple(one for one in records if isinstance(one, RailTried)),
        collectives=collectives,
    )
