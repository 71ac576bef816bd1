"""What several checks ask of a host's settings: a value, or why nobody could read it."""

from __future__ import annotations

from collections.abc import Callable

from railwright.topology.devices import Scalar, Topology
from railwright.topology.settings import SETTING

_OF = f"{SETTING} of "
IN_A_GUEST = (
    "have ATS switched on in the NICs, by the host: mlxconfig -d DEVICE set ATS_ENABLED=true; give NCCL a topology file"
    " of the real machine (NCCL_TOPO_FILE), because the guest's own shows no switches"
)
"""What helps in a guest. ACS is the host's, keeps guests apart, and stays on."""


def setting(topology: Topology, name: str) -> Scalar | None:
    """A setting of the machine's only host; None where it was not read, and for several hosts."""
    hosts = topology.of_kind("host")
    return hosts[0].facts.get(name) if len(hosts) == 1 else None


def whole(value: Scalar | None) -> int | None:
    """A value that is a whole number from 0 on."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def read(*names: str) -> Callable[[Topology], str]:
    """For `Check.asks`: why one of these settings of the host could not be read; empty where all were."""

    def why(topology: Topology) -> str:
        lacking = next((name for name in names if setting(topology, name) is None), None)
        return "" if lacking is None else why_unread(topology, lacking)

    return why


def why_unread(topology: Topology, name: str) -> str:
    """`thp: the capture does not hold it`, as the sources noted it."""
    entries = [one for one in topology.unknown if one.what.startswith(_OF)]
    named = (one for one in entries if name in one.what.removeprefix(_OF).split(", "))
    # Of many that could not be read for one reason only the first are named.
    found = next(named, None) or next((one for one in entries if one.what.endswith(" more")), None)
    return f"{name}: {found.why if found else 'nobody read it'}"


def is_virtual(topology: Topology) -> bool:
    """Whether the machine is a guest of a hypervisor."""
    return setting(topology, "is_virtual") is True


def is_arm(topology: Topology) -> bool:
    """Whether its CPUs are of Arm."""
    return any(cpu.facts.get("architecture") == "arm64" for cpu in topology.of_kind("cpu"))


def host_id(topology: Topology) -> str:
    """The id of the machine's host."""
    return topology.of_kind("host")[0].id
