"""Parts of the ranks of several hosts that form a communicator: all, pairs of hosts, rails, or growing groups."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile
from typing import NamedTuple

from railwright.topology.devices import Scalar

ALL, PAIRS, RAILS, GROWING = "all", "pairs", "rails", "growing"
AMONG = (ALL, PAIRS, RAILS, GROWING)


class Subgroup(NamedTuple):
    """Hosts by their place in the launch, and the GPUs of each by their place on it."""

    hosts: tuple[int, ...]
    gpus: tuple[int, ...]

    def ranks(self, ranks_per_host: int) -> tuple[int, ...]:
        """Return its ranks in the launch, host by host."""
        return tuple(host * ranks_per_host + gpu for host in self.hosts for gpu in self.gpus)


def list_rounds(among: str, hosts: int, gpus: int) -> list[tuple[Subgroup, ...]]:
    """Return the rounds of a launch over `hosts` x `gpus` ranks. The groups of a round are disjoint and run at once."""
    every = tuple(range(gpus))
    match among:
        case "pairs":
            return [tuple(Subgroup(pair, every) for pair in pairs) for pairs in _pair_all(hosts)]
        case "rails":
            return [(Subgroup(tuple(range(hosts)), (gpu,)),) for gpu in every]
        case "growing":
            sizes = [*takewhile(lambda size: size < hosts, (2**power for power in count())), hosts]
            return [(Subgroup(tuple(range(size)), every),) for size in sizes if size * gpus > 1]
        case _:
            return [(Subgroup(tuple(range(hosts)), every),)]


def describe(among: str, group: Subgroup, names: tuple[str, ...], gpu_ids: tuple[str, ...]) -> dict[str, Scalar]:
    """Return the parameters that identify a group among those of its launch."""
    match among:
        case "pairs":
            return {"between": ",".join(names[host] for host in group.hosts)}
        case "rails":
            return {"rail": group.gpus[0], "gpus": gpu_ids[group.gpus[0]]}
        case "growing":
            return {"group_hosts": len(group.hosts)}
        case _:
            return {}


def _pair_all(hosts: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield every pair once, in rounds of disjoint pairs: one host stays, the others turn around it."""
    places = hosts + hosts % 2
    for turn in range(places - 1):
        others = [1 + (turn + step) % (places - 1) for step in range(places - 1)]
        line = [0, *others]
        pairs = [(line[place], line[-1 - place]) for place in range(places // 2)]
        yield tuple((min(pair), max(pair)) for pair in pairs if max(pair) < hosts)
