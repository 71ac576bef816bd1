"""Processes of a host may not read each other's memory (CMA), so that MPI and UCX copy each message twice.

`process_vm_readv` asks the kernel what ptrace asks (Linux Documentation/admin-guide/LSM/Yama.rst). At scope 1 a
process can let its peers in by itself (PR_SET_PTRACER); from 2 on only who has CAP_SYS_PTRACE may.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import OfPart
from railwright.checks.host_settings import host_id, read, setting
from railwright.results.records import Evidence

_SCOPE, _MAY = "ptrace_scope", "may_trace"
_ADMIN_ALONE = 2


def _signs(facts: Facts) -> Findings:
    scope, may = (setting(facts.topology, name) for name in (_SCOPE, _MAY))
    if not isinstance(scope, int) or isinstance(scope, bool) or scope < _ADMIN_ALONE or may is not False:
        return
    yield CHECK.finding(
        (OfPart(host_id(facts.topology)),),
        f"processes may not read each other's memory: kernel.yama.ptrace_scope is {scope}",
        Evidence(claim="ptrace_scope", value=str(scope), seen="/proc/sys/kernel/yama/ptrace_scope"),
        certainty="likely",
        costs="large messages between processes of a host are copied twice, through a shared buffer, or use XPMEM",
        remedy="sysctl kernel.yama.ptrace_scope=1; in a container --cap-add=SYS_PTRACE",
    )


CHECK = Check(
    name="ptrace_refused",
    summary="processes of a host may not read each other's memory",
    signs=_signs,
    needs=(needs.settings,),
    asks=(read(_SCOPE, _MAY),),
)
