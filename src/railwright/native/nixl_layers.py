"""The requests of a KV cache, one per layer, posted consecutively (`nixl_layers.c`)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_double, c_int, c_void_p

from railwright.native.library import check_result, function, seconds_array
from railwright.native.nixl import Agent, Request


def time_layers(
    agent: Agent, requests: Sequence[Request], *, warm: int, iterations: int, patience_s: float
) -> list[list[float]]:
    """Return, for each timed pass, the seconds from the first post until all layers up to each one were done.

    A request is posted when the previous one has been posted, not when it is done. Raises NativeError.
    """
    count = len(requests)
    handles = (c_void_p * count)(*(request._handle.value for request in requests))
    post, status = (
        ctypes.cast(getattr(agent._library, f"nixl_capi_{name}"), c_void_p)
        for name in ("post_xfer_req", "get_xfer_status")
    )
    seconds = seconds_array(iterations * count)
    loop = function(
        "rw_nixl_layers",
        c_int,
        *(c_void_p, POINTER(c_void_p), c_int, c_void_p, c_void_p, c_int, c_int, c_double, POINTER(c_double)),
    )
    code = loop(agent._agent, handles, count, post, status, warm, iterations, patience_s, seconds)
    check_result("NIXL transfer by layers", code)
    return [list(seconds[k * count : (k + 1) * count]) for k in range(iterations)]
