"""Tables of collectives whose rates are judged and shown as busbw."""

from __future__ import annotations

from railwright.busbw import OPERATIONS, bus_bandwidth
from railwright.results.readers.foreign_file import ForeignFile
from railwright.results.workload import Collective


def is_busbw(file: ForeignFile) -> bool:
    """Report whether the rates are judged and shown as busbw, as is usual for the tool; with one rank busbw is 0."""
    return is_nccl(file) and file.ranks is not None and file.ranks > 1


def busbw_scale(file: ForeignFile) -> float:
    """Return the factor from the table's algbw to the rates shown."""
    return bus_bandwidth(file.test, file.ranks, 1.0) if is_busbw(file) and file.ranks is not None else 1.0


def is_nccl(file: ForeignFile) -> bool:
    """Report whether the table is of a collective of NCCL that has a busbw."""
    return isinstance(file.workload, Collective) and file.workload.by == "nccl" and file.test in OPERATIONS
