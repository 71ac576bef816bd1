"""All benchmarks of one machine, or of each of several."""

from __future__ import annotations

import os
from typing import Any

from railwright.benchmarks.registry import BENCHMARKS
from railwright.errors import UsageError
from railwright.launch.slurm import is_inside
from railwright.verbs.container import container_beside_host, not_beside, refuse_half
from railwright.verbs.hosts import the_hosts
from railwright.verbs.kubernetes import SHARED, taken_from
from railwright.verbs.measuring import measure
from railwright.verbs.prove_hosts import prove_hosts
from railwright.verbs.prove_pods import prove_pods


def prove(
    directory: str | None,
    options: tuple[str, ...],
    hosts: str | None,
    lab: str | None,
    ssh_config: str | None,
    slurm: bool,
    in_namespaces_of: int | None,
    against: str | None,
    **asked: Any,  # noqa: ANN401 - for `measure`
) -> int:
    """Measure, judge and report; the exit status."""
    beside = {"--hosts": hosts, "--slurm": slurm, "--kubernetes": asked["kubernetes"], **not_beside(asked)}
    refuse_half(in_namespaces_of, against, beside)
    kubernetes = taken_from(asked, slurm, {"--hosts": hosts, "--lab": lab, "--ssh-config": ssh_config})
    shared = {option: asked.pop(name) for name, option in SHARED.items()}
    if kubernetes is not None:
        return prove_pods(kubernetes, directory or _ON_HOSTS, options, asked)
    lone = next((option for option, value in shared.items() if value is not None), None)
    if lone is not None:
        raise UsageError(f"{lone} says nothing without --kubernetes", hint="write it as well")
    if slurm and not is_inside(os.environ):
        hint = "salloc --exclusive --nodes 4 railwright prove --slurm"
        raise UsageError("--slurm proves the nodes of a job that one is inside of", hint=hint)
    names = tuple(benchmark.name for benchmark in BENCHMARKS)
    if in_namespaces_of is not None:
        words = ("prove", "--directory", directory or _ON_HOSTS)
        return container_beside_host(in_namespaces_of, words, names, options=options, **asked)
    placed = the_hosts(hosts, None, lab, ssh_config, None, "auto" if slurm else None)
    if placed is not None:
        if asked.pop("verbose"):
            raise UsageError("--verbose tells of one host", hint="see each host's own report, below hosts/")
        return prove_hosts(placed, directory=directory or _ON_HOSTS, options=options, **asked)
    return measure(names, options=(f"directory={directory or '.'}", *options), **asked)


_ON_HOSTS = "/tmp"  # noqa: S108 - the file system that is measured: one that every host has
