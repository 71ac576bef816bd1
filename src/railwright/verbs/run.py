"""Single benchmarks with all their options, on this host or between several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from railwright.benchmarks.options import options_of
from railwright.benchmarks.registry import BENCHMARKS, EVERY, find
from railwright.errors import UsageError
from railwright.launch.hosts import Hosts, parse_interfaces
from railwright.results.store import load
from railwright.verbs.container import container_beside_host, not_beside, refuse_half
from railwright.verbs.hosts import growing, refuse_no_hosts, refuse_shared_memory, the_hosts
from railwright.verbs.kubernetes import submitting as making
from railwright.verbs.kubernetes import taken_from as of_kubernetes
from railwright.verbs.kubernetes import words_of as in_pods
from railwright.verbs.measuring import JobToCome, measure, with_ceilings
from railwright.verbs.repeat import compared, refuse_overwriting, replay_environment, words_of
from railwright.verbs.slurm import submitting, taken_from


def run(
    names: tuple[str, ...],
    hosts: str | None,
    ranks_per_host: int | None,
    lab: str | None,
    ssh_config: str | None,
    interfaces: str | None,
    alone: bool,
    screen: bool,
    grow: bool,
    repeat: str | None,
    in_namespaces_of: int | None = None,
    against: str | None = None,
    **asked: Any,  # noqa: ANN401 - for `measure`
) -> int:
    """Measure, judge and report, or list the benchmarks where none is named; the exit status."""
    if repeat is not None:
        return _again(repeat, names, asked)
    beside = {"--hosts": hosts, "--screen": screen, "--grow": grow, "--slurm": asked["slurm"],
              "--kubernetes": asked["kubernetes"], **not_beside(asked)}  # fmt: skip
    refuse_half(in_namespaces_of, against, beside)
    where = _Where(hosts, ranks_per_host, lab, ssh_config, interfaces)
    placed = _placed(where, asked, _words(names, where, alone=alone, screen=screen, grow=grow))
    planned = placed.hosts if isinstance(placed, JobToCome) else placed
    refuse_shared_memory(planned, asked["options"])
    if not names:
        return _list()
    if in_namespaces_of is not None:
        every = names if alone else with_ceilings(names, between_hosts=False)
        return container_beside_host(in_namespaces_of, ("run", *names, *["--alone"] * alone), every, **asked)
    if screen and grow:
        raise UsageError("--grow begins with every host by itself", hint="leave out --screen")
    if screen or grow:
        _refuse_others("--screen" if screen else "--grow", names)
    if screen:
        refuse_no_hosts(planned)
    place = growing(planned) if grow else None
    every = names if alone else with_ceilings(names, between_hosts=planned is not None)
    added = frozenset(every) - set(names)
    return measure(every, hosts=placed, screens=screen, place=place, ceilings=added, **asked)


class _Where(NamedTuple):
    """The options that say where ranks are placed."""

    hosts: str | None
    ranks_per_host: int | None
    lab: str | None
    ssh_config: str | None
    interfaces: str | None


def _placed(where: _Where, asked: dict[str, Any], words: Sequence[str]) -> Hosts | JobToCome | None:
    """The hosts, or the job that will have them; the words are those of a pod."""
    hosts, ranks_per_host, lab, ssh_config, interfaces = where
    kubernetes = of_kubernetes(asked, asked["slurm"], {"--hosts": hosts, "--lab": lab, "--ssh-config": ssh_config})
    slurm = taken_from(asked)
    starts = slurm.starts if slurm is not None else None
    if kubernetes is not None:
        to_come = kubernetes.to_come(ranks_per_host, parse_interfaces(interfaces or ""))
        return JobToCome(to_come, making(kubernetes, to_come, in_pods("run", asked, asked["options"], *words), asked))
    if slurm is not None and starts is None:
        to_come = slurm.to_come(hosts, ranks_per_host)
        return JobToCome(to_come, submitting(slurm, to_come, asked))
    return the_hosts(hosts, ranks_per_host, lab, ssh_config, interfaces, starts)


def _words(names: tuple[str, ...], where: _Where, *, alone: bool, screen: bool, grow: bool) -> list[str]:
    """The words of this verb that are the same in a pod."""
    words = [*names, *(["--ranks-per-host", str(where.ranks_per_host)] if where.ranks_per_host else [])]
    words += ["--interfaces", where.interfaces] if where.interfaces else []
    switches = {"--alone": alone, "--screen": screen, "--grow": grow}
    return words + [name for name, is_on in switches.items() if is_on]


def _list() -> int:
    """Print the benchmarks with their options."""
    for benchmark in EVERY:
        place = "" if benchmark in BENCHMARKS else " (not part of prove)"
        click.echo(f"{benchmark.name:18} {benchmark.summary}{place}")
        click.echo(f"{'':18} method: {benchmark.method}")
        for name, (_, option) in options_of(benchmark.options).items():
            default = benchmark.defaults.get(name, option.default)
            click.echo(f"{'':18} -o {benchmark.name}.{name}={default}    {option.help}")
    return 0


def _again(record: str, names: tuple[str, ...], asked: dict[str, Any]) -> int:
    """Measure what a record says, and compare; the exit status."""
    if names or asked["options"]:
        raise UsageError("--repeat takes benchmarks and options from the record", hint="leave out what it names")
    refuse_overwriting(record, asked["output"])
    recorded = load(Path(record)).run
    for way, what in (("slurm", "a Slurm job"), ("kubernetes", "pods of Kubernetes")):
        if f"--{way}" in recorded.command and not asked[way]:
            raise UsageError(f"the record is of {what}", hint=f"say --{way} once more, and of what job")
    given = words_of(recorded, click.get_current_context().command)
    replay_environment(recorded.context.environment)
    again = asked | {name: given.pop(name) for name in ("options", "mpirun", "launches")}
    status = run(**given, repeat=None, **again)
    return status if asked["dry_run"] else compared(record, asked["output"], as_json=asked["as_json"], status=status)


def _refuse_others(asked: str, names: tuple[str, ...]) -> None:
    """Raises UsageError for a benchmark that needs several hosts, or cannot leave this one."""
    for name in names:
        if not find(name).alone_on_a_host:
            able = ", ".join(one.name for one in EVERY if one.alone_on_a_host)
            raise UsageError(f"{name} cannot be run on each of several hosts by itself", hint=f"{asked} takes {able}")
