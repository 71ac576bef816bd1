"""Merged groups of hosts, in the order of the merges."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.diagnosis.peers.growth import format_merge, judge_merge, merges
from railwright.results.host_list import format_hosts
from railwright.results.records import Result


def lines(results: Sequence[Result]) -> list[str]:
    """Return a line for each merge with the remaining share of both halves' rate, then the largest group that gains."""
    all_merges = merges(results)
    states = {merge: judge_merge(merge, all_merges) for merge in all_merges}
    found = [
        f"{format_hosts(merge.first.members)} + {format_hosts(merge.second.members)}: "
        f"{format_merge(merge)}, {states[merge]}"
        for merge in all_merges
    ]
    gained = [merge.together.members for merge in all_merges if states[merge] == "gains"]
    if gained:
        largest = max(gained, key=len)
        found.append(f"largest group that gains: {len(largest)} hosts, {format_hosts(largest)}")
    return found
