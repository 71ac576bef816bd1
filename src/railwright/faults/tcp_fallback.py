"""UCX moved data between two processes of one host over TCP, because a better transport could not be used.

Without ptrace rights (containers with Docker's default seccomp profile, `kernel.yama.ptrace_scope` of 1 or more) UCX
cannot use CMA on anonymous memory and falls back to TCP emulation, at ten times the latency.
"""

from __future__ import annotations

from railwright.faults.model import Facts, Fault, Finding


def _look(facts: Facts) -> tuple[Finding, ...]:
    fallen: dict[tuple[str, str], list[str]] = {}
    evidence = {}
    for result in facts.results:
        for one in result.evidence:
            if one.claim == "ucx_protocol" and one.value.startswith("tcp") and result.hosts == 1:
                fallen.setdefault((result.benchmark, result.path), []).append(one.value)
                evidence[(result.benchmark, result.path)] = one
    return tuple(
        Finding(
            fault=FAULT.name,
            where=(benchmark, path),
            certainty="seen",
            says=f"{benchmark} ran over {values[0]} between two processes of one host ({len(values)} points)",
            costs="about ten times the latency of CMA, and a third of its bandwidth at large blocks",
            remedy="give the processes ptrace rights towards each other (container capability SYS_PTRACE, or "
            "kernel.yama.ptrace_scope=0), or look at UCX_TLS; `ucx_info -d | grep cma` shows whether CMA is there",
            evidence=(evidence[(benchmark, path)],),
        )
        for (benchmark, path), values in fallen.items()
    )


FAULT = Fault(
    name="tcp_fallback",
    summary="UCX fell back to TCP inside one host",
    look=_look,
    needs_results=True,
)
