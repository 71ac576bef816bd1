"""A topology as plain text: the tree, the links outside it, and the NICs near each GPU."""

from __future__ import annotations

from railwright.report.text.topology_words import (
    KIND_MEANING,
    Tree,
    clean,
    describe_degradation,
    describe_device,
    describe_link,
    find_acs_switches,
    find_kinds,
)
from railwright.report.topology_gpus import gpu_lines
from railwright.topology.devices import Device, Link, PcieLink, Topology
from railwright.topology.paths import Affinity

_MAX_DEPTH = 40
_LINK_COLUMN = (40, 76)
"""The bounds of the column of links, which starts after the longest device."""


def render_topology(topology: Topology) -> str:
    """Render head, tree, links between sockets and GPUs, affinity, and the unknown facts."""
    tree = Tree(topology)
    blocks = [_head(topology), _tree_lines(tree), _sideways_lines(tree), gpu_lines(topology)]
    blocks.append(render_affinity(topology).splitlines())
    if topology.unknown:
        unknown = [f"  {clean(item.what)}: {clean(item.why)}" for item in topology.unknown]
        blocks.append(["not known", *unknown])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def render_affinity(topology: Topology) -> str:
    """Render a matrix of path kinds, GPUs by NICs, with a legend; empty without GPUs or NICs."""
    affinity = Affinity(topology)
    if not affinity.gpus or not affinity.nics:
        return ""
    rows = [["GPU to NIC", *(nic.id for nic in affinity.nics), "nearest"]]
    for gpu in affinity.gpus:
        kinds = [affinity.kind(gpu.id, nic.id) or "?" for nic in affinity.nics]
        rows.append([gpu.id, *kinds, ",".join(affinity.nearest(gpu.id))])
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines += [f"{kind}  {KIND_MEANING[kind]}" for kind in find_kinds(affinity)]
    if switches := find_acs_switches(affinity):
        lines.append(
            f"ACS redirect is on below {', '.join(switches)}: traffic that should stay in the switch goes to the CPU"
        )
    return "\n".join(lines)


def _head(topology: Topology) -> list[str]:
    host = next(iter(topology.of_kind("host")), None)
    lines = [f"{clean(topology.name)} ({topology.source})"]
    if host is None:
        return lines
    facts = host.facts
    words = [host.name, str(facts.get("processor", ""))]
    if facts.get("is_virtual"):
        words.append(f"virtual machine ({facts.get('hypervisor', 'unknown')}): the tree may not be the real one")
    if "container" in facts:
        words.append(f"container ({facts['container']})")
    if "kernel" in facts:
        words.append(f"Linux {facts['kernel']}")
    return [*lines, *(f"  {clean(word)}" for word in words if word)]


def _tree_lines(tree: Tree) -> list[str]:
    lines: list[tuple[str, str]] = []
    for root in tree.roots:
        lines.append((f"{root.id}  {describe_device(root)}".rstrip(), ""))
        _branch(tree, root, "", lines)
    if tree.detached:
        lines.append(("connected to no known CPU", ""))
        lines += [_line(tree, f"  {device.id}", device, None) for device in tree.detached]
    minimum, maximum = _LINK_COLUMN
    column = min(max([minimum, *(len(left) for left, right in lines if right)]), maximum)
    return [f"{left.ljust(column)}  {right}".rstrip() for left, right in lines]


def _branch(tree: Tree, device: Device, indent: str, lines: list[tuple[str, str]]) -> None:
    below = tree.below(device)
    for position, (child, link) in enumerate(below, start=1):
        last = position == len(below)
        lines.append(_line(tree, f"{indent}{'└─' if last else '├─'} {child.id}", child, link))
        if len(indent) < 3 * _MAX_DEPTH:
            _branch(tree, child, indent + ("   " if last else "│  "), lines)


def _line(tree: Tree, start: str, device: Device, link: Link | None) -> tuple[str, str]:
    """Return the device, and the links above it and towards the network."""
    words = [_link_words(link, device)] if link is not None else []
    port = tree.port.get(device.id)
    if port is not None:
        state = "down, " if device.facts.get("state") == "down" else ""
        words.append(f"→ {state}{describe_link(port.protocol)}")
    return f"{start}  {describe_device(device)}".rstrip(), "  ".join(filter(None, words))


def _link_words(link: Link, lower: Device | None) -> str:
    lost = describe_degradation(link.protocol, lower)
    redirects = isinstance(link.protocol, PcieLink) and link.protocol.acs_redirect
    notes = f"{f'  [{lost}]' if lost else ''}{'  [ACS redirect]' if redirects else ''}"
    return f"{describe_link(link.protocol)}{notes}"


def _sideways_lines(tree: Tree) -> list[str]:
    def describe(link: Link) -> tuple[str, str]:
        return f"{link.a} →" if link.one_way else link.a, _link_words(link, tree.devices.get(link.b))

    return [f"{first} to {others}  {words}" for first, others, words in tree.group_sideways_links(describe)]
