"""Access to a host's settings: a value, or the reason why it could not be read."""

from __future__ import annotations

from collections.abc import Callable

from railwright.topology.devices import Scalar, Topology
from railwright.topology.settings import SETTING

_SETTING_OF = f"{SETTING} of "
IN_A_GUEST = (
    "ask the operator of the host to turn on ATS in the NICs: mlxconfig -d DEVICE set ATS_ENABLED=true;"
    " give NCCL a topology file of the real machine (NCCL_TOPO_FILE), because the guest's own shows no switches"
)
"""The remedy in a guest. ACS belongs to the host, isolates guests, and stays on."""


def setting(topology: Topology, name: str) -> Scalar | None:
    """Return a setting of the machine's only host; None if it was not read or if there are several hosts."""
    hosts = topology.of_kind("host")
    return hosts[0].facts.get(name) if len(hosts) == 1 else None


def nonnegative_integer(value: Scalar | None) -> int | None:
    """Return the value if it is a non-negative integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def require_read(*names: str) -> Callable[[Topology], str]:
    """Return a function for `Check.asks` that gives the reason why one of the settings could not be read."""

    def why(topology: Topology) -> str:
        lacking = next((name for name in names if setting(topology, name) is None), None)
        return "" if lacking is None else why_unread(topology, lacking)

    return why


def why_unread(topology: Topology, name: str) -> str:
    """Return the reason that the source recorded, such as `thp: the capture does not hold it`."""
    entries = [entry for entry in topology.unknown if entry.what.startswith(_SETTING_OF)]
    named = (entry for entry in entries if name in entry.what.removeprefix(_SETTING_OF).split(", "))
    # Entries that share a reason are truncated and end with " more".
    match = next(named, None) or next((entry for entry in entries if entry.what.endswith(" more")), None)
    return f"{name}: {match.why if match else 'it was not read'}"


def is_virtual(topology: Topology) -> bool:
    """Report whether the machine is a virtual machine."""
    return setting(topology, "is_virtual") is True


def is_arm(topology: Topology) -> bool:
    """Report whether the CPUs are Arm CPUs."""
    return any(cpu.facts.get("architecture") == "arm64" for cpu in topology.of_kind("cpu"))


def host_id(topology: Topology) -> str:
    """Return the id of the machine's host."""
    return topology.of_kind("host")[0].id
