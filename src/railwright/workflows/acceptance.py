"""`--accept SPEC`: the results as a sheet that a vendor and a customer sign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import relpath
from pathlib import Path

import msgspec

from railwright.benchmarks.registry import EVERY
from railwright.diagnosis.acceptance.agreement import AgreementFile, Spec, parse_agreement
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
from railwright.options.output import print_answer, write
from railwright.report.pages.acceptance import render_acceptance
from railwright.report.text.acceptance import closing_words, text_lines
from railwright.results.cited import cite, digest_file
from railwright.results.records import ResultFile
from railwright.topology.sources.root import read_bounded

_MAX_BYTES = 2**20
_HINT = "see docs/acceptance.md and examples/acceptance.toml"


def load_spec(file: str | None, require: tuple[str, ...] = ()) -> Spec | None:
    """Load a specification. None without a file. Raises UsageError for an invalid file, and with --require."""
    if file is None:
        return None
    if require:
        raise UsageError("--accept and --require exclude each other", hint="leave out --require")
    try:
        sheet = msgspec.toml.decode(read_bounded(Path(file), _MAX_BYTES), type=AgreementFile)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file[:200]!r} is not a specification: {str(error)[:200]!r}", hint=_HINT) from error
    try:
        return parse_agreement(sheet, [benchmark.name for benchmark in EVERY])
    except UsageError as error:
        raise UsageError(f"{file[:200]!r}: {error.message}", hint=error.hint or _HINT) from error


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
