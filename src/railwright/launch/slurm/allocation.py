"""The nodes of a Slurm allocation, and the reach that starts programs on them by `srun`.

Nodes have the names that Slurm gives them (SLURMD_NODENAME). Their hostnames may differ from these, or be all the same.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from railwright.benchmarks.sockets.addresses import list_addresses
from railwright.errors import CannotJudge, UnreachableHosts, UsageError
from railwright.launch.mpi import Flavour
from railwright.launch.remote import PROBE_COMMAND, RemoteReach, parse_answers
from railwright.launch.slurm import agent as slurm_agent
from railwright.process import ChildResult, query, run

_TIMEOUT_S = 60.0
"""The time limit for a Slurm command. A busy controller may delay it by several MessageTimeouts of 10 s by default."""
_PLUGINS: Mapping[Flavour, str] = {"openmpi": "pmix", "mpich": "pmi2"}
"""The PMI plugin of each MPI. Open MPI 5 supports no other."""
STEP = ("srun", "--overlap", "--cpu-bind=none", "--chdir=/", "--input=none")
"""A step that runs alongside the job's other steps. From Slurm 20.11 on, it would wait for them without `--overlap`."""
_FIELD = re.compile(r"(\S+?)=(.*?)(?= [A-Z][A-Za-z:/_]*=|$)")
_BAD_STATES = ("down", "fail", "no_respond", "unknown", "power", "reboot")
_MAX_MESSAGE_CHARACTERS = 200


@dataclass(frozen=True)
class Allocation:
    """The Slurm job that surrounds this process."""

    job: str
    nodes: tuple[str, ...]


def is_inside_job(environment: Mapping[str, str]) -> bool:
    """Report whether the environment is that of a Slurm job."""
    return "SLURM_JOB_ID" in environment


def read_allocation(environment: Mapping[str, str]) -> Allocation:
    """Read the surrounding job from the environment.

    Raises UsageError for a job whose nodes cannot be measured together, and as `expand_nodes`.
    """
    job = environment["SLURM_JOB_ID"]
    if "SLURM_HET_SIZE" in environment or "SLURM_PACK_SIZE" in environment:
        reason = f"job {job} is heterogeneous: srun would start ranks only on its first component"
        raise UsageError(reason, hint="measure each kind of node in a separate job")
    if task := environment.get("SLURM_ARRAY_TASK_ID"):
        array = environment.get("SLURM_ARRAY_JOB_ID", job)
        reason = f"job {job} is task {task} of array {array}, whose tasks would disturb each other"
        raise UsageError(reason, hint="submit a single job without --array")
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks != "1":
        reason = f"railwright must be started once per job, but srun has started it {tasks} times"
        raise UsageError(reason, hint="start it from the batch script or in salloc; it starts its ranks itself")
    listed = environment.get("SLURM_JOB_NODELIST", "")
    return Allocation(job, expand_nodes(listed))


def read_job_nodes(job: int) -> str:
    """Read a running job's node list, for `expand_nodes`. Raises as `ask_slurm`, and CannotJudge for other jobs."""
    fields = read_job_fields(str(job))
    nodes, state = fields.get("NodeList", ""), fields.get("JobState", "unknown")
    if state != "RUNNING" or not nodes or nodes == "(null)":
        raise CannotJudge(f"job {job} must be running, got state {state[:40]}", hint=f"see squeue --job {job}")
    return nodes


def read_job_fields(number: str) -> dict[str, str]:
    """Read the fields that scontrol shows for a job. Raises as `ask_slurm`."""
    return parse_fields("".join(ask_slurm("scontrol", "--oneliner", "show", "job", number).output))


def parse_fields(text: str) -> dict[str, str]:
    """Parse scontrol's line of `NAME=VALUE NAME=VALUE`. A name that occurs twice keeps its first value."""
    return dict(reversed(_FIELD.findall(text.strip())))


def expand_nodes(listed: str) -> tuple[str, ...]:
    """Expand a list like `n[1-3,7]` to node names by scontrol.

    Raises as `ask_slurm`, and CannotJudge if there is no name.
    """
    lines = ask_slurm("scontrol", "show", "hostnames", listed).output if listed else ()
    names = tuple(line.strip() for line in lines if line.strip())
    if not names:
        reason = f"the node list of the job cannot be expanded: {listed[:_MAX_MESSAGE_CHARACTERS]!r}"
        raise CannotJudge(reason, hint="try: scontrol show job")
    return names


def ask_slurm(*words: str, given: bytes = b"") -> ChildResult:
    """Run a Slurm command to completion.

    Raises UsageError if Slurm is not installed, and CannotJudge with the command's error message if it fails.
    """
    if shutil.which(words[0]) is None:
        raise UsageError(f"{words[0]} is not installed", hint="--slurm needs Slurm's commands on this machine")
    finished = query(words, timeout_s=_TIMEOUT_S, given=given)
    if finished.timed_out:
        raise CannotJudge(f"{words[0]} gave no answer within {_TIMEOUT_S:.0f} s", hint="try: scontrol ping")
    if finished.returncode != 0:
        raise CannotJudge(describe_failure(finished, words[0]), hint="try: scontrol ping")
    return finished


def describe_failure(finished: ChildResult, program: str) -> str:
    """Return the first error message of a Slurm command, since later ones are consequences, or else its first line."""
    lines = [line.strip() for line in finished.output if line.strip()]
    errors = [line for line in lines if "error:" in line or "fatal:" in line]
    message = next(iter(errors or lines), finished.describe())
    return (
        message[:_MAX_MESSAGE_CHARACTERS]
        if message.startswith(program)
        else f"{program}: {message[:_MAX_MESSAGE_CHARACTERS]}"
    )


