"""RoCE without ECN on a port, which then neither signals congestion nor reacts to it.

NVIDIA, RoCE configuration of ConnectX (`ecn/roce_np/enable` and `roce_rp/enable` below the netdev). Only drivers of
MLNX_OFED and DOCA-OFED show ECN in sysfs; `mlnx_qos` and `dcb` read flow control and trust over netlink.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.parts import blind
from railwright.checks.roce_gids import roce, roce_nics
from railwright.topology.gpus import format_runs

_FACT = "roce_ecn"
_COMMANDS = "mlnx_qos -i NETDEV, or dcb pfc show dev NETDEV and dcb app show dev NETDEV"


def _signs(facts: Facts) -> Findings:
    off = [nic.id for nic in roce_nics(facts.topology) if nic.facts.get(_FACT) == "off"]
    if off:
        yield CHECK.finding(
            off,
            f"ECN of RoCE is off in every priority of {format_runs(off)}",
            ("ECN", "off", "/sys/class/net/*/ecn/roce_np/enable, roce_rp/enable"),
        )


CHECK = Check(
    name="roce_ecn_off",
    summary="RoCE ports do not use congestion notification (ECN)",
    right="RoCE ports use congestion notification (ECN)",
    certainty="possible",
    costs="under congestion packets are lost, or flow control spreads the congestion; no cost on an idle fabric",
    remedy="for the fabric's priority, such as 3: echo 1 | tee /sys/class/net/NETDEV/ecn/roce_np/enable/3"
    f" /sys/class/net/NETDEV/ecn/roce_rp/enable/3; check flow control and trust with {_COMMANDS}",
    signs=_signs,
    needs=(needs.settings, roce),
    asks=(blind(roce_nics, _FACT, f"the driver of {{}} does not show ECN in sysfs; check with {_COMMANDS}"),),
)
