"""The multi-line tables in NCCL's log: the machine as NCCL sees it, and the tuning table.

Lines of several ranks are mixed, so each table is read from one thread, the first of its host to print it.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from railwright.results.readers.nccl_log.lines import Message
from railwright.results.readers.nccl_log.messages import PROTOCOLS, decimal, normalize_name, rate
from railwright.results.readers.nccl_log.model import System, SystemNode, SystemPath, Tuning
from railwright.topology.devices import PathKind
from railwright.topology.paths import KIND_ORDER

MAX_ROWS = 20_000
_KINDS: dict[str, PathKind] = {kind: kind for kind in KIND_ORDER}
_BEGIN = re.compile(r"=== System : max(?:Bw|Width) ([\d.]{1,12}) total(?:Bw|Width) ([\d.]{1,12}) ===")
_CPU = re.compile(r"CPU/[0-9A-Fa-f-]{1,40}")
_BRANCH = re.compile(r"( *)\+ (\w{2,4})\[([\d.]{1,12})\] - (\w{3}/[0-9A-Fa-f-]{1,60})")
_ROW = re.compile(r"((?:GPU|NET)/[0-9A-Fa-f-]{1,40}) :")
_BEGINNINGS = ("CPU/", "+ ", "GPU/", "NET/")
"""The beginnings of the lines above, without spaces. Most lines of a log have none of them."""
_CELL = re.compile(r"(\w{3}/[0-9A-Fa-f-]{1,40}) \(\d{1,4}/([\d.]{1,16})/(\w{2,4})\)")
_ESTIMATE = re.compile(r" *([\d.]{1,12})/ *([\d.]{1,12}) *")
_OPERATIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")

Thread = tuple[str, int, int]


class SystemTable:
    """NCCL's tree and paths of one host."""

    def __init__(self, message: Message, maximum: str, total: str) -> None:
        self._owner = writing_thread(message)
        self._system = System(
            host=message.host, max_bytes_per_s=rate(maximum), total_bytes_per_s=rate(total), line=message.line
        )
        self._nodes: list[SystemNode] = []
        self._indents: list[int] = []
        self._paths: list[SystemPath] = []

    def take(self, message: Message) -> bool:
        """Read a message. Reports whether it was a line of this table."""
        text = message.text.lstrip()
        if not text.startswith(_BEGINNINGS) or writing_thread(message) != self._owner:
            return False
        if len(self._nodes) + len(self._paths) > MAX_ROWS:
            return False
        if _CPU.match(text) and " :" not in text:
            self._indents = []
            self._nodes.append(SystemNode(depth=0, node=text.split()[0], link="", bandwidth_bytes_per_s=None))
        elif branch := _BRANCH.match(message.text):
            indent, link, bandwidth, node = branch.groups()
            self._indents = [*(one for one in self._indents if one < len(indent)), len(indent)]
            depth = len(self._indents)
            self._nodes.append(SystemNode(depth=depth, node=node, link=link, bandwidth_bytes_per_s=rate(bandwidth)))
        elif row := _ROW.match(text):
            for target, bandwidth, kind in _CELL.findall(text[row.end() :]):
                if kind in _KINDS:
                    path = SystemPath(source=row[1], target=target, kind=_KINDS[kind],
                                      bandwidth_bytes_per_s=rate(bandwidth), line=message.line)  # fmt: skip
                    self._paths.append(path)
        else:
            return False
        return True

    def system(self) -> System:
        """Return the host as read so far."""
        return replace(self._system, nodes=tuple(self._nodes), paths=tuple(self._paths))


class TuningTable:
    """NCCL's estimates: a header with algorithms (and, up to 2.14, protocols), then a row per operation."""

    def __init__(self) -> None:
        self._owner: Thread | None = None
        self._columns: list[tuple[str, str]] = []
        self.estimates: list[Tuning] = []

    def take(self, message: Message) -> bool:
        """Read a message. Reports whether it was a line of the first such table."""
        if "|" not in message.text:
            return False
        cells = message.text.rstrip().rstrip("|").split("|")[:64]
        if len(cells) < 2 or (self._owner is not None and writing_thread(message) != self._owner):
            return False
        head = cells[0].strip()
        if head == "Algorithm":
            self._columns = [(normalize_name(cell.strip()), protocol) for cell in cells[1:] for protocol in PROTOCOLS]
        elif head == "Latency/AlgBw":
            pairs = [cell.partition("/") for cell in cells[1:]]
            self._columns = [(normalize_name(one.strip()), normalize_name(other.strip())) for one, _, other in pairs]
        elif head in _OPERATIONS and self._owner is not None and len(self.estimates) < MAX_ROWS:
            for (algorithm, protocol), cell in zip(self._columns, cells[1:], strict=False):
                if found := _ESTIMATE.fullmatch(cell):
                    estimate = Tuning(operation=head, algorithm=algorithm, protocol=protocol,
                                      latency_s=decimal(found[1]) * 1e-6, bandwidth_bytes_per_s=rate(found[2]),
                                      line=message.line)  # fmt: skip
                    self.estimates.append(estimate)
        else:
            return False
        self._owner = writing_thread(message)
        return True


def begin_system(message: Message) -> SystemTable | None:
    """Start a table if the message is its header (`maxWidth` up to 2.12)."""
    found = _BEGIN.match(message.text.lstrip()) if "===" in message.text else None
    return SystemTable(message, *found.groups()) if found else None


def writing_thread(message: Message) -> Thread:
    """Return the thread that wrote the message."""
    return (message.host, message.pid, message.thread)
