"""NCCL's rings as one self-contained SVG picture: a panel per host with its GPUs and NICs, the rings drawn over them.

Rings that are alike share a line. Lines differ in colour and in dashes, and the legend names channels and ranks.
It is 400 units wide like the picture of a topology, and takes the reader's light or dark setting.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from railwright.diagnosis.nccl_paths import Ways
from railwright.report.nccl_text import channel_words, order_words
from railwright.report.topology_words import Tree, clean
from railwright.results.readers.nccl_log_model import Communicator, NcclLog
from railwright.results.readers.nccl_log_summary import Hop, Shape, shapes
from railwright.topology.model import Device, Topology

_WIDTH = 400
_MARGIN = 8
_LANES = 26
"""Width of the column at the right in which rings go from host to host."""
_MAX_HOSTS = 4
_MAX_SHAPES = 6
_MAX_COLUMNS = 16
_ARC = 44
_GPU_HEIGHT = 16
_NIC_HEIGHT = 14
_PCIE = 22
_DASHES = ("", "7 3", "2 3", "10 3 2 3", "5 5", "1 4")
_STYLE = """
.rw-nccl{--rw-page:#ffffff;--rw-ink:#1c2430;--rw-soft:#5b6675;--rw-line:#c3cad4;--rw-panel:#f3f5f8;--rw-box:#ffffff;
--rw-0:#1565c0;--rw-1:#b3261e;--rw-2:#2e7d32;--rw-3:#8d5a00;--rw-4:#6a3d9a;--rw-5:#00707a;background:var(--rw-page)}
@media (prefers-color-scheme:dark){.rw-nccl{--rw-page:#12161c;--rw-ink:#e6eaf0;--rw-soft:#a3aebd;--rw-line:#4a5563;
--rw-panel:#1b212a;--rw-box:#12161c;--rw-0:#7db7ff;--rw-1:#ff8a80;--rw-2:#7bd183;--rw-3:#e5b567;--rw-4:#c9a2f2;
--rw-5:#6fd3dc}}
.rw-nccl text{font:10.5px system-ui,sans-serif;fill:var(--rw-ink)}.rw-nccl .s{font-size:9px;fill:var(--rw-soft)}
.rw-nccl .halo{font-size:9px;fill:var(--rw-soft);paint-order:stroke;stroke:var(--rw-panel);stroke-width:3px}
.rw-nccl .h{font-size:13px;font-weight:600}.rw-nccl .b{font-weight:600}.rw-nccl .panel{fill:var(--rw-panel)}
.rw-nccl .box{fill:var(--rw-box);stroke:var(--rw-soft)}.rw-nccl .group{fill:none;stroke:var(--rw-line)}
.rw-nccl .wire{stroke:var(--rw-line);fill:none}.rw-nccl .ring{fill:none;stroke-width:1.6}
""" + "".join(f".rw-nccl .r{place}{{stroke:var(--rw-{place})}}" for place in range(_MAX_SHAPES))


class _Group(NamedTuple):
    """Devices under one PCIe switch (or one root port): `name` is the switch."""

    name: str
    gpus: tuple[str, ...]
    nics: tuple[str, ...]


class _Spot(NamedTuple):
    """Where a box is: its middle, its top and its bottom."""

    x: float
    top: float
    bottom: float


def draw(log: NcclLog, topology: Topology | None) -> str:
    """The SVG document: no script, loads nothing, all text escaped. The topology stands for every host."""
    sheet = _Sheet()
    if not log.communicators or not log.main.rings:
        sheet.text(_MARGIN, 16, "No ring is in this log", "h", 50)
        sheet.y = 24
        return sheet.document("NCCL rings")
    main = log.main
    found = shapes(main)
    version = log.versions[0].nccl if log.versions else "version not logged"
    sheet.text(_MARGIN, 16, f"NCCL {version}: {len(main.rings)} rings of {main.size} ranks", "h", 52)
    sheet.y = 24
    picture = _Rings(sheet, log, main, topology, found[:_MAX_SHAPES])
    picture.draw()
    hosts = {one.rank: one.host for one in main.ranks if one.host}
    for place, shape in enumerate(found[:_MAX_SHAPES]):
        _legend(sheet, place, shape, hosts)
    if len(found) > _MAX_SHAPES:
        sheet.note(f"{len(found) - _MAX_SHAPES} more different rings are not drawn")
    return sheet.document(f"NCCL rings of {main.size} ranks")


class _Sheet:
    """Elements drawn so far; `y` is where the next part goes."""

    def __init__(self) -> None:
        self.y = 0.0
        self._back: list[str] = []
        self._lines: list[str] = []
        self._front: list[str] = []

    def text(self, x: float, y: float, words: str, style: str, room: int, *, anchor: str = "start") -> None:
        """Text cut to `room` characters."""
        words = clean(words)
        words = words[: max(room - 1, 0)] + "…" if len(words) > room else words
        end = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._front.append(f'<text x="{x:g}" y="{y:g}" class="{style}"{end}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, style: str, *, behind: bool = False) -> None:
        """A rectangle with round corners."""
        element = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" class="{style}"/>'
        (self._back if behind else self._front).append(element)

    def path(self, steps: str, style: str, *, dash: str = "") -> None:
        """A line, behind boxes and words."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._lines.append(f'<path d="{steps}" class="{style}"{dashes}/>')

    def note(self, words: str) -> None:
        """A line of small text across the picture."""
        self.y += 13
        self.text(_MARGIN, self.y, words, "s", 80)

    def document(self, title: str) -> str:
        """The whole SVG."""
        height = self.y + _MARGIN
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="rw-nccl" viewBox="0 0 {_WIDTH} {height:g}" width="100%"'
            f' style="max-width:720px" role="img"><title>{escape(title)}</title><style>{_STYLE}</style>'
            f'<rect width="{_WIDTH}" height="{height:g}" style="fill:var(--rw-page)"/>'
        )
        return "\n".join([head, *self._back, *self._lines, *self._front, "</svg>"]) + "\n"


class _Rings:
    """The hosts and the rings over them."""

    def __init__(
        self, sheet: _Sheet, log: NcclLog, main: Communicator, topology: Topology | None, found: tuple[Shape, ...]
    ) -> None:
        self._sheet = sheet
        self._main = main
        self._found = found
        self._ways = Ways(log, main, topology)
        self._hosts = main.hosts or ("",)
        self._host_of = {one.rank: one.host for one in main.ranks}
        self._groups = _groups(topology) if topology is not None else ()
        self._spots: dict[tuple[str, str], _Spot] = {}
        self._floors: dict[str, float] = {}

    def draw(self) -> None:
        """All hosts, then all rings."""
        for host in self._hosts[:_MAX_HOSTS]:
            self._draw_host(host)
        for place, shape in enumerate(self._found):
            for hop in shape.hops:
                self._draw_hop(place, hop)
        if len(self._hosts) > _MAX_HOSTS:
            self._sheet.note(f"{len(self._hosts) - _MAX_HOSTS} of {len(self._hosts)} hosts are not drawn")

    def _gpu(self, rank: int) -> str:
        return (self._ways.gpu_id(rank) if self._groups else "") or f"rank {rank}"

    def _nic(self, host: str, nic: int) -> str:
        return (self._ways.nic_id(host, nic) if self._groups else "") or f"NIC {nic}"

    def _draw_host(self, host: str) -> None:
        """A panel: GPUs above, NICs below, those of one PCIe switch in a frame."""
        groups = self._groups_of(host)
        columns = sum(max(len(group.gpus), len(group.nics), 1) for group in groups)
        top = self._sheet.y + 6
        if columns > _MAX_COLUMNS:
            self._sheet.note(f"{clean(host)}: {columns} columns of GPUs and NICs are too many to draw")
            return
        cell = min(64.0, (_WIDTH - 2 * _MARGIN - _LANES) / max(columns, 1))
        gpu_top = top + 16 + _ARC
        nic_top = gpu_top + _GPU_HEIGHT + _PCIE
        floor = nic_top + _NIC_HEIGHT + 8
        self._floors[host] = floor
        bottom = floor + 3 * len(self._found) + 4
        self._sheet.box(_MARGIN / 2, top, _WIDTH - _MARGIN, bottom - top, "panel", behind=True)
        self._sheet.text(_MARGIN, top + 12, host or "host not logged", "b", 50)
        x = float(_MARGIN)
        for group in groups:
            width = cell * max(len(group.gpus), len(group.nics), 1)
            if group.name:
                self._sheet.box(
                    x + 1, gpu_top - 4, width - 2, nic_top + _NIC_HEIGHT - gpu_top + 8, "group", behind=True
                )
                room = int(width / 4.6)
                self._sheet.text(x + width / 2, gpu_top + _GPU_HEIGHT + 14, group.name, "halo", room, anchor="middle")
            self._row(host, group.gpus, x, width, gpu_top, _GPU_HEIGHT)
            self._row(host, group.nics, x, width, nic_top, _NIC_HEIGHT)
            x += width
        self._sheet.y = bottom

    def _row(self, host: str, devices: tuple[str, ...], x: float, width: float, top: float, height: float) -> None:
        cell = width / max(len(devices), 1)
        ranks = {self._gpu(rank): rank for rank, on in self._host_of.items() if on == host}
        for place, device in enumerate(devices):
            left, box = x + place * cell + 3, min(cell - 6, 44.0)
            left += (cell - 6 - box) / 2
            self._sheet.box(left, top, box, height, "box")
            rank = ranks.get(device)
            label = device if rank is None or device.startswith("rank") else f"{device}·{rank}"
            style = "s" if box < 40 else ""
            self._sheet.text(left + box / 2, top + height - 4, label, style, int(box / 4.4), anchor="middle")
            self._spots[(host, device)] = _Spot(left + box / 2, top, top + height)

    def _groups_of(self, host: str) -> tuple[_Group, ...]:
        """The topology's groups, and one more for what could not be placed in it."""
        ranks = [rank for rank, on in sorted(self._host_of.items()) if on == host]
        gpus = tuple(self._gpu(rank) for rank in ranks)
        used = {
            one.nic
            for one in self._main.connections
            if one.nic is not None
            and self._host_of.get(one.target if one.direction == "receive" else one.source) == host
        }
        nics = tuple(self._nic(host, nic) for nic in sorted(used))
        placed = {device for group in self._groups for device in (*group.gpus, *group.nics)}
        rest = _Group("", tuple(g for g in gpus if g not in placed), tuple(n for n in nics if n not in placed))
        return (*self._groups, rest) if rest.gpus or rest.nics else self._groups

    def _draw_hop(self, place: int, hop: Hop) -> None:
        start_host, end_host = self._host_of.get(hop.source, ""), self._host_of.get(hop.target, "")
        start = self._spots.get((start_host, self._gpu(hop.source)))
        end = self._spots.get((end_host, self._gpu(hop.target)))
        if hop.send is None or hop.send.transport != "NET":
            if start is not None and end is not None and start_host == end_host and hop.crosses is False:
                self._arc(place, start, end)
            elif hop.receive is not None and end is not None and hop.receive.nic is not None:
                self._to_network(place, end_host, end, hop.receive.nic)
            return
        if start is not None and hop.send.nic is not None:
            if hop.send.proxy is not None:
                proxy = self._spots.get((start_host, self._gpu(hop.send.proxy)))
                if proxy is not None:
                    self._arc(place, start, proxy)
                    start = proxy
            self._to_network(place, start_host, start, hop.send.nic)
        if end is not None and hop.receive is not None and hop.receive.nic is not None:
            self._to_network(place, end_host, end, hop.receive.nic)
        self._between(place, start_host, end_host)

    def _arc(self, place: int, start: _Spot, end: _Spot) -> None:
        """Over the GPUs, the higher the farther they are apart; there and back on different heights."""
        shift = (place - (len(self._found) - 1) / 2) * 2
        height = min(_ARC - 4, 10 + abs(end.x - start.x) / 7 + (4 if end.x < start.x else 0))
        middle = (start.x + end.x) / 2 + shift
        steps = (
            f"M{start.x + shift:g} {start.top:g}Q{middle:g} {start.top - 2 * height:g} {end.x + shift:g} {end.top:g}"
        )
        self._sheet.path(steps, f"ring r{place}", dash=_DASHES[place])

    def _to_network(self, place: int, host: str, gpu: _Spot, nic: int) -> None:
        """From the GPU down to the NIC, and on to the ring's lane."""
        spot = self._spots.get((host, self._nic(host, nic)))
        if spot is None:
            return
        shift = (place - (len(self._found) - 1) / 2) * 2
        above, below = gpu.x + shift, spot.x + shift
        level, lane = self._floors[host] + 3 * place, _lane(place)
        steps = (
            f"M{above:g} {gpu.bottom:g}C{above:g} {gpu.bottom + 12:g} {below:g} {spot.top - 12:g}"
            f" {below:g} {spot.top:g}M{below:g} {spot.bottom:g}V{level:g}H{lane:g}"
        )
        self._sheet.path(steps, f"ring r{place}", dash=_DASHES[place])

    def _between(self, place: int, one: str, other: str) -> None:
        """In the ring's lane from host to host."""
        if one == other or one not in self._floors or other not in self._floors:
            return
        levels = sorted(self._floors[host] + 3 * place for host in (one, other))
        self._sheet.path(f"M{_lane(place):g} {levels[0]:g}V{levels[1]:g}", f"ring r{place}", dash=_DASHES[place])


def _lane(place: int) -> float:
    return _WIDTH - _MARGIN - _LANES + 6 + 3.5 * place


def _legend(sheet: _Sheet, place: int, shape: Shape, hosts: dict[int, str]) -> None:
    sheet.y += 15
    sheet.path(f"M{_MARGIN} {sheet.y - 4:g}h30", f"ring r{place}", dash=_DASHES[place])
    words = f"{len(shape.channels)}x, channels {channel_words(shape.channels)}: {order_words(shape.ring, hosts)}"
    sheet.text(_MARGIN + 36, sheet.y, words, "", 64)


def _groups(topology: Topology) -> tuple[_Group, ...]:
    """GPUs and NICs by the PCIe switch above them, in the order of the tree; those without a switch by their CPU."""
    tree = Tree(topology)
    found: dict[str, tuple[list[str], list[str]]] = {}

    def walk(device: Device, switch: str, seen: frozenset[str]) -> None:
        for child, _ in tree.below(device):
            if child.id in seen:
                continue
            if child.kind in ("gpu", "nic"):
                found.setdefault(switch, ([], []))[0 if child.kind == "gpu" else 1].append(child.id)
            walk(child, child.id if child.kind == "pcie_switch" else switch, seen | {child.id})

    for root in tree.roots:
        walk(root, root.id, frozenset({root.id}))
    return tuple(_Group(name, tuple(gpus), tuple(nics)) for name, (gpus, nics) in found.items())
