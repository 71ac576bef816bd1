"""Evidence of the route between a file and a GPU, and its comparison with the requested one."""

from __future__ import annotations

from railwright.native.cufile_watch import Observation, PathCounts
from railwright.results.records import Evidence
from railwright.units import format_size

_CLAIM = "route"
_DIRECT_ROUTES = ("nvidia-fs", "p2pdma")
_LOG_SAYS_POSIX = ("cuFile using posix", "compat mode enabled", "no native GDS", "compat mode only")


def route_evidence(look: Observation) -> Evidence:
    """Choose the best evidence: cuFile's counters, then nvidia-fs', cuFile's log, and the kernel's I/O counters."""
    verb = "writes" if look.write else "reads"
    if look.counted is not None:
        return _counter_evidence(look.counted, verb)
    if look.by_driver is not None and look.by_driver >= look.operations:
        seen = f"nvidia-fs counted {look.by_driver} {verb} of all processes during the pass"
        return Evidence(claim=_CLAIM, value="nvidia-fs", seen=seen)
    said_so = next((phrase for phrase in _LOG_SAYS_POSIX if phrase in look.log), "")
    if said_so:
        return Evidence(claim=_CLAIM, value="posix", seen=f"cuFile's log says: {said_so}")
    call = "write()" if look.write else "read()"
    kernel = f"the kernel counted {format_size(look.called_bytes or 0)} by {call} for {format_size(look.moved_bytes)}"
    own = look.properties
    if own is not None and own.nvidia_fs == "0.0" and not own.p2pdma and (look.called_bytes or 0) >= look.moved_bytes:
        left = f"{kernel}, and cuFile has neither nvidia-fs nor P2PDMA here"
        return Evidence(claim=_CLAIM, value="posix", seen=left)
    reasons = [look.uncounted, "its log does not name the route" if look.log else "it wrote no log"]
    reasons += [
        kernel if look.called_bytes is not None else "the kernel does not count this process's reads and writes"
    ]
    return Evidence(claim=_CLAIM, value="unknown", seen="; ".join(reasons))


def _counter_evidence(counted: PathCounts, verb: str) -> Evidence:
    by = {"p2pdma": counted.p2pdma, "nvidia-fs": counted.nvidia_fs, "posix": counted.posix, "mixed": counted.mixed}
    taken = [name for name, count in by.items() if count]
    said = ", ".join(f"{count} by {name}" for name, count in by.items() if count)
    value = taken[0] if len(taken) == 1 else "mixed" if taken else "unknown"
    return Evidence(claim=_CLAIM, value=value, seen=f"cuFile counted {counted.total} {verb}: {said or 'none by name'}")


def wrong_route(way: str, evidence: Evidence) -> str:
    """Return the reason why the route is not the requested one, or an empty string if it is or is unknown."""
    direct = evidence.value in _DIRECT_ROUTES
    fits = direct if way == "gds" else not direct and evidence.value != "mixed"
    return "" if evidence.value == "unknown" or fits else f"{way} was requested, but {evidence.seen}"
