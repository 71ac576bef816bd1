"""What this process is allowed: CPUs, tracing of others, and calls of the kernel.

A container has all of that from whoever started it, and nothing fails where it is little. Each is the file, how it is
read, and what is said of a file that cannot be read so.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from railwright.topology.devices import Scalar
from railwright.topology.sources import text

_STATUS = "proc/self/status"
_SYS_PTRACE = 1 << 19
"""CAP_SYS_PTRACE (Linux include/uapi/linux/capability.h)."""
_SECCOMP = {"0": "off", "1": "strict", "2": "filter"}

Parse = Callable[[str], Scalar | None]


def _line(name: str, pattern: str) -> Callable[[str], str | None]:
    def find(content: str) -> str | None:
        match = re.search(rf"(?m)^{name}:\s+({pattern})$", content)
        return match.group(1) if match else None

    return find


def _cpus(content: str) -> str | None:
    listed = _line("Cpus_allowed_list", r"[0-9,-]{1,4096}")(content)
    return listed if listed and text.id_list(listed) else None


def _may_trace(content: str) -> bool | None:
    capabilities = _line("CapEff", r"[0-9a-f]{1,16}")(content)
    return None if capabilities is None else bool(int(capabilities, 16) & _SYS_PTRACE)


def _seccomp(content: str) -> str | None:
    return _SECCOMP.get(_line("Seccomp", r"\d")(content) or "")


PROCESS_FILES: dict[str, tuple[str, Parse, str]] = {
    "cpus_allowed": (_STATUS, _cpus, "has no Cpus_allowed_list"),
    "may_trace": (_STATUS, _may_trace, "has no CapEff"),
    "seccomp": (_STATUS, _seccomp, "has no Seccomp"),
    "ptrace_scope": ("proc/sys/kernel/yama/ptrace_scope", text.number, "is not a whole number"),
    "io_uring_disabled": ("proc/sys/kernel/io_uring_disabled", text.number, "is not a whole number"),
}
