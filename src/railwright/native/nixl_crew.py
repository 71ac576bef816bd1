"""Many threads that post NIXL requests of one agent concurrently (`nixl.c`), like nixlbench with `--num_threads`."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_double, c_int, c_void_p
from typing import NamedTuple

from railwright.native.library import fields, function, seconds_array
from railwright.native.nixl import Request, check_transfer


class _Crew(Structure):
    """The layout of `struct rw_nixl_crew` in nixl.c."""

    _fields_ = (
        ("agent", c_void_p),
        ("requests", POINTER(c_void_p)),
        ("cpus", POINTER(c_int)),
        *fields(c_int, "threads", "each", "depth", "iterations"),
        ("patience", c_double),
        *fields(POINTER(c_double), "seconds", "posts"),
        ("elapsed", c_double),
    )


class CrewPass(NamedTuple):
    """The times of a pass of all threads."""

    elapsed_s: float
    """The time from the first thread's start to the last one's end."""
    seconds: list[float]
    """The time from post to done for every request of every thread."""
    posts: list[float]


def time_crew(
    requests: Sequence[Sequence[Request]], cpus: Sequence[int], *, depth: int, iterations: int, patience_s: float
) -> CrewPass:
    """Post `iterations` requests per thread, cycling through its own, with `depth` in flight. Raises NativeError.

    All threads have the same number of requests of one agent, at least `depth`; `cpus` has a CPU for each thread.
    """
    threads, each = len(requests), len(requests[0])
    seconds, posts = seconds_array(threads * iterations), seconds_array(threads * iterations)
    handles = (c_void_p * (threads * each))(*(one._handle.value for mine in requests for one in mine))
    crew = _Crew(
        agent=requests[0][0]._agent,
        requests=handles,
        cpus=(c_int * threads)(*cpus),
        threads=threads,
        each=each,
        depth=min(depth, each),
        iterations=iterations,
        patience=patience_s,
        seconds=seconds,
        posts=posts,
    )
    check_transfer("NIXL transfer", function("rw_nixl_crew", c_int, POINTER(_Crew))(byref(crew)))
    return CrewPass(crew.elapsed, list(seconds), list(posts))
