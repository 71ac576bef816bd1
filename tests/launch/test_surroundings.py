"""Surroundings of prologs and services, each made for one run: MPI is measured, or the record names what it lacks."""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import MPIRUNS

pytestmark = [
    pytest.mark.machine,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="waived: namespaces and control groups need root"),
]

MPI = ("run", "mpi_latency", "-o", "sizes=8", "-o", "transports=shm", "--force")
MEASURED = ""
GROUPS = Path("/sys/fs/cgroup")


class Surroundings(NamedTuple):
    """A shell script that ends in the command, `"$@"`, and the words that name the cause; none if MPI works there."""

    script: str
    words: str = MEASURED
    is_mount: bool = False
    is_network: bool = False

    def around(self) -> tuple[str, ...]:
        unshared = [*["--mount"] * self.is_mount, *["--net"] * self.is_network]
        return (*(["unshare", *unshared] if unshared else []), "sh", "-euc", self.script, "sh")


SURROUNDINGS = {
    "no HOME": Surroundings('unset HOME; exec "$@"'),
    "no locale": Surroundings('unset LANG LC_ALL; exec "$@"'),
    "an empty environment": Surroundings(
        'exec env -i RAILWRIGHT_TEST_MARK="$RAILWRIGHT_TEST_MARK" TMPDIR="$TMPDIR" "$@"'
    ),
    "an empty PATH": Surroundings('PATH=; exec "$@"'),
    "a read-only folder": Surroundings('mount -t tmpfs -o ro none /mnt; cd /mnt; exec "$@"', is_mount=True),
    "a closed input": Surroundings('exec "$@" <&-'),
    "a closed output": Surroundings('exec "$@" >&-'),
    "closed errors": Surroundings('exec "$@" 2>&-'),
    "no stream": Surroundings('exec "$@" <&- >&- 2>&-'),
    "lo down": Surroundings('exec "$@"', "lo is down", is_network=True),
    "/dev/shm of 64 KiB": Surroundings(
        'mount -t tmpfs -o size=64k none /dev/shm; exec "$@"', "/dev/shm has only .* free", is_mount=True
    ),
    "/dev/shm read-only": Surroundings(
        'mount -t tmpfs -o ro none /dev/shm; exec "$@"', "/dev/shm is read-only", is_mount=True
    ),
    "TMPDIR full": Surroundings(
        'mount -t tmpfs -o size=64k none "$TMPDIR"; head -c 1m /dev/zero >"$TMPDIR/hog" || true; exec "$@"',
        is_mount=True,
    ),
    "TMPDIR and /dev/shm full": Surroundings(
        'mount -t tmpfs -o size=64k none /dev/shm; mount -t tmpfs -o size=64k none "$TMPDIR";'
        ' head -c 1m /dev/zero >"$TMPDIR/hog" || true; exec "$@"',
        "only .* free|a file system is full|No space left|not writable",
        is_mount=True,
    ),
    "6 processes of a user": Surroundings(
        "exec prlimit --nproc=6:6 setpriv --reuid 54321 --regid 54321 --clear-groups"
        ' --inh-caps +dac_read_search,+dac_override --ambient-caps +dac_read_search,+dac_override "$@"',
        "6 processes|too many processes",
    ),
    "20 open files": Surroundings('ulimit -n 20; exec "$@"', "20 open files|too many (?:open )?files"),
}


@pytest.mark.parametrize("mpi", sorted(MPIRUNS))
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_mpi_is_measured_or_what_it_lacks_is_named(railwright, name, mpi):
    chosen = SURROUNDINGS[name]
    for folder in (railwright.folder, railwright.temporary):
        folder.chmod(0o777 | stat.S_ISVTX)  # also of another user
    done = railwright(*MPI, "--mpirun", MPIRUNS[mpi], around=chosen.around())
    assert "Traceback" not in done.err, done.err
    expect_named(railwright, done.err, chosen.words)
    railwright.expect_nothing_left()


def expect_named(railwright, told: str, words: str) -> None:
    results = railwright.results()
    if words == MEASURED:
        assert [one.outcome for one in results] == ["measured"], [told, *(one.reason for one in results)]
        return
    text = "\n".join([told, *(one.reason for one in results)])
    measured = bool(results) and all(one.outcome == "measured" for one in results)
    assert measured or re.search(words, text), text


@pytest.mark.parametrize("mpi", sorted(MPIRUNS))
@pytest.mark.parametrize(
    ("controller", "file", "limit", "words"),
    [
        ("memory", "memory.limit_in_bytes", 120 << 20, "memory limit|memory cannot be allocated"),
        ("pids", "pids.max", 6, "6 processes|too many processes|start new thread"),
    ],
)
def test_the_limit_of_a_control_group_is_named(railwright, mpi, controller, file, limit, words):
    group = GROUPS / controller / f"rwt-{os.getpid()}"
    if not (group.parent / "cgroup.procs").exists():
        pytest.skip(f"waived: no controller {controller} of version 1")
    group.mkdir()
    try:
        (group / file).write_text(str(limit))
        join = f'echo $$ >{shlex.quote(str(group / "cgroup.procs"))}; exec "$@"'
        asked = ("run", "mpi_bandwidth", "-o", "sizes=8,64M", "-o", "transports=shm", "-o", "pages=small", "--force")
        done = railwright(*asked, "--mpirun", MPIRUNS[mpi], around=("sh", "-euc", join, "sh"))
        assert "Traceback" not in done.err, done.err
        expect_named(railwright, done.err, words)
        railwright.expect_nothing_left()
    finally:
        railwright.end_all()
        railwright.wait_until(lambda: not (group / "cgroup.procs").read_text(), "an empty group")
        group.rmdir()


def test_an_output_in_a_read_only_folder_is_refused(railwright):
    script = 'mount -t tmpfs -o ro none /mnt; cd /mnt; exec "$@"'
    words = ("run", "core_latency", "--force", "-O", "out")
    done = railwright(*words, around=Surroundings(script, is_mount=True).around())
    assert done.status == 2
    assert "Read-only file system" in done.message()
