"""The fabric of a search among hosts of which at most the leaf switch is known. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from railwright.diagnosis.localise.fabric import CableSpec, Fabric, build_fabric
from railwright.diagnosis.localise.records import Suspect
from railwright.errors import UsageError
from railwright.locate.switch_tree import SwitchTree
from railwright.results.host_list import format_hosts
from railwright.topology.cluster import Cluster

_UNKNOWN = "network"
"""The name of the switch that stands for an unknown network."""


def build_host_fabric(
    names: Sequence[str],
    own: Sequence[str] | Mapping[str, Sequence[str]],
    tree: SwitchTree | None,
    oversubscription: float = 1.0,
) -> Fabric:
    """Return the fabric of the hosts' ports, each port on its own rail: on a single switch, or below leaves.

    `own` has the ports of every host, or maps each host to as many ports of its own.
    The leaves share a switch above. The rate of a leaf's uplink is that of all its hosts over the oversubscription.
    Raises UsageError for a host without a leaf.
    """
    ports = [
        (name, port, rail) for name in names for rail, port in enumerate(own[name] if isinstance(own, Mapping) else own)
    ]
    leaf_of = dict.fromkeys(names, _UNKNOWN) if tree is None else _leaves(names, tree)
    leaves = tuple(dict.fromkeys(leaf_of.values()))
    cables = [CableSpec(name, port, leaf_of[name], "", 1.0) for name, port, _ in ports]
    if len(leaves) == 1:
        return build_fabric(ports, leaves, cables)
    above = format_hosts(tree.above) if tree and tree.above else _UNKNOWN
    below = Counter(leaf_of.values())
    each = len(ports) // len(names)
    cables += [CableSpec(leaf, "", above, "", each * below[leaf] / oversubscription) for leaf in leaves]
    return build_fabric(ports, (*leaves, above), cables)


def read_cluster_tree(names: Sequence[str], cluster: Cluster) -> SwitchTree | None:
    """Return the hosts below the leaves of a cluster file's lowest tier, in order.

    None if the file has no tiers, or if the hosts share a leaf.

    Raises UsageError for more hosts than the file has.
    """
    if len(names) > cluster.hosts:
        raise UsageError(f"there must be at most {cluster.hosts} hosts, as in {cluster.name[:60]}, got {len(names)}",
                         hint="describe the cluster with all of them")  # fmt: skip
    tiers = cluster.fabric.tiers
    if not tiers or len(names) <= tiers[0].hosts:
        return None
    leaf_of = {name: f"{tiers[0].name}{number // tiers[0].hosts}" for number, name in enumerate(names)}
    return SwitchTree(leaf_of, (tiers[1].name,) if len(tiers) > 1 else ())


def find_uniform_suspects(fabric: Fabric, suspects: Iterable[Suspect]) -> list[Suspect]:
    """Return the suspects above the hosts if they cover every leaf: then none can be singled out as slow."""
    *leaves, above = fabric.switches
    found = select_above_leaves(suspects)
    covered = {suspect.id.partition("/")[0].removesuffix(f"-{above}") for suspect in found}
    return found if above in covered or covered.issuperset(leaves) else []


def select_above_leaves(suspects: Iterable[Suspect]) -> list[Suspect]:
    """Return the suspects that are neither hosts nor their ports."""
    return [suspect for suspect in suspects if suspect.kind in ("link", "switch", "line-card")]


def _leaves(names: Iterable[str], tree: SwitchTree) -> dict[str, str]:
    """Return the leaf of each host. A full name also matches the short name in the tree."""
    found = {name: tree.leaf_of.get(name) or tree.leaf_of.get(name.partition(".")[0], "") for name in names}
    missing = [name for name, leaf in found.items() if not leaf]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UsageError(f"{missing[0][:60]}{more} has no leaf in the given switches",
                         hint="name hosts as the file does, or leave --switches out")  # fmt: skip
    return found
