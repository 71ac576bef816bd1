"""The meaning of error lines that MPI, UCX, perftest and cuFile print."""

from __future__ import annotations

import re
from typing import NamedTuple


class ProgramError(NamedTuple):
    """The meaning of an error line."""

    fault: str
    says: str
    remedy: str


_ERRORS = (
    (
        r"MPI processes are unable to reach each other",
        ProgramError(
            "no_transport",
            "Open MPI found no transport that joins two of its processes",
            "ompi_info | grep -E 'btl|pml' on both hosts; mpirun --mca pml ucx, or --mca btl tcp,self for a comparison",
        ),
    ),
    (
        r"BTLs attempted: (?P<what>[\w, ]{1,80})",
        ProgramError(
            "no_transport",
            "the transports that Open MPI tried between two processes, {what}, do not join them",
            "mpirun --mca btl_base_verbose 100 shows why the others were left out",
        ),
    ),
    (
        r"There are not enough slots available",
        ProgramError(
            "too_few_slots",
            "mpirun was asked for more processes than its hosts have slots",
            "--host NODE:SLOTS or a hostfile with slots=N; --map-by :OVERSUBSCRIBE for a test",
        ),
    ),
    (
        r"(?:ORTE|PRTE) (?:was unable to reliably start|has lost comm)|unable to (?:launch|start) .{0,40}daemon",
        ProgramError(
            "launch_failed",
            "mpirun could not start its daemon on a host, or lost it",
            "ssh HOST true without a password, and the same Open MPI in the PATH there; "
            "--mca plm_base_verbose 10 for details",
        ),
    ),
    (
        r"PML ucx cannot be selected|PML add procs failed|[Nn]o components were able to be opened in the pml",
        ProgramError(
            "no_transport",
            "Open MPI could not use the transport layer that was asked for",
            "ompi_info | grep pml, and ucx_info -d on both hosts",
        ),
    ),
    (
        r"[Tt]ransport retry count exceeded on (?P<what>\S{1,60})",
        ProgramError(
            "port_errors",
            "the peer did not acknowledge what {what} sent: the path or the peer process is gone",
            "the peer's own log first; then ibstat, and the counters of both ports (ethtool -S, rdma statistic)",
        ),
    ),
    (
        r"(?P<what>MPI_ERR_\w{1,30}): (?!MPI_)",
        ProgramError(
            "mpi_error",
            "MPI failed with {what}",
            "the first error line of the whole job, above this one, names the cause",
        ),
    ),
    (
        r"Fatal error in (?P<what>\w{3,40}): (?!MPI_ERR_).{0,40}error stack",
        ProgramError(
            "mpi_error",
            "MPICH failed in {what}: the last line of its error stack names the function that failed",
            "MPIR_CVAR_DEBUG_SUMMARY=1 and UCX_LOG_LEVEL=info or FI_LOG_LEVEL=info; ucx_info -d or fi_info there",
        ),
    ),
    (
        r"uct_\w{0,24}completion_with_err|uct_\w{0,24}ep_handle_failure",
        ProgramError(
            "port_errors",
            "a stack of UCX that ended in a failed completion of the NIC: the path or the peer process is gone",
            "the line 'Transport retry count exceeded' or 'Local QP operation error' above the stack; the peer's log",
        ),
    ),
    (
        r"Failed status 4: wr_id",
        ProgramError(
            "nic_memory",
            "perftest's NIC may not access the buffer of its own side (status 4, local protection error)",
            "for GPU memory lsmod | grep nvidia_peermem or --use_cuda_dmabuf, and lspci -vvv | grep ACSCtl; the same"
            " command without --use_cuda for a comparison",
        ),
    ),
    (
        r"Failed status (?P<what>12|13): wr_id",
        ProgramError(
            "port_errors",
            "perftest's peer did not answer (status {what}, retries exceeded): the path or the peer process is gone",
            "the peer's own output first; then ibstat or show_gids (-x INDEX), and the counters of both ports",
        ),
    ),
    (
        r"Failed status (?P<what>\d{1,2}): wr_id",
        ProgramError(
            "verbs_error",
            "a request of perftest failed with status {what} of ibv_wc_status",
            "the output of the other side, and dmesg on both hosts",
        ),
    ),
    (
        r"Couldn't read remote address|Failed to exchange data between server and clients",
        ProgramError(
            "peer_ended",
            "perftest's other side ended, or could not be reached, before both had exchanged their addresses",
            "the output of the other side to its end; nc -zv SERVER 18515",
        ),
    ),
    (
        r"GPUDirect Storage not supported on current file",
        ProgramError(
            "no_gpudirect_storage",
            "cuFile cannot use GPUDirect Storage on that file: its file system, its mount options or its drive lack it",
            "gdscheck -p, and mount -t ext4 -o data=ordered or XFS; gdsio -x 2 measures the path through host memory",
        ),
    ),
    (
        r"(?:cuFile\w{0,24}|file|buf(?:fer)?) (?:register|registration|open) (?:error|failed)\b(?P<what>.{0,80})",
        ProgramError(
            "cufile_error", "cuFile refused a file or a buffer{what}", "gdscheck -p, and cufile.log of the run"
        ),
    ),
)  # fmt: skip
_MARKS = tuple((re.compile(mark), error) for mark, error in _ERRORS)


def explain_program_error(line: str) -> ProgramError | None:
    """Return the meaning of the first known error in a line, None without one."""
    for mark, error in _MARKS:
        if found := mark.search(line):
            what = (found.groupdict().get("what") or "").rstrip()
            return error._replace(says=error.says.format(what=what))
    return None
