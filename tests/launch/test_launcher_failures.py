"""Failures of real launchers: each is made with Open MPI 4 and 5 and with MPICH, and its cause must be named."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import MPIRUNS, PATIENCE_S

from railwright.launch.blame import summarize_end
from railwright.process import ChildResult

pytestmark = [
    pytest.mark.machine,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="waived: namespaces need root"),
]

LAUNCHERS = {**MPIRUNS, "openmpi4": "/usr/bin/mpirun.openmpi"}
OPEN_MPI = ("openmpi", "openmpi4")
AGENT_OPTIONS = {
    "openmpi": ("--prtemca", "plm_ssh_agent"),
    "openmpi4": ("--mca", "plm_rsh_agent"),
    "mpich": ("-launcher", "ssh", "-launcher-exec"),
}
AS_ROOT = {f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
"""
"""The beginning of a stand-in of ssh. It skips the options; "$*" is then the command."""
NETWORK = (
    "ip link set lo up; ip link add net0 type veth peer name net1; ip link set net1 up; ip link set net0 up;"
    " ip address add 192.0.2.1/24 dev net0"
)
"""PRRTE reports back to its launcher by another interface than lo."""
SMALL_DISK = "mount -t tmpfs -o size=64k none /mnt; head -c 64k /dev/zero >/mnt/hog; export TMPDIR=/mnt"
NO_DAEMON = "a daemon of the launcher did not start on a host, or ended there"


class Failure(NamedTuple):
    """A failing start of two ranks, and the words that name its cause. Without words, the launch works.

    `agent` is the end of a stand-in of ssh, which reaches two hosts in a network of its own. `before` is a shell script
    that precedes the launcher in its own mount namespace. Both run in the folder of the test.
    """

    words: str
    agent: str = ""
    before: str = ""
    program: str = "true"
    ranks: int = 2
    only: Sequence[str] = tuple(LAUNCHERS)


FAILURES = {
    "none": Failure(""),
    "none with two hosts": Failure("", 'exec unshare --uts sh -c "hostname $host; $*"'),
    "no program": Failure("the program to start is missing", program="/no/such/rank", only=["mpich"]),
    "not executable": Failure("may not be executed", program="./agent.txt", only=["mpich"]),
    "another architecture": Failure("of another architecture", program="./foreign", only=OPEN_MPI),
    "no library": Failure("a shared library is missing", program="./unlinked"),
    "no library of the daemon": Failure("a shared library is missing", "exec ./unlinked"),
    "no daemon": Failure("missing on a host, or not in the PATH", 'exec "./${DAEMON}"'),
    "unknown host": Failure("the name of a host cannot be resolved", "exec ssh -o BatchMode=yes nohost.invalid"),
    "refused": Failure("a host cannot be reached by ssh", "exec ssh -o BatchMode=yes -p 9 127.9.9.9"),
    "no ssh": Failure("the program that reaches the hosts, such as ssh, cannot be started", "missing"),
    "ssh killed": Failure(NO_DAEMON, "kill -9 $$"),
    "no way back": Failure("cannot connect to each other by TCP", 'exec unshare --net sh -c "ip link set lo up; $*"',
                           only=["openmpi4", "mpich"]),
    "no way back of PRRTE": Failure(NO_DAEMON, 'exec unshare --net sh -c "ip link set lo up; $*"', only=["openmpi"]),
    "few files": Failure("too many files are open", before="ulimit -n 20"),
    "full disk": Failure("PMIx could not write a file", before=SMALL_DISK, only=["openmpi"]),
    "lo down": Failure("no network interface is usable", before="ip link set lo down", only=OPEN_MPI),
    "slots": Failure("the hosts have too few slots", ranks=999, only=OPEN_MPI),
    "root": Failure("refuses to run as root", before=f"unset {' '.join(AS_ROOT)}", only=OPEN_MPI),
}  # fmt: skip
CASES = [(mpi, name) for mpi in LAUNCHERS for name, failure in FAILURES.items() if mpi in failure.only]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program that lacks its library, one of another architecture, and a file that is no program."""
    for name, text in (("gone", "int f(void) {return 0;}"), ("unlinked", "int f(void); int main(void) {return f();}")):
        (tmp_path / f"{name}.c").write_text(text)
    for words in ("-shared -fPIC -o libgone.so gone.c", "-o unlinked unlinked.c -L. -lgone"):
        subprocess.run(["cc", *words.split()], cwd=tmp_path, check=True)
    (tmp_path / "libgone.so").unlink()
    program = bytearray((tmp_path / "unlinked").read_bytes())
    program[18:20] = b"\xf7\x00"  # e_machine of the ELF header: BPF
    (tmp_path / "foreign").write_bytes(program)
    (tmp_path / "foreign").chmod(0o700)
    (tmp_path / "agent.txt").write_text("no program")
    return tmp_path


def _launch(mpi: str, failure: Failure, folder: Path) -> list[str]:
    """Return the command line of the launch."""
    command = [LAUNCHERS[mpi], "-n", str(failure.ranks)]
    if failure.agent:
        agent = folder / "agent"
        if failure.agent != "missing":
            agent.write_text(f"{AGENT}cd {folder}\n{failure.agent}\n")
            agent.chmod(0o700)
        command += [*AGENT_OPTIONS[mpi], str(agent)]
        command += ["-hosts", "n1,n2"] if mpi == "mpich" else ["-host", "n1:1,n2:1"]
    elif mpi in OPEN_MPI:
        command += ["--bind-to", "none", "-host", "localhost:2"]
    before = NETWORK if failure.agent else failure.before or ":"
    around = ["unshare", "--mount", *["--net"] * ("ip link" in before)]
    return [*around, "sh", "-euc", f'{before}\nexec "$@"', "sh", *command, failure.program]


@pytest.mark.parametrize(("mpi", "name"), CASES)
def test_the_cause_of_a_real_failure_is_named(mpi, name, folder):
    failure = FAILURES[name]
    daemon = {"openmpi": "prted", "openmpi4": "orted", "mpich": "hydra_pmi_proxy"}[mpi]
    done = subprocess.run(
        _launch(mpi, failure, folder),
        cwd=folder,
        env=os.environ | AS_ROOT | {"DAEMON": daemon, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
    )
    said = summarize_end(ChildResult(returncode=done.returncode, output=done.stdout.splitlines()))
    _, because, cause = said.partition(", its output:")[0].partition("probably because ")
    if not failure.words:
        assert (done.returncode, because) == (0, ""), (said, done.stdout)
        return
    # Hydra may end before it reads why its ssh ended. Then it knows no more than that.
    allowed = [failure.words, *[NO_DAEMON] * (mpi == "mpich" and bool(failure.agent))]
    assert any(words in cause for words in allowed), (said, done.stdout)
