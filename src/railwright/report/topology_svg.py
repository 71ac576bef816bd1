"""A topology as one self-contained SVG picture: the tree with the links written at it, and the affinity matrix.

It is drawn 400 units wide, so that a telephone shows it without scrolling sideways, and takes its colours from the
reader's light or dark setting. Nothing is told by colour alone.
"""

from __future__ import annotations

import textwrap
from html import escape

from railwright.report.topology_gpus import gpu_lines
from railwright.report.topology_text import acs_redirected
from railwright.report.topology_words import KIND_MEANING, Tree, clean, degradation, describe_link
from railwright.topology.gpus import runs
from railwright.topology.model import Device, DeviceKind, Link, NvlinkLink, PcieLink, Topology
from railwright.topology.paths import KIND_ORDER, Affinity
from railwright.units import format_size

_WIDTH = 400
_MARGIN = 8
_INDENT = 14
_ROW = 31
_FLAT_ROW = 17
_CHARACTER = 5.6  # average width of a letter at 10.5 units in common sans-serif fonts
_SMALL_CHARACTER = 4.9
_FLAT_KINDS: frozenset[DeviceKind] = frozenset({"root_port"})
_MAX_DEPTH = 12
_MAX_MATRIX = 64
_NOTE_CHARACTERS = 80

_STYLE = """
.rw-topo{--rw-page:#ffffff;--rw-ink:#1c2430;--rw-soft:#5b6675;--rw-line:#9aa5b4;--rw-panel:#f3f5f8;--rw-bad:#b3261e;
--rw-gpu:#2e7d32;--rw-nic:#1565c0;--rw-drive:#8d5a00;--rw-switch:#6a3d9a;--rw-near:#d5ecd7;--rw-mid:#fff0c9;
--rw-far:#f6d9d6;background:var(--rw-page)}
@media (prefers-color-scheme:dark){.rw-topo{--rw-page:#12161c;--rw-ink:#e6eaf0;--rw-soft:#a3aebd;--rw-line:#5d6978;
--rw-panel:#1b212a;--rw-bad:#ff8a80;--rw-gpu:#7bd183;--rw-nic:#7db7ff;--rw-drive:#e5b567;--rw-switch:#c9a2f2;
--rw-near:#1f4226;--rw-mid:#4a3d12;--rw-far:#4d2422}}
.rw-topo text{font:10.5px system-ui,sans-serif;fill:var(--rw-ink)}
.rw-topo .b{font-weight:600}.rw-topo .s{font-size:9px;fill:var(--rw-soft)}.rw-topo .h{font-size:13px;font-weight:600}
.rw-topo .bad{fill:var(--rw-bad);font-weight:600}.rw-topo .panel{fill:var(--rw-panel)}
.rw-topo .wire{stroke:var(--rw-line);fill:none}.rw-topo .broken{stroke:var(--rw-bad);stroke-width:2;
stroke-dasharray:4 2}
.rw-topo .gpu{fill:var(--rw-gpu)}.rw-topo .nic{fill:var(--rw-nic)}.rw-topo .drive{fill:var(--rw-drive)}
.rw-topo .pcie_switch,.rw-topo .nvswitch{fill:var(--rw-switch)}.rw-topo .other{fill:var(--rw-line)}
.rw-topo .near{fill:var(--rw-near)}.rw-topo .mid{fill:var(--rw-mid)}.rw-topo .far{fill:var(--rw-far)}
"""
_CLOSENESS = {"LOC": "near", "PIX": "near", "PXB": "near", "P2C": "near", "C2C": "near", "PHB": "mid"}


