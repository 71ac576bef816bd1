"""An acceptance sheet: each line met, not met or not judged, by values or by verdicts, each with its records."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import msgspec
import pytest
from tests.schemas import fits

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.acceptance.agreement import AgreementFile, AgreementLine, parse_agreement
from railwright.diagnosis.acceptance.lines import (
    Candidate,
    build_sheet,
    list_candidates,
    list_pair_candidates,
    worst_state,
)
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.diagnosis.verdicts.judged import Verdict
from railwright.diagnosis.verdicts.pair import PairJudged
from railwright.errors import UsageError
from railwright.limits.limit import Limit
from railwright.report.pages.acceptance import render_acceptance
from railwright.results.cited import cite
from railwright.results.records import Context, End, Result, Run, Verification
from railwright.results.statistics import summarise
from railwright.results.store import Writer, load
from railwright.topology.expand import expand
from railwright.workflows.acceptance import load_spec
from railwright.workflows.judged import report

MIB = 2**20
GB = 1e9
RATE = "bandwidth_bytes_per_s"
ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/acceptance.toml"
KNOWN = ("memory_copy", "mpi_latency", "file_read", "mpi_all_reduce", "hpl")


def spec(*lines, **more):
    return parse_agreement(AgreementFile(title="t", line=tuple(AgreementLine(**line) for line in lines), **more), KNOWN)


def seen(value, state="ok", *, benchmark="memory_copy", host="", quantity=RATE, limit=None, **more):
    bound = Limit(quantity=quantity, value=limit, kind="derived", because="b") if limit else None
    return Candidate(
        host, benchmark, "memory0>memory0", (), quantity, value, bound, Verdict(state=state, why="w"), **more
    )


def states(asked, *found, hosts=(), lost=None, **more):
    return [one.state for one in build_sheet(asked, found, hosts, lost or {}, (), **more).lines]


@pytest.mark.parametrize(
    ("state", "expected"),
    [("ok", "met"), ("slow", "not met"), ("failed", "not met"), ("unknown", "not judged"), ("waived", "not judged"),
     ("suspicious", "not judged"), ("reference", "not judged")],
)  # fmt: skip
def test_without_a_value_the_verdict_counts(state, expected):
    assert states(spec({"path": "memory_copy"}), seen(6 * GB, state)) == [expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [({"least": "6 GB/s"}, "met"), ({"least": "6.1GB/s"}, "not met"), ({"least": "48 Gb/s"}, "met"),
     ({"least": "48.1 Gb/s"}, "not met"), ({"least": "5 GB/s", "most": "5.5 GB/s"}, "not met"),
     ({"least": "0.6 of the limit"}, "met"), ({"least": "0.61 of limit"}, "not met"), ({"most": "2 us"}, "not judged")],
)  # fmt: skip
def test_a_value_counts_whatever_the_verdict(line, expected):
    for state in ("ok", "slow", "unknown", "reference"):
        assert states(spec({"path": "memory_copy", **line}), seen(6 * GB, state, limit=10 * GB)) == [expected]
    for state, refused in (("failed", "not met"), ("suspicious", "not judged"), ("waived", "not judged")):
        assert states(spec({"path": "memory_copy", **line}), seen(6 * GB, state, limit=10 * GB)) == [refused]


def test_a_latency_is_good_when_it_is_short():
    point = seen(2e-6, benchmark="mpi_latency", quantity="latency_s", limit=1e-6)
    asked = {("most", "2 us"): "met", ("most", "1999 ns"): "not met", ("least", "0.5 of the limit"): "met",
             ("least", "0.51 of the limit"): "not met"}  # fmt: skip
    for (word, value), expected in asked.items():
        line = {word: value}
        assert states(spec({"path": "mpi_latency", **line}), point) == [expected]


def test_a_share_of_a_limit_that_nobody_knows_is_not_judged():
    assert states(spec({"path": "memory_copy", "least": "0.5 of the limit"}), seen(6 * GB)) == ["not judged"]


def test_a_share_of_the_expected_counts_from_the_band_s_low_end():
    line = {"path": "memory_copy", "least": "0.9 of the expected"}
    assert states(spec(line), seen(9 * GB, expected=10 * GB)) == ["met"]
    assert states(spec(line), seen(8.9 * GB, "slow", expected=10 * GB)) == ["not met"]
    assert states(spec(line), seen(9 * GB)) == ["not judged"]
    late = seen(2e-6, benchmark="mpi_latency", quantity="latency_s", expected=1.8e-6)
    assert states(spec({"path": "mpi_latency", "least": "0.9 of the expected"}), late) == ["met"]


def test_the_number_of_hosts_can_be_asked_for():
    line = {"path": "memory_copy", "where": {"hosts": 64}}
    assert states(spec(line), seen(1.0, hosts=64)) == ["met"]
    assert states(spec(line), seen(1.0, hosts=63)) == ["not judged"]


def test_what_was_not_measured_is_never_met():
    asked = spec({"path": "memory_copy"}, {"path": "file_read"})
    assert states(asked, seen(1.0)) == ["met", "not judged"]
    assert states(asked, seen(1.0, host="a"), hosts=("a", "b")) == ["met", "not judged", "not judged"]
    assert states(spec({"path": "memory_copy", "size": "1MiB"}), seen(1.0)) == ["not judged"]
    one = spec({"path": "memory_copy"}, hosts=2)
    assert states(one, seen(1.0, host="a"), hosts=("a",), lost={"b": "no route"}) == ["not judged", "not judged", "met"]
    assert states(one, seen(1.0, host="a"), seen(1.0, host="b"), hosts=("a", "b")) == ["met"] * 3
    assert states(spec({"path": "memory_copy"}), seen(1.0), is_cut_off=True) == ["not judged", "met"]
    assert states(spec({"path": "memory_copy"}, hosts=1), lost={"a": "no route"}) == ["not judged"] * 3
    assert worst_state(()) == "not judged"


def test_pairs_of_hosts_are_lines_too():
    pair = PairJudged(source="a", destination="b", tries=2, value=11e9, limit=12.5e9, because="port",
                      verdict=Verdict(state="ok", why="w"), standing="with the others")  # fmt: skip
    found = list_pair_candidates([pair], "between/pairs.jsonl")
    sheet = build_sheet(spec({"path": "pairs a>*", "least": "0.9 of the limit"}), found, (), {}, ())
    assert (sheet.lines[0].state, sheet.lines[0].why, sheet.exit_status) == ("not met", "0.880 of its limit", 1)
    assert sheet.lines[0].records == ("between/pairs.jsonl",)
    assert states(spec({"path": "pairs b>*"}), *found) == ["not judged"]


@pytest.mark.parametrize(
    ("line", "said"),
    [({"path": "no_such"}, "no_such"), ({"path": " # "}, "not be empty"),
     ({"path": "hpl", "least": "fast"}, "'fast'"),
     ({"path": "hpl", "least": "1.5 of the limit"}, "a share of"),
     ({"path": "hpl", "most": "0.5 of the limit"}, "a share of"),
     ({"path": "hpl", "size": "x"}, "not a size"), ({"path": "hpl", "note": "a\nb"}, "text must be printable"),
     ({"path": "hpl", "least": "5 gb/s"}, "bound must be a value")],
)  # fmt: skip
def test_a_line_that_says_nothing_possible_is_refused_by_its_number(line, said):
    with pytest.raises(UsageError, match=said) as refused:
        spec({"path": "hpl"}, line)
    assert "note" in line or "line 2" in refused.value.message


def test_a_value_is_for_the_curves_of_its_quantity():
    rate, time = seen(6 * GB, benchmark="mpi_all_reduce"), seen(1.0, benchmark="mpi_all_reduce", quantity="latency_s")
    line = {"path": "mpi_all_reduce"}
    assert states(spec({**line, "most": "1 s"}), rate, time) == ["met"]
    assert states(spec({**line, "least": "6 GB/s"}), rate, time) == ["met"]
    assert states(spec({**line, "least": "6 op/s"}), rate, time) == ["not judged"] * 2
    assert states(spec(line), rate, time) == ["met"] * 2


def test_what_was_varied_narrows_a_line():
    fast, slow = (seen(6 * GB, state)._replace(varied=(("threads", n),)) for state, n in (("ok", 2), ("slow", 1)))
    assert states(spec({"path": "memory_copy"}), fast, slow) == ["met", "not met"]
    assert states(spec({"path": "memory_copy", "where": {"threads": 2}}), fast, slow) == ["met"]
    assert states(spec({"path": "memory_copy", "where": {"threads": 3}}), fast, slow) == ["not judged"]


def test_the_example_is_met_by_a_default_run_and_its_verdict_comes_first(tmp_path, capsys):
    with tarfile.open(ROOT / "docs/measured/1xh100/records.tar.xz") as archive:
        records = archive.extractfile("one-h100-again/prove/results.jsonl").read()
    (tmp_path / "results.jsonl").write_bytes(records)
    file, asked = load(tmp_path / "results.jsonl"), load_spec(str(EXAMPLE))
    assert report(file, tmp_path, as_json=False, spec=asked) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first == f"Accepted: of {len(asked.items)} lines {len(asked.items)} met."
    assert second.startswith("1 of 23 paths could not be judged")


def test_a_value_reads_as_a_share_of_the_bound_and_a_missing_size_names_those_measured():
    (line,) = build_sheet(spec({"path": "memory_copy", "least": "8 GB/s"}), [seen(6 * GB)], (), {}, ()).lines
    assert line.why == "0.75 of the asked 8.00 GB/s"
    slow = seen(182.52e-6, benchmark="mpi_latency", quantity="latency_s")
    (line,) = build_sheet(spec({"path": "mpi_latency", "most": "1.04 us"}), [slow], (), {}, ()).lines
    assert line.why == "175.5 times the allowed 1.04 us"
    points = [seen(1.0)._replace(varied=(("size_bytes", size),), is_headline=False) for size in (4096, MIB)]
    (line,) = build_sheet(spec({"path": "memory_copy", "size": "2MiB"}), points, (), {}, ()).lines
    assert line.why == "nothing was measured at 2 MiB, but at 4 KiB, 1 MiB"


def test_without_a_file_there_is_no_specification():
    assert load_spec(None) is None


def test_other_units():
    line = {"path": "hpl", "least": "40 TFLOP/s"}
    assert states(spec(line), seen(4e13, benchmark="hpl", quantity="flop_per_s")) == ["met"]
    line = {"path": "file_read", "least": "50 kop/s"}
    assert states(spec(line), seen(49_999.0, benchmark="file_read", quantity="operations_per_s")) == ["not met"]


SPEC = """
title = "One <server>"
between = ["Vendor", "Customer"]
[[line]]
path = "memory_copy"
size = "4MiB"
least = "5 GB/s"
[[line]]
path = "memory_copy"
least = "20 GB/s"
"""


@pytest.fixture
def measured(tmp_path):
    """A folder with a complete run: two launches of two sizes."""
    run = Run(railwright="1", started_at="2026-01-02T03:04:05Z", command=(), context=Context(host="h", kernel="k"),
              topology=expand("laptop", {}))  # fmt: skip
    writer = Writer(tmp_path / "out", run)
    for launch in (0, 1):
        for size in (4 * MIB, 64 * MIB):
            value = 6 * GB + launch
            one = Result(
                benchmark="memory_copy",
                quantity=RATE,
                path="memory0>memory0",
                launch=launch,
                parameters={"size_bytes": size, "threads": 1},
                samples=(value,),
                summary=summarise([value]),
                verification=Verification(method="m", bytes_checked=1, bytes_wrong=0),
            )
            writer.append(one)
    writer.append(End(finished_at="2026-01-02T03:04:06Z"))
    writer.close()
    return tmp_path / "out"


def test_each_value_names_the_lines_of_its_records(measured, answer, tmp_path):
    asked = tmp_path / "spec.toml"
    asked.write_text(SPEC)
    done = answer("judge", str(measured), "--accept", str(asked), "--json")
    assert done.status == 1, done.err
    *_, ended, sheet = map(msgspec.json.decode, done.out.splitlines())
    fits(sheet, "acceptance")
    assert (ended["exit_status"], sheet["state"]) == (1, "not met")
    assert [(one["state"], one["records"]) for one in sheet["lines"]] == [
        ("met", ["results.jsonl:2,4"]), ("not met", ["results.jsonl:3,5"]),
    ]  # fmt: skip
    (file,) = sheet["files"]
    assert file["sha256"] == hashlib.sha256((measured / "results.jsonl").read_bytes()).hexdigest()
    assert (file["lines"], file["host"], file["railwright"]) == (6, "h", "1")
    page = (measured / "acceptance.html").read_text()
    assert "One &lt;server&gt;" in page
    assert page.count("Name, date, signature") == 2
    told = answer("judge", str(measured), "--accept", str(asked)).out
    assert "Not accepted: of 2 lines 1 met, 1 not met" in told
    assert told.rstrip().endswith("Exit status 1: a line of the sheet is not met.")


def test_a_specification_that_cannot_be_read_is_refused_before_anything_is_written(measured, answer, tmp_path):
    asked = tmp_path / "spec.toml"
    for text in ("title = 1", "[[line]]\npath = 'hpl'", "title = 't'\n[[line]]\npath = 'hpl'\nlest = '1 GB/s'", "\x00",
                 "title = ''\n[[line]]\npath = 'hpl'", "title = 't'\nline = []"):  # fmt: skip
        asked.write_text(text)
        done = answer("judge", str(measured), "--accept", str(asked))
        assert (done.status, done.out) == (2, ""), text
        assert str(asked) in done.err
    assert answer("judge", str(measured), "--accept", str(tmp_path / "none")).status == 2
    asked.write_text(SPEC)
    done = answer("judge", str(measured), "--accept", str(asked), "--require", "hpl")
    assert (done.status, "leave out --require" in done.err) == (2, True)
    assert not (measured / "acceptance.html").exists()


def test_a_page_of_hostile_names_is_only_text(measured):
    file = load(measured)
    places = dict.fromkeys(cite(measured / "results.jsonl").of_point, ("<i>:1",))
    found = list_candidates(diagnose(file, DECLARATIONS), "<script>alert(1)</script>\x1b[2J", places)
    page = render_acceptance(build_sheet(spec({"path": "memory_copy"}), found, (), {"</table><b>": "\x07"}, ()))
    assert "<script>alert" not in page
    assert not {"\x1b", "\x07"} & {*page}
