"""CPU clocks that follow the load: an idle core must speed up before it can post the next message.

With `intel_pstate` or `amd-pstate-epp` in active mode the governor is named powersave on every healthy machine, and
the energy preference decides (Linux Documentation/admin-guide/pm/intel_pstate.rst).
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Change, Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting
from railwright.topology.devices import Topology
from railwright.topology.settings import NONE

_DECIDED_BY_PREFERENCE = frozenset({"intel_pstate", "amd-pstate-epp"})
_POLICIES = "/sys/devices/system/cpu/cpufreq/policy*"
_READ = ("cpu_governor", "cpu_frequency_driver", "cpu_energy_preference")


def _signs(facts: Facts) -> Findings:
    governor, driver, preference = (setting(facts.topology, name) for name in _READ)
    if not isinstance(governor, str) or governor in (NONE, "performance"):
        return
    seen = "governor", governor, f"{_POLICIES}/scaling_governor"
    says = f"the CPUs' frequency governor is {governor}"
    if _is_decided_by_preference(facts.topology):
        if preference in ("performance", None):
            return
        says = f"the CPUs' energy preference is {preference}, with the governor {governor} of {driver}"
        seen = "preference", str(preference), f"{_POLICIES}/energy_performance_preference"
    yield CHECK.host_finding(facts, says, seen)


def _is_decided_by_preference(topology: Topology) -> bool:
    governor, driver = setting(topology, "cpu_governor"), setting(topology, "cpu_frequency_driver")
    return driver in _DECIDED_BY_PREFERENCE and governor == "powersave"


def _build_change(topology: Topology) -> Change:
    decides = "energy_performance_preference" if _is_decided_by_preference(topology) else "scaling_governor"
    return Change(files=f"{_POLICIES.removeprefix('/')}/{decides}", value="performance")


CHECK = Check(
    name="governor_saves_power",
    summary="CPU clocks follow the load",
    right="CPU clocks stay high (governor performance)",
    certainty="possible",
    costs="the latency of small messages and kernel launches, which wait for a core to speed up",
    remedy="cpupower frequency-set -g performance, or tuned-adm profile hpc-compute; compare latencies before and"
    " after",
    signs=_signs,
    needs=(needs.settings, needs.unless_none("cpu_governor", "no CPU frequency control")),
    asks=(require_read(*_READ),),
    change=_build_change,
)
