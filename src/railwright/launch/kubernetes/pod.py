"""The program in the pods of a job: `python -m railwright.launch.kubernetes.pod lead|host|indexed`.

Every pod runs sshd under its own user. The first pod waits for the others, runs railwright over them by ssh, and prints
the records as numbered lines into its log. A single key, created and removed with the job, serves as the host key and
as the login key of all pods.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from railwright import __version__
from railwright.errors import CannotJudge, RailwrightError, UsageError
from railwright.installation import PYTHON
from railwright.launch.followed import print_lines, send_records
from railwright.launch.frames import FrameWriter
from railwright.launch.kubernetes.plan import (
    KEY_FOLDER,
    NODE_VARIABLE,
    PORT,
    VARIABLE,
    WORK_FOLDER,
    PodPlan,
    parse_plan,
)
from railwright.process import Child, run
from railwright.writing import write_file

_SSHD = "/usr/sbin/sshd"
_ALIAS = "railwright"
_TICK_S, _ASK_EVERY_S, _ASK_WITHIN_S = 0.1, 0.5, 10.0
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_SESSION_VARIABLES = (NODE_VARIABLE, "LD_LIBRARY_PATH")
_SESSION_PREFIXES = ("UCX_", "NIXL_", "NCCL_", "CUDA_", "CUFILE_", "NVIDIA_", "FI_")
_QUOTABLE = re.compile(r"[^\"'\\\x00-\x1f\x7f]*")
"""Values that sshd reads as they are between quotation marks."""


def prepare(work: Path, keys: Path, variables: Mapping[str, str]) -> None:
    """Write the keys and the configuration of ssh and sshd. sshd requires files that only their owner can access.

    Sessions get `variables`, the container's.
    """
    public = (keys / "id_rsa.pub").read_text()
    user = pwd.getpwuid(os.getuid()).pw_name
    sshd = f"""Port {PORT}
HostKey {work}/id
AuthorizedKeysFile {work}/authorized_keys
PidFile none
UsePAM no
StrictModes no
AuthenticationMethods publickey
PermitRootLogin prohibit-password
AllowUsers {user}
MaxStartups 512
LogLevel ERROR
SetEnv {format_settings(variables)}
"""
    texts = {"id": (keys / "id_rsa").read_text(), "authorized_keys": public, "known_hosts": f"{_ALIAS} {public}",
             "sshd_config": sshd, "ssh_config": ssh_config(work, user, {})}  # fmt: skip
    for name, text in texts.items():
        write_file(work / name, text)


def format_settings(variables: Mapping[str, str]) -> str:
    """Return the arguments of sshd's SetEnv: the node, and what decides which libraries and GPUs a program uses.

    sshd starts sessions without the container's variables. The launcher's own, such as OMPI_*, are left out: in an
    MPIJob the operator sets them for its mpirun alone.
    """
    chosen = {name: value for name, value in sorted(variables.items())
              if name in _SESSION_VARIABLES or name.startswith(_SESSION_PREFIXES)}  # fmt: skip
    return " ".join(f'"{name}={value}"' for name, value in chosen.items() if _QUOTABLE.fullmatch(value))


def ssh_config(work: Path, user: str, pod_of: dict[str, str]) -> str:
    """Return an ssh configuration for reaching pods, by their own names or by the names of their nodes."""
    named = "".join(f"Host {node}\n  HostName {pod}\n" for node, pod in pod_of.items())
    return f"""{named}Host *
  Port {PORT}
  User {user}
  IdentityFile {work}/id
  IdentitiesOnly yes
  HostKeyAlias {_ALIAS}
  UserKnownHostsFile {work}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  LogLevel ERROR
