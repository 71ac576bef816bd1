"""`--accept SPEC`: the results as a sheet that a vendor and a customer sign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from os.path import relpath
from pathlib import Path

import msgspec

from railwright.benchmarks.registry import EVERY
from railwright.diagnosis.acceptance.agreement import PAIRS, AgreementFile, Item, Spec, parse_agreement
from railwright.diagnosis.acceptance.lines import (
    Candidate,
    RecordFile,
    Sheet,
    build_sheet,
    list_candidates,
    list_pair_candidates,
)
from railwright.diagnosis.verdicts.judged import Diagnosis
from railwright.diagnosis.verdicts.pair import PairJudged
from railwright.errors import UsageError
from railwright.launch.session import PlannedLaunch
from railwright.options.output import print_answer, write
from railwright.reading import InvalidContent, decode_toml, read_bounded
from railwright.report.pages.acceptance import render_acceptance
from railwright.report.text.acceptance import closing_words, text_lines
from railwright.results.cited import cite, digest_file
from railwright.results.records import ResultFile
from railwright.units import format_count, format_size

_MAX_BYTES = 2**20
_NAMED = 4
"""The number of launches that a planned line names."""
_HINT = "see docs/acceptance.md and examples/acceptance.toml"


def load_spec(file: str | None, require: tuple[str, ...] = ()) -> Spec | None:
    """Load a specification. None without a file. Raises UsageError for an invalid file, and with --require."""
    if file is None:
        return None
    if require:
        raise UsageError("--accept and --require exclude each other", hint="leave out --require")
    try:
        sheet = decode_toml(read_bounded(Path(file), _MAX_BYTES), AgreementFile)
    except InvalidContent as error:
        raise UsageError(f"{file[:200]!r} is not a specification: {str(error)[:200]!r}", hint=_HINT) from error
    try:
        return parse_agreement(sheet, [benchmark.name for benchmark in EVERY])
    except UsageError as error:
        raise UsageError(f"{file[:200]!r}: {error.message}", hint=error.hint or _HINT) from error


def plan_sheet(spec: Spec, launches: Sequence[PlannedLaunch], *, hosts: int = 1, has_pairs: bool = False) -> list[str]:
    """Describe, for each line of a specification, the planned launches that will decide it."""
    lines = [f"sheet: {spec.title}, {format_count(len(spec.items), 'line')}"]
    if spec.hosts is not None:
        lines.append(f"  {format_count(spec.hosts, 'host')}: {hosts} planned" + ", too few" * (hosts < spec.hosts))
    for item in spec.items:
        pairs = ["the rounds of pairs"] if has_pairs and item.required.names(PAIRS, item.required.path) else []
        lines.append(f"  {item}: {_planned_words(item, launches, pairs)}")
    return lines


def _planned_words(item: Item, launches: Sequence[PlannedLaunch], pairs: list[str]) -> str:
    """Name the launches that a line matches; a parameter that only a record has does not exclude a launch."""
    named = [one for one in launches if fnmatchcase(one.benchmark.name, item.required.benchmark)]
    fitting = [one for one in named if _may_fit(item, one)]
    run = Counter(one.title for one in fitting if not one.plan.waived)
    deciding = [f"{title} ({format_count(count, 'launch', 'launches')})" for title, count in run.items()] + pairs
    if deciding:
        more = f" and {len(deciding) - _NAMED} more" if len(deciding) > _NAMED else ""
        return f"decided by {', '.join(deciding[:_NAMED])}{more}"
    if fitting:
        return f"not decided: {fitting[0].title} is not run: {fitting[0].plan.waived}"
    if not named:
        return f"not decided: the plan has no {item.required.benchmark}"
    wanted = [f"{name} {value}" for name, value in item.where]
    if item.size_bytes is not None:
        sizes = sorted({size for one in named for size in _list_sizes(one)})
        wanted.append(f"{format_size(item.size_bytes)} (sizes: {', '.join(map(format_size, sizes))})")
    return f"not decided: no planned launch of {item.required.benchmark} has {', '.join(wanted)}"


def _may_fit(item: Item, launch: PlannedLaunch) -> bool:
    has, sizes = launch.job.case.parameters(), _list_sizes(launch)
    return all(has.get(name, value) == value for name, value in item.where) and (
        item.size_bytes is None or not sizes or item.size_bytes in sizes
    )


def _list_sizes(launch: PlannedLaunch) -> set[int]:
    """Return the sizes that a launch measures; empty if its options name none."""
    options = msgspec.structs.asdict(launch.job.options)
    return {size for name, sizes in options.items() if name.endswith("sizes") for size in sizes}


class Evidence:
    """The evidence for a sheet, collected file by file."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self.seen: list[Candidate] = []
        self.files: list[RecordFile] = []
        self.is_cut_off = False

    @property
    def page(self) -> Path:
        """The path of the sheet's page."""
        return self.folder / "acceptance.html"

    def add(self, path: Path, file: ResultFile, diagnosis: Diagnosis, host: str = "") -> None:
        """Add a judged results file. Raises UsageError if it cannot be read again."""
        cited, name, run = cite(path), relpath(path, self.folder), file.run
        places = {point: (f"{name}:{','.join(map(str, numbers))}",) for point, numbers in cited.of_point.items()}
        self.seen += list_candidates(diagnosis, host, places)
        self.is_cut_off |= file.end is None or bool(file.end.interrupted)
        self.files.append(
            RecordFile(
                name=name,
                sha256=cited.sha256,
                lines=cited.lines,
                host=run.context.host,
                started_at=run.started_at,
                railwright=run.railwright,
            )
        )

    def add_pairs(self, path: Path, pairs: Sequence[PairJudged]) -> None:
        """Add pairs of hosts from the file of a search. Raises UsageError if it cannot be read."""
        digest, lines = digest_file(path)
        name = relpath(path, self.folder)
        self.seen += list_pair_candidates(pairs, name)
        self.files.append(RecordFile(name=name, sha256=digest, lines=lines))

    def sheet(self, hosts: Sequence[str] = (), lost: Mapping[str, str] | None = None) -> Sheet:
        """Compare the evidence with the specification and write the page. Raises UsageError if that fails."""
        found = build_sheet(
            self.spec, self.seen, hosts, dict(lost or {}), tuple(self.files), is_cut_off=self.is_cut_off
        )
        write(str(self.page), render_acceptance(found))
        return found


def print_sheet(sheet: Sheet, *, as_json: bool) -> None:
    """Print a sheet: one JSON record, or text that ends with the exit status."""
    print_answer([sheet], lambda: (*text_lines(sheet), "", closing_words(sheet)), as_json=as_json)
