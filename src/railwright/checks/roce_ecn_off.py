"""RoCE without ECN on a port: it is not told of congestion, and answers none.

NVIDIA, RoCE configuration of ConnectX (`ecn/roce_np/enable` and `roce_rp/enable` below the netdev). Only drivers of
MLNX_OFED and DOCA-OFED show that in sysfs; flow control and trust are asked by netlink: `mlnx_qos`, `dcb`.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.parts import blind
from railwright.checks.roce_gids import roce, roce_nics
from railwright.topology.gpus import runs

_FACT = "roce_ecn"
_ASK = "mlnx_qos -i NETDEV, or dcb pfc show dev NETDEV and dcb app show dev NETDEV"


def _signs(facts: Facts) -> Findings:
    off = [nic.id for nic in roce_nics(facts.topology) if nic.facts.get(_FACT) == "off"]
    if off:
        yield CHECK.finding(
            off,
            f"ECN of RoCE is off in every priority of {runs(off)}",
            ("ECN", "off", "/sys/class/net/*/ecn/roce_np/enable, roce_rp/enable"),
        )


CHECK = Check(
    name="roce_ecn_off",
    summary="RoCE ports are not told of congestion",
    certainty="possible",
    costs="under congestion packets are lost, or flow control spreads the congestion; none on an idle fabric",
    remedy=f"as the fabric is set up: echo 1 > /sys/class/net/NETDEV/ecn/roce_np/enable/3 and roce_rp; {_ASK}",
    signs=_signs,
    needs=(needs.settings, roce),
    asks=(blind(roce_nics, _FACT, f"the driver of {{}} does not show ECN in sysfs; look with {_ASK}"),),
)