"""


def wait_for_nodes(plan: PodPlan, work: Path) -> dict[str, str]:
    """Wait for all pods, and map each node to its pod.

    Raises CannotJudge, which names the pods without an answer in time, and UsageError if two pods share a node.
    """
    until = time.monotonic() + plan.within_s
    found: dict[str, str] = {}
    with ThreadPoolExecutor(min(16, len(plan.pods))) as executor:
        while left := [pod for pod in plan.pods if pod not in found]:
            replies = executor.map(lambda pod: _ask(pod, work), left)
            answers = dict(zip(left, replies, strict=True))
            found |= {pod: node for pod, (node, _) in answers.items() if node}
            silent = [f"{pod}: {reason}" for pod, (node, reason) in answers.items() if not node]
            if silent and time.monotonic() > until:
                raise CannotJudge("; ".join(silent))
            if silent:
                time.sleep(_ASK_EVERY_S)
    nodes = {found[pod]: pod for pod in plan.pods}
    if len(nodes) < len(plan.pods):
        raise UsageError("pods must be on different nodes, got two on one node")
    return nodes


def _ask(pod: str, work: Path) -> tuple[str, str]:
    """Return the node of a pod, or an empty name and ssh's error message."""
    options = [word for option in ("BatchMode=yes", "ConnectTimeout=3") for word in ("-o", option)]
    question = f"echo node:${NODE_VARIABLE}"
    finished = run(["ssh", "-F", str(work / "ssh_config"), *options, pod, question], timeout_s=_ASK_WITHIN_S)
    for line in finished.output:
        mark, _, node = line.strip().partition(":")
        if mark == "node" and _NODE.fullmatch(node):
            return node, ""
    return "", next((line.strip() for line in reversed(finished.output) if line.strip()), finished.describe())[:200]


def lead(plan: PodPlan, work: Path) -> None:
    """Measure over all pods and print the records. The last line holds the exit status.

    Raises UsageError if the image has another version, and as `wait_for_nodes`.
    """
    if plan.version != __version__:
        raise UsageError(f"the image must have railwright {plan.version}, got {__version__}",
                         hint="build it from the same source: scripts/build-image")  # fmt: skip
    writer = FrameWriter()
    with Child([_SSHD, "-D", "-e", "-f", str(work / "sshd_config")]) as sshd:
        nodes = wait_for_nodes(plan, work)
        if sshd.poll() is not None:
            raise CannotJudge(f"sshd has ended: {' '.join(sshd.output)[:200]}")
        user = pwd.getpwuid(os.getuid()).pw_name
        write_file(work / "ssh_config", ssh_config(work, user, nodes))
        folder = Path("/tmp/out")  # noqa: S108 - the pod's own
        words = [*plan.words, "--hosts", ",".join(nodes), "--ssh-config", str(work / "ssh_config"), "-O", str(folder)]
        _write_error(f"railwright {' '.join(plan.words)} over {', '.join(nodes)}")
        status = _measure([*PYTHON, "-m", "railwright", *words], folder, writer)
    print_lines(writer.end(status))


def _measure(argv: list[str], folder: Path, writer: FrameWriter) -> int:
    """Run the command, forward its errors and records, and return its exit status."""
    with Child(argv, answer_alone=True, output=deque(maxlen=1), complaints=deque(), folder=Path("/tmp")) as child:  # noqa: S108

        def complain() -> None:
            while child.complaints:
                _write_error(child.complaints.popleft())

        return send_records(child, folder, writer, _TICK_S, complain).returncode


def _write_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _stop(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt("the pod is terminated")  # process 1 needs a handler, since signals have no default action


def main() -> None:
    """Run the role of this pod. Returns only in the first pod: the other pods become sshd."""
    role = sys.argv[1]
    if role == "indexed":
        role = "lead" if os.environ.get("JOB_COMPLETION_INDEX") == "0" else "host"
    work = Path(WORK_FOLDER)
    prepare(work, Path(KEY_FOLDER), os.environ)
    if not shutil.which("ssh") or not os.access(_SSHD, os.X_OK):
        raise UsageError("the image has no ssh or sshd", hint="build it with scripts/build-image")
    if role == "host":
        os.execv(_SSHD, [_SSHD, "-D", "-e", "-f", str(work / "sshd_config")])  # noqa: S606 - no shell is wanted here
    signal.signal(signal.SIGTERM, _stop)
    lead(parse_plan(os.environ[VARIABLE]), work)


if __name__ == "__main__":
    try:
        main()
    except RailwrightError as error:
        _write_error(f"railwright: {error.message}" + f" ({error.hint})" * bool(error.hint))
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        sys.exit(1)
