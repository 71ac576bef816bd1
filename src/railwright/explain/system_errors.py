"""The meaning of error lines that the kernel, the drivers, Slurm, Kubernetes and the services of a GPU host print."""

from __future__ import annotations

from railwright.explain.program_errors import Meaning, ProgramError, compile_meanings

_ERRORS: tuple[Meaning, ...] = (
    (
        (r"(?:(?P<on>[\da-f]{2,4}:[\da-f:.]{4,8}): )?(?P<what>[\d.]{1,8} Gb/s available PCIe bandwidth,"
        r" limited by .{1,100})"),
        ProgramError(
            "pcie_link_slow",
            "the kernel found that PCIe limits {on}: {what}",
            "lspci -vv -s ADDRESS | grep LnkSta of the device and of the port that is named; the slot and its settings",
        ),
    ),
    (
        (r"mlx\d_core (?P<on>\S{4,20}):? .{0,60}[Pp]ort module event.{0,30}?(?P<what>[Cc]able \w.{2,60}"
        r"|[Hh]igh .{2,60})"),
        ProgramError(
            "port_down",
            "NIC {on} reports its cable or module: {what}",
            "mlxlink -d ADDRESS -m; reseat or replace the module",
        ),
    ),
    (
        r"mlx\d_core (?P<on>\S{4,20}):? .{0,80}(?:handling bad device|health compromised|assert_var|[Ff]atal error)",
        ProgramError(
            "nic_failed",
            "the firmware of NIC {on} failed its health check",
            "devlink health show pci/ADDRESS; the firmware's version with ethtool -i; drain the host before a reset",
        ),
    ),
    (
        r"mlx\d_core (?P<on>\S{4,20}):? .{0,40}High temperature",
        ProgramError("nic_hot", "NIC {on} reports a high temperature", "mget_temp -d ADDRESS; the fans, the airflow"),
    ),
    (
        r"(?:NIC |: )[Ll]ink (?:is )?[Dd]own",
        ProgramError(
            "port_down",
            "a port of the host lost its link",
            "ethtool NAME or ibstat now; mlxlink -d DEVICE -c and the switch's log for its port",
        ),
    ),
    (
        r"task (?P<what>\S{1,40}) blocked for more than (?P<on>\d{1,6}) seconds",
        ProgramError(
            "process_hangs",
            "{what} waited in the kernel for more than {on} s: for a drive, a file system or a driver",
            "the stack below the line in dmesg names the driver",
        ),
    ),
    (
        (r"DMAR: \[DMA (?P<what>Read|Write).{0,40}Request device \[?(?P<on>[\da-f:.]{4,12})\]?.{0,60}fault"
        r"|AMD-Vi: .{0,40}IO_PAGE_FAULT.{0,20}device=(?P<device>[\da-f:.]{4,12})"),
        ProgramError(
            "iommu_fault",
            "the IOMMU refused an access of device {on}{device}",
            "lspci -s ADDRESS names the device; its driver's lines before; iommu=pt on the kernel's command line",
        ),
    ),
    (
        r"nvidia_p2p_get_pages.{0,20}fail|nv_(?:mem_)?get_p2p_free_callback.{0,20}ERROR",
        ProgramError(
            "gpudirect_failed",
            "the driver did not map GPU memory for another device, or took the mapping back: GPUDirect RDMA failed",
            "lsmod | grep nvidia_peermem; nvidia-smi -q -d MEMORY for BAR1; dmesg of the same second",
        ),
    ),
    (
        r"NVIDIA-SMI has failed because it couldn't communicate",
        ProgramError(
            "no_driver",
            "nvidia-smi reaches no NVIDIA driver: its module is not loaded or failed",
            "lsmod | grep nvidia; dmesg | grep -iE 'nvrm|nvidia' for why it failed",
        ),
    ),
    (
        r"Unable to determine the device handle for GPU ?(?P<on>[\da-fA-F:.]{7,20})",
        ProgramError(
            "gpu_error", "the driver lost GPU {on}", "dmesg | grep -i xid: often Xid 79; drain and restart the host"
        ),
    ),
    (
        r"RmInitAdapter failed",
        ProgramError(
            "gpu_error", "the driver could not start a GPU", "dmesg | grep -iE 'nvrm|xid'; lspci -vv of that GPU"
        ),
    ),
    (
        r"SXid \((?P<on>PCI:[\da-f:.]{4,20})\): (?P<what>\d{4,6}), (?P<how>Fatal|Non-fatal)?",
        ProgramError(
            "nvswitch_error",
            "an NVSwitch, {on}, reported error {what} {how}",
            "NVIDIA's list of SXid errors; journalctl -u nvidia-fabricmanager; the Xids of the GPUs of that minute",
        ),
    ),
    (
        r"EDAC \S{2,8}: (?P<what>\d{1,9} [CU]E) .{0,60}? on (?P<on>\S{2,60})",
        ProgramError(
            "memory_errors",
            "the memory controller counted {what} errors on {on}",
            "edac-util -v or the server's event log; a UE needs the module replaced, a CE that grows too",
        ),
    ),
    (
        r"temperature above threshold, cpu clock throttled",
        ProgramError(
            "cpu_hot", "a CPU slowed its clock because it was too hot", "the server's sensors and fans (ipmitool sdr)"
        ),
    ),
    (
        r"could not insert '(?P<what>\w{2,40})': (?P<how>.{3,60})",
        ProgramError(
            "module_missing",
            "the kernel did not load the module {what}: {how}",
            "dmesg of that moment names the symbol or the version that does not fit; modinfo NAME",
        ),
    ),
    (
        r"could not select device driver .{0,40}capabilities: \[\[gpu",
        ProgramError(
            "container_failed",
            "docker has no runtime for GPUs",
            "install nvidia-container-toolkit, nvidia-ctk runtime configure, and restart docker",
        ),
    ),
    (
        r"nvidia-container-cli: (?P<what>.{5,120})",
        ProgramError(
            "container_failed",
            "the container got no GPU: {what}",
            "nvidia-smi on the host itself; nvidia-container-cli -k -d /dev/tty info",
        ),
    ),
    (
        r"error while loading shared libraries: (?P<what>[\w.+-]{3,60})",
        ProgramError(
            "library_missing",
            "the program did not find the library {what}",
            "ldd PROGRAM on that host; LD_LIBRARY_PATH must reach every host (mpirun -x LD_LIBRARY_PATH)",
        ),
    ),
    (
        r"symbol lookup error.{0,80}undefined symbol: (?P<what>\w{2,80})",
        ProgramError(
            "library_missing",
            "a library of another version was loaded: it lacks {what}",
            "ldd PROGRAM on that host, and the same modules or image on all",
        ),
    ),
    (
        r"ssh: connect to host (?P<on>\S{1,60}) port \d{1,5}: (?P<what>[A-Z][\w ]{4,40})",
        ProgramError(
            "launch_failed",
            "the launcher could not log in on {on}: {what}",
            "ssh {on} true from the same host and user, without a question",
        ),
    ),
    (
        r"(?P<what>Host key verification failed|Permission denied \(publickey)",
        ProgramError(
            "launch_failed",
            "the launcher could not log in on a host: {what}",
            "ssh HOST true from the same host and user, without a question",
        ),
    ),
    (
        r"PMIX ERROR: (?P<what>UNREACHABLE|LOST[_-]CONNECTION\w{0,20}|COMM[_-]FAILURE)",
        ProgramError(
            "launch_failed",
            "the processes of the launcher lost each other: {what}",
            "mpirun --mca oob_tcp_if_include INTERFACE, or PMIX_MCA_ptl_tcp_if_include, with one that all hosts reach",
        ),
    ),
    (
        r"[Cc]aught signal (?P<what>\d{1,2} \([^:)]{4,40})",
        ProgramError("process_ended", "a process ended by signal {what})", "the stack below, and the lines above it"),
    ),
    (
        r"Out of memory: Killed process (?P<what>\d{1,9} \([^)]{1,32}\))",
        ProgramError(
            "out_of_memory",
            "the kernel killed process {what}, since the host had no memory left",
            "numactl -H and dmesg around the line; fewer processes, or smaller buffers of data loaders",
        ),
    ),
    (
        r"nvme (?P<on>nvme\d{1,3}\S{0,8}): .{0,40}(?:timeout|controller is down)",
        ProgramError(
            "drive_failed", "drive {on} did not answer", "nvme smart-log /dev/NAME, and its PCIe link with lspci -vv"
        ),
    ),
    (
        (r"interface version (?P<what>[\d.]{3,16}) (?:don't|doesn't|does not"
        r"|do not) match .{0,20}?version (?P<on>\d[\d.]{2,16}\d)"),
        ProgramError(
            "fabric_manager",
            "the fabric manager is of version {what} and the driver of {on}: GPUs behind an NVSwitch cannot start",
            "install both of one version; then systemctl restart nvidia-fabricmanager, and nvidia-smi -q "
            "| grep -A2 Fabric",
        ),
    ),
    (
        r"nvidia-fabricmanager\S{0,20} .{0,60}[Ff]ailed|fabric manager.{0,60}(?:failed|aborted|not running)",
        ProgramError(
            "fabric_manager",
            "the fabric manager failed: GPUs behind an NVSwitch cannot start",
            "journalctl -u nvidia-fabricmanager; its version must be the driver's",
        ),
    ),
    (
        r"[Ss]ystem not yet initialized|SYSTEM_NOT_READY",
        ProgramError(
            "fabric_manager",
            "CUDA is not ready: where GPUs are behind an NVSwitch, the fabric manager does not run or has not finished",
            "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A2 Fabric",
        ),
    ),
    (
        (r"srun: error: (?P<on>\S{1,60}): tasks? (?P<what>[\d,-]{1,40}): (?P<how>Killed|Terminated|Aborted"
        r"|Segmentation fault)"),
        ProgramError(
            "process_ended",
            "Slurm: task {what} on {on} ended by a signal ({how})",
            "the end of that task's own output; sacct -j JOB -o State,ExitCode,MaxRSS; dmesg -T on that host",
        ),
    ),
    (
        r"srun: error: (?P<on>\S{1,60}): tasks? (?P<what>[\d,-]{1,40}): Exited with exit code (?P<how>\d{1,3})",
        ProgramError(
            "process_ended",
            "Slurm: task {what} on {on} ended with status {how}",
            "the end of that task's own output: the task that ended first names the cause",
        ),
    ),
    (
        r"[Dd]etected \d{1,6} oom.kill",
        ProgramError(
            "out_of_memory",
            "a process of the job was killed since the job's memory was used up",
            "sacct -j JOB -o MaxRSS,ReqMem; more --mem, or fewer workers of data loaders",
        ),
    ),
    (
        (r"(?:JOB|STEP) (?P<what>[\d.]{1,16}) ON (?P<on>\S{1,60}) CANCELLED AT \S{10,24} DUE TO"
        r" (?P<how>[A-Z ]{4,40}[A-Z])"),
        ProgramError(
            "job_cancelled",
            "Slurm ended job {what}, whose first host is {on}: {how}",
            "sacct -j JOB -o State,Elapsed,Timelimit,NodeList; the last lines of each task show whether it still ran",
        ),
    ),
    (
        r"FailedScheduling .{0,120}?nodes are available: (?P<what>.{3,200})",
        ProgramError(
            "pod_not_placed",
            "no node takes the pod: {what}",
            "kubectl describe node NAME | grep -A14 Allocatable, and the pods of the device plug-in on that node",
        ),
    ),
    (
        r"FailedCreatePodSandBox.{0,400}?(?P<what>[^:]{5,160})$",
        ProgramError(
            "pod_network_failed",
            "the network of a pod could not be made: {what}",
            "the log of multus and of the named plug-in on that node; kubectl get net-attach-def -A",
        ),
    ),
    (
        (r"\b(?P<what>CrashLoopBackOff|ImagePullBackOff|ErrImagePull|OOMKilled|CreateContainerConfigError"
        r"|RunContainerError|FailedMount|FailedAttachVolume)\b"),
        ProgramError(
            "container_failed",
            "a container does not run: {what}",
            "kubectl describe pod NAME, and kubectl logs NAME --previous",
        ),
    ),
)  # fmt: skip
_MEANINGS = compile_meanings(_ERRORS)


def explain_system_error(line: str) -> ProgramError | None:
    """Return the meaning of the first known error in a line, None without one."""
    return _MEANINGS(line)
