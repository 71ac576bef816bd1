"""The program that reads the counters of all GPUs from NVML. `gpus` starts it, never a user.

    python -m railwright.watch.gpu_program FILE INTERVAL_S CPU_SHARE

It prints a line of JSON with the available counters, and then keeps their numbers in FILE up to date.
It is a separate process because a driver may hang or crash in any call. It dies with its parent.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pynvml

from railwright.native.gpu_counters import (
    FIELDS,
    FIRST_PLACE,
    ONE,
    RING,
    SAMPLES,
    TWO,
    CounterQuery,
    Field,
    cost_s,
    publish,
)
from railwright.native.sampler import NO_VALUE
from railwright.process import die_with_parent
from railwright.sampling.gpu_found import GPU_MEMORY, MAX_NUMBERS, GpusFound
from railwright.sampling.sources import Source
from railwright.topology.sources.nvidia_nvml import handles
from railwright.writing import open_shared

_ALL_LINKS = 0xFFFFFFFF
"""The scope that adds all NVLinks up (nvml.h, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)."""
_FOR_OFTEN = 0.8
"""The share of the CPU budget for frequent calls; the rest is for infrequent ones."""
_SELDOM_S, _SAMPLES_S = 1.0, 0.5
"""The intervals of calls for slowly changing values, and for the driver's own samples, which it keeps for 2 s."""
_SHARED = "all that runs on this GPU"


class Column(NamedTuple):
    """The name and unit of a number."""

    name: str
    kind: str
    unit: str
    scale: float
    gauge: bool = False


class NvmlCall(NamedTuple):
    """A call of NVML, and its numbers."""

    function: str
    kind: int
    columns: tuple[Column, ...]
    fields: tuple[int, ...] = ()
    scope: int = 0
    argument: int = 0
    seldom: bool = False


_POWER = Column("power", "gpu", "W", 1e-3, gauge=True)
_LINK = tuple(Column(f"nvlink.{way}", "nvlink", "bytes", 1024) for way in ("tx", "rx"))
_PCIE = tuple(Column(f"pcie.{way}", "pcie", "bytes", 1) for way in ("tx", "rx"))
_HELD = tuple(Column(f"held_back.{why}", "held", "s", 1e-9) for why in ("power", "heat"))
_USE = tuple(Column(f"use.{part}", "gpu", "%", 1, gauge=True) for part in ("kernels", "memory"))
_VALUES = "nvmlDeviceGetFieldValues"
# By the numbers of nvml.h: instant power, NVLink data, PCIe bytes, time below the wanted clocks.
NVML_CALLS = (
    NvmlCall("nvmlDeviceGetSamples", SAMPLES, (_POWER,)),  # NVML_TOTAL_POWER_SAMPLES
    NvmlCall(_VALUES, FIELDS, (_POWER,), (186,)),  # for drivers without samples
    NvmlCall("nvmlDeviceGetPowerUsage", TWO, (_POWER,)),  # for GPUs without instant power
    NvmlCall(_VALUES, FIELDS, _LINK, (138, 139), scope=_ALL_LINKS),
    NvmlCall("nvmlDeviceGetClockInfo", ONE, (Column("clock", "gpu", "Hz", 1e6, gauge=True),), argument=1, seldom=True),
    NvmlCall("nvmlDeviceGetTemperature", ONE, (Column("temperature", "gpu", "C", 1, gauge=True),), seldom=True),
    NvmlCall("nvmlDeviceGetUtilizationRates", TWO, _USE, seldom=True),
    NvmlCall(_VALUES, FIELDS, _PCIE, (197, 198), seldom=True),
    NvmlCall(_VALUES, FIELDS, _HELD, (74, 75), seldom=True),
)


