"""All benchmarks of one machine, or of each of several."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from railwright.benchmarks.registry import BENCHMARKS, find
from railwright.errors import UsageError, unknown_name
from railwright.launch.slurm.allocation import is_inside
from railwright.verbs.container import container_beside_host, not_beside, refuse_half
from railwright.verbs.hosts import the_hosts
from railwright.verbs.kubernetes import SHARED, taken_from
from railwright.verbs.measuring import measure
from railwright.verbs.prove_hosts import PARTS, Asked, prove_hosts
from railwright.verbs.prove_pods import prove_pods


def prove(
    directory: str | None,
    options: tuple[str, ...],
    hosts: str | None,
    lab: str | None,
    ssh_config: str | None,
    slurm: bool,
    interfaces: str | None,
    parts: str | None,
    benchmarks: str | None,
    max_load: float,
    cluster: str | None,
    resume: bool,
    in_namespaces_of: int | None,
    against: str | None,
    **asked: Any,  # noqa: ANN401 - for `measure`
) -> int:
    """Measure, judge and report; the exit status."""
    beside = {"--hosts": hosts, "--slurm": slurm, "--kubernetes": asked["kubernetes"], **not_beside(asked)}
    refuse_half(in_namespaces_of, against, beside)
    kubernetes = taken_from(asked, slurm, {"--hosts": hosts, "--lab": lab, "--ssh-config": ssh_config})
    shared = {option: asked.pop(name) for name, option in SHARED.items()}
    of_several = {"--parts": parts, "--benchmarks": benchmarks, "--max-load": max_load < 1 or None,
                  "--cluster": cluster, "--resume": resume or None}  # fmt: skip
    if kubernetes is not None:
        del of_several["--benchmarks"]
        _refuse(of_several, "is not for --kubernetes: each node proves itself", "leave it out")
        return prove_pods(kubernetes, directory or _ON_HOSTS, _names(benchmarks), options, asked)
    _refuse(shared, "says nothing without --kubernetes", "write it as well")
    if slurm and not is_inside(os.environ):
        hint = "salloc --exclusive --nodes 4 railwright prove --slurm"
        raise UsageError("--slurm proves the nodes of a job that one is inside of", hint=hint)
    placed = the_hosts(hosts, None, lab, ssh_config, interfaces, "auto" if slurm else None)
    if placed is not None:
        if asked.pop("verbose"):
            raise UsageError("--verbose tells of one host", hint="see each host's own report, below hosts/")
        of_hosts = Asked(_parts(parts), _names(benchmarks), max_load, cluster, resume)
        return prove_hosts(placed, asked=of_hosts, directory=directory or _ON_HOSTS, options=options, **asked)
    _refuse(of_several, "is of several hosts", "write --hosts host0,host1 or --slurm")
    names = tuple(benchmark.name for benchmark in BENCHMARKS)
    if in_namespaces_of is not None:
        words = ("prove", "--directory", directory or _ON_HOSTS)
        return container_beside_host(in_namespaces_of, words, names, options=options, **asked)
    return measure(names, options=(f"directory={directory or '.'}", *options), **asked)


def _refuse(given: Mapping[str, object], why: str, hint: str) -> None:
    """Raises UsageError for the first of these options that was given."""
    lone = next((option for option, value in given.items() if value is not None), None)
    if lone is not None:
        raise UsageError(f"{lone} {why}", hint=hint)


def _parts(given: str | None) -> tuple[str, ...]:
    """What is measured of several hosts; all of it without a word. Raises UsageError."""
    if given is None:
        return PARTS
    found = tuple(part.strip() for part in given.split(","))
    for part in found:
        if part not in PARTS:
            raise unknown_name("part", part, PARTS)
    return found


def _names(given: str | None) -> tuple[str, ...]:
    """The benchmarks of each host's screen. Raises UsageError."""
    return tuple(find(name.strip()).name for name in given.split(",")) if given else ()


_ON_HOSTS = "/tmp"  # noqa: S108 - the file system that is measured: one that every host has
