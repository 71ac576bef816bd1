"""NCCL's rings as a picture: a panel for each host with its GPUs and NICs, and the rings drawn over them.

Equal rings share a line. Lines differ in colour and dashes, and the legend names channels and ranks.
"""

from __future__ import annotations

from typing import NamedTuple

from railwright.diagnosis.nccl.paths import ConnectionPaths
from railwright.report.pictures.svg import MARGIN, WIDTH, Sheet
from railwright.report.text.nccl import channel_words, order_words
from railwright.report.text.topology_words import Tree, clean
from railwright.results.readers.nccl_log.model import Connection, NcclLog
from railwright.results.readers.nccl_log.summary import Hop, Shape, shapes
from railwright.topology.devices import Topology
from railwright.units import format_count

_LANES = 26
"""The width of the column at the right, where rings run between hosts."""
_MAX_HOSTS = 4
_MAX_SHAPES = 6
_MAX_COLUMNS = 16
_ARC = 44
_GPU_HEIGHT = 16
_NIC_HEIGHT = 14
_PCIE = 22
_DASHES = ("", "7 3", "2 3", "10 3 2 3", "5 5", "1 4")


class _Group(NamedTuple):
    """The GPUs and NICs below a PCIe switch, or below a CPU without one, whose id is `name`.

    `name` is empty for devices that are not in the topology.
    """

    name: str
    gpus: tuple[str, ...]
    nics: tuple[str, ...]

    @property
    def columns(self) -> int:
        """The number of boxes side by side."""
        return max(len(self.gpus), len(self.nics), 1)


class _Spot(NamedTuple):
    """The position of a box: its middle, its top and its bottom."""

    x: float
    top: float
    bottom: float


def draw(log: NcclLog, topology: Topology | None) -> str:
    """Render the SVG document, without scripts and with all text escaped. The topology is used for every host."""
    sheet = Sheet("nccl")
    if not log.communicators or not log.main.rings:
        sheet.text(MARGIN, 16, "No rings in this log", "h", 50)
        sheet.y = 24
        return sheet.document("NCCL rings")
    main, found = log.main, shapes(log.main)
    version = log.versions[0].nccl if log.versions else "version not logged"
    sheet.text(MARGIN, 16, f"NCCL {version}: {len(main.rings)} rings of {main.size} ranks", "h", 52)
    sheet.y = 24
    _Rings(sheet, log, topology, found[:_MAX_SHAPES]).draw()
    if len(found) > _MAX_SHAPES:
        more = len(found) - _MAX_SHAPES
        sheet.note(f"{format_count(more, 'more distinct ring')} {'is' if more == 1 else 'are'} not drawn")
    return sheet.document(f"NCCL rings of {main.size} ranks")


