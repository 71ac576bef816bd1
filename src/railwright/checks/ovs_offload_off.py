"""Open vSwitch that offloads no flow to the NIC, or a NIC that accepts none: every packet of a VF crosses the CPU.

ovs-vswitchd.conf.db(5): `other_config:hw-offload` is false by default, and a change needs a restart. A NIC accepts
tc flows if its feature `hw-tc-offload` is on (ethtool(8)). `railwright net check` verifies the offloaded flows of
each pod.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting
from railwright.topology.devices import Device, Topology
from railwright.topology.gpus import format_runs

_FACT = "ovs_hw_offload"


def _list_switching_nics(topology: Topology) -> tuple[Device, ...]:
    """Return the NICs that have representors: their VFs are ports of a switch inside the NIC."""
    return tuple(nic for nic in topology.of_kind("nic") if nic.facts.get("representors"))


def _signs(facts: Facts) -> Findings:
    switching = _list_switching_nics(facts.topology)
    offload = setting(facts.topology, _FACT)
    nics = [nic.id for nic in switching]
    if nics and offload == "false":
        yield CHECK.finding(
            nics,
            f"{format_runs(nics)} have representors, but Open vSwitch does not offload flows",
            ("other_config:hw-offload", "false", "conf.db of Open vSwitch"),
            remedy="ovs-vsctl set Open_vSwitch . other_config:hw-offload=true, restart openvswitch-switch; then"
            " ovs-appctl dpctl/dump-flows type=offloaded",
        )
    refusing = [nic.id for nic in switching if nic.facts.get("tc_offload") is False]
    if refusing and offload == "true":
        yield CHECK.finding(
            refusing,
            f"{format_runs(refusing)} accept no flows, although Open vSwitch offloads them",
            ("hw-tc-offload", "off", "ethtool -k"),
            remedy="ethtool -K NETDEV hw-tc-offload on, for the uplink and its representors",
        )


CHECK = Check(
    name="ovs_offload_off",
    summary="Open vSwitch forwards packets of VFs on the CPU",
    right="NICs forward packets of VFs (Open vSwitch is offloaded)",
    certainty="likely",
    costs="the forwarding rate of a few cores instead of the port's line rate",
    signs=_signs,
    needs=(
        needs.settings,
        needs.nic,
        needs.unless_none(_FACT, "no Open vSwitch"),
        needs.some(_list_switching_nics, "no NIC with representors"),
    ),
    asks=(require_read(_FACT),),
)
