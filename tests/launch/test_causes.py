"""The cause of a launcher's failure: from any line of its output, and from the limits of this machine."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from railwright.launch import causes
from railwright.launch.blame import _join_wrapped, summarize_end
from railwright.process import ChildResult

OUTPUTS = {
    "a process exceeded the memory limit": "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0",
    "a file system is full": "It appears as if there is not enough space for /dev/shm/sm_segment (the shared-memory",
    "too many files are open": "[proxy:0@host] HYDU_create_process: pipe error (Too many open files)",
    "too many processes or threads run": "RuntimeError: can't start new thread",
    "the time limit of the job is over": "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED DUE TO TIME LIMIT ***",
    "memory cannot be allocated": "mmap: Cannot allocate memory",
}


EXACT = (
    ("missing on a host, or not in the PATH", "bash: line 1: prted: command not found"),
    ("missing on a host, or not in the PATH", "bash: line 1: /opt/ompi/bin/orted: No such file or directory"),
    ("missing on a host, or not in the PATH", "sh: 1: hydra_pmi_proxy: not found"),
    ("missing on a host, or not in the PATH", "zsh:1: command not found: prted"),
    ("the program to start is missing", "slurmstepd: error: execve(): /opt/rank: No such file or directory"),
    (
        "the program to start is missing",
        "[proxy:0@n1] HYDU_create_process: execvp error on file rank (No such file or directory)",
    ),
    (
        "a shared library is missing",
        (
            "prted: error while loading shared libraries: libpmix.so.2: cannot open shared object"
            " file: No such file or directory"
        ),
    ),
    ("a newer glibc", "python: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by /opt/_loops.so)"),
    ("different versions are mixed", "mpirun: symbol lookup error: mpirun: undefined symbol: PMIx_server_register"),
    ("another architecture", "execvp error on file ./rank (Exec format error)"),
    ("instructions that the CPU lacks", "[n1:77] Signal: Illegal instruction (4)"),
    ("does not trust the key", "Host key verification failed."),
    ("accepted none of ssh's keys", "root@n2: Permission denied (publickey,gssapi-keyex,gssapi-with-mic)."),
    ("cannot be resolved", "ssh: Could not resolve hostname n9: Name or service not known"),
    ("cannot be reached by ssh", "ssh: connect to host n2 port 22: Connection refused"),
    ("refuses to run as root", "mpirun has detected an attempt to run as root."),
    ("no common PMI or PMIx", "srun: error: Couldn't find the specified plugin name for mpi/pmix looking at all files"),
    ("no common PMI or PMIx", "but OMPI was not built with SLURM support. This usually happens when OMPI was"),
    ("no common PMI or PMIx", "srun: error: cannot find mpi plugin for mpi/pmix_v4"),
    (
        "ulimit -l",
        (
            "UCX ERROR ibv_reg_mr(address=0x7f) failed: Cannot allocate memory : Please set max locked memory"
            " (ulimit -l) to 'unlimited' (current: 64 kbytes)"
        ),
    ),
    ("ipcs -l", "UCX ERROR shmget failed: Cannot allocate memory, please check shared memory limits by 'ipcs -l'"),
    ("no space behind it", "[n1:77] Signal code: Non-existant physical address (2)"),
    ("read each other's memory", "Read -1, expected 131072, errno = 1"),
    ("the memory of a GPU", "RuntimeError: CUDA error: out of memory"),
    ("exceeded the memory limit", "slurmstepd: error: Exceeded job memory limit at some point."),
    ("exceeded the memory limit", "srun: error: n1: task 0: Out Of Memory"),
    ("quota", "open: Disk quota exceeded"),
    ("preempted", "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO PREEMPTION ***"),
    ("a node of the job failed", "srun: error: Node failure on n3"),
    ("too few slots", "There are not enough slots available in the system to satisfy the 8"),
    ("too few nodes or CPUs", "srun: error: Unable to create step for job 7: More processors requested than permitted"),
    ("too few nodes or CPUs", "srun: error: Unable to create step for job 7: Requested nodes are busy"),
    ("partition", "srun: error: Unable to allocate resources: Invalid partition name specified"),
    ("Slurm's controller", "srun: error: Unable to contact slurm controller (connect failure)"),
    ("Slurm's controller", "srun: error: Munge decode failed: Expired credential"),
    (
        "than cores",
        "A request was made to bind to that would result in binding more processes than cpus on a resource:",
    ),
    ("bound to its core", "Open MPI tried to bind a new process, but something went wrong.  The process was killed"),
    ("a port is in use", "bind: Address already in use"),
    ("no transport of MPI", "PML ucx cannot be selected"),
    ("no transport of MPI", "UCX ERROR no active messages transport to <no debug data>: Unsupported operation"),
    ("no transport of MPI", "PSM2 was unable to open an endpoint. Please make sure that the network link is active"),
    ("no transport of MPI", "MPIDI_OFI_mpi_init_hook(1586): OFI getinfo() failed (ofi_init.c:1586: No data available)"),
    ("by TCP", '[mpiexec@n0] HYDU_sock_connect: unable to connect from "n1" to "n0" (No route to host)'),
    ("or its network, failed", "ORTE has lost communication with a remote daemon."),
    ("too many files", "[n1:77] PMIX ERROR: PMIX_ERR_SYS_LIMITS_PIPES in file iof_base_setup.c at line 119"),
    (
        "too many files",
        "[n1:77] mca_rml_oob: x.so: cannot open shared object file: Too many open files (ignored)",
    ),
    (
        "the program that reaches the hosts",
        "[mpiexec@n0] HYDU_create_process (launch.c:73): execvp error on file ssh (No such file or directory)",
    ),
    (
        "the program that reaches the hosts",
        'The value of the MCA parameter "plm_ssh_agent" was set to a path that could not be found:',
    ),
    (
        "may not be executed",
        "[proxy:0@n1] HYDU_create_process (launch.c:73): execvp error on file /opt/rank (Permission denied)",
    ),
    (
        "instructions that the CPU lacks",
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Illegal instruction (signal 4)",
    ),
    ("no common PMI or PMIx", "Runtime environment uses unsupported PMI version PMIx. Aborting."),
    ("no network interface", "[n1:77] opal_ifinit: unable to find network interfaces."),
    ("no network interface", "[mpiexec@n0] HYDU_sock_get_iface_ip (sock.c:447): unable to find interface ib0"),
    ("no network interface", "No network interfaces were found for out-of-band communications. We require"),
    (
        "no transport of MPI",
        "find_provider(132).........: OFI call getinfo failed (default nic=(n/a): No data available)",
    ),
    ("than cores", "A request was made to bind that would require binding processes to more cpus than are available"),
    ("by TCP", "A process or daemon was unable to complete a TCP connection to another process:"),
    ("a daemon of the launcher", "[mpiexec@n0] ui_cmd_cb (pmiserv_pmci.c:51): Launch proxy failed."),
    ("instructions that the CPU lacks", "srun: error: n1: task 0: Illegal instruction"),
    ("may not be executed", "slurmstepd-n1: error: execve(): /opt/rank: Permission denied"),
    ("too few nodes or CPUs", "srun: error: Only allocated 1 nodes asked for 3"),
    ("Slurm's job is over", "srun: error: Slurm job 27 has expired"),
    (
        "the launcher's daemon cannot be started",
        "[mpiexec@n0] HYDU_create_process (launch.c:73): execvp error on file /b/hydra_pmi_proxy (No such file)",
    ),
    ("the launcher's daemon cannot be started", "bash: line 1: /opt/ompi/bin/prted: Permission denied"),
    ("a newer libstdc++", "python: libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by x.so)"),
    (
        "too many processes or threads",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 12 of 64: Resource temporarily unavailable",
    ),
    ("admits only users with a job", "Access denied by pam_slurm_adopt: you have no active jobs on this node"),
    ("no network interface", "n1:7:7 [0] bootstrap.cc:126 NCCL WARN Bootstrap : no socket interface found"),
    ("no network interface", "ucp_context.c:1770 UCX  ERROR no usable transports/devices (asked tcp on network:eth9)"),
    ("grants its account or QOS", "srun: error: Unable to allocate resources: Job violates accounting/QOS policy"),
    (
        "too little memory for the step",
        "srun: error: Unable to create step for job 7: Memory required by task is not available",
    ),
    ("a node of the job is down", "srun: error: Required node not available (down, drained or reserved)"),
    (
        "refuses the job's credential",
        "srun: error: Task launch for StepId=7.0 failed on node n2: Job credential expired",
    ),
    ("wait for the fabric manager", "n1:7:7 [0] init.cc:1 NCCL WARN Cuda failure 802 'system not yet initialized'"),
    ("the GPU driver does not fit", "CUDA driver version is insufficient for CUDA runtime version"),
    ("the memory of a GPU", "torch.OutOfMemoryError: HIP out of memory."),
    ("System V shared memory", "System call: shmget(2)"),
    ("offers more keys", "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures"),
    ("slurm.conf", "srun: fatal: Could not establish a configuration source"),
    ("slurm.conf", "srun: fatal: Unable to process configuration file"),
    ("munged", 'srun: error: Munge encode failed: Failed to access "/run/munge.socket" (Did you start munged?)'),
    ("the partition of the job is down", "srun: Partition in DOWN state"),
    ("no such node", "srun: error: Unable to allocate resources: Invalid node name specified"),
)
"""Messages of Open MPI, PRRTE, Hydra, Slurm and ssh, with words of the cause."""
POSSIBLE = (
    "* not finding the required libraries and/or binaries on one or more nodes. Please check your PATH",
    "* lack of authority to execute on one or more specified nodes.",
    "* the inability to write startup files into /tmp (--tmpdir/orte_tmpdir_base).",
    "* an inability to create a connection back to mpirun due to a lack of common network interfaces and/or no route",
    "mpirun noticed that process rank 0 with PID 7 on node n1 exited on signal 9 (Killed).",
    "[n1:9] PMIX ERROR: ERROR in file gds_dstore.c at line 1030",
    "PMIx was unable to find a usable compression library on the system.",
    "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-02T03:04:05 ***",
    "[n1:9] unable to open mca_mtl_psm2: libpsm2.so.2: cannot open shared object file: No such file (ignored)",
)
"""Messages that list what may be, that tell a consequence, or that warn."""


@pytest.mark.parametrize(("cause", "line"), EXACT)
def test_the_exact_cause_of_a_launcher_is_named(cause, line):
    said = summarize_end(ChildResult(returncode=1, output=["-----", line, "an error occurred", "mpirun ended"]))
    assert cause in said.partition(", its output:")[0]


@pytest.mark.parametrize("line", POSSIBLE)
def test_what_may_be_is_not_a_cause(line):
    assert "probably" not in summarize_end(ChildResult(returncode=1, output=["-----", line, "mpirun ended"]))


WARNINGS = (
    "srun: Job 29986033 step creation temporarily disabled, retrying (Requested nodes are busy)",
    "ERROR: ld.so: object 'libdarshan.so' from LD_PRELOAD cannot be preloaded (cannot open shared",
    "libibverbs: Warning: couldn't load driver 'libmlx5-rdmav34.so': x.so: cannot open shared object file",
    "n1:7:7 [0] NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file",
    "libcuda.so.1: cannot open shared object file: No such file or directory",
    "[n1:7] unable to open mca_atomic_ucx: x.so: undefined symbol: mca_spml (ignored)",
    "libibverbs: Warning: RLIMIT_MEMLOCK is 32768 bytes.",
    "slurmstepd: error: Can't propagate RLIMIT_MEMLOCK of 184467 from submit host: Operation not permitted",
    "    * The operating system ran out of memory",
    "slurmstepd: error: unable to create cgroup '/sys/fs/cgroup/memory/slurm/job_7' : No space left on device",
    "bind [127.0.0.1]:8888: Address already in use",
    "Could not create directory '/home/x/.ssh' (Read-only file system).",
    "hostname: Name or service not known",
    "e001.53882PSM2 no hfi units are active (err=23)",
    "Open MPI tried to bind a new process to a specific set of processors, but ended up binding it to *all* processors",
)
"""Lines that jobs print and go on, from issues of the projects and their sources."""


@pytest.mark.parametrize("line", WARNINGS)
def test_a_warning_is_neither_the_cause_nor_the_first_error(line):
    end = "srun: error: n1: task 1: Segmentation fault (core dumped)"
    said = summarize_end(ChildResult(returncode=139, output=[line, end]))
    assert said == f"exit status 139 (SIGSEGV in its child), its output: {end!r}"


def test_a_warning_hides_no_line_after_it():
    """The name of a Python module reads like the continuation of a sentence."""
    output = [
        "n1:7:7 [0] NCCL INFO NET/Plugin: could not find libnccl-net.so, using internal implementation",
        "torch.distributed.DistBackendError: NCCL error: system not yet initialized",
    ]
    assert "fabric manager" in summarize_end(ChildResult(returncode=1, output=output))


def test_wrapped_lines_are_joined_to_a_bounded_length():
    """A hostile output costs time in proportion to its length: patterns search each line in its square."""
    lines = ["cancelled at " * 40] * 400
    assert max(map(len, _join_wrapped(lines))) <= 1024 + len(lines[0])


def test_of_a_long_output_the_beginning_and_the_end_are_read():
    middle = [f"step {number}" for number in range(5000)]
    output = ["prted: command not found", *middle, "open failed: last"]
    assert "the launcher's daemon is missing" in summarize_end(ChildResult(returncode=1, output=output))
    assert "open failed: last" in summarize_end(ChildResult(returncode=1, output=[*middle, "open failed: last"]))


NO_REPORT = """\
[n0:12270] plm:ssh: Warning: setpgid(12274,12274) failed in parent with errno=Permission denied(13)
------------------------------------------------------------
A daemon failed to report back after being spawned. This could
be due to several factors, including inability to find the
daemon executable, or the executable was unable to find its
required supporting libraries. In some cases, the daemon was
able to execute, but was unable to complete a TCP connection
back to prterun:

  Local host:    n0
  Remote host:   n1
  Daemon exit status: 0
