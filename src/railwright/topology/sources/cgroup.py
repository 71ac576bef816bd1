"""The CPU time and the RDMA objects that this process's control group may use, in either version of control groups.

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
_RDMA = re.compile(r"([A-Za-z0-9_.-]{1,64}) hca_handle=(max|\d{1,10}) hca_object=(max|\d{1,10})\s*")
_MAX_LEVELS, _MAX_DEVICES = 32, 64
_NOT_SHOWN = "names a group that is not shown here"


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


def rdma_limit(root: Root) -> Scalar | Unreadable:
    """Return the handles and objects of RDMA devices that may be used, such as `mlx5_0 hca_handle=2`, or `unlimited`.

    A handle is an open device; each queue pair, region and completion queue is an object (Linux
    admin-guide/cgroup-v2.rst, rdma.max).
    """
    minimum: dict[str, int] = {}
    found = False
    for folder, _ in _list_groups(root, "rdma"):
        content = root.read(f"{folder}/rdma.max") if folder else Unreadable(_GROUPS, _NOT_SHOWN)
        if isinstance(content, Unreadable):
            if content.is_absent:
                continue
            return content
        found = True
        for match in map(_RDMA.fullmatch, content.splitlines()[:_MAX_DEVICES]):
            if match is None:
                return Unreadable(f"{folder}/rdma.max", "is not a list of devices with their limits")
            for name, value in (("hca_handle", match[2]), ("hca_object", match[3])):
                if value != "max":
                    key = f"{match[1]} {name}"
                    minimum[key] = min(minimum.get(key, int(value)), int(value))
    if minimum:
        return ", ".join(f"{key}={value}" for key, value in sorted(minimum.items()))
    return UNLIMITED if found else Unreadable(_ROOT, ABSENT)


def _list_quotas(root: Root) -> Iterator[tuple[str, str | Unreadable]]:
    """Yield the file of each level, with its quota and period: `max 100000`."""
    for folder, is_first in _list_groups(root, "cpu"):
        if not folder:
            yield _GROUPS, Unreadable(_GROUPS, _NOT_SHOWN)
        elif is_first:
            yield _read_version_1(root, folder)
        else:
            yield f"{folder}/cpu.max", root.read(f"{folder}/cpu.max")


def _list_groups(root: Root, controller: str) -> Iterator[tuple[str, bool]]:
    """Yield the folder of each level of the control groups with a controller, and whether it is of version 1.

    The folder is empty for a group above the topmost that this process sees.
    """
    for line in [*root.text(_GROUPS).splitlines(), "0::/"]:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        levels = [part for part in path.split("/") if part][:_MAX_LEVELS]
        if ".." in levels:
            yield "", False
            continue
        for depth in range(len(levels), -1, -1):
            if not controllers:
                yield "/".join((_ROOT, *levels[:depth])), False
            elif controller in controllers.split(","):
                yield "/".join((_ROOT, controllers, *levels[:depth])), True


def _read_version_1(root: Root, folder: str) -> tuple[str, str | Unreadable]:
    quota, period = (root.read(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
    if isinstance(quota, Unreadable) or isinstance(period, Unreadable):
        return folder, quota if isinstance(quota, Unreadable) else period
    return folder, f"{quota.strip()} {period.strip()}"
