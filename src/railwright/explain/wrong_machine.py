"""A table that is faster than the given machine allows: it is of another machine, so none of its rows is slow."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from railwright.diagnosis.verdicts.judged import Judged, Verdict
from railwright.limits.limit import Limit
from railwright.limits.nvlink import LINK_RATE
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.workload import Collective, Message
from railwright.topology.cluster import Cluster
from railwright.topology.gpu_models import is_model
from railwright.topology.shapes import SHAPES
from railwright.units import format_bandwidth

_SURELY_ABOVE = 1.05
_WHY = "the machine is another one, which has other bands"


def find_wrong_machine(file: ForeignFile, rows: Sequence[Judged], placed: Cluster) -> str:
    """Return why the table cannot be of the machine, and which one it may be of; empty if it can.

    A cache or a copy inside a GPU may exceed a limit on the right machine, so only messages, collectives and copies
    between two GPUs count.
    """
    above = [
        row for row in rows if row.verdict.state == "suspicious" and (row.fraction_of_limit or 0.0) > _SURELY_ABOVE
    ]
    if not isinstance(file.workload, Collective | Message):
        above = [row for row in above if _joins_gpus(row.path)]
    if not above:
        return ""
    fastest = max(above, key=lambda row: row.fraction_of_limit or 0.0)
    if not isinstance(fastest.limit, Limit) or fastest.limit.kind != "derived" or fastest.value is None:
        return ""
    if fastest.quantity != "bandwidth_bytes_per_s":
        return ""
    value, limit = format_bandwidth(fastest.value), format_bandwidth(fastest.limit.value)
    other = _describe_mesh(placed, fastest.value) if isinstance(file.workload, Collective) else ""
    return f"not this machine: {value} is above its limit of {limit}{f'; {other}' if other else ''}"


def _joins_gpus(path: str) -> bool:
    """Report whether a path leads from one GPU to another."""
    ends = path.split(">")
    return len(set(ends)) == len(ends) == 2 and all(end.startswith("gpu") for end in ends)


def _describe_mesh(placed: Cluster, measured: float) -> str:
    """Return the machine of the same GPUs whose NVLinks all go to the others of the job, if it is fast enough."""
    gpus = placed.host.of_kind("gpu")
    links = next(
        (
            shape.nvlink.link
            for shape in SHAPES.values()
            if gpus and shape.gpu is not None and shape.nvlink is not None and is_model(gpus[0].name, shape.gpu.name)
        ),
        None,
    )
    if placed.hosts > 1 or len(gpus) < 2 or links is None or not links.links or links.links % (len(gpus) - 1):
        return ""
    each, rate = links.links // (len(gpus) - 1), LINK_RATE.get(links.generation or 0)
    if rate is None or links.links * rate.value < measured:
        return ""
    have = format_bandwidth(links.links * rate.value)
    return f"{len(gpus)} {gpus[0].name} with {each} NVLinks a pair have {have}"


def clear_rows(rows: Sequence[Judged], wrong_machine: str) -> tuple[Judged, ...]:
    """Turn slow rows into unknown ones if the machine is another one."""
    return tuple(
        replace(row, verdict=Verdict(state="unknown", why=f"{row.verdict.why}, but {_WHY}"))
        if wrong_machine and row.verdict.state == "slow"
        else row
        for row in rows
    )
