"""Drawing of the machine: its devices and links, each link coloured by its verdict.

A CPU is a box as tall as the devices on it. So every link is a straight line on its own row and no labels overlap,
with two devices or with forty. NVSwitches are a bar on the other side of their GPUs.
The thickness of a link grows with the highest rate measured over it. Its title names the paths, and it links to the
path that decided its colour (`judge_link`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from railwright.diagnosis.verdicts.judged import State
from railwright.errors import RailwrightError
from railwright.limits.limit import Limit
from railwright.limits.path import link_limit
from railwright.report.text import wording
from railwright.report.text.slow_links import LinkVerdict, judge_link
from railwright.report.view import Row
from railwright.topology.devices import GPU_LINKS, Device, DeviceKind, Link, Topology
from railwright.topology.paths import Graph
from railwright.units import format_bandwidth

_LEAVES: tuple[DeviceKind, ...] = ("memory", "gpu", "nic", "drive")
_BARS: tuple[DeviceKind, ...] = ("nvswitch",)
_NETWORK: tuple[DeviceKind, ...] = ("fabric", "leaf")
_ORDER = {"memory": 0, "gpu": 1, "nic": 2, "drive": 3}
_ROW, _BOX, _GAP = 34, 24, 12
_CPU, _LEAF, _BAR, _WIRE, _SWITCH = 46, 84, 30, 106, 34
_MARGIN = 10
_SCALE, _MIN_SCALE = 1.35, 0.85
"""The scale on a wide page, and the smallest scale, on a phone that scrolls."""
_ABOVE = 1.05
_MARKED: tuple[State, ...] = ("slow", "suspicious", "failed", "unknown")
"""The verdicts whose signs are drawn on links as well."""
_MAX_TITLED = 8
"""The number of paths that a link's title names."""
_MAX_LEAVES = 200


class _Leaf(NamedTuple):
    device: Device
    cpu: str
    switch: str
    """The PCIe switch next to it; empty if there is none."""
    links: tuple[Link, ...]
    """The links from the CPU to the device."""


def draw_machine(topology: Topology, rows: Sequence[Row]) -> tuple[str, str]:
    """Draw the machine as an SVG element with all text escaped, empty if there is nothing to draw.

    The second value is a note that no link is slow although paths are. It is empty if a link is slow, or if no slow
    path is drawn.
    """
    try:
        drawing = _Drawing(topology, rows)
    except RailwrightError:
        return "", ""
    verdicts = drawing.judge_links()
    cleared = any(verdict.cleared for verdict in verdicts) and all(verdict.state != "slow" for verdict in verdicts)
    words = "No link is slow: over each link another path reached the rate that the slow ones need." if cleared else ""
    return drawing.document() if drawing.leaves else "", words


