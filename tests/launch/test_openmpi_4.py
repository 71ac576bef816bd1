"""Open MPI 4, the one of Debian 12 and Ubuntu 22.04 and 24.04: another launcher, and another name for shared memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.launch.bridged import bridged

from railwright.launch.mpi import MpiLauncher

MPIRUN = "/usr/bin/mpirun.openmpi"
pytestmark = pytest.mark.machine


def test_the_library_beside_the_mpirun_is_used():
    launcher = MpiLauncher(MPIRUN)
    assert launcher.starts_by_orte, launcher.version
    library = Path(launcher.environment(Path("scratch"))["MPI4PY_LIBMPI"])
    assert library.match("/usr/lib/*/libmpi.so.40")


@pytest.mark.parametrize(
    ("transport", "translated"), [("self,sm", "self,vader"), ("self,sm,tcp", "self,vader,tcp"), ("^ofi", "^ofi")]
)
def test_shared_memory_has_its_older_name(transport, translated):
    given = {"OMPI_MCA_btl": transport, "OMPI_MCA_btl_sm_backing_directory": "/x", "OMPI_MCA_pml": "ob1"}
    wanted = {"OMPI_MCA_btl": translated, "OMPI_MCA_btl_vader_backing_directory": "/x", "OMPI_MCA_pml": "ob1"}
    assert MpiLauncher(MPIRUN).translate(given) == wanted


def test_messages_go_through_shared_memory_and_tcp(railwright):
    railwright("run", "mpi_latency", "--mpirun", MPIRUN, "-o", "sizes=8", "--alone", "--force")
    found = railwright.results()
    assert [(one.outcome, one.evidence[0].value) for one in found] == [("measured", "shm"), ("measured", "tcp")]
    assert str(found[0].settings["mpi"]).startswith("Open MPI v4.")


@pytest.mark.skipif(os.geteuid() != 0, reason="waived: network namespaces need root")
def test_ranks_of_three_hosts_meet(railwright):
    with bridged(3) as hosts:
        railwright(
            "run", "mpi_all_reduce", "--mpirun", MPIRUN, "--hosts", hosts.words, "-o", "sizes=9K", "--alone", "--force"
        )
    found = railwright.results()
    assert {(one.outcome, one.ranks, one.hosts, one.reason) for one in found} == {("measured", 3, 3, "")}
    assert {one.verification.bytes_wrong for one in found} == {0}
