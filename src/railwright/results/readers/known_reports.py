"""Reports of a host, a port, a switch or a scheduler that no reader judges: how their lines look, and what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from railwright.results.readers import known_states as states

_COUNTERS = (
    r"(?:out_of_sequence|packet_seq_err|local_ack_timeout_err|out_of_buffer|rnr_nak_retry_err|np_cnp_sent"
    r"|rp_cnp_handled"
    r"|np_ecn_marked_roce_packets|roce_adp_retrans|rx_icrc_encapsulated|symbol_error\w*|link_downed\w*"
    r"|link_error_recovery|port_(?:rcv|xmit)_\w+|infiniband_\w+_(?:total|received)|rx_discards_phy|[rt]x_prio\d_pause)"
)
"""Names of counters of RDMA ports, as Linux has them."""


class Report(NamedTuple):
    """A report without a reader: its name, a pattern of its lines, its subject, and what would settle a question."""

    tool: str
    mark: str
    is_about: str
    settles: str
    find: Callable[[str], Iterator[str]] | None = None
    """The function that yields the facts in a text."""


_AGAIN = "the same counters a minute later, under load: those that grow are at fault"
REPORTS = (
    Report(
        "counters",
        rf"(?:^|[\s/\".\[]){_COUNTERS}\b",
        "errors, losses and congestion of ports",
        _AGAIN,
        states.find_counters,
    ),
    Report(
        "perfquery",
        r"^(?:Port[A-Z]|SymbolError|LinkDowned|LinkErrorRecovery|ExcessiveBuffer|VL15Dropped|QP1Dropped)\w+:\.+\d",
        "counters of a port",
        _AGAIN,
        states.find_counters,
    ),
    Report(
        "metrics of a monitor",
        r"^(?:DCGM_FI|node|rdma|nvidia|amd)_\w{3,80}\{[^}]{0,250}\} ",
        "counters and states that a monitor collects",
        "the same metrics over the time of the run; railwright watch beside the job",
        states.find_counters,
    ),
    Report(
        "nvidia-smi nvlink -e",
        r"^\s*Link \d+: (?:Replay|Recovery|CRC|FEC|Minor|Effective|Malformed|Buffer|Rx|Tx)\b.{0,40}: ",
        "errors of each NVLink",
        f"{_AGAIN}; nvbandwidth or p2pBandwidthLatencyTest gives the rates",
        states.find_link_errors,
    ),
    Report(
        "nvidia-smi -q",
        r"^=+NVSMI LOG=+|^\s+(?:HW Slowdown|HW Thermal Slowdown|SW Power Cap|Clocks (?:Throttle"
        r"|Event) Reasons|GPU Link Info"
        r"|PCIe Generation|Remapped Rows|Product Name|Replays Since Reset|CliqueId)\s*:?|^\s+Fabric\s*$",
        "the state of a GPU",
        "the same under load: nvidia-smi -q -d PERFORMANCE,ECC,CLOCK during the benchmark",
        states.find_gpu_states,
    ),
    Report(
        "nvidia-smi",
        r"NVIDIA-SMI \d|^\|\s+\d+\s+(?:NVIDIA|Tesla|GeForce|Quadro|A100|H100)",
        "GPUs, their use and their driver",
        "nvidia-smi topo -m for the paths; nvidia-smi -q -d PERFORMANCE for throttling",
        states.find_gpus,
    ),
    Report(
        "dcgmi dmon",
        r"^#\s?Entity\s+[A-Z]{4}|^GPU \d+(?:\s+(?:[\d.]+|N/A)){2,}\s*$",
        "the load of GPUs and links",
        "nvbandwidth or nccl-tests at rest, whose output is read, gives what the links can do",
    ),
    Report(
        "dcgmi health",
        r"Health Monitor Report|^\|\s+Overall Health\s",
        "DCGM's watch over a host",
        "dcgmi health -c -j for the text of each warning; dcgmi diag -r 3 for the GPU that it names",
        states.find_health,
    ),
    Report(
        "ibv_devinfo",
        r"^\s*(?:hca_id:|phys_port_cnt:|active_mtu:|max_mtu:|port_lid:|active_width:|active_speed:|link_layer:)",
        "RDMA devices",
        "ib_write_bw -d DEVICE --report_gbits between two hosts: railwright explain FILE --host SHAPE --count 2",
        states.find_devinfo,
    ),
    Report(
        "ibdiagnet",
        r"^-[IEW]- |ibdiagnet2?\.(?:log|db_csv)|Running version.{0,40}IBDIAGNET",
        "checks of the InfiniBand fabric",
        "the lines that begin with -E-; ibdiagnet2.db_csv, or ibnetdiscover > FILE and railwright cabling",
        states.find_fabric_errors,
    ),
    Report(
        "mlxlink",
        r"^(?:Operational Info|Troubleshooting Info|Supported Info)|^(?:Effective Physical (?:Errors|BER)"
        r"|Raw Physical BER"
        r"|Link Down Counter|Raw Errors Per Lane|FEC)\s",
        "a port's optics and errors",
        "mlxlink -d DEVICE -c of both ends",
        states.find_module,
    ),
    Report(
        "rdma link",
        r"^link \S+/\d+ (?:state|subnet_prefix)",
        "RDMA links",
        "ib_write_bw -d DEVICE --report_gbits between two hosts, whose output is read",
        states.find_rdma_links,
    ),
    Report(
        "ethtool -g or -a",
        r"^(?:Ring parameters|Pause parameters|Channel parameters|Coalesce parameters) for \S+",
        "rings and flow control of a port",
        "ethtool -S NAME twice under load: discards or pause frames that grow show which of them matters",
        states.find_rings,
    ),
    Report(
        "ethtool -i",
        r"^(?:firmware-version|expansion-rom-version|bus-info): ",
        "the driver and the firmware of a port",
        "ethtool NAME for its rate, lspci -vv -s ADDRESS for its PCIe link",
    ),
    Report(
        "mlnx_qos",
        r"^DCBX mode:|^Priority trust state:|^PFC configuration:|^tc: \d+ ratelimit",
        "flow control by priority",
        "the same on the switch's port, and ethtool -S NAME | grep prio under load",
        states.find_pfc,
    ),
    Report(
        "ip link",
        r"^\d+: \S+: <[A-Z_,-]+> mtu \d+",
        "network interfaces",
        "ethtool -S NAME twice under load for drops; iperf3 -c HOST -P 8, whose output is read, for the rate",
        states.find_interfaces,
    ),
    Report(
        "numactl or lstopo",
        r"^node \d+ (?:cpus|size|free):|^(?:Machine|  NUMANode|    Package) L?#?\d*",
        "NUMA nodes",
        "railwright audit and railwright topo on that host",
        states.find_nodes,
    ),
    Report(
        "lscpu",
        r"^(?:CPU\(s\)|Thread\(s\) per core|Core\(s\) per socket|Socket\(s\)|NUMA node\(s\)|CPU max MHz):",
        "the CPUs of a host",
        "stream_c with one thread on each core, whose output is read, for the memory; railwright audit for settings",
        states.find_cpus,
    ),
    Report(
        "words on an Xid",
        r"\b[Xx][Ii][Dd]s?[ :(]{1,3}\d{1,3}\b",
        "errors that NVIDIA's driver reports",
        "the kernel's own lines, with the time and the GPU: dmesg -T | grep -i xid",
        states.find_xids,
    ),
    Report(
        "parameters of NVIDIA's driver",
        r"/proc/driver/nvidia|^(?:EnableGpuFirmware\w*|NVreg_\w+|RegistryDwords|EnablePCIERelaxedOrderingMode): ?\S",
        "how the driver was loaded",
        "dmesg -T | grep -iE 'nvrm|xid' of that boot; nvidia-smi -q | grep -i gsp",
        states.find_driver_parameters,
    ),
    Report(
        "ulimit -a",
        r"^(?:max locked memory|core file size|max user processes|open files)\s+\(",
        "limits of a process",
        "the same inside the job: srun or mpirun bash -c 'ulimit -l' on every host",
        states.find_limits,
    ),
    Report(
        "sysctl",
        r"^(?:net|vm|kernel)\.[\w.]+ ?= ?",
        "settings of the kernel",
        "railwright audit on that host says which of them cost rate; iperf3 -c HOST, whose output is read",
        states.find_kernel_settings,
    ),
    Report(
        "free",
        r"^\s+total\s+used\s+free\s+shared",
        "memory in use",
        "numactl -H for the memory of each NUMA node",
    ),
    Report(
        "sinfo or squeue",
        r"^PARTITION\s+AVAIL|^\s*JOBID\s+PARTITION|^NODELIST\s",
        "the states of Slurm's nodes and jobs",
        "sinfo -R for the reason of each node that is not usable; scontrol show job ID",
        states.find_partitions,
    ),
    Report(
        "kubectl get pods",
        r"^NAME\s+READY\s+STATUS\s+RESTARTS",
        "the states of pods",
        "kubectl describe pod NAME for its events; kubectl logs NAME --previous",
        states.find_pods,
    ),
    Report(
        "kubectl describe node",
        r"^(?:Capacity|Allocatable|Allocated resources|System Info):",
        "what a node gives to pods",
        "the log of the device plug-in's pod on that node; nvidia-smi -L, ibv_devices and rdma link there",
        states.find_resources,
    ),
    Report(
        "kubectl describe",
        r"^\s*(?:Controlled By|Node-Selectors|Tolerations|QoS Class|Host Port|Restart Count|Container ID|Image ID):"
        r"|^\s*(?:Type\s+Reason\s+Age\s+From|(?:Normal|Warning)\s+[A-Z]\w+\s+\d+[smhd])|^(?:Events"
        r"|Containers|Conditions):",
        "a pod and its events",
        "its last part, Events, says why it does not run; then kubectl logs NAME --previous",
        states.find_pod_facts,
    ),
    Report(
        "ping",
        r"bytes from .{1,60}icmp_seq=|rtt min/avg/max|^--- (?!.{0,80}ibping).{1,80} ping statistics",
        "round trips of small packets",
        "ping -M do -s 8972 ADDRESS for the MTU; iperf3 for the rate, osu_latency for MPI, whose output is read",
        states.find_rounds,
    ),
    Report(
        "tracepath",
        r"\bpmtu \d+",
        "the MTU of a path",
        "ip link show on the hosts, and the switch's MTU where the path has less than they have",
        states.find_path_mtu,
    ),
    Report(
        "sockperf",
        r"sockperf: ",
        "latency of sockets",
        "iperf3 for the rate, osu_latency for MPI, whose output is read",
        states.find_socket_latency,
    ),
    Report(
        "netperf",
        r"MIGRATED (?:TCP|UDP)_|MIGRATED (?:TCP|UDP) |10\^6bits/sec|Send\s+Socket\s+Send\s+Send",
        "TCP or UDP between hosts",
        "iperf3 -c HOST -P 8, whose output is read",
        states.find_netperf,
    ),
    Report(
        "ntttcp",
        r"NTTTCP for Linux|^\d\d:\d\d:\d\d INFO: (?:throughput|retrans|\d+ threads)",
        "TCP between hosts",
        "iperf3 -c HOST -P 8, whose output is read",
        states.find_ntttcp,
    ),
    Report(
        "dd",
        r"bytes \(.{1,24}\) copied, ",
        "a single stream to one file, which the page cache may hold",
        "fio with direct=1 and iodepth, whose output is read",
        states.find_copies,
    ),
    Report(
        "hdparm",
        r"Timing (?:buffered|cached)",
        "one drive",
        "fio with direct=1, whose output is read",
        states.find_copies,
    ),
    Report(
        "systemctl",
        r"^\s*(?:Loaded|Active): \w+ \(",
        "a service",
        "journalctl -u NAME -b for its first error",
        states.find_services,
    ),
    Report(
        "a table of BGP sessions",
        r"^Neighbor\s+V\s+AS\s+MsgRcvd",
        "the routing between switches",
        "show bgp neighbor PEER for the last reset; railwright locate beside probes of the network",
        states.find_sessions,
    ),
    Report(
        "the subnet manager's log",
        r"\bosm_\w+: (?:ERR|WRN|INF)|OpenSM",
        "the InfiniBand subnet",
        "sminfo and ibdiagnet -r; its lines with -E- are told",
    ),
)  # fmt: skip