def render_topology_svg(topology: Topology) -> str:
    """The SVG document. All text is escaped; it holds no script and loads nothing."""
    picture = _Picture()
    tree = Tree(topology)
    host = next(iter(topology.of_kind("host")), None)
    picture.text(_MARGIN, 16, topology.name, "h", 52)
    picture.y = 24.0
    if host is not None:
        processor = str(host.facts.get("processor", ""))
        about = ", ".join(word for word in (host.name, processor) if word)
        if host.facts.get("is_virtual"):
            about = f"virtual machine ({host.facts.get('hypervisor', 'unknown')}), {about}"
        if about:
            picture.text(_MARGIN, 29, about, "s", 78)
            picture.y = 36.0
    for root in tree.roots:
        _draw_branch(picture, tree, root)
    _draw_sideways(picture, tree)
    if tree.detached:
        picture.note("at no CPU that the machine names: " + ", ".join(device.id for device in tree.detached))
    for line in gpu_lines(topology):
        for part in textwrap.wrap(line, _NOTE_CHARACTERS):
            picture.note(part)
    _draw_affinity(picture, topology)
    return picture.document(f"Topology of {clean(topology.name)}")


class _Picture:
    """Elements drawn so far; `y` is where the next one goes."""

    def __init__(self) -> None:
        self.y = 0.0
        self._back: list[str] = []
        self._front: list[str] = []

    def text(self, x: float, y: float, words: str, style: str, room: int, *, anchor: str = "start") -> None:
        """Text cut to `room` characters."""
        words = clean(words)
        if len(words) > room:
            words = words[: max(room - 1, 0)] + "…"
        end = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._front.append(f'<text x="{x:g}" y="{y:g}" class="{style}"{end}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, style: str, *, behind: bool = False) -> None:
        """A rectangle with round corners."""
        element = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" class="{style}"/>'
        (self._back if behind else self._front).append(element)

    def wire(self, x: float, from_y: float, to_y: float, *, broken: bool) -> None:
        """From the device above down and to the right."""
        style = "wire broken" if broken else "wire"
        self._front.append(f'<path d="M{x:g} {from_y:g}V{to_y:g}h8" class="{style}"/>')

    def note(self, words: str) -> None:
        """A line of small text across the picture."""
        self.y += 13
        self.text(_MARGIN, self.y, words, "s", _NOTE_CHARACTERS)

    def document(self, title: str) -> str:
        """The whole SVG."""
        height = self.y + _MARGIN
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="rw-topo" viewBox="0 0 {_WIDTH} {height:g}" width="100%"'
            f' style="max-width:720px" role="img"><title>{escape(title)}</title><style>{_STYLE}</style>'
            f'<rect width="{_WIDTH}" height="{height:g}" style="fill:var(--rw-page)"/>'
        )
        return "\n".join([head, *self._back, *self._front, "</svg>"]) + "\n"


def _draw_branch(picture: _Picture, tree: Tree, root: Device) -> None:
    """One CPU with everything below it, on a panel."""
    top = picture.y + 4
    picture.y = top + 4
    _draw_device(picture, tree, root, None, 0)
    _draw_below(picture, tree, root, 0, {root.id})
    picture.box(_MARGIN / 2, top, _WIDTH - _MARGIN, picture.y - top + 2, "panel", behind=True)
    picture.y += 4


def _draw_below(picture: _Picture, tree: Tree, device: Device, depth: int, seen: set[str]) -> None:
    start = picture.y - 3
    for child, link in tree.below(device):
        if child.id in seen or depth >= _MAX_DEPTH:
            continue
        middle = picture.y + 9
        picture.wire(_MARGIN + depth * _INDENT + 5, start, middle, broken=bool(_lost(link, child)))
        _draw_device(picture, tree, child, link, depth + 1)
        _draw_below(picture, tree, child, depth + 1, {*seen, child.id})