def find_queries(library: ctypes.CDLL, numbers: int) -> tuple[list[CounterQuery], GpusFound]:
    """Find the calls that NVML answers, with their cost, and the sources that they provide.

    `numbers` is the address of the shared numbers.
    """
    queries: list[CounterQuery] = []
    sources: list[Source] = []
    missing: dict[str, str] = {}
    costs: dict[bool, float] = {True: 0.0, False: 0.0}
    place = FIRST_PLACE
    for number, (_, handle) in enumerate(sorted(handles(), key=lambda one: one[0])):
        for asked in NVML_CALLS:
            names = [f"gpu{number}.{column.name}" for column in asked.columns]
            takes = 1 + 2 * RING if asked.kind == SAMPLES else len(names)
            if place + takes > MAX_NUMBERS or any(source.name in names for source in sources):
                continue
            query = _build_query(library, handle, asked, place)
            took_s = cost_s(query, numbers) if query is not None else 0.0
            values = _read_values(numbers, query) if query is not None else [NO_VALUE] * len(names)
            missing |= {name: "NVML has no answer" for name, one in zip(names, values, strict=True) if one == NO_VALUE}
            here = [one for one, value in zip(_sources(asked, names, place), values, strict=True) if value != NO_VALUE]
            if query is None or not here:
                continue
            for one in here:
                missing.pop(one.name, None)
            queries.append(query)
            sources += here
            if asked.kind != SAMPLES:
                costs[asked.seldom] += took_s
            place += takes
    return queries, GpusFound(sources=tuple(sources), missing=missing, often_s=costs[False], seldom_s=costs[True])


def _build_query(library: ctypes.CDLL, handle: object, asked: NvmlCall, place: int) -> CounterQuery | None:
    call = getattr(library, asked.function, None)
    if call is None:
        return None
    fields = (Field * len(asked.fields))(*(Field(id=one, scope=asked.scope) for one in asked.fields))
    address = ctypes.cast(handle, ctypes.c_void_p)  # type: ignore[arg-type]
    return CounterQuery(kind=asked.kind, argument=asked.argument, call=ctypes.cast(call, ctypes.c_void_p), gpu=address,
                    fields=fields, count=len(asked.columns), every=1, place=place)  # fmt: skip


def _read_values(numbers: int, query: CounterQuery) -> list[int]:
    if query.kind == SAMPLES and not ctypes.c_uint64.from_address(numbers + 8 * query.place).value:
        return [NO_VALUE]
    return list((ctypes.c_uint64 * query.count).from_address(numbers + 8 * query.place))


def _sources(asked: NvmlCall, names: Sequence[str], place: int) -> Iterator[Source]:
    for at, (name, column) in enumerate(zip(names, asked.columns, strict=True)):
        yield msgspec.convert(
            {"name": name, "kind": column.kind, "unit": column.unit, "scale": column.scale, "gauge": column.gauge,
             "path": GPU_MEMORY, "field": place + at, "shared": _SHARED, "seldom": asked.seldom,
             "late": asked.kind == SAMPLES},
            Source,
        )  # fmt: skip


def set_pace(queries: Sequence[CounterQuery], found: GpusFound, interval_s: float, cpu_share: float) -> float:
    """Set `every` of each query so that all together take at most `cpu_share` of a core.

    Returns the seconds between passes over the queries.
    """
    often_s = max(interval_s, found.often_s / (_FOR_OFTEN * cpu_share))
    seldom_s = max(_SELDOM_S, often_s, found.seldom_s / ((1 - _FOR_OFTEN) * cpu_share))
    slow = {source.field for source in found.sources if source.seldom}
    wanted = [
        _SAMPLES_S if query.kind == SAMPLES else seldom_s if query.place in slow else often_s for query in queries
    ]
    pass_s = min(wanted, default=_SELDOM_S)
    for query, seconds in zip(queries, wanted, strict=True):
        query.every = max(1, round(seconds / pass_s))
    return pass_s


def main(arguments: Sequence[str]) -> None:
    """Keep the numbers up to date until the parent ends. NVML's own output is discarded."""
    die_with_parent()
    stream = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    file, interval_s, cpu_share = Path(arguments[0]), float(arguments[1]), float(arguments[2])
    with open_shared(file) as opened:
        shared = mmap.mmap(opened.fileno(), 8 * MAX_NUMBERS)
    numbers = ctypes.addressof((ctypes.c_uint64 * MAX_NUMBERS).from_buffer(shared))
    try:
        pynvml.nvmlInit()
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except (pynvml.NVMLError, OSError) as error:
        stream.write(msgspec.json.encode(GpusFound(problem=f"NVML cannot be used: {str(error)[:120]}")) + b"\n")
        return
    queries, found = find_queries(library, numbers)
    pass_s = set_pace(queries, found, interval_s, cpu_share)
    stream.write(msgspec.json.encode(found) + b"\n")
    if queries:
        publish(queries, numbers, pass_s, cpu_share)


if __name__ == "__main__":
    main(sys.argv[1:])