class _Drawing:
    """Layout and drawing of a machine."""

    def __init__(self, topology: Topology, rows: Sequence[Row]) -> None:
        self._topology = topology
        self._graph = Graph(topology)
        self._cpus = topology.of_kind("cpu")
        self.leaves = self._sorted_leaves()
        self._over: dict[str, list[Row]] = {}
        """The paths over each link, and those inside a device, by the id of the link or device."""
        self._directions: dict[int, dict[str, bool]] = {}
        """For each path, whether it crosses each link from the link's first end to the other."""
        for row in rows:
            for place in self._places(row):
                self._over.setdefault(place, []).append(row)
        self._parts: list[str] = []
        self._front: list[str] = []
        with_switch = any(leaf.switch for leaf in self.leaves)
        self._leaf_x = _MARGIN + _CPU + _WIRE + (_SWITCH + 56 if with_switch else 0)
        self._bar_x = self._leaf_x + _LEAF + _WIRE
        self._y = {leaf.device.id: self._top(index) for index, leaf in enumerate(self.leaves)}

    def _top(self, index: int) -> float:
        """Return the top of a leaf; a gap separates the leaves of different CPUs."""
        before = sum(a.cpu != b.cpu for a, b in zip(self.leaves[:index], self.leaves[1 : index + 1], strict=True))
        return _MARGIN + index * _ROW + before * _GAP

    def _sorted_leaves(self) -> list[_Leaf]:
        found = [leaf for device in self._topology.of_kind(*_LEAVES)[:_MAX_LEAVES] if (leaf := self._leaf(device))]
        cpus = [cpu.id for cpu in self._cpus]
        switches: dict[str, int] = {}
        for leaf in found:
            rank = _ORDER[leaf.device.kind]
            switches[leaf.switch] = min(switches.get(leaf.switch, rank), rank) if leaf.switch else 0
        return sorted(
            found,
            key=lambda leaf: (
                cpus.index(leaf.cpu), switches[leaf.switch] if leaf.switch else _ORDER[leaf.device.kind],
                leaf.switch, _ORDER[leaf.device.kind],
            ),
        )  # fmt: skip

    def _leaf(self, device: Device) -> _Leaf | None:
        ways = [(cpu, path) for cpu in self._cpus if (path := self._graph.find(cpu.id, device.id)) is not None]
        if not ways:
            return None
        near = [way for way in ways if device.numa is not None and way[0].numa == device.numa] or ways
        cpu, path = min(near, key=lambda way: len(way[1].links))
        kinds = [self._topology.device(device_id) for device_id in path.devices]
        switches = [device_id.id for device_id in kinds if device_id is not None and device_id.kind == "pcie_switch"]
        return _Leaf(device, cpu.id, switches[-1] if switches else "", path.links)

    def _places(self, row: Row) -> tuple[str, ...]:
        source, _, target = row.judged.path.partition(">")
        if not {source, target} <= self._graph.devices.keys():
            return ()
        path = self._graph.find(source, target) if source != target else None
        if path is not None:
            at = {device: place for place, device in enumerate(path.devices)}
            self._directions[row.number] = {link.id: at.get(link.a, 0) < at.get(link.b, 0) for link in path.links}
        return tuple(link.id for link in path.links) if path is not None else (source,) if source == target else ()

    def _same_direction(self, first: Row, second: Row) -> bool:
        ways, others = (self._directions.get(row.number, {}) for row in (first, second))
        return all(ways[link] == others[link] for link in ways.keys() & others.keys())

    def judge_links(self) -> tuple[LinkVerdict, ...]:
        """Judge each link, and each device that has paths inside."""
        return tuple(judge_link(rows, self._same_direction) for rows in self._over.values())

    def document(self) -> str:
        """Return the whole element."""
        self._bars()
        self._cpu_boxes()
        for leaf in self.leaves:
            self._draw_leaf(leaf)
        self._arcs()
        has_bar = self._topology.of_kind(*_BARS) or self._direct_links()
        width = self._leaf_x + _LEAF + _MARGIN
        if has_bar or self._links_to("", *_NETWORK):
            width = self._bar_x + (_BAR + 8 if has_bar else 0) + _MARGIN
        height = self._top(len(self.leaves) - 1) + _BOX + _MARGIN
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="machine" viewBox="0 0 {width:g} {height:g}"'
            f' width="{_SCALE * width:g}" style="min-width:{_MIN_SCALE * width:g}px" role="group"'
            ' aria-label="the machine, its links coloured by verdict">'
        )
        return "\n".join([head, *self._parts, *self._front, "</svg>"])

    def _middle(self, device_id: str) -> float:
        return self._y[device_id] + _BOX / 2

    def _draw_leaf(self, leaf: _Leaf) -> None:
        y, x = self._middle(leaf.device.id), self._leaf_x
        left = _MARGIN + _CPU
        if leaf.switch:
            left = x - 56
            cut = next((n for n, link in enumerate(leaf.links) if leaf.switch in (link.a, link.b)), 0) + 1
            self._wire(left, x, y, leaf.links[cut:] or leaf.links[-1:], label=False)
        else:
            self._wire(left, x, y, leaf.links)
        self._box(x, self._y[leaf.device.id], _LEAF, _BOX, leaf.device.id, self._over.get(leaf.device.id, []), "leaf")
        if up := self._links_to(leaf.device.id, *_BARS):
            self._wire(x + _LEAF, self._bar_x, y, up)
        if ports := self._links_to(leaf.device.id, *_NETWORK):
            self._wire(x + _LEAF, x + _LEAF + _WIRE - 22, y, ports)
            self._front.append(f'<circle cx="{x + _LEAF + _WIRE - 20:g}" cy="{y:g}" r="3" class="port"/>')

    def _links_to(self, device_id: str, *kinds: DeviceKind) -> list[Link]:
        """Return the links from a device, or from any device if the id is empty, to devices of the given kinds."""
        ends = {device.id for device in self._topology.of_kind(*kinds)}
        return [link for link in self._topology.links
                if {link.a, link.b} & ends and (not device_id or device_id in (link.a, link.b))]  # fmt: skip

    def _direct_links(self) -> list[Link]:
        """Return the links between two GPUs without a switch."""
        gpus = {gpu.id for gpu in self._topology.of_kind("gpu")} & self._y.keys()
        return [
            link for link in self._topology.links
            if isinstance(link.protocol, GPU_LINKS) and {link.a, link.b} <= gpus
        ]  # fmt: skip

    def _bars(self) -> None:
        """Draw a bar for the NVSwitches, and a box for each PCIe switch with the link above it."""
        joined = [leaf.device.id for leaf in self.leaves if self._links_to(leaf.device.id, *_BARS)]
        if joined:
            top, bottom = self._y[joined[0]], self._y[joined[-1]] + _BOX
            self._front.append(_rect(self._bar_x, top, _BAR, bottom - top, "bar"))
            x, y = self._bar_x + _BAR / 2, (top + bottom) / 2
            self._front.append(
                f'<text x="{x:g}" y="{y:g}" class="turned" transform="rotate(90 {x:g} {y:g})">NVSwitch</text>'
                if bottom - top > 2 * _BOX else f'<text x="{x:g}" y="{y + 4:g}" class="turned">NVS</text>'
            )  # fmt: skip
        for switch in dict.fromkeys(leaf.switch for leaf in self.leaves if leaf.switch):
            mine = [leaf for leaf in self.leaves if leaf.switch == switch]
            top, bottom = self._y[mine[0].device.id], self._y[mine[-1].device.id] + _BOX
            x = _MARGIN + _CPU + _WIRE
            cut = next((n for n, link in enumerate(mine[0].links) if switch in (link.a, link.b)), 0) + 1
            self._wire(_MARGIN + _CPU, x, (top + bottom) / 2, mine[0].links[:cut])
            self._front.append(_rect(x, top, _SWITCH, bottom - top, "bar"))
            y = (top + bottom) / 2
            self._front.append(f'<text x="{x + _SWITCH / 2:g}" y="{y + 4:g}" class="turned">sw</text>')

    def _cpu_boxes(self) -> None:
        boxes = []
        for cpu in self._cpus:
            mine = [self._y[leaf.device.id] for leaf in self.leaves if leaf.cpu == cpu.id]
            if mine:
                boxes.append((cpu.id, min(mine), max(mine) + _BOX))
        for (upper, _, bottom), (lower, top, _) in pairwise(boxes):
            path = self._graph.find(upper, lower)
            if path is not None:
                x = _MARGIN + _CPU / 2
                self._stroke(f"M{x:g} {bottom:g}V{top:g}", path.links, f"{upper} to {lower}")
        for name, top, bottom in boxes:
            self._box(_MARGIN, top, _CPU, bottom - top, name, self._over.get(name, []), "cpu")

    def _arcs(self) -> None:
        for link in self._direct_links():
            upper, lower = sorted((self._middle(link.a), self._middle(link.b)))
            x, bulge = self._leaf_x + _LEAF, min(_WIRE, 20 + (lower - upper) / 3)
            self._stroke(f"M{x:g} {upper:g}C{x + bulge:g} {upper:g} {x + bulge:g} {lower:g} {x:g} {lower:g}", (link,),
                         f"{link.a} to {link.b}")  # fmt: skip

    def _wire(self, left: float, right: float, y: float, links: Sequence[Link], *, label: bool = True) -> None:
        """Draw a straight link with the rate measured over it and its limit."""
        rate, limit = self._rate(links), _limit(links)
        words = " of ".join(filter(None, (_number(rate), format_bandwidth(limit) if limit else "")))
        if rate and not limit:
            words = format_bandwidth(rate)
        self._stroke(f"M{left:g} {y:g}H{right:g}", links, _format_ends(links))
        state = judge_link(self._rows(links), self._same_direction).state
        if state in _MARKED:  # colour must not be the only sign
            mark = f'<text x="{(left + right) / 2:g}" y="{y + 4.5:g}" class="mark {state}" aria-hidden="true">'
            self._front.append(f"{mark}{wording.STATES[state].sign}</text>")
        if label and words:
            self._front.append(f'<text x="{(left + right) / 2:g}" y="{y - 6:g}" class="rate">{escape(words)}</text>')

    def _stroke(self, steps: str, links: Sequence[Link], name: str) -> None:
        verdict, limit = judge_link(self._rows(links), self._same_direction), _limit(links)
        width = _thickness(self._rate(links))
        lines = [f"{name}: limit {format_bandwidth(limit)}" if limit else f"{name}: no limit is known"]
        self._parts.append(_link_shape(
            f'<path d="{steps}" class="wire {verdict.state or "none"}" stroke-width="{width:.1f}"/>'
            f'<path d="{steps}" class="grip"/>', verdict, lines))  # fmt: skip

    def _box(self, x: float, y: float, width: float, height: float, name: str, rows: list[Row], style: str) -> None:
        verdict = judge_link(rows, self._same_direction)
        state = verdict.state
        sign = f"{wording.STATES[state].sign} " if state else ""
        shown = wording.escape(name)
        room = 13 if style == "leaf" else 7
        shown = shown if len(shown) <= room else f"{shown[: room - 1]}\u2026"
        self._front.append(_link_shape(
            _rect(x, y, width, height, f"{style} {state or 'none'}")
            + f'<text x="{x + width / 2:g}" y="{y + height / 2 + 4:g}" class="name">{escape(sign + shown)}</text>',
            verdict, [self._describe(name)]))  # fmt: skip

    def _describe(self, name: str) -> str:
        device = self._topology.device(name)
        return ", ".join(filter(None, (name, device.name if device else "")))

    def _rows(self, links: Iterable[Link]) -> list[Row]:
        found = {row.number: row for link in links for row in self._over.get(link.id, [])}
        return [found[number] for number in sorted(found)]

    def _rate(self, links: Iterable[Link]) -> float:
        """Return the highest one-way rate measured over the links, in bytes/s.

        Rates that may exceed the links, like an algbw or the sum of both directions, are ignored.
        """
        heads = [row.head for row in self._rows(links) if row.judged.quantity == "bandwidth_bytes_per_s"]
        ceiling = _ABOVE * _limit(links) or math.inf
        one_way = (
            head
            for head in heads
            if head is not None
            and head.parameters.get("direction") != "both"
            and (not isinstance(head.limit, Limit) or head.limit.value <= ceiling)
        )
        return max((head.value for head in one_way if head.value), default=0.0)


