"""The nodes of a Slurm allocation: which they are, and how programs are started on them, by `srun` alone.

Nodes are called as Slurm calls them (SLURMD_NODENAME): their hostnames may be others, or all the same.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from railwright.benchmarks.sockets.addresses import addresses_of_host
from railwright.errors import CannotJudge, UsageError
from railwright.launch.asked import PROBE_COMMAND, RemoteReach, parse_answers
from railwright.launch.mpi import Flavour
from railwright.launch.slurm import agent as slurm_agent
from railwright.process import Finished, ask, run

_WITHIN_S = 60.0
"""A controller that is busy may let a command wait for its MessageTimeout, 10 s by default, several times."""
_PLUGINS: Mapping[Flavour, str] = {"openmpi": "pmix", "mpich": "pmi2"}
"""What each MPI speaks with its launcher. Open MPI 5 speaks nothing else."""
STEP = ("srun", "--overlap", "--cpu-bind=none", "--chdir=/", "--input=none")
"""A step beside others of the same job: without `--overlap` it would wait until they have ended (Slurm 20.11 on)."""
_FIELD = re.compile(r"(\S+?)=(.*?)(?= [A-Z][A-Za-z:/_]*=|$)")
_BAD_STATES = ("down", "fail", "no_respond", "unknown", "power", "reboot")
_MOST_SAID = 200


@dataclass(frozen=True)
class Allocation:
    """A job that we are inside of."""

    job: str
    nodes: tuple[str, ...]


def is_inside_job(environment: Mapping[str, str]) -> bool:
    """Whether that is the environment of a job."""
    return "SLURM_JOB_ID" in environment


def allocation(environment: Mapping[str, str]) -> Allocation:
    """The job of that environment. Raises UsageError for jobs whose nodes are not all ours to measure together."""
    job = environment["SLURM_JOB_ID"]
    if "SLURM_HET_SIZE" in environment or "SLURM_PACK_SIZE" in environment:
        reason = f"job {job} is heterogeneous, and srun would start ranks on its first component alone"
        raise UsageError(reason, hint="measure each kind of node in a job of its own")
    if task := environment.get("SLURM_ARRAY_TASK_ID"):
        array = environment.get("SLURM_ARRAY_JOB_ID", job)
        reason = f"job {job} is task {task} of array {array}, whose tasks would disturb each other"
        raise UsageError(reason, hint="submit one job: leave out --array")
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks != "1":
        reason = f"srun has started railwright {tasks} times, and each would measure all of the nodes"
        raise UsageError(reason, hint="start it once, from the batch script or in salloc: it starts its ranks itself")
    listed = environment.get("SLURM_JOB_NODELIST", "")
    return Allocation(job, expand_nodes(listed))


def read_job_nodes(job: int) -> str:
    """The list of the nodes that a job has now, for `expand_nodes`. Raises UsageError, CannotJudge."""
    fields = read_job_fields(str(job))
    nodes, state = fields.get("NodeList", ""), fields.get("JobState", "unknown")
    if state != "RUNNING" or not nodes or nodes == "(null)":
        raise CannotJudge(f"job {job} does not run: it is {state[:40]}", hint=f"see squeue --job {job}")
    return nodes


def read_job_fields(number: str) -> dict[str, str]:
    """The fields that scontrol shows of a job. Raises UsageError, CannotJudge."""
    return parse_fields("".join(ask_slurm("scontrol", "--oneliner", "show", "job", number).output))


def parse_fields(text: str) -> dict[str, str]:
    """`NAME=VALUE NAME=VALUE` of scontrol's one line, the first of each name."""
    return dict(reversed(_FIELD.findall(text.strip())))


def expand_nodes(listed: str) -> tuple[str, ...]:
    """`n[1-3,7]` as names, by Slurm itself. Raises CannotJudge."""
    told = ask_slurm("scontrol", "show", "hostnames", listed).output if listed else ()
    names = tuple(line.strip() for line in told if line.strip())
    if not names:
        reason = f"the nodes of the job cannot be told: {listed[:_MOST_SAID]!r}"
        raise CannotJudge(reason, hint="try: scontrol show job")
    return names


def ask_slurm(*words: str, given: bytes = b"") -> Finished:
    """Run one of Slurm's commands to its end. Raises UsageError without Slurm, CannotJudge with its words."""
    if shutil.which(words[0]) is None:
        raise UsageError(f"{words[0]} is not installed", hint="--slurm needs Slurm's commands on this machine")
    finished = ask(words, timeout_s=_WITHIN_S, given=given)
    if finished.timed_out:
        raise CannotJudge(f"{words[0]} gave no answer within {_WITHIN_S:.0f} s", hint="try: scontrol ping")
    if finished.returncode != 0:
        raise CannotJudge(describe_failure(finished, words[0]), hint="try: scontrol ping")
    return finished


def describe_failure(finished: Finished, program: str) -> str:
    """What a command of Slurm's says of its failure: its first error, since later ones follow from it."""
    lines = [line.strip() for line in finished.output if line.strip()]
    errors = [line for line in lines if "error:" in line or "fatal:" in line]
    said = next(iter(errors or lines), finished.describe())
    return said[:_MOST_SAID] if said.startswith(program) else f"{program}: {said[:_MOST_SAID]}"


