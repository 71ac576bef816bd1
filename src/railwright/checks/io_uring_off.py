"""io_uring is disabled for this process, so fio and NIXL's POSIX backend fall back to slower interfaces.

Linux Documentation/admin-guide/sysctl/kernel.rst: 1 restricts it to a group and CAP_SYS_ADMIN, 2 disables it.
A seccomp filter may block it as well: newer container runtimes do so by default.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Change, Check, Command, Facts, Findings
from railwright.checks.host_settings import nonnegative_integer, require_read, setting
from railwright.topology.devices import Topology

_FACT, _FILTER = "io_uring_disabled", "seccomp"


def _signs(facts: Facts) -> Findings:
    off = nonnegative_integer(setting(facts.topology, _FACT))
    if off:
        says = f"io_uring is disabled (kernel.io_uring_disabled is {off})"
        yield CHECK.host_finding(facts, says, ("io_uring_disabled", str(off), "/proc/sys/kernel/io_uring_disabled"))
    elif setting(facts.topology, _FILTER) == "filter":
        says = "a seccomp filter is active and may block io_uring, as container runtimes often do"
        yield CHECK.host_finding(facts, says, ("seccomp", "filter", "/proc/self/status"))


def _build_change(topology: Topology) -> Change | tuple[Command, ...]:
    """Return the kernel setting; a seccomp filter cannot be lifted from inside."""
    is_off = nonnegative_integer(setting(topology, _FACT))
    return Change(files="proc/sys/kernel/io_uring_disabled", value="0") if is_off else ()


CHECK = Check(
    name="io_uring_off",
    summary="programs cannot use io_uring",
    right="io_uring is available",
    certainty="possible",
    costs="files are read with one system call per block: more CPU time, and a lower rate of small blocks",
    remedy="sysctl kernel.io_uring_disabled=0; in a container use a seccomp profile that allows io_uring_setup,"
    " io_uring_enter and io_uring_register; test with fio --ioengine=io_uring",
    signs=_signs,
    needs=(needs.settings,),
    asks=(require_read(_FACT, _FILTER),),
    change=_build_change,
)
