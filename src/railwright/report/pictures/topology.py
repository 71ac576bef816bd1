"""A topology as a picture: the tree with labelled links, and the affinity matrix.

Colour is never the only sign.
"""

from __future__ import annotations

import textwrap

from railwright.report.pictures.svg import MARGIN, NOTE_CHARACTERS, WIDTH, Sheet
from railwright.report.text.topology_words import (
    KIND_MEANING,
    Tree,
    clean,
    describe_degradation,
    describe_link,
    find_acs_switches,
    find_kinds,
    format_names,
)
from railwright.report.topology_gpus import gpu_lines
from railwright.topology.devices import Device, DeviceKind, Link, PcieLink, Topology
from railwright.topology.paths import Affinity
from railwright.units import format_size

_INDENT = 14
_ROW = 31
_FLAT_ROW = 17
_CHARACTER = 5.6  # average width of a letter at 10.5 units in common sans-serif fonts
_SMALL_CHARACTER = 4.9
_MAX_DEPTH = 12
_MAX_MATRIX = 64
_COLOURED: tuple[DeviceKind, ...] = ("gpu", "nic", "drive", "pcie_switch", "nvswitch")
_CLOSENESS = {"LOC": "near", "PIX": "near", "PXB": "near", "P2C": "near", "C2C": "near", "PHB": "mid"}


def render_topology_svg(topology: Topology) -> str:
    """Render the SVG document. All text is escaped; it contains no script and loads nothing."""
    sheet = Sheet("topo")
    tree = Tree(topology)
    host = next(iter(topology.of_kind("host")), None)
    sheet.text(MARGIN, 16, topology.name, "h", 52)
    sheet.y = 24.0
    if host is not None:
        processor = str(host.facts.get("processor", ""))
        about = ", ".join(filter(None, (host.name, processor)))
        if host.facts.get("is_virtual"):
            about = f"virtual machine ({host.facts.get('hypervisor', 'unknown')}), {about}"
        if about:
            sheet.text(MARGIN, 29, about, "s", 78)
            sheet.y = 36.0
    for root in tree.roots:
        _draw_branch(sheet, tree, root)
    for first, others, words in tree.group_sideways_links(lambda link: (link.a, describe_link(link.protocol))):
        sheet.note(f"{first} to {others}: {words}")
    sheet.y += 4
    if tree.detached:
        sheet.note("connected to no known CPU: " + ", ".join(device.id for device in tree.detached))
    for line in gpu_lines(topology):
        for part in textwrap.wrap(line, NOTE_CHARACTERS):
            sheet.note(part)
    _draw_affinity(sheet, topology)
    return sheet.document(f"Topology of {clean(topology.name)}")


def _draw_branch(sheet: Sheet, tree: Tree, root: Device) -> None:
    """Draw a CPU and everything below it on a panel."""
    top = sheet.y + 4
    sheet.y = top + 4
    _draw_device(sheet, tree, root, None, 0)
    wire_tops = {0: sheet.y - 3}
    for depth, device, link in tree.walk(root):
        if depth > _MAX_DEPTH:
            continue
        x, middle = MARGIN + (depth - 1) * _INDENT + 5, sheet.y + 9
        sheet.line(
            f"M{x:g} {wire_tops[depth - 1]:g}V{middle:g}h8", "wire broken" if _degradation(link, device) else "wire"
        )
        _draw_device(sheet, tree, device, link, depth)
        wire_tops[depth] = sheet.y - 3
    sheet.box(MARGIN / 2, top, WIDTH - MARGIN, sheet.y - top + 2, "panel", behind=True)
    sheet.y += 4


def _draw_device(sheet: Sheet, tree: Tree, device: Device, link: Link | None, depth: int) -> None:
    """Draw a device: its id and upward link, then its description, with the network side of a NIC."""
    x = MARGIN + depth * _INDENT
    flat = device.kind == "root_port"
    sheet.box(x, sheet.y + 4, 6, 6 if flat else 20, device.kind if device.kind in _COLOURED else "other")
    second = _second_line(tree, device)
    lost = _degradation(link, device) if link is not None else ""
    sheet.text(x + 10, sheet.y + 12, device.id, "s" if flat else "b", 30)
    if link is not None:
        words = describe_link(link.protocol)
        if isinstance(link.protocol, PcieLink) and link.protocol.acs_redirect:
            words += ", ACS redirect"
        # Bold letters are wider, and the id next to them must stay readable.
        room = int((WIDTH - x - 24 - len(device.id) * _CHARACTER * 1.2) / (_CHARACTER * 1.1))
        sheet.text(WIDTH - MARGIN, sheet.y + 12, words, "bad" if lost else "", room, anchor="end")
    if lost:
        sheet.text(WIDTH - MARGIN, sheet.y + 24, f"degraded: {lost}", "s bad", 50, anchor="end")
        second = device.name[:18]
    if not flat:
        sheet.text(x + 10, sheet.y + 24, second, "s", int((WIDTH - x - 18) / _SMALL_CHARACTER))
    sheet.y += _FLAT_ROW if flat else _ROW


def _second_line(tree: Tree, device: Device) -> str:
    """Describe the device. The line may be cut at its end, so a NIC's names and its network side come first."""
    facts, port = device.facts, tree.port.get(device.id)
    size = facts.get("size_bytes")
    words = (
        f"{format_names(device, ' ')} → {describe_link(port.protocol)}".strip() if port is not None else "",
        device.name,
        format_size(size) if isinstance(size, int | float) else "",
        f"socket {facts['package']}" if "package" in facts else "",
        device.address,
    )
    return ", ".join(filter(None, words))


def _degradation(link: Link, lower: Device) -> str:
    lost = describe_degradation(link.protocol, lower)
    return "" if lost.endswith("an idle GPU lowers it") else lost


def _draw_affinity(sheet: Sheet, topology: Topology) -> None:
    affinity = Affinity(topology)
    if not affinity.gpus or not affinity.nics:
        return
    sheet.y += 18
    sheet.text(MARGIN, sheet.y, "GPU to NIC", "h", 20)
    if len(affinity.nics) > _MAX_MATRIX or len(affinity.gpus) > _MAX_MATRIX:
        sheet.note(f"{len(affinity.gpus)} GPUs and {len(affinity.nics)} NICs are too many to draw")
        return
    left = 48.0
    cell = min(40.0, (WIDTH - left - MARGIN) / len(affinity.nics))
    sheet.y += 14
    for column, nic in enumerate(affinity.nics):
        # In a narrow column only the number fits; the heading explains the row.
        label = nic.id if cell >= 26 else nic.id.removeprefix("nic")
        sheet.text(left + (column + 0.5) * cell, sheet.y, label, "s", 8, anchor="middle")
    sheet.y += 4
    for gpu in affinity.gpus:
        sheet.text(MARGIN, sheet.y + 12, gpu.id, "b", 8)
        for column, nic in enumerate(affinity.nics):
            kind = affinity.kind(gpu.id, nic.id)
            sheet.box(left + column * cell + 1, sheet.y + 1, cell - 2, 15, _CLOSENESS.get(kind or "", "far"))
            style = "" if cell >= 26 else "s"
            sheet.text(left + (column + 0.5) * cell, sheet.y + 12, kind or "?", style, 4, anchor="middle")
        sheet.y += 17
    for kind in find_kinds(affinity):
        sheet.note(f"{kind}: {KIND_MEANING[kind]}")
    if switches := find_acs_switches(affinity):
        sheet.note(f"ACS redirect is on below {', '.join(switches)}:")
        sheet.note("traffic that should stay in the switch goes to the CPU")