def _limit(links: Iterable[Link]) -> float:
    """Return the lowest known limit of the links of a chain in bytes/s; 0 if none is known."""
    found = [link_limit(link) for link in links]
    return min((limit.value for limit in found if isinstance(limit, Limit)), default=0.0)


def _thickness(rate: float) -> float:
    """Return a line's width for the magnitude of its rate: 1.5 without a rate, 5.0 for 55 GB/s, 6.7 for 400 GB/s."""
    return 1.5 + 2.0 * math.log10(1 + max(rate, 0.0) / 1e9) if math.isfinite(rate) else 1.5


def _number(rate: float) -> str:
    return format_bandwidth(rate).partition(" ")[0] if rate else ""


def _format_ends(links: Sequence[Link]) -> str:
    return f"{links[0].a} to {links[-1].b}" if links else ""


def _link_shape(shape: str, verdict: LinkVerdict, head: list[str]) -> str:
    """Wrap a shape in its title and a link to the first of its paths."""
    lines, ordered = [*head, *([verdict.words] if verdict.words else [])], verdict.rows
    lines += [_title(row) for row in ordered[:_MAX_TITLED]]
    if len(ordered) > _MAX_TITLED:
        lines.append(f"and {len(ordered) - _MAX_TITLED} more")
    title = f"<title>{escape(wording.escape(' | '.join(lines)).replace(' | ', chr(10)))}</title>"
    if not ordered:
        return f"<g>{title}{shape}</g>"
    return f'<a href="#path-{ordered[0].number}">{title}{shape}</a>'


def _title(row: Row) -> str:
    of = f" of {row.limit}" if row.share != wording.ABSENT else ""
    why = f", {row.why}" if row.state not in ("ok", "reference") and row.why else ""
    return f"{row.name}: {row.measured}{of}, {wording.state_word(row.state)}{why}"


def _rect(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{style}"/>'