class _Rings:
    """The hosts and the rings over them."""

    def __init__(self, sheet: Sheet, log: NcclLog, topology: Topology | None, found: tuple[Shape, ...]) -> None:
        self._sheet = sheet
        self._main = log.main
        self._shapes = found
        self._paths = ConnectionPaths(log, log.main, topology)
        self._host_of = {rank.rank: rank.host for rank in log.main.ranks}
        self._groups = _groups(topology) if topology is not None else ()
        self._spots: dict[tuple[str, str], _Spot] = {}
        self._floors: dict[str, float] = {}

    def draw(self) -> None:
        """Draw all hosts, then all rings, then the legend."""
        hosts = self._main.hosts or ("",)
        for host in hosts[:_MAX_HOSTS]:
            self._draw_host(host)
        for place, shape in enumerate(self._shapes):
            for hop in shape.hops:
                self._draw_hop(place, hop)
        if len(hosts) > _MAX_HOSTS:
            self._sheet.note(f"{len(hosts) - _MAX_HOSTS} of {len(hosts)} hosts are not drawn")
        known = {rank: host for rank, host in self._host_of.items() if host}
        for place, shape in enumerate(self._shapes):
            self._sheet.y += 15
            self._draw_line(place, f"M{MARGIN} {self._sheet.y - 4:g}h30")
            words = f"channels {channel_words(shape.channels)}: {order_words(shape.ring, known)}"
            self._sheet.text(MARGIN + 36, self._sheet.y, f"{len(shape.channels)}x, {words}", "", 64)

    def _draw_line(self, place: int, steps: str) -> None:
        self._sheet.line(steps, f"ring r{place}", dash=_DASHES[place], behind=True)

    def _gpu(self, rank: int) -> str:
        return (self._paths.gpu_id(rank) if self._groups else "") or f"rank {rank}"

    def _nic(self, host: str, nic: int) -> str:
        return (self._paths.nic_id(host, nic) if self._groups else "") or f"NIC {nic}"

    def _draw_host(self, host: str) -> None:
        """Draw a panel with GPUs above and NICs below; a frame joins those of a PCIe switch."""
        sheet, groups = self._sheet, self._list_groups(host)
        columns = sum(group.columns for group in groups)
        if columns > _MAX_COLUMNS:
            sheet.note(f"{clean(host)}: {columns} columns of GPUs and NICs are too many to draw")
            return
        cell = min(64.0, (WIDTH - 2 * MARGIN - _LANES) / max(columns, 1))
        top = sheet.y + 6
        gpu_top = top + 16 + _ARC
        nic_top = gpu_top + _GPU_HEIGHT + _PCIE
        floor = self._floors[host] = nic_top + _NIC_HEIGHT + 8
        sheet.y = floor + 3 * len(self._shapes) + 4
        sheet.box(MARGIN / 2, top, WIDTH - MARGIN, sheet.y - top, "panel", behind=True)
        sheet.text(MARGIN, top + 12, host or "host not logged", "b", 50)
        x = float(MARGIN)
        for group in groups:
            width = cell * group.columns
            if group.name:
                sheet.box(x + 1, gpu_top - 4, width - 2, floor - gpu_top, "group", behind=True)
                middle, room = x + width / 2, int(width / 4.6)
                sheet.text(middle, gpu_top + _GPU_HEIGHT + 14, group.name, "halo", room, anchor="middle")
            self._draw_row(host, group.gpus, x, width, gpu_top, _GPU_HEIGHT)
            self._draw_row(host, group.nics, x, width, nic_top, _NIC_HEIGHT)
            x += width

    def _draw_row(self, host: str, devices: tuple[str, ...], x: float, width: float, top: float, height: float) -> None:
        cell = width / max(len(devices), 1)
        box = min(cell - 6, 44.0)
        ranks = {self._gpu(rank): rank for rank, rank_host in self._host_of.items() if rank_host == host}
        for place, device in enumerate(devices):
            left = x + place * cell + 3 + (cell - 6 - box) / 2
            self._sheet.box(left, top, box, height, "box")
            rank = ranks.get(device)
            label = device if rank is None or device.startswith("rank") else f"{device}·{rank}"
            middle, style = left + box / 2, "s" if box < 40 else ""
            self._sheet.text(middle, top + height - 4, label, style, int(box / 4.4), anchor="middle")
            self._spots[(host, device)] = _Spot(middle, top, top + height)

    def _list_groups(self, host: str) -> tuple[_Group, ...]:
        """Return the topology's groups, and another for devices that are not in the topology."""
        placed = {device for group in self._groups for device in (*group.gpus, *group.nics)}
        gpus = (self._gpu(rank) for rank, rank_host in sorted(self._host_of.items()) if rank_host == host)
        sides = (
            (connection, connection.target if connection.direction == "receive" else connection.source)
            for connection in self._main.connections
        )
        used = {
            connection.nic
            for connection, rank in sides
            if connection.nic is not None and self._host_of.get(rank) == host
        }
        nics = (self._nic(host, nic) for nic in sorted(used))
        rest = _Group("", *(tuple(name for name in names if name not in placed) for names in (gpus, nics)))
        return (*self._groups, rest) if rest.gpus or rest.nics else self._groups

    def _draw_hop(self, place: int, hop: Hop) -> None:
        start_host, end_host = self._host_of.get(hop.source, ""), self._host_of.get(hop.target, "")
        start, end = self._spot(start_host, hop.source), self._spot(end_host, hop.target)
        if hop.send is not None and hop.send.transport == "NET":
            proxy = self._spot(start_host, hop.send.proxy)
            if start is not None and proxy is not None and hop.send.nic is not None:
                self._draw_arc(place, start, proxy)
                start = proxy
            self._draw_to_lane(place, start_host, start, hop.send)
            self._draw_to_lane(place, end_host, end, hop.receive)
            self._draw_lane(place, start_host, end_host)
        elif start is not None and end is not None and start_host == end_host and hop.crosses is False:
            self._draw_arc(place, start, end)
        else:
            self._draw_to_lane(place, end_host, end, hop.receive)

    def _spot(self, host: str, rank: int | None) -> _Spot | None:
        return None if rank is None else self._spots.get((host, self._gpu(rank)))

    def _shift(self, place: int) -> float:
        """Return the offset of a ring's line from the middle of a box, which keeps rings apart."""
        return (place - (len(self._shapes) - 1) / 2) * 2

    def _draw_arc(self, place: int, start: _Spot, end: _Spot) -> None:
        """Draw an arc over the GPUs, higher for a longer distance and lower on the way back."""
        height = min(_ARC - 4, 10 + abs(end.x - start.x) / 7 + (4 if end.x < start.x else 0))
        first, last = start.x + self._shift(place), end.x + self._shift(place)
        middle = (start.x + end.x) / 2 + self._shift(place)
        self._draw_line(place, f"M{first:g} {start.top:g}Q{middle:g} {start.top - 2 * height:g} {last:g} {end.top:g}")

    def _draw_to_lane(self, place: int, host: str, gpu: _Spot | None, side: Connection | None) -> None:
        """Draw a line from the GPU down to the NIC and on to the ring's lane."""
        nic = self._spots.get((host, self._nic(host, side.nic))) if side is not None and side.nic is not None else None
        if gpu is None or nic is None:
            return
        above, below = gpu.x + self._shift(place), nic.x + self._shift(place)
        self._draw_line(
            place,
            f"M{above:g} {gpu.bottom:g}C{above:g} {gpu.bottom + 12:g} {below:g} {nic.top - 12:g} {below:g} {nic.top:g}"
            f"M{below:g} {nic.bottom:g}V{self._floors[host] + 3 * place:g}H{_lane(place):g}",
        )

    def _draw_lane(self, place: int, source: str, target: str) -> None:
        """Draw a line from host to host in the ring's lane."""
        if source != target and source in self._floors and target in self._floors:
            levels = sorted(self._floors[host] + 3 * place for host in (source, target))
            self._draw_line(place, f"M{_lane(place):g} {levels[0]:g}V{levels[1]:g}")


def _lane(place: int) -> float:
    return WIDTH - MARGIN - _LANES + 6 + 3.5 * place


def _groups(topology: Topology) -> tuple[_Group, ...]:
    """Group GPUs and NICs by the PCIe switch above them, or by their CPU, in the order of the tree."""
    tree = Tree(topology)
    found: dict[str, tuple[list[str], list[str]]] = {}
    for root in tree.roots:
        above = {0: root.id}
        for depth, device, _ in tree.walk(root):
            above[depth] = device.id if device.kind == "pcie_switch" else above[depth - 1]
            if device.kind in ("gpu", "nic"):
                found.setdefault(above[depth], ([], []))[device.kind == "nic"].append(device.id)
    return tuple(_Group(name, tuple(gpus), tuple(nics)) for name, (gpus, nics) in found.items())
