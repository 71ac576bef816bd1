"""The lines on measurements between hosts: one for all pairs, with the slowest and the worst state."""

from __future__ import annotations

from railwright.diagnosis.fleet.between_hosts import BetweenHosts
from railwright.diagnosis.verdicts.judged import Diagnosis, Judged, JudgedPath, Verdict
from railwright.limits.limit import NoLimit
from railwright.report.text.between_hosts import BetweenHostsResult, list_collectives


def path_of(
    value: float | None, between: str, state: str = "ok", quantity: str = "bandwidth_bytes_per_s"
) -> JudgedPath:
    parameters = {"operation": "WRITE"} | ({"between": between} if between else {})
    common = {"benchmark": "kv_vram", "quantity": quantity, "path": "gpu0@0>gpu0@1", "parameters": parameters}
    verdict = Verdict(state=state, why="-")
    head = Judged(**common, outcome="measured", value=value, limit=NoLimit(quantity=quantity, why="-"), verdict=verdict)
    return JudgedPath(**common, headline=head, verdict=verdict, points=1, measured_points=1)


def lines(*paths: JudgedPath) -> list[tuple[str, str, str, str]]:
    diagnosis = Diagnosis(points=(), paths=paths, findings=(), exit_status=0)
    return list_collectives(BetweenHostsResult(BetweenHosts(described="-", hosts=()), collectives=diagnosis))


def test_pairs_share_a_line_with_the_median_the_slowest_pair_and_the_worst_state():
    paths = [path_of(4e9, "a,b"), path_of(1e9, "c,d", "slow"), path_of(5e9, "e,f", "unknown")]
    ((name, value, _, state),) = lines(*paths)
    assert name.startswith("kv_vram")
    assert name.endswith("gpu0@0>gpu0@1, 3 pairs, slowest c,d 1.00 GB/s")
    assert (value, state) == ("4.00 GB/s", "slow")
    times = [path_of(1e-5, "a,b", quantity="latency_s"), path_of(9e-5, "c,d", quantity="latency_s")]
    ((name, *_),) = lines(*times)
    assert "slowest c,d 90" in name


def test_two_hosts_and_a_pair_that_gave_nothing_keep_their_own_lines():
    ((name, *_),) = lines(path_of(4e9, ""))
    assert "pair" not in name
    ((name, _, _, state),) = lines(path_of(None, "a,b", "failed"), path_of(None, "c,d", "failed"))
    assert name.endswith(", 2 pairs")
    assert state == "failed"
