"""Asking NVML for counters in a loop (`gpu_counters.c`): for a program of its own, as a driver may hang in any call."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, Structure, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p

from railwright.native.library import fields, function

FIELDS, ONE, TWO, SAMPLES = range(4)
"""How a function of NVML is called: with fields, with one word more, for two numbers, or for what it sampled itself."""
RING = 256
"""Samples that are kept: first how many there were, then pairs of microseconds since 1970 and value."""
FIRST_PLACE = 2
"""Of the numbers: before it are the passes until now, and the nanoseconds of CPU that they took."""


class Field(Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        *fields(c_uint32, "id", "scope"),
        *fields(c_int64, "timestamp", "latency_us"),
        *fields(c_int32, "type", "status"),
        ("value", c_uint64),
    )


class Question(Structure):
    """One call of NVML for one GPU, the place of its first number, and how often it is asked."""

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


def cost_s(question: Question, numbers: int, times: int = 5) -> float:
    """CPU seconds that a question takes; its numbers are at that address afterwards."""
    measure = function("rw_gpu_cost", c_double, POINTER(Question), c_void_p, c_int)
    taken: float = measure(question, numbers, times)
    return taken


def publish(questions: Sequence[Question], numbers: int, interval_s: float, cpu_share: float, passes: int = 0) -> None:
    """Ask again and again, `passes` times or for ever, and keep the numbers at that address up to date.

    Where asking takes more than that share of a core, passes come more seldom than each `interval_s`.
    """
    every = (Question * len(questions))(*questions)
    begin = function("rw_gpu_publish", None, POINTER(Question), c_int, c_void_p, c_double, c_double, c_uint64)
    begin(every, len(questions), numbers, interval_s, cpu_share, passes)