@dataclass
class SlurmReach(RemoteReach):
    """Some nodes of an allocation. Raises UsageError for a node that is not part of it."""

    allocation: Allocation
    started_by: str = "auto"
    """`srun` or `mpirun`; `auto`: srun where it speaks with this MPI."""
    _troubles: dict[str, str] = field(default_factory=dict, init=False)
    """Of each plugin that was tried, why it does not work; empty where it does."""

    name = "slurm"

    def __post_init__(self) -> None:
        for host in self.hosts:
            if host not in self.allocation.nodes:
                nodes = ", ".join(self.allocation.nodes[:8])
                raise UsageError(f"{host} is no node of job {self.allocation.job}", hint=f"it has {nodes}")

    def agent(self, _scratch: Path | None = None) -> list[str]:
        """A step of one task, with ssh's manners."""
        return [sys.executable, "-I", str(Path(slurm_agent.__file__))]

    def addresses(self) -> tuple[str, ...]:
        """Where nodes saw their step come from, then our other addresses."""
        seen = [address for answer in self.answers().values() for address in answer.seen]
        found = dict.fromkeys([*seen, *(address for name, address in addresses_of_host() if name != "lo")])
        if not found:
            raise CannotJudge("this host has no address that a node could reach")
        return tuple(found)

    def addresses_on(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """The address of each node on the first of some interfaces; without any, on its first. Raises UsageError."""
        return tuple(
            answer.address_on(host, interfaces or [name for name, _ in answer.has if name != "lo"] or ("lo",))
            for host, answer in self.answers().items()
        )

    def check(self) -> None:
        """Ask every node by one step. Raises CannotJudge, naming those that do not answer as they must."""
        troubles = self._states()
        asked = [host for host in self.hosts if host not in troubles]
        if asked:
            step = [*STEP, *self._on(asked), "--mpi=none", "--kill-on-bad-exit=0", *PROBE_COMMAND]
            finished = run(step, timeout_s=_WITHIN_S)
            answers = {answer.host: answer for answer in parse_answers(finished.output)}
            for host in asked:
                why = answers[host].trouble() if host in answers else self._silent(host, finished)
                if why:
                    troubles[host] = why
            self._answers = {host: answers[host] for host in asked if host in answers}
        if troubles:
            said = "; ".join(f"{host}: {troubles[host]}" for host in self.hosts if host in troubles)
            node = next(iter(troubles))
            raise CannotJudge(f"job {self.allocation.job}: {said}", hint=f"try: scontrol show node {node}")

    def _on(self, hosts: Sequence[str]) -> list[str]:
        count = len(hosts)
        return [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--nodelist={','.join(hosts)}"]

    def _states(self) -> dict[str, str]:
        """What the controller says of nodes that cannot be used. A job keeps its nodes while they are drained."""
        words = ["sinfo", "--noheader", "--Node", f"--nodes={','.join(self.hosts)}", "--format=%N|%T|%E"]
        found = {}
        for line in ask_slurm(*words).output:
            host, _, rest = line.strip().partition("|")
            state, _, reason = rest.partition("|")
            if host in self.hosts and (state.endswith("*") or state.startswith(_BAD_STATES)):
                found[host] = f"Slurm says it is {state.rstrip('*')}"
                found[host] += ", and it does not respond" * state.endswith("*")
                found[host] += f" ({reason[:_MOST_SAID]})" * (reason not in ("", "none"))
        return found

    @staticmethod
    def _silent(host: str, finished: Finished) -> str:
        if finished.timed_out:
            return f"no answer within {_WITHIN_S:.0f} s"
        lines = [line.strip() for line in finished.output if line.strip()]
        named = next((line for line in lines if host in line.replace(",", " ").replace(":", " ").split()), "")
        said = named or next((line for line in lines if "error:" in line), "") or (lines[-1] if lines else "")
        return said[:_MOST_SAID] or f"srun: {finished.describe()}"

    def srun_plugin(self, flavour: Flavour) -> str:
        """The plugin by which srun itself can start ranks of that MPI; empty where mpirun is to do it.

        Raises CannotJudge where srun was asked for and cannot: Slurm lists plugins whose library is missing, so it is
        tried, on every node.
        """
        plugin = _PLUGINS[flavour]
        if self.started_by == "mpirun":
            return ""
        if plugin not in self._troubles:
            finished = run([*STEP, *self._on(self.hosts), f"--mpi={plugin}", "true"], timeout_s=_WITHIN_S)
            self._troubles[plugin] = "" if finished.returncode == 0 else describe_failure(finished, "srun")
        trouble = self._troubles[plugin]
        if trouble and self.started_by == "srun":
            reason = f"srun --mpi={plugin} does not work here: {trouble}"
            raise CannotJudge(reason, hint="leave out --start-by srun: mpirun then starts the ranks")
        return "" if trouble else plugin
