"""No huge pages: neither by madvise, nor always, nor reserved.

Our own copies and MPI messages are measured with both page sizes, because their results differ. RDMA registers each
page, so small pages also slow down registration.
"""

from __future__ import annotations

from railwright.checks import needs
from railwright.checks.check import Change, Check, Facts, Findings
from railwright.checks.host_settings import require_read, setting
from railwright.topology.settings import NONE

_FILE = "/sys/kernel/mm/transparent_hugepage/enabled"


def _signs(facts: Facts) -> Findings:
    mode, reserved = setting(facts.topology, "thp"), setting(facts.topology, "hugepages_bytes")
    if mode in ("never", NONE) and reserved in (0, NONE):
        why = "switched off" if mode == "never" else "not built into the kernel"
        yield CHECK.host_finding(
            facts,
            f"transparent huge pages are {why}, and no huge pages are reserved",
            ("transparent huge pages", str(mode), _FILE),
            ("Hugetlb", "0 kB", "/proc/meminfo"),
        )


CHECK = Check(
    name="huge_pages_off",
    summary="memory uses only small pages",
    right="programs can use huge pages",
    certainty="possible",
    costs="slower copies and registration of large buffers; railwright prove compares huge and small pages",
    remedy=f"echo madvise > {_FILE}: programs that request huge pages get them, others do not",
    signs=_signs,
    needs=(needs.settings,),
    asks=(require_read("thp", "hugepages_bytes"),),
    change=lambda _: Change(files=_FILE.removeprefix("/"), value="madvise"),
)