def _draw_device(picture: _Picture, tree: Tree, device: Device, link: Link | None, depth: int) -> None:
    """First line: id and link above it; second line: what it is, and for a NIC its network side."""
    x = _MARGIN + depth * _INDENT
    style = device.kind if device.kind in ("gpu", "nic", "drive", "pcie_switch", "nvswitch") else "other"
    flat = device.kind in _FLAT_KINDS
    picture.box(x, picture.y + 4, 6, 6 if flat else 20, style)
    second = _second_line(tree, device)
    lost = _lost(link, device) if link is not None else ""
    picture.text(x + 10, picture.y + 12, device.id, "s" if flat else "b", 30)
    if link is not None:
        words = describe_link(link.protocol)
        if isinstance(link.protocol, PcieLink) and link.protocol.acs_redirect:
            words += ", ACS redirect"
        # Bold letters are wider, and the id beside it must stay readable.
        room = int((_WIDTH - x - 24 - len(device.id) * _CHARACTER * 1.2) / (_CHARACTER * 1.1))
        picture.text(_WIDTH - _MARGIN, picture.y + 12, words, "bad" if lost else "", room, anchor="end")
    if lost:
        picture.text(_WIDTH - _MARGIN, picture.y + 24, f"degraded: {lost}", "s bad", 50, anchor="end")
        second = device.name[:18]
    if not flat:
        picture.text(x + 10, picture.y + 24, second, "s", int((_WIDTH - x - 18) / _SMALL_CHARACTER))
    picture.y += _FLAT_ROW if flat else _ROW


def _second_line(tree: Tree, device: Device) -> str:
    """What the device is; of a NIC first what is lost last when the line is cut: its names and its network side."""
    words: list[str] = []
    port = tree.port.get(device.id)
    if port is not None:
        names = " ".join(str(device.facts[key]) for key in ("netdev", "rdma_device") if key in device.facts)
        words.append(f"{names} → {describe_link(port.protocol)}".strip())
    words.append(device.name)
    if isinstance(size := device.facts.get("size_bytes"), int | float):
        words.append(format_size(size))
    if "package" in device.facts:
        words.append(f"socket {device.facts['package']}")
    words.append(device.address)
    return ", ".join(word for word in words if word)


def _lost(link: Link, lower: Device) -> str:
    if not isinstance(link.protocol, PcieLink | NvlinkLink):
        return ""
    lost = degradation(link.protocol, lower)
    return "" if lost.endswith("an idle GPU lowers it") else lost


def _draw_sideways(picture: _Picture, tree: Tree) -> None:
    groups: dict[tuple[str, str], list[str]] = {}
    for link in tree.sideways:
        groups.setdefault((link.a, describe_link(link.protocol)), []).append(link.b)
    for (upper, words), ends in groups.items():
        lower = runs(ends)
        picture.note(f"{upper} to {lower}: {words}{' each' if len(ends) > 1 else ''}")
    picture.y += 4


def _draw_affinity(picture: _Picture, topology: Topology) -> None:
    affinity = Affinity(topology)
    if not affinity.gpus or not affinity.nics:
        return
    picture.y += 18
    picture.text(_MARGIN, picture.y, "GPU to NIC", "h", 20)
    if len(affinity.nics) > _MAX_MATRIX or len(affinity.gpus) > _MAX_MATRIX:
        picture.note(f"{len(affinity.gpus)} GPUs and {len(affinity.nics)} NICs are too many to draw")
        return
    left = 48.0
    cell = min(40.0, (_WIDTH - left - _MARGIN) / len(affinity.nics))
    picture.y += 14
    for column, nic in enumerate(affinity.nics):
        # In a narrow column only the number fits; the row's meaning is clear from the heading.
        label = nic.id if cell >= 26 else nic.id.removeprefix("nic")
        picture.text(left + (column + 0.5) * cell, picture.y, label, "s", 8, anchor="middle")
    picture.y += 4
    kinds = set()
    for gpu in affinity.gpus:
        picture.text(_MARGIN, picture.y + 12, gpu.id, "b", 8)
        for column, nic in enumerate(affinity.nics):
            kind = affinity.kind(gpu.id, nic.id)
            kinds |= {kind} if kind else set()
            picture.box(left + column * cell + 1, picture.y + 1, cell - 2, 15, _CLOSENESS.get(kind or "", "far"))
            style = "" if cell >= 26 else "s"
            picture.text(left + (column + 0.5) * cell, picture.y + 12, kind or "?", style, 4, anchor="middle")
        picture.y += 17
    for kind in KIND_ORDER:
        if kind in kinds:
            picture.note(f"{kind}: {KIND_MEANING[kind]}")
    if redirected := acs_redirected(affinity):
        picture.note(f"ACS redirect is on below {', '.join(redirected)}:")
        picture.note("what should stay in the switch goes to the CPU")
