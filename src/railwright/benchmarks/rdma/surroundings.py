"""Settings around an RDMA port that decide its rate or its errors, as this process's sysfs shows them.

`rdma_netns` tells whether all namespaces share the RDMA devices, and `rdma_cgroup` is the limit of this process's
control group.
"""

from __future__ import annotations

import contextlib
import os

from railwright.topology.cpu_list import parse_cpu_list
from railwright.topology.devices import Scalar
from railwright.topology.settings import UNLIMITED
from railwright.topology.sources.rdma_port import read_bond, read_qos
from railwright.topology.sources.root import DirectoryRoot, Unreadable, live_root
from railwright.topology.sources.settings import read_setting

_SETTINGS = {"rdma_netns": "rdma_netns", "rdma_limit": "rdma_cgroup"}
"""Settings of the host, with their names in a record."""


def describe_port(name: str, gid_index: int | None, root: DirectoryRoot | None = None) -> dict[str, Scalar]:
    """Return the settings of a port like `mlx5_0:1` that can be read: its netdev, bond, PF or VF, trust and CNPs."""
    root = root or live_root()
    device, _, number = name.partition(":")
    folder = root.follow(f"sys/class/infiniband/{device}")
    function = root.follow(f"{folder}/device")
    found: dict[str, Scalar] = {"function": "VF"} if "physfn" in root.names(function) else {}
    netdev = root.text(f"{folder}/ports/{number}/gid_attrs/ndevs/{gid_index or 0}").strip()
    if not netdev or "/" in netdev:
        return found
    qos = read_qos(root, root.follow(f"sys/class/net/{netdev}"))
    return found | {"netdev": netdev} | read_bond(root, netdev) | qos


def run_near(device: str, root: DirectoryRoot | None = None) -> None:
    """Run this process on the CPUs beside an RDMA device, so that its memory is there too, if it may use any of them."""
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
