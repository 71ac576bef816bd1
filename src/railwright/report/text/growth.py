"""Groups of hosts that were merged, in the order in which they were."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.diagnosis.peers.growth import merges, state_of, words
from railwright.results.host_list import format_hosts
from railwright.results.records import Result


def lines(results: Sequence[Result]) -> list[str]:
    """One line for each merge, with what is left of both halves; then the largest group that gained."""
    every = merges(results)
    states = {one: state_of(one, every) for one in every}
    found = [
        f"{format_hosts(one.first.members)} + {format_hosts(one.second.members)}: {words(one)}, {states[one]}"
        for one in every
    ]
    gained = [one.together.members for one in every if states[one] == "gains"]
    if gained:
        largest = max(gained, key=len)
        found.append(f"largest group that gains: {len(largest)} hosts, {format_hosts(largest)}")
    return found
