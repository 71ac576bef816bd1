"""Settings around an RDMA port that decide its rate or its errors, as this process's sysfs shows them.

Trust mode, and the DSCP and priority of CNPs, are files of the drivers of MLNX_OFED and DOCA-OFED. `netns_mode` is Y
where all namespaces share the RDMA devices (rdma-system(8)). `rdma.max` limits the handles and objects of a control
group (Linux admin-guide/cgroup-v2.rst).
"""

from __future__ import annotations

from pathlib import Path

from railwright.topology.devices import Scalar

SYS, PROC = Path("/sys"), Path("/proc")
_MOST_CHARACTERS = 200
_NETNS_MODES = {"Y": "shared", "N": "exclusive"}


def describe_port(name: str, gid_index: int | None) -> dict[str, Scalar]:
    """Return the settings of a port like `mlx5_0:1` that can be read: its netdev, bond, PF or VF, trust and CNPs."""
    device, _, number = name.partition(":")
    folder = SYS / "class/infiniband" / device
    found: dict[str, str] = {}
    if (folder / "device/physfn").exists():
        found["function"] = "VF"
    port = folder / "ports" / number
    netdev = _read(port / f"gid_attrs/ndevs/{gid_index or 0}")
    if netdev and "/" not in netdev:
        interface = SYS / "class/net" / netdev
        found |= {
            "netdev": netdev,
            "bond_mode": _read(interface / "bonding/mode"),
            "bond_ports": _read(interface / "bonding/slaves"),
            "trust_mode": _read(interface / "qos/trust"),
            "cnp_dscp": _read(interface / "ecn/roce_np/cnp_dscp"),
            "cnp_priority": _read(interface / "ecn/roce_np/cnp_802p_prio"),
        }
    return {key: value for key, value in found.items() if value}


def describe_process() -> dict[str, Scalar]:
    """Return whether namespaces share the RDMA devices, and the limit of this process's control group."""
    found = {
        "rdma_netns": _NETNS_MODES.get(_read(SYS / "module/ib_core/parameters/netns_mode"), ""),
        "rdma_cgroup": _read_limit(),
    }
    return {key: value for key, value in found.items() if value}


def _read_limit() -> str:
    """Return `rdma.max` of the nearest control group that has a limit; empty if none is known."""
    groups = [line.partition("::")[2] for line in _read(PROC / "self/cgroup", many=True).splitlines() if "::" in line]
    for group in groups[:1]:
        path = SYS / "fs/cgroup" / group.lstrip("/")
        for folder in (path, *path.parents):
            limit = _read(folder / "rdma.max")
            if any("=" in word and not word.endswith("=max") for word in limit.split()):
                return limit
            if folder == SYS / "fs/cgroup":
                break
    return ""


def _read(path: Path, *, many: bool = False) -> str:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
    return text if many else " ".join(text.split())[:_MOST_CHARACTERS]
