"""The reports of recorded runs: each curve and each point of the run is drawn, and the page stays small."""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.diagnosis.verdicts.judged import Judged
from railwright.report.pages.run import render_html
from railwright.report.view import View, build_view
from railwright.results import store
from railwright.results.records import ResultFile

from .drawn import points_of

MEASURED = Path(__file__).parents[2] / "docs" / "measured"
RUNS = {
    "two H100": ("1xh100", "prove-two-gpus/results.jsonl", 400_000),
    "eight H200": ("8xh200", "results.jsonl", 1_000_000),
}
"""The folder of the records, the end of the names of the files, and the most bytes of the page."""


def recorded_view(folder: str, name: str, scratch: Path) -> View:
    """Judge recorded runs of a machine as a single run."""
    files = []
    with tarfile.open(MEASURED / folder / "records.tar.xz") as archive:
        for member in archive:
            if member.name.endswith(name):
                file = archive.extractfile(member)
                assert file is not None
                (scratch / "results.jsonl").write_bytes(file.read())
                files.append(store.load(scratch / "results.jsonl"))
    results = tuple(result for file in files for result in file.results)
    whole = ResultFile(run=files[0].run, results=results, end=files[-1].end)
    return build_view(whole.run, diagnose(whole, DECLARATIONS), whole.end, whole.results)


@pytest.mark.parametrize("name", RUNS)
def test_every_curve_and_point_is_drawn_on_a_small_page(name: str, tmp_path: Path) -> None:
    *where, most_bytes = RUNS[name]
    view = recorded_view(*where, tmp_path)
    page = render_html(view)
    measured = [point for point in view.diagnosis.points if point.value]
    charts = "".join(re.findall(r'<svg class="chart".*?</svg></g></svg>', page, re.DOTALL))
    paths = re.findall(r'<path class="([^"]+)"([^>]*) d="([^"]+)"', charts)
    medians = [len(points_of(path)) for _, attributes, path in paths if "data-row=" in attributes]
    launches = [len(points_of(path)) for style, _, path in paths if style.startswith("launches")]
    assert sum(medians) == page.count('<tr class="') == len(measured) > 250
    assert sum(launches) == sum(launch.median > 0 for point in measured for launch in point.launches)
    curves = [len(points_of(path)) for style, attributes, path in paths
              if style.startswith("median") and "data-row=" in attributes]  # fmt: skip
    assert sorted(curves) == sorted(size for size in Counter(map(_curve, measured)).values() if size > 1)
    assert len(re.findall(r'id="path-\d+"', page)) == len(view.every)
    assert len(page.encode()) <= most_bytes


def _curve(point: Judged) -> tuple[object, ...]:
    parameters = sorted((key, str(value)) for key, value in point.parameters.items() if key != "size_bytes")
    return point.benchmark, point.quantity, point.path, *parameters
