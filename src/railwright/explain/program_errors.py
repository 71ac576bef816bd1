"""The meaning of error lines that MPI, UCX, perftest and cuFile print."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple


class ProgramError(NamedTuple):
    """The meaning of an error line."""

    fault: str
    says: str
    """The meaning, with the names of the pattern's groups in braces, as in the remedy."""
    remedy: str


Meaning = tuple[str, ProgramError]
"""A pattern of error lines, and their meaning."""

_ERRORS: tuple[Meaning, ...] = (
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
        r"no (?:\w{1,12} ){0,3}transports? to .{1,120}",
        ProgramError(
            "no_transport",
            "UCX found no transport to a peer that its settings allow",
            "ucx_info -d on both hosts; UCX_TLS and UCX_NET_DEVICES of the run",
        ),
    ),
    (
        r"unused environment variables?: (?P<what>UCX_\w{1,40})",
        ProgramError(
            "unknown_setting",
            "UCX does not know {what}, so it has no effect",
            "ucx_info -cf | grep NAME lists what this version knows",
        ),
    ),
    (
        (r"(?P<what>(?:Remote access|Local protection|Remote operation|Remote invalid request|Local QP operation"
        r"|RNR retry \w{1,12}|Transport retry \w{1,12})(?: error)?) on (?P<on>\w{1,20}\S{0,16})"),
        ProgramError(
            "verbs_error",
            "the NIC reported to UCX on {on}: {what}",
            "the peer's own log first; then its NIC's counters (rdma statistic), and the same run with UCX_TLS=tcp",
        ),
    ),
    (
        r"(?:No providers matched|fi_getinfo\S{0,12} ?(?:failed|returned|error|: -61).{0,60})",
        ProgramError(
            "no_transport",
            "libfabric found no provider for what was asked",
            "fi_info -p NAME in the same container, and ls /dev/infiniband there",
        ),
    ),
    (
        r"create[_ ]qp\S{0,12} failed: ?(?P<what>.{0,60})",
        ProgramError(
            "verbs_error",
            "libfabric could not create a queue pair: {what}",
            "ulimit -l in the job must be unlimited; ls /dev/infiniband; dmesg on that host",
        ),
    ),
    (
        r"error initializing an OpenFabrics device",
        ProgramError(
            "transport_left_out",
            "Open MPI's openib could not use an RDMA device and left it out",
            "mpirun --mca pml ucx, or --mca btl ^openib to silence it; the line 'Local device' names the device",
        ),
    ),
    (
        r"Signal: (?P<what>[A-Z][a-z ]{3,30}\(\d{1,3}\))",
        ProgramError("process_ended", "a process ended by a signal: {what}", "the stack below, and the lines above it"),
    ),
    (
        r"Signal (?P<what>\d{1,3} \(\w{3,12}\)) received by PID",
        ProgramError(
            "process_ended",
            "a process of the job ended by signal {what}",
            "the end of that rank's own output; dmesg -T | grep -i 'killed process' on its host",
        ),
    ),
    (
        r"exitcode\s{0,4}: (?P<what>[1-9]\d{0,2})\b",
        ProgramError(
            "process_ended", "a process of the job ended with status {what}", "the end of that rank's own output"
        ),
    ),
    (
        (
            r"dump signal due to a collective timeout from {1,4}rank (?P<on>\d{1,7}).{0,200}?"
            r"[Ll]ast enqueued NCCL work: (?P<what>-?\d{1,12}), last completed NCCL work: (?P<done>-?\d{1,12})"
        ),
        ProgramError(
            "watchdog",
            "rank {on} reported a collective that timed out; here {what} were enqueued and {done} completed",
            "the lines of rank {on}, and of the rank that completed the fewest: py-spy dump there",
        ),
    ),
    (
        r"dump signal due to a collective timeout from {1,4}rank (?P<on>\d{1,7})",
        ProgramError(
            "watchdog", "rank {on} reported a collective that timed out", "the lines of rank {on}: py-spy dump there"
        ),
    ),
    (
        (
            r"detected by watchdog at work: (?P<what>\d{1,12}), last enqueued NCCL work: (?P<on>-?\d{1,12}), "
            r"last completed NCCL work: (?P<done>-?\d{1,12})"
        ),
        ProgramError(
            "watchdog",
            "operation {what} did not finish: {on} were enqueued and {done} completed",
            "the same line of every rank: the one that enqueued or completed the fewest is the one to look at",
        ),
    ),
    (
        r"[Hh]eartbeat monitor timed out",
        ProgramError(
            "watchdog",
            "PyTorch's watchdog thread did not move: it waits in a call of NCCL or CUDA",
            "py-spy dump --native --pid PID on that host; nvidia-smi and dmesg for an Xid",
        ),
    ),
    (
        r"client socket has timed out after (?P<what>\d{1,9}) ?ms while trying to connect to \((?P<on>[^)]{3,60})\)",
        ProgramError(
            "startup_timeout",
            "nothing answered at {on} within {what} ms",
            "the process of rank 0 must run and listen there: nc -zv ADDRESS PORT from this host",
        ),
    ),
    (
        r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError",
        ProgramError("out_of_memory", "the GPU's memory was used up", "nvidia-smi for other processes on that GPU"),
    ),
    (
        r"CUDA (?:error|ERROR): (?P<what>[^\n(]{4,80})",
        ProgramError(
            "cuda_error",
            "a CUDA call failed: {what}",
            "CUDA_LAUNCH_BLOCKING=1 names the kernel; dmesg | grep -i xid on that host",
        ),
    ),
    (
        r"Couldn't connect to (?P<what>\S{1,80})",
        ProgramError(
            "peer_unreachable",
            "perftest reached no server at {what}",
            "start the server's side first; nc -zv SERVER 18515",
        ),
    ),
    (
        r"IB device (?P<what>\S{1,40}) not found|Unable to find the Infiniband/RoCE device|No IB devices found",
        ProgramError(
            "no_rdma_device",
            "the host or the container has no such RDMA device {what}",
            "ibv_devices and rdma link; in a container /dev/infiniband and the device plug-in's resource",
        ),
    ),
    (
        r"Port number \d{1,3} state is (?P<what>Down|Init\w{0,8}|Armed)",
        ProgramError(
            "port_down",
            "the RDMA port is not active: its state is {what}",
            "ibstat or rdma link; for Initialize the subnet manager does not run (sminfo)",
        ),
    ),
    (
        r"(?:[Cc]ouldn't allocate|[Ff]ailed to (?:create|register)) (?:MR|mr|memory region)\b",
        ProgramError(
            "nic_memory",
            "the NIC's driver did not register a buffer",
            "ulimit -l must be unlimited; for GPU memory lsmod | grep nvidia_peermem or --use_cuda_dmabuf",
        ),
    ),
    (
        r"RDMA_CM_EVENT_(?P<what>ADDR_ERROR|ROUTE_ERROR|CONNECT_ERROR|UNREACHABLE|REJECTED)",
        ProgramError(
            "peer_unreachable",
            "the RDMA connection manager did not reach the peer: {what}",
            "ping -I INTERFACE ADDRESS, and rdma link: the address must be one of an RDMA device's own interface",
        ),
    ),
    (
        r"message too long, mtu[= ](?P<what>\d{2,6})",
        ProgramError(
            "mtu_small",
            "the packet is longer than the MTU of the own interface, {what}",
            "ip link show and ip route get ADDRESS; ip link set NAME mtu 9000 on all hosts and the switch",
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


def compile_meanings(errors: Sequence[Meaning]) -> Callable[[str], ProgramError | None]:
    """Return a function that finds the first of the errors in a line, with its words filled in."""
    marks = tuple((re.compile(mark), error) for mark, error in errors)

    def explain(line: str) -> ProgramError | None:
        for mark, error in marks:
            if found := mark.search(line):
                words = {name: (value or "").strip(" .:") for name, value in found.groupdict().items()}
                return error._replace(says=error.says.format(**words), remedy=error.remedy.format(**words))
        return None

    return explain


_MEANINGS = compile_meanings(_ERRORS)


def explain_program_error(line: str) -> ProgramError | None:
    """Return the meaning of the first known error in a line, None without one."""
    return _MEANINGS(line)
