"""Settings around an RDMA port that decide its rate or its errors, as this process's sysfs shows them.

`rdma_netns` tells whether all namespaces share the RDMA devices, and `rdma_cgroup` is the limit of this process's
control group.
"""

from __future__ import annotations

import contextlib
import os
import re

from railwright.topology.cpu_list import parse_cpu_list
from railwright.topology.devices import Scalar
from railwright.topology.settings import UNLIMITED
from railwright.topology.sources.rdma_port import read_bond, read_qos
from railwright.topology.sources.root import DirectoryRoot, Unreadable, live_root
from railwright.topology.sources.settings import read_setting
from railwright.topology.sources.virtual_functions import FUNCTION, NUMBER, PHYSICAL, RATE_LIMIT, read_rate_limit

_SETTINGS = {"rdma_netns": "rdma_netns", "rdma_limit": "rdma_cgroup"}
"""Settings of the host, with their names in a record."""


def describe_port(name: str, gid_index: int | None, root: DirectoryRoot | None = None) -> dict[str, Scalar]:
    """Return the settings of a port like `mlx5_0:1` that can be read: its netdev, bond, PF or VF, trust and CNPs."""
    root = root or live_root()
    device, _, number = name.partition(":")
    folder = root.follow(f"sys/class/infiniband/{device}")
    function = root.follow(f"{folder}/device")
    found = _describe_vf(root, function) if "physfn" in root.names(function) else dict[str, Scalar]()
    netdev = root.text(f"{folder}/ports/{number}/gid_attrs/ndevs/{gid_index or 0}").strip()
    if not netdev or "/" in netdev:
        return found
    qos = read_qos(root, root.follow(f"sys/class/net/{netdev}"))
    return found | {"netdev": netdev} | read_bond(root, netdev) | qos


def _describe_vf(root: DirectoryRoot, function: str) -> dict[str, Scalar]:
    """Return that a function is a VF, with its PF, its number there and its rate limit, as far as sysfs shows them."""
    physical = root.follow(f"{function}/physfn")
    found: dict[str, Scalar] = {FUNCTION: "VF", PHYSICAL: physical.rpartition("/")[2]}
    links = (name for name in root.names(physical) if re.fullmatch(r"virtfn\d{1,4}", name))
    number = next((int(name[6:]) for name in links if root.follow(f"{physical}/{name}") == function), None)
    if number is None:
        return found
    limit = read_rate_limit(root, physical, number)
    return found | {NUMBER: number} | ({} if limit is None else {RATE_LIMIT: limit})


def run_near(device: str, root: DirectoryRoot | None = None) -> None:
    """Run this process on the CPUs beside an RDMA device, if it may use any, so that its memory is there too."""
    root = root or live_root()
    folder = root.follow(f"sys/class/infiniband/{device}")
    near = parse_cpu_list(root.text(f"{root.follow(f'{folder}/device')}/local_cpulist").strip())
    if allowed := near & os.sched_getaffinity(0):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, allowed)


def describe_process(root: DirectoryRoot | None = None) -> dict[str, Scalar]:
    """Return whether namespaces share the RDMA devices, and the limit of this process's control group."""
    root = root or live_root()
    found = {key: read_setting(root, name) for name, key in _SETTINGS.items()}
    return {key: value for key, value in found.items() if not isinstance(value, Unreadable) and value != UNLIMITED}
