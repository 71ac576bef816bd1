"""An interface as others know it: the container runtime's record, its other end on the node, and what was attached."""

from __future__ import annotations

import msgspec

from railwright.net.view import Address, Attached, Network, PodName, View

OUR_PLUGINS = ("railwright-cni", "ovs-provider", "ovs-provider-cli", "frr-provider", "frr-provider-cli")


class Plugin(msgspec.Struct, frozen=True):
    """The fields read from a plugin's configuration in a network's chain."""

    type: str = ""
    link_state_check_interval: int = 0
    link_state_check_retries: int = 0
    deviceID: str = ""  # noqa: N815 - CNI's name


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment as the container runtime recorded it, whichever plugins made it."""

    network: str
    interface: str
    pod: PodName
    netns: str
    host_interface: str
    """Its end on the node: a VF's representor or a veth. Empty if the plugins did not report one."""
    mac: str
    addresses: tuple[Address, ...]
    gateways: tuple[Address, ...]
    routes: tuple[Network, ...]
    plugins: tuple[Plugin, ...]
    path: str

    @property
    def device_id(self) -> str:
        """The VF's PCI address. Empty without one."""
        return next((plugin.deviceID for plugin in self.plugins if plugin.deviceID), "")

    @property
    def is_ours(self) -> bool:
        """Whether a plugin of railwrightd is in the chain."""
        return any(plugin.type in OUR_PLUGINS for plugin in self.plugins)


class HostEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The other end of a pod's interface, on the node."""

    name: str
    up: bool
    carrier: bool
    mtu_bytes: int
    master: str = ""
    """The bridge that it is a port of; `ovs-system` for a bridge of Open vSwitch. Empty without one."""
    kind: str = ""
    """`representor`, `PF` for a VF without one, or empty for the other end of a veth."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """An interface as it was attached, and who says so."""

    mac: str
    addresses: tuple[Address, ...]
    gateways: tuple[Address, ...]
    host_interface: str
    device_id: str
    source: str


def find_expected(view: View) -> Expected | None:
    """Return the interface as railwrightd attached it, or else as the container runtime recorded it."""
    one = view.attached if isinstance(view.attached, Attached) else view.recorded
    if not isinstance(one, Attached | Recorded):
        return None
    return Expected(
        mac=one.mac,
        addresses=tuple(one.addresses),
        gateways=tuple(one.gateways),
        host_interface=one.host_interface,
        device_id=one.device_id,
        source="railwrightd list" if isinstance(one, Attached) else "the container runtime's record",
    )


def is_foreign(view: View) -> bool:
    """Report whether the interface belongs to a network without railwrightd, to which the checks of others apply."""
    seen = isinstance(view.recorded, Recorded) and not view.recorded.is_ours
    return seen and not isinstance(view.attached, Attached)
