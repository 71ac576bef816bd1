"""io_uring is switched off for this process, so that fio and NIXL's POSIX backend fall back to slower ways.

Linux Documentation/admin-guide/sysctl/kernel.rst: 1 leaves it to a group and to CAP_SYS_ADMIN, 2 to nobody.
A filter of seccomp may refuse it as well: that of a container runtime does by default in newer releases.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Check, Facts, Findings
from railwright.checks.host_settings import read, setting, whole

_FACT, _FILTER = "io_uring_disabled", "seccomp"


def _signs(facts: Facts) -> Findings:
    off = whole(setting(facts.topology, _FACT))
    if off:
        says = f"io_uring is switched off (kernel.io_uring_disabled is {off})"
        yield CHECK.of_host(facts, says, ("io_uring_disabled", str(off), "/proc/sys/kernel/io_uring_disabled"))
    elif setting(facts.topology, _FILTER) == "filter":
        says = "a seccomp filter is on, which may refuse io_uring: that of a container runtime often does"
        yield CHECK.of_host(facts, says, ("seccomp", "filter", "/proc/self/status"))


CHECK = Check(
    name="io_uring_off",
    summary="files cannot be read by io_uring",
    certainty="possible",
    costs="files are read with a call for each block: more CPU time, and a lower rate of small blocks",
    remedy="sysctl kernel.io_uring_disabled=0; in a container a seccomp profile that allows io_uring_setup,"
    " io_uring_enter and io_uring_register; fio --ioengine=io_uring shows whether it works",
    signs=_signs,
    needs=(needs.settings,),
    asks=(read(_FACT, _FILTER),),
)
