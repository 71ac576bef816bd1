"""Counters of loss, congestion or damage moved on the RDMA ports during a measurement.

A NIC sends a lost packet and those after it again, waits after a congestion notification, and retries while a receiver
is not ready. Each costs bandwidth, and the completions do not tell.
"""

from __future__ import annotations

from collections.abc import Iterator

from railwright.checks.check import Check, Facts, Findings
from railwright.results.evidence import RDMA_COUNTERS
from railwright.results.records import Evidence, Result


def _signs(facts: Facts) -> Findings:
    return CHECK.result_findings(_find(facts))


def _find(facts: Facts) -> Iterator[tuple[Result, str, Evidence]]:
    why = "counters of loss, congestion or damage moved on the ports during the measurement"
    for result in facts.results:
        for item in result.evidence:
            if item.claim == RDMA_COUNTERS and item.value == "moved":
                yield result, f"{why}: {item.seen}", item


CHECK = Check(
    name="rdma_counters_moved",
    summary="RDMA ports counted loss, congestion or damage during a measurement",
    right="no counter of loss, congestion or damage moved on RDMA ports during a measurement",
    certainty="likely",
    costs="each lost packet is sent again with all that followed it; notifications reduce a queue pair's rate",
    remedy="out_of_sequence, timeouts and discards: check PFC, ECN and buffers of the switches on the path; rnr: post"
    " more receives; symbol and icrc errors: check cable and optics (mlxlink -d DEVICE -c)",
    signs=_signs,
    needs_results=True,
)
