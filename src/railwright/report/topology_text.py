"""A topology as plain text: the tree, the links beside it, and which NICs each GPU reaches."""

from __future__ import annotations

from railwright.report.topology_gpus import gpu_lines
from railwright.report.topology_words import (
    KIND_MEANING,
    Tree,
    clean,
    degradation,
    describe_device,
    describe_link,
)
from railwright.topology.gpus import runs
from railwright.topology.model import Device, Link, NvlinkLink, PcieLink, Topology
from railwright.topology.paths import KIND_ORDER, Affinity

_MAX_DEPTH = 40
_LINK_COLUMN = (40, 76)
"""Links stand in one column behind the longest device, but not farther left or right than this."""


def render_topology(topology: Topology) -> str:
    """The whole report: head, tree, links between sockets and GPUs, affinity, and what is not known."""
    tree = Tree(topology)
    blocks = [_head(topology), _tree_lines(tree), _sideways_lines(tree), gpu_lines(topology)]
    blocks.append(render_affinity(topology).splitlines())
    if topology.unknown:
        unknown = [f"  {clean(item.what)}: {clean(item.why)}" for item in topology.unknown]
        blocks.append(["not known", *unknown])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def render_affinity(topology: Topology) -> str:
    """A matrix of path kinds, GPUs down and NICs across, with what the kinds mean; empty without GPUs or NICs."""
    affinity = Affinity(topology)
    if not affinity.gpus or not affinity.nics:
        return ""
    first = max(len("GPU to NIC"), *(len(gpu.id) for gpu in affinity.gpus))
    widths = [max(len(nic.id), 3) for nic in affinity.nics]
    header = [nic.id.ljust(width) for nic, width in zip(affinity.nics, widths, strict=True)]
    lines = ["  ".join(["GPU to NIC".ljust(first), *header, "nearest"])]
    kinds = set()
    for gpu in affinity.gpus:
        row = [affinity.kind(gpu.id, nic.id) for nic in affinity.nics]
        kinds |= {kind for kind in row if kind}
        cells = [(kind or "?").ljust(width) for kind, width in zip(row, widths, strict=True)]
        lines.append("  ".join([gpu.id.ljust(first), *cells, ",".join(affinity.nearest(gpu.id))]).rstrip())
    lines += [f"{kind}  {KIND_MEANING[kind]}" for kind in KIND_ORDER if kind in kinds]
    if redirected := acs_redirected(affinity):
        lines.append(
            f"ACS redirect is on below {', '.join(redirected)}: what should stay in the switch goes to the CPU"
        )
    return "\n".join(lines)


def acs_redirected(affinity: Affinity) -> tuple[str, ...]:
    """The switches on short GPU-NIC paths whose ports send that traffic up to the CPU."""
    switches = {
        link.a
        for path in affinity.paths.values()
        if path is not None and path.kind in ("PIX", "PXB")
        for link in path.links
        if isinstance(link.protocol, PcieLink) and link.protocol.acs_redirect
    }
    return tuple(sorted(switches))


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
        _branch(tree, root, "", lines, {root.id})
    if tree.detached:
        lines.append(("at no CPU that the machine names", ""))
        lines += [_line(tree, f"  {device.id}", device, None) for device in tree.detached]
    least, most = _LINK_COLUMN
    column = min(max([least, *(len(left) for left, right in lines if right)]), most)
    return [f"{left.ljust(column)}  {right}".rstrip() for left, right in lines]


def _branch(tree: Tree, device: Device, indent: str, lines: list[tuple[str, str]], seen: set[str]) -> None:
    below = [pair for pair in tree.below(device) if pair[0].id not in seen]
    for position, (child, link) in enumerate(below):
        last = position == len(below) - 1
        lines.append(_line(tree, f"{indent}{'└─' if last else '├─'} {child.id}", child, link))
        if len(indent) < 3 * _MAX_DEPTH:
            _branch(tree, child, indent + ("   " if last else "│  "), lines, {*seen, child.id})


def _line(tree: Tree, start: str, device: Device, link: Link | None) -> tuple[str, str]:
    """The device, and the links above it and towards the network."""
    words = []
    if link is not None:
        words.append(_with_degradation(link, device))
    port = tree.port.get(device.id)
    if port is not None:
        state = "down, " if device.facts.get("state") == "down" else ""
        words.append(f"→ {state}{describe_link(port.protocol)}")
    return f"{start}  {describe_device(device)}".rstrip(), "  ".join(word for word in words if word)


def _with_degradation(link: Link, lower: Device | None) -> str:
    text = describe_link(link.protocol)
    if isinstance(link.protocol, PcieLink | NvlinkLink) and (lost := degradation(link.protocol, lower)):
        text += f"  [{lost}]"
    if isinstance(link.protocol, PcieLink) and link.protocol.acs_redirect:
        text += "  [ACS redirect]"
    return text


def _sideways_lines(tree: Tree) -> list[str]:
    """Links of one kind from or to one device are told together: `nvswitch0 to gpu0-7  18x NVLink 4 each`."""
    groups: dict[tuple[str, str], list[str]] = {}
    for link in tree.sideways:
        text = _with_degradation(link, tree.devices.get(link.b))
        arrow = " →" if link.one_way else ""
        groups.setdefault((link.a + arrow, text), []).append(link.b)
    return [f"{a} to {runs(ends)}  {text}{' each' if len(ends) > 1 else ''}" for (a, text), ends in groups.items()]