@dataclass
class SlurmReach(RemoteReach):
    """The reach of an allocation's nodes. Raises UsageError for a host that is not one of them."""

    allocation: Allocation
    started_by: str = "auto"
    """`srun`, `mpirun`, or `auto`: srun if it supports this MPI, or else mpirun."""
    _troubles: dict[str, str] = field(default_factory=dict, init=False)
    """The error of each plugin that was tried, or an empty string for a plugin that works."""

    name = "slurm"

    def __post_init__(self) -> None:
        for host in self.hosts:
            if host not in self.allocation.nodes:
                nodes = ", ".join(self.allocation.nodes[:8])
                raise UsageError(f"{host} must be a node of job {self.allocation.job}", hint=f"its nodes: {nodes}")

    def agent(self, _scratch: Path | None = None) -> list[str]:
        """Return the program that starts one task on a node, with the same arguments as ssh."""
        return [sys.executable, "-I", str(Path(slurm_agent.__file__))]

    def addresses(self) -> tuple[str, ...]:
        """Return our addresses as the nodes saw them, then our other ones. Raises CannotJudge if there are none."""
        seen = [address for answer in self.answers().values() for address in answer.seen]
        found = dict.fromkeys([*seen, *(address for name, address in list_addresses() if name != "lo")])
        if not found:
            raise CannotJudge("this host has no address that nodes can reach")
        return tuple(found)

    def find_addresses(self, interfaces: Sequence[str]) -> tuple[str, ...]:
        """Return each node's address on the first of the interfaces. Without interfaces, on its own first interface.

        Raises UsageError for a node that does not have the interface or an address on it.
        """
        return tuple(
            answer.find_address(host, interfaces or [name for name, _ in answer.has if name != "lo"] or ("lo",))
            for host, answer in self.answers().items()
        )

    def check(self) -> None:
        """Probe all usable nodes in one job step. Raises CannotJudge, which names the nodes without a valid answer."""
        troubles = self._find_unusable()
        probed = [host for host in self.hosts if host not in troubles]
        if probed:
            step = [*STEP, *self._node_options(probed), "--mpi=none", "--kill-on-bad-exit=0", *PROBE_COMMAND]
            finished = query(step, timeout_s=_TIMEOUT_S)
            answers = {answer.host: answer for answer in parse_answers(finished.output)}
            for host in probed:
                why = answers[host].trouble() if host in answers else self._explain_silence(host, finished)
                if why:
                    troubles[host] = why
            self._answers = {host: answers[host] for host in probed if host in answers}
        if troubles:
            reasons = {host: f"{host}: {troubles[host]}" for host in self.hosts if host in troubles}
            hint = f"try: scontrol show node {next(iter(troubles))}"
            raise UnreachableHosts(reasons, of=f"job {self.allocation.job}", hint=hint)

    def _node_options(self, hosts: Sequence[str]) -> list[str]:
        count = len(hosts)
        return [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--nodelist={','.join(hosts)}"]

    def _find_unusable(self) -> dict[str, str]:
        """Return the unusable nodes, each with the controller's reason. Drained nodes stay usable by their jobs."""
        words = ["sinfo", "--noheader", "--Node", f"--nodes={','.join(self.hosts)}", "--format=%N|%T|%E"]
        found = {}
        for line in ask_slurm(*words).output:
            host, _, rest = line.strip().partition("|")
            state, _, reason = rest.partition("|")
            if host in self.hosts and (state.endswith("*") or state.startswith(_BAD_STATES)):
                found[host] = f"Slurm reports it as {state.rstrip('*')}"
                found[host] += ", and it does not respond" * state.endswith("*")
                found[host] += f" ({reason[:_MAX_MESSAGE_CHARACTERS]})" * (reason not in ("", "none"))
        return found

    @staticmethod
    def _explain_silence(host: str, finished: ChildResult) -> str:
        if finished.timed_out:
            return f"no answer within {_TIMEOUT_S:.0f} s"
        lines = [line.strip() for line in finished.output if line.strip()]
        named = next((line for line in lines if host in line.replace(",", " ").replace(":", " ").split()), "")
        message = named or next((line for line in lines if "error:" in line), "") or (lines[-1] if lines else "")
        return message[:_MAX_MESSAGE_CHARACTERS] or f"srun: {finished.describe()}"

    def srun_plugin(self, flavour: Flavour) -> str:
        """Return the plugin by which srun can start ranks of an MPI, or an empty string to use mpirun.

        Raises CannotJudge if srun was requested but fails. Slurm also lists plugins whose library is missing, so the
        plugin is tried on every node.
        """
        plugin = _PLUGINS[flavour]
        if self.started_by == "mpirun":
            return ""
        if plugin not in self._troubles:
            finished = run([*STEP, *self._node_options(self.hosts), f"--mpi={plugin}", "true"], timeout_s=_TIMEOUT_S)
            self._troubles[plugin] = "" if finished.returncode == 0 else describe_failure(finished, "srun")
        trouble = self._troubles[plugin]
        if trouble and self.started_by == "srun":
            reason = f"srun --mpi={plugin} failed: {trouble}"
            raise CannotJudge(reason, hint="leave out --start-by srun to use mpirun")
        return "" if trouble else plugin
