"""Processes of a host may not read each other's memory (CMA), so MPI and UCX copy each message twice.

`process_vm_readv` needs the same permission as ptrace (Linux Documentation/admin-guide/LSM/Yama.rst). At scope 1 a
process can admit its peers itself (PR_SET_PTRACER); from 2 on a process needs CAP_SYS_PTRACE.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Change, Check, Command, Facts, Findings
from railwright.checks.host_settings import nonnegative_integer, require_read, setting
from railwright.topology.devices import Topology

_SCOPE, _MAY = "ptrace_scope", "may_trace"
_ADMIN_ONLY = 2


def _signs(facts: Facts) -> Findings:
    scope = nonnegative_integer(setting(facts.topology, _SCOPE))
    if scope is None or scope < _ADMIN_ONLY or setting(facts.topology, _MAY) is not False:
        return
    yield CHECK.host_finding(
        facts,
        f"processes may not read each other's memory: kernel.yama.ptrace_scope is {scope}",
        ("ptrace_scope", str(scope), "/proc/sys/kernel/yama/ptrace_scope"),
    )


def _build_change(topology: Topology) -> Change | tuple[Command, ...]:
    """Return the kernel setting; scope 3 stays until the next reboot."""
    is_fixed = nonnegative_integer(setting(topology, _SCOPE)) != _ADMIN_ONLY
    return () if is_fixed else Change(files="proc/sys/kernel/yama/ptrace_scope", value="1")


CHECK = Check(
    name="ptrace_refused",
    summary="processes of a host may not read each other's memory",
    right="processes of this host may read each other's memory",
    certainty="likely",
    costs="large messages between processes of a host are copied twice, through a shared buffer, or use XPMEM",
    remedy="sysctl kernel.yama.ptrace_scope=1; in a container --cap-add=SYS_PTRACE",
    signs=_signs,
    needs=(needs.settings,),
    asks=(require_read(_SCOPE, _MAY),),
    change=_build_change,
)
