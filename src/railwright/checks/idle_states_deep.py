"""Idle states with a long exit latency, which delays everything that sleeps or waits for an interrupt.

The kernel's idle driver reports the exit latency of each state (`latency` in microseconds). Programs that poll, such
as NCCL's proxy and MPI, seldom let their own core enter them.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Change, Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting
from railwright.topology.settings import NONE

_LONG_US = 50
_LONG_S = _LONG_US * 1e-6
"""This is more than ten times the latency of a message between hosts; C1E takes 2 to 10 us, C6 100 to 300."""


def _signs(facts: Facts) -> Findings:
    name, exit_s = setting(facts.topology, "idle_state"), setting(facts.topology, "idle_exit_s")
    if isinstance(exit_s, float) and exit_s >= _LONG_S and name != NONE:
        yield CHECK.host_finding(
            facts,
            f"idle cores may enter {name}, which takes {exit_s * 1e6:.0f} us to leave",
            ("idle state", str(name), "/sys/devices/system/cpu/cpu0/cpuidle/state*"),
            costs=f"up to {exit_s * 1e6:.0f} us for each interrupt that wakes a core (the kernel's own figure)",
        )


CHECK = Check(
    name="idle_states_deep",
    summary="idle cores enter states that are slow to leave",
    right="idle cores wake quickly",
    certainty="possible",
    remedy="cpupower idle-set -D 20 switches off states that take more than 20 us; permanently: tuned-adm profile"
    " latency-performance",
    signs=_signs,
    needs=(needs.settings, needs.nic, needs.unless_none("idle_state", "no CPU idle states")),
    asks=(require_read("idle_state", "idle_exit_s"),),
    change=lambda _: Change(
        files="sys/devices/system/cpu/cpu*/cpuidle/state*/disable", value="1", beside="latency", least=_LONG_US
    ),
)
