"""The efficiency of growing groups is relative to the smallest group that has several hosts."""

from __future__ import annotations

from railwright.diagnosis.verdicts.judged import Judged, Verdict
from railwright.limits.limit import NoLimit
from railwright.report.nccl_scaling import scaling_tables
from railwright.units import MIB

RATE = "bandwidth_bytes_per_s"


def group(hosts: int, value: float, size: int = MIB, **more: str) -> Judged:
    parameters = {"among": "growing", "rate": "busbw", "group_hosts": hosts, "size_bytes": size, **more}
    return Judged(
        benchmark="nccl_all_reduce", quantity=RATE, path="gpu0@0>gpu7@1", parameters=parameters, outcome="measured",
        value=value, limit=NoLimit(quantity=RATE, why="w"), verdict=Verdict(state="ok", why="w"), ranks=8 * hosts,
        hosts=hosts,
    )  # fmt: skip


def test_each_group_has_its_share_of_the_smallest_between_hosts_and_one_host_has_none():
    points = [group(1, 450e9), group(2, 300e9), group(4, 270e9), group(2, 1e9, size=8)]
    ((title, rows),) = scaling_tables(points)
    assert title.startswith("nccl_all_reduce")
    assert [(row[0], row[1], row[4]) for row in rows] == [("1", "8", "-"), ("2", "16", "1.00"), ("4", "32", "0.90")]


def test_placements_are_curves_of_their_own_and_a_lone_group_has_no_table():
    out, into = ({"placement": name} for name in ("out of place", "in place"))
    found = list(scaling_tables([group(2, 3e9, **out), group(4, 3e9, **out), group(2, 3e9, **into)]))
    assert len(found) == 1
