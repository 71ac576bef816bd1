"""io_uring is switched off for this process, so that fio and NIXL's POSIX backend fall back to slower ways.

Linux Documentation/admin-guide/sysctl/kernel.rst: 1 leaves it to a group and to CAP_SYS_ADMIN, 2 to nobody.
A filter of seccomp may refuse it as well: that of a container runtime does by default in newer releases.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import OfPart
from railwright.checks.host_settings import host_id, read, setting
from railwright.results.records import Evidence

_FACT, _FILTER = "io_uring_disabled", "seccomp"


def _signs(facts: Facts) -> Findings:
    off, seccomp = setting(facts.topology, _FACT), setting(facts.topology, _FILTER)
    if isinstance(off, int) and not isinstance(off, bool) and off > 0:
        says = f"io_uring is switched off (kernel.io_uring_disabled is {off})"
        seen = Evidence(claim="io_uring_disabled", value=str(off), seen="/proc/sys/kernel/io_uring_disabled")
    elif seccomp == "filter":
        says = "a seccomp filter is on, which may refuse io_uring: that of a container runtime often does"
        seen = Evidence(claim="seccomp", value="filter", seen="/proc/self/status")
    else:
        return
    yield CHECK.finding(
        (OfPart(host_id(facts.topology)),),
        says,
        seen,
        certainty="possible",
        costs="files are read with a call for each block: more CPU time, and a lower rate of small blocks",
        remedy="sysctl kernel.io_uring_disabled=0; in a container a seccomp profile that allows io_uring_setup,"
        " io_uring_enter and io_uring_register; fio --ioengine=io_uring shows whether it works",
    )


CHECK = Check(
    name="io_uring_off",
    summary="files cannot be read by io_uring",
    signs=_signs,
    needs=(needs.settings,),
    asks=(read(_FACT, _FILTER),),
)
