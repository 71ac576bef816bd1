"""A cgroup that limits all processes of a node to a share of one CPU, with cgroups v1 or v2."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path

from railwright.errors import CannotJudge
from railwright.lab.state import Lab
from railwright.writing import set_value

_ROOT = Path("/sys/fs/cgroup")
_SHORTEST_PERIOD_US = 10_000
"""Ranks of several hosts wait for each other. In periods longer than their steps, one throttled rank stalls all."""
_MIN_QUOTA_US = 1000  # the kernel's minimum
_UNLIMITED = ("max", "-1")
_EMPTY_S = 5.0


def cgroup_path(lab: Lab, node: str) -> Path:
    """Return the path of the node's cgroup. Raises CannotJudge if this machine has no CPU cgroups."""
    return _find_hierarchy() / lab.namespace(node)


def slow(lab: Lab, node: str, share: float) -> Path:
    """Create the node's cgroup, limited to the share of one CPU. Raises CannotJudge if that fails."""
    group = cgroup_path(lab, node)
    period_us = max(_SHORTEST_PERIOD_US, math.ceil(_MIN_QUOTA_US / share))
    quota = str(max(int(share * period_us), _MIN_QUOTA_US))
    lab.record("cgroup", str(group))
    try:
        if _is_unified(group.parent):
            control = group.parent / "cgroup.subtree_control"
            if "cpu" not in control.read_text().split():
                set_value(control, "+cpu")
            group.mkdir(exist_ok=True)
            set_value(group / "cpu.max", f"{quota} {period_us}")
        else:
            group.mkdir(exist_ok=True)
            set_value(group / "cpu.cfs_period_us", str(period_us))
            set_value(group / "cpu.cfs_quota_us", quota)
    except OSError as error:
        reason = f"cannot limit the CPU of {node}: {group}: {error.strerror}"
        raise CannotJudge(reason, hint="cgroups must be writable here") from error
    return group


def read_quota(lab: Lab, node: str) -> float | None:
    """Return the number of CPUs that the node's processes may use together; None if it is unlimited or unknown."""
    try:
        group = cgroup_path(lab, node)
        if _is_unified(group.parent):
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return None if quota in _UNLIMITED else int(quota) / int(period)
    except (CannotJudge, OSError, ValueError):
        return None


def release(group: Path) -> None:
    """Move the node's processes to this process's cgroup and remove theirs. Raises CannotJudge if it stays."""
    home = _own_cgroup(group.parent) / "cgroup.procs"
    if not remove_cgroup(group, functools.partial(set_value, home), _EMPTY_S):
        raise CannotJudge(f"{group} cannot be removed", hint=f"end the processes in {group}/cgroup.procs")


def remove_cgroup(group: Path, let_go: Callable[[str], object], within_s: float) -> bool:
    """Call `let_go` for every process of a cgroup and remove it. Returns False if it still exists after `within_s`."""
    end = time.monotonic() + within_s
    while group.exists():
        with contextlib.suppress(OSError):
            for process in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):  # the process has ended
                    let_go(process)
        with contextlib.suppress(OSError):
            group.rmdir()
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _find_hierarchy() -> Path:
    for root in (_ROOT, _ROOT / "cpu", _ROOT / "cpu,cpuacct"):
        if _is_unified(root):
            if "cpu" in (root / "cgroup.controllers").read_text().split():
                return root
        elif (root / "cpu.shares").exists() or (root != _ROOT and (root / "cgroup.procs").exists()):
            return root
    raise CannotJudge("this machine has no cgroups that limit CPU", hint=f"mount them at {_ROOT}")


def _is_unified(root: Path) -> bool:
    return (root / "cgroup.controllers").exists()


def _own_cgroup(root: Path) -> Path:
    """Return the cgroup of this process in that hierarchy; its root if unknown."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if (_is_unified(root) and not controllers) or "cpu" in controllers.split(","):
                group = root / path.lstrip("/")
                return group if group.is_dir() else root
    return root
