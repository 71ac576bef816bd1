"""A real Slurm for tests: a controller, munge, and one slurmd per node, each in a network namespace of this machine.

The nodes' hostnames differ from their names in Slurm. SLURM_CONF names the configuration, so that no system folder is
used. cgroups are not used, so their limits are not tested.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import wait_until

NEEDED = ("slurmctld", "slurmd", "srun", "munged")
_CPUS = 8
_MUNGE = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
_CONF = """\
ClusterName=bed
SlurmctldHost={host}({address}.1)
SlurmctldPort={port}
SlurmdPort={slurmd_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0
GresTypes=gpu
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n/spool
TmpFS={folder}/%n/tmp
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n/slurmd.log
SlurmdParameters=config_overrides
KillWait=2
MessageTimeout=10
SlurmdTimeout=10
InactiveLimit=0
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=g[1-2] State=DOWN
NodeName=g[1-2] NodeAddr={address}.250 CPUs=8 Gres=gpu:h100:8 State=FUTURE
"""
_OWN_SYS = (
    "held=$(mktemp -d); mount --rbind /sys/fs $held; mount -t sysfs node /sys; mount --rbind $held /sys/fs;"
    " umount --lazy $held; rmdir $held"
)


def lacking() -> str:
    """Return the parts of Slurm that are missing on this machine."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    return ", ".join(name for name in NEEDED if shutil.which(name) is None)


@dataclass(frozen=True)
class Bed:
    """A running Slurm with its nodes."""

    folder: Path
    name: str
    nodes: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of Slurm's commands."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *words: str) -> str:
        """Run a Slurm command and return its output. Fail the test if the command fails."""
        done = subprocess.run(words, env=os.environ | self.environment, text=True, capture_output=True, timeout=120)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def state_of(self, node: str) -> str:
        return self.ask("sinfo", "--noheader", "--Node", "--nodes", node, "--format=%T").split()[0]

    def jobs(self) -> list[str]:
        """The numbers of the jobs that have not ended."""
        return self.ask("squeue", "--noheader", "--format=%A").split()

    def start_node(self, node: str) -> None:
        """Start a node's slurmd, with the /sys of its network: UCX looks there for interfaces."""
        for part in ("spool", "tmp"):
            (self.folder / node / part).mkdir(parents=True, exist_ok=True)
        script = f"{_OWN_SYS}; hostname machine-{node}; exec slurmd -N {node}"
        inside = ["nsenter", f"--net=/run/netns/{self.namespace(node)}", "unshare", "--uts", "--mount"]
        subprocess.run([*inside, "sh", "-euc", script], env=os.environ | self.environment, check=True)

    def namespace(self, node: str) -> str:
        return f"{self.name}-{node}"

    def kill_node(self, node: str) -> None:
        """Kill all processes of a node, as when it loses power."""
        for pid in self.processes_of(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes_of(self, node: str) -> list[int]:
        listed = subprocess.run(["ip", "netns", "pids", self.namespace(node)], text=True, capture_output=True)
        return [int(word) for word in listed.stdout.split()]

    def all_idle(self) -> bool:
        states = self.ask("sinfo", "--noheader", "--Node", "--nodes", ",".join(self.nodes), "--format=%T").split()
        return len(states) == len(self.nodes) and set(states) == {"idle"}


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _free_port() -> int:
    with socket.create_server(("", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def _end(file: Path) -> None:
    """End the daemon whose process id a file holds, and wait for it."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(file.read_text())
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of a daemon", 30)


@contextlib.contextmanager
def slurm(folder: Path, count: int, more: str = "") -> Iterator[Bed]:
    """Start Slurm with the given number of idle nodes and more lines of configuration, and remove it afterwards."""
    name = f"rws{os.getpid() % 100_000}"
    bed = Bed(folder, name, tuple(f"n{number + 1}" for number in range(count)))
    address = f"198.18.{os.getpid() % 250}"
    slurmd_port = _free_port()
    told = f"NodeHostname={socket.gethostname()} Port={slurmd_port} CPUs={_CPUS} RealMemory=1000"
    lines = [f"NodeName={node} NodeAddr={address}.{number + 10} {told}" for number, node in enumerate(bed.nodes)]
    text = _CONF.format(host=socket.gethostname(), folder=folder, port=_free_port(), slurmd_port=slurmd_port,
                        address=address, nodes="\n".join(lines))  # fmt: skip
    (folder / "slurm.conf").write_text(text.replace("Nodes=ALL", f"Nodes=n[1-{count}]") + more)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    try:
        munge = [f"--{option}={folder}/munge.{end}" for option, end in _MUNGE.items()]
        subprocess.run(["munged", "--force", *munge], check=True, capture_output=True)
        _ip("link", "add", name, "type", "bridge")
        _ip("address", "add", f"{address}.1/24", "dev", name)
        _ip("link", "set", name, "up")
        for number, node in enumerate(bed.nodes):
            space, port = bed.namespace(node), f"{name}p{number}"
            _ip("netns", "add", space)
            _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", port, "master", name, "up")
            _ip("-n", space, "address", "add", f"{address}.{number + 10}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
        subprocess.run(["slurmctld"], env=os.environ | bed.environment, check=True)
        for node in bed.nodes:
            bed.start_node(node)
        wait_until(bed.all_idle, "idle nodes")
        yield bed
    finally:
        _end(folder / "slurmctld.pid")
        for node in bed.nodes:
            bed.kill_node(node)
            subprocess.run(["ip", "netns", "del", bed.namespace(node)], capture_output=True)
        subprocess.run(["ip", "link", "del", name], capture_output=True)
        _end(folder / "munge.pid")
