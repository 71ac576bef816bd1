"""No huge pages at all: neither by madvise, nor for all, nor set aside.

Our own copies and MPI messages are measured on both kinds of pages, because they differ. RDMA registers each page, so
that small ones also make registration slow.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Change, Check, Facts, Findings
from railwright.checks.host_settings import read, setting
from railwright.topology.settings import NONE

_FILE = "/sys/kernel/mm/transparent_hugepage/enabled"


def _signs(facts: Facts) -> Findings:
    mode, kept = setting(facts.topology, "thp"), setting(facts.topology, "hugepages_bytes")
    if mode in ("never", NONE) and kept in (0, NONE):
        why = "switched off" if mode == "never" else "not built into the kernel"
        yield CHECK.of_host(
            facts,
            f"transparent huge pages are {why}, and no huge pages are set aside",
            ("transparent huge pages", str(mode), _FILE),
            ("Hugetlb", "0 kB", "/proc/meminfo"),
        )


CHECK = Check(
    name="huge_pages_off",
    summary="memory has small pages only",
    certainty="possible",
    costs="copies and registration of large buffers: railwright prove shows huge and small pages",
    remedy=f"echo madvise > {_FILE}: programs that ask for them get them, and no others",
    signs=_signs,
    needs=(needs.settings,),
    asks=(read("thp", "hugepages_bytes"),),
    change=lambda _: Change(files=_FILE.removeprefix("/"), value="madvise"),
)
