"""The CPU time that this process's control group may use, in either version of control groups.

The limits of the groups above apply as well, so the minimum of all applies. A container often sees its
own group as the topmost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from railwright.topology.devices import Scalar
from railwright.topology.settings import UNLIMITED
from railwright.topology.sources.root import ABSENT, Root, Unreadable

_GROUPS = "proc/self/cgroup"
_ROOT = "sys/fs/cgroup"
_QUOTA = re.compile(r"(max|-1|\d{1,15}) (\d{1,15})\s*")
_MAX_LEVELS = 32


def cpu_quota(root: Root) -> Scalar | Unreadable:
    """Return the number of CPUs whose time may be used, or `unlimited` (Linux admin-guide/cgroup-v2.rst;
    scheduler/sched-bwc.rst).
    """
    minimum: float | None = None
    found = False
    for path, content in _list_quotas(root):
        if isinstance(content, Unreadable):
            if content.is_absent:
                continue
            return content
        match = _QUOTA.fullmatch(content)
        if match is None or int(match.group(2)) == 0:
            return Unreadable(path, "is not a quota and period")
        found = True
        if match.group(1) not in ("max", "-1"):
            cpus = int(match.group(1)) / int(match.group(2))
            minimum = cpus if minimum is None else min(minimum, cpus)
    if minimum is not None:
        return minimum
    return UNLIMITED if found else Unreadable(_ROOT, ABSENT)


def _list_quotas(root: Root) -> Iterator[tuple[str, str | Unreadable]]:
    """Yield the file of each level, with its quota and period: `max 100000`."""
    for line in [*root.text(_GROUPS).splitlines(), "0::/"]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        levels = [part for part in path.split("/") if part][:_MAX_LEVELS]
        if ".." in levels:  # above the topmost group that this process sees
            yield _GROUPS, Unreadable(_GROUPS, "names a group that is not shown here")
            continue
        for depth in range(len(levels), -1, -1):
            below = "/".join(levels[:depth])
            if not controllers:
                file = f"{_ROOT}/{below}/cpu.max" if below else f"{_ROOT}/cpu.max"
                yield file, root.read(file)
            elif "cpu" in controllers.split(","):
                yield _read_version_1(root, "/".join((_ROOT, controllers, *levels[:depth])))


def _read_version_1(root: Root, folder: str) -> tuple[str, str | Unreadable]:
    quota, period = (root.read(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
    if isinstance(quota, Unreadable) or isinstance(period, Unreadable):
        return folder, quota if isinstance(quota, Unreadable) else period
    return folder, f"{quota.strip()} {period.strip()}"