------------------------------------------------------------
"""


def test_a_list_of_possible_causes_names_none_of_them():
    said = summarize_end(ChildResult(returncode=250, output=NO_REPORT.splitlines()))
    cause = "a daemon of the launcher did not start on a host, or ended there"
    assert said == f"exit status 250, probably because {cause}, its output: 'Remote host:   n1'"


@pytest.mark.parametrize(
    ("status", "line", "words"),
    [
        (132, "mpirun was unable to launch the specified application as it could not access", "exit status 132, "),
        (143, "Abort(1009403279): Fatal error in internal_Init_thread: Other MPI error", "exit status 143, "),
        (132, "Primary job  terminated normally, but 1 process returned", "exit status 132 (SIGILL in its child), "),
        (-9, "Abort(1) on node 0 (rank 0 in comm 0): application called MPI_Abort", "killed by SIGKILL, "),
    ],
)
def test_a_status_of_the_launcher_itself_is_no_signal(status, line, words):
    assert summarize_end(ChildResult(returncode=status, output=[line])).startswith(f"{words}its output: ")


def test_warnings_of_a_shell_hide_no_error():
    warning = "bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8): No such file or directory"
    said = summarize_end(
        ChildResult(returncode=1, output=[warning, "Warning: Permanently added 'n1'", "open failed: x"])
    )
    assert said == "exit status 1, its output: 'open failed: x'"


@pytest.mark.parametrize("cause", OUTPUTS)
def test_the_cause_is_found_in_any_line(cause):
    output = ["-----", OUTPUTS[cause], "prterun: some consequence", "the last line"]
    said = summarize_end(ChildResult(returncode=1, output=output))
    assert f"probably because {cause}" in said


def test_without_a_known_cause_the_first_errors_are_shown():
    output = ["a banner", "open of /x failed: first", "then this could not start", "error: third", "goodbye"]
    said = summarize_end(ChildResult(returncode=1, output=output))
    assert said == "exit status 1, its output: 'open of /x failed: first; then this could not start'"


def test_a_program_that_cannot_be_started_is_named():
    words = ["prterun was unable to launch the specified application as it could not", "access an executable:"]
    output = ["-----", *words, "", "Executable: /root/python", "Node: a", "-----"]
    said = summarize_end(ChildResult(returncode=183, output=output))
    assert said.endswith("could not access an executable: Executable: /root/python'")


def observed(monkeypatch, tmp_path: Path, *, up=True, free=2**30, limit=1024, kills=0) -> str:
    monkeypatch.setattr(causes, "_is_loopback_up", lambda: up)
    monkeypatch.setattr(causes, "_SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(causes.tempfile, "gettempdir", lambda: str(tmp_path))
    found = SimpleNamespace(f_bavail=free // 4096, f_frsize=4096, f_flag=0)
    monkeypatch.setattr(os, "statvfs", lambda _path: found)
    monkeypatch.setattr(resource, "getrlimit", lambda _limit: (limit, limit))
    monkeypatch.setattr(causes, "count_memory_kills", lambda: kills)
    monkeypatch.setattr(causes, "_read_cgroup", lambda *_names: "")
    return " and ".join(causes.observe())


def test_the_limits_of_either_version_of_cgroups_are_read(monkeypatch, tmp_path):
    mine = tmp_path / "cgroup"
    real = Path.read_text
    monkeypatch.setattr(causes, "_CGROUPS", tmp_path)
    monkeypatch.setattr(
        Path, "read_text", lambda path, *words: real(mine if str(path) == "/proc/self/cgroup" else path, *words)
    )
    for folder, name, text in (
        ("job", "memory.events", "low 0\noom_kill 3\n"),
        ("memory/old", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"),
        ("job", "pids.max", "6\n"),
        ("pids/old", "pids.max", "max\n"),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    for text, kills, is_limited in (
        ("0::/job\n", 3, True),
        ("4:cpu,memory:/old\n8:pids:/old\n0::/\n", 5, False),  # cpu,memory is mounted as memory alone
        ("4:memory:/gone\n0::/job\n", 3, True),
        ("", 0, False),
    ):
        mine.write_text(text)
        assert causes.count_memory_kills() == kills, text
        assert ("the limit of its cgroup is 6 processes (pids.max)" in list(causes.observe())) == is_limited, text


def test_what_this_machine_lacks_is_observed(monkeypatch, tmp_path):
    assert not observed(monkeypatch, tmp_path)
    assert "lo is down" in observed(monkeypatch, tmp_path, up=False)
    assert "has only 64 KiB free" in observed(monkeypatch, tmp_path, free=65536)
    assert "20 open files (ulimit -n) and the limit is 20 processes" in observed(monkeypatch, tmp_path, limit=20)
    assert "the memory limit of its cgroup ended 2 of its processes" in observed(monkeypatch, tmp_path, kills=2)
