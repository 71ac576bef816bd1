"""Repeated queries of NVML counters (`gpu_counters.c`).

They run in a separate program, because a driver call may hang.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, Structure, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p

from railwright.native.library import fields, function

FIELDS, ONE, TWO, SAMPLES = range(4)
"""The call signatures: nvmlDeviceGetFieldValues; f(gpu, argument, &number); f(gpu, numbers), which writes one or two
numbers; nvmlDeviceGetSamples."""
RING = 256
"""The number of samples kept. A counter of samples comes first, then pairs of microseconds since 1970 and value."""
FIRST_PLACE = 2
"""The first place for values. The number of passes and their CPU nanoseconds come before it."""


class Field(Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        *fields(c_uint32, "id", "scope"),
        *fields(c_int64, "timestamp", "latency_us"),
        *fields(c_int32, "type", "status"),
        ("value", c_uint64),
    )


class CounterQuery(Structure):
    """An NVML call for one GPU, the place of its first number, and its period."""

    _fields_ = (
        ("kind", c_int32),
        ("argument", c_uint32),
        *fields(c_void_p, "call", "gpu"),
        ("fields", POINTER(Field)),
        ("count", c_int32),
        ("every", c_uint32),
        ("place", c_int32),
        ("last", c_uint64),
    )


def cost_s(question: CounterQuery, numbers: int, times: int = 5) -> float:
    """Return the CPU seconds of a query, the minimum of `times`. The query writes its numbers to address `numbers`."""
    measure = function("rw_gpu_cost", c_double, POINTER(CounterQuery), c_void_p, c_int)
    taken: float = measure(question, numbers, times)
    return taken


def publish(
    questions: Sequence[CounterQuery], numbers: int, interval_s: float, cpu_share: float, passes: int = 0
) -> None:
    """Query `passes` times, or forever if 0, and write the numbers to address `numbers`.

    Passes come less often than every `interval_s` if they would exceed `cpu_share` of a core.
    """
    every = (CounterQuery * len(questions))(*questions)
    begin = function("rw_gpu_publish", None, POINTER(CounterQuery), c_int, c_void_p, c_double, c_double, c_uint64)
    begin(every, len(questions), numbers, interval_s, cpu_share, passes)
