"""Reports and error lines of a cluster's hosts: what is told of each, and what would settle a question."""

from __future__ import annotations

import pytest

from railwright.errors import UsageError
from railwright.explain.paste import read_paste
from railwright.results.readers.known_lines import find_known_lines
from railwright.results.readers.known_listings import LISTINGS
from railwright.results.readers.known_reports import REPORTS

REPORT_FACTS = [
    ("link mlx5_0/1 out_of_sequence 44 packet_seq_err 0 np_cnp_sent 7\n", "counters", "out_of_sequence 44 and np_cnp"),
    ("/sys/class/infiniband/m/ports/1/hw_counters/local_ack_timeout_err:12\n", "counters", "local_ack_timeout_err 12"),
    ("SymbolErrorCounter:..............412\nPortXmitData:....................9\n", "perfquery", "ErrorCounter 412"),
    ('DCGM_FI_DEV_PCIE_REPLAY_COUNTER{gpu="3"} 44\n', "metrics of a monitor", "REPLAY_COUNTER 44"),
    ("\t Link 0: CRC Errors: 12\n\t Link 1: Replay Errors: 0\n", "nvidia-smi nvlink -e", "Link 0 CRC Errors 12"),
    ("    Clocks Event Reasons\n        HW Slowdown       : Active\n", "nvidia-smi -q", "held back by HW Slowdown"),
    ("            Link Width\n    GPU Link Info\n  Max  : 16x\n  Current : 8x\n", "nvidia-smi -q", "8 of 16 lanes"),
    (
        "| NVIDIA-SMI 550.1 |\n|   1  NVIDIA H100 80GB HBM3          On  |   00000000:43:00.0 Off |          2 |\n",
        "nvidia-smi",
        "GPU 1 2",
    ),
    ("hca_id:\tmlx5_2\n\t\tstate:\t\tPORT_DOWN (1)\n\t\tlink_layer:\tEthernet\n", "ibv_devinfo", "mlx5_2 is DOWN"),
    ("hca_id:\tm1\n\tmax_mtu:\t\t4096 (5)\n\tactive_mtu:\t\t1024 (3)\n", "ibv_devinfo", "an MTU of 1024, and could"),
    ("-I- Discovery\n-E- link P1 of sw3 runs at 4x10\n", "ibdiagnet", "error: link P1 of sw3"),
    ("Operational Info\nSpeed      : IB-HDR\nLink Down Counter   : 6\n", "mlxlink", "Link Down Counter 6"),
    (
        "link m0/1 state ACTIVE physical_state LINK_UP\nlink m1/1 state DOWN physical_state DISABLED\n",
        "rdma link",
        "m1/1",
    ),
    ("Pause parameters for e1:\nRX:\t\toff\nTX:\t\ton\n", "ethtool -g or -a", "receive off, send on"),
    (
        "Ring parameters for e2:\nRX:\t\t8192\nTX:\t\t8192\nCurrent hardware settings:\nRX:\t\t512\nTX:\t\t1024\n",
        "ethtool -g or -a",
        "RX 512 of at most 8192",
    ),
    ("PFC configuration:\n\tpriority    0  1  2  3\n\tenabled     0  0  0  1\n", "mlnx_qos", "on for priority 3"),
    ("4: e1: <BROADCAST,UP> mtu 1500 qdisc mq\n", "ip link", "e1 MTU 1500 (no link)"),
    ("node 0 size: 257000 MB\nnode 1 size: 0 MB\n", "numactl or lstopo", "no memory on node 1"),
    ("CPU(s):        128\nSocket(s):      2\n", "lscpu", "CPU(s) 128 and Socket(s) 2"),
    ("max locked memory           (kbytes, -l) 64\n", "ulimit -a", "locked memory: 64 kB"),
    ("net.core.rmem_max = 212992\n", "sysctl", "net.core.rmem_max=212992"),
    (
        "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\ngpu* up 2-00:00:00 2 drain gpu[03,07]\n",
        "sinfo or squeue",
        "gpu[03,07] drain",
    ),
    (
        "NAME   READY   STATUS    RESTARTS\nworker-0   1/1   Running   0\nworker-1   0/1   Pending   0\n",
        "kubectl get pods",
        "not ready: worker-1 Pending",
    ),
    (
        "Capacity:\n  nvidia.com/gpu:   8\nAllocatable:\n  nvidia.com/gpu:   7\n",
        "kubectl describe node",
        "nvidia.com/gpu: 7 allocatable of 8",
    ),
    (
        "--- n2 ping statistics ---\n10 packets transmitted, 20% packet loss\n",
        "ping",
        "20 % of the packets",
    ),
    (" 1?: [LOCALHOST]    pmtu 9000\n     Resume: pmtu 1500 hops 2 back 2\n", "tracepath", "1500, less than the 9000"),
    ("sockperf: Summary: Latency is 9.882 usec\n", "sockperf", "mean 9.882 us"),
    ("secs.    10^6bits/sec\n\n131072  16384  16384    10.00    23411.22\n", "netperf", "23.4 Gb/s"),
    ("11:12:12 INFO: throughput\t:94.31Gbps\n", "ntttcp", "throughput 94.31Gbps"),
    ("4294967296 bytes (4.3 GB, 4.0 GiB) copied, 2.1474 s, 2.0 GB/s\n", "dd", "2.0 GB/s over 2.1474 s"),
    ("     Active: inactive (dead) since Mon\n", "systemctl", "inactive (dead)"),
    (
        "Controlled By:  Job/x\nStatus:         Pending\n    Limits:\n      nvidia.com/gpu:  4\n",
        "kubectl describe",
        "Status Pending and asks for 4 nvidia.com/gpu",
    ),
    ("our GPUs fail with xid 79 once a day\n", "words on an Xid", "Xid 79: the GPU fell off the bus"),
    ("EnableGpuFirmware: 18\n", "parameters of NVIDIA's driver", "EnableGpuFirmware=18"),
    (
        "Neighbor        V         AS   MsgRcvd\nswp2            4          0         0    0   0 never  Idle   0\n",
        "a table of BGP sessions",
        "swp2 Idle",
    ),
    (
        "| Health Monitor Report |\n| Overall Health            | Warning    |\n",
        "dcgmi health",
        "Overall Health Warning",
    ),
]


LISTING_FACTS = [
    ("# gpu    pwr  gtemp  mtemp\n    0    312     61     78\n", "nvidia-smi dmon or pmon", ""),
    ("index, name, clocks.sm\n0, NVIDIA H100, 345 MHz\n", "nvidia-smi --query-gpu", "0, NVIDIA H100, 345 MHz"),
    ("GPU 0: NVIDIA H200 (UUID: GPU-a)\n", "nvidia-smi -L", "GPU 0: NVIDIA H200"),
    ("Module   Size  Used by\nnvidia_peermem   16384  0\n", "lsmod", "nvidia_peermem"),
    ("mlx5_0 port 1 ==> ib0 (Up)\nmlx5_1 port 1 ==> e1 (Down)\n", "ibdev2netdev", "mlx5_1 port 1 ==> e1 (Down)"),
    ("    device   node GUID\n    mlx5_0   946dae0300aabb01\n", "ibv_devices", "mlx5_0"),
    ("sminfo: sm lid 1 priority 14 state 3 SMINFO_MASTER\n", "sminfo, ibtracert or ibping", "SMINFO_MASTER"),
    ('Switch\t41 "S-0002"\t\t# "leaf1" port 0 lid 3 lmc 0\n', "ibnetdiscover", ""),
    ("pci/0000:5e:00.0:\n  reporter fw\n    state error error 3 recover 0\n", "devlink", "error 3 recover 0"),
    ("TcpRetransSegs     9912    0.0\n", "counters of TCP and queues", "TcpRetransSegs 9912"),
    ("    31.20%  app   [kernel.kallsyms]  [k] copy_user\n", "perf", "31.20% app"),
    (
        "Filesystem  Size  Used Avail Use% Mounted\nshm  64M   64M   0 100% /dev/shm\n",
        "mount, df or lfs",
        "100% /dev/shm",
    ),
    ("critical_warning    : 0\nmedia_errors     : 12\n", "nvme or smartctl", "media_errors : 12"),
    ("md1 : active raid1 nvme3n1[1](F) nvme2n1[0]\n", "mdstat", "nvme3n1[1](F)"),
    ("    health: HEALTH_WARN\n            2 osds down\n", "ceph or rados", "HEALTH_WARN and 2 osds down"),
    ("              kB  reclen    write  rewrite\n", "iozone or bonnie++", ""),
    ("|-- NODE 0 Mem Read (MB/s) :  41023.11 --|\n", "counters of memory controllers", "41023.11"),
    ("M=8192 fp16: 1.42 ms, 773.1 TFLOPS\n", "a rate of arithmetic", "773.1 TFLOPS"),
    ("Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: FAULTY\n", "gpu-burn", "GPU 1: FAULTY"),
    ("Total img/sec on 16 GPU(s): 5134.0 +-65.0\n", "Horovod's benchmark", "5134.0"),
    ("Comm. Op   Message Size   Count\n", "DeepSpeed's log of communication", ""),
    ("duration 10.01, batch count 2231, throughput 41.21 GB/s\n", "Mooncake's transfer engine", "41.21 GB/s"),
    ("NodeName=g7\n   State=DOWN*+DRAIN\n   Reason=Low RealMemory\n", "scontrol or sacct", "State=DOWN*+DRAIN"),
    ("NAME STATUS ROLES AGE\ngpu-2 NotReady <none> 91d\n", "kubectl get nodes", "gpu-2 NotReady"),
    ("Fan 3            | 0 RPM             | cr\n", "sensors of a server", "Fan 3 | 0 RPM | cr"),
]


@pytest.mark.parametrize(("text", "tool", "fact"), [*REPORT_FACTS, *LISTING_FACTS])
def test_a_report_is_named_with_the_facts_in_it(text: str, tool: str, fact: str) -> None:
    noted = {one.tool: one for one in read_paste(text, None).noted}
    assert fact in "; ".join(noted[tool].says)
    assert noted[tool].remedy


@pytest.mark.parametrize(
    "prefix",
    ["2026-03-02T11:22:33.123Z ", "[2026-03-02 11:22:33,123] INFO ", "Mar  2 11:22:33 n7 run[812]: ", "[pod/a-0/main] ",
     "0: ", "n7: ", "run-1  | ", "[1,0]<stdout>:", "> ", "> > ", "    ", "\t", "\x1b[32m", "- ", "# "],
)  # fmt: skip
@pytest.mark.parametrize(
    "report",
    [
        "Ring parameters for e2:\nRX:\t\t8192\nTX:\t\t8192\nCurrent hardware settings:\nRX:\t\t512\nTX:\t\t1024\n",
        "Operational Info\nSpeed           : IB-HDR\nLink Down Counter   : 6\n",
        "node 0 cpus: 0 1\nnode 0 size: 257000 MB\nnode 1 size: 0 MB\n",
        "PFC configuration:\n\tpriority    0  1  2  3\n\tenabled     0  0  0  1\n",
        "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV4\tPIX\nGPU1\tNV4\t X \tSYS\nNIC0\tPIX\tSYS\t X \n",
    ],
)
def test_a_report_behind_a_prefix_is_read_alike(report: str, prefix: str) -> None:
    wrapped = "".join(f"{prefix}{line}\n" for line in report.rstrip("\n").split("\n"))
    assert read_paste(wrapped, None).noted == read_paste(report, None).noted


def test_numbers_of_cat_are_removed_from_a_short_table() -> None:
    rows = ["# OSU MPI Latency Test v5.9", "# Size          Latency (us)", "1                       1.64", "2     1.65"]
    numbered = "".join(f"{number:6d}\t{row}\n" for number, row in enumerate(rows, 1))
    (file,) = read_paste(numbered, None).files
    assert [row.summary.median for row in file.results if row.summary] == [1.64e-6, 1.65e-6]


def test_every_report_has_a_line_that_is_no_other_reports() -> None:
    tried = {tool for _, tool, _ in REPORT_FACTS}
    without_facts = {report.tool for report in REPORTS if report.find is None}
    assert tried | without_facts == {report.tool for report in REPORTS} - {"hdparm"}
    assert {tool for _, tool, _ in LISTING_FACTS} == {listing.tool for listing in LISTINGS}


def test_counters_that_are_zero_accuse_nothing() -> None:
    (noted,) = read_paste("link mlx5_0/1 out_of_sequence 0 packet_seq_err 0\n", None).noted
    assert "none of the 2 counters" in "; ".join(noted.says)


def test_an_idle_latency_is_no_loaded_rate() -> None:
    (noted,) = read_paste("Measuring idle latencies (in ns)...\n       0\t  92.1\t 161.2\n", None).noted
    assert "loaded" not in "; ".join(noted.says)


def test_an_inference_server_is_no_training_job() -> None:
    text = "Engine 000: Avg prompt throughput: 21.1 tokens/s, GPU KV cache usage: 3.1%\n"
    assert [known.tool for known in find_known_lines(text)] == ["vLLM"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("parser.c:2036 UCX  WARN  unused environment variable: UCX_TSL (maybe: UCX_TLS?)", "does not know UCX_TSL"),
        ("select.c:627  UCX  ERROR   no active messages transport to <no debug data>: self", "found no transport"),
        ("ib_mlx5_log.c:177  Remote access error on mlx5_2:1/RoCE (synd 0x13)", "mlx5_2:1/RoCE: Remote access error"),
        ("libfabric:1:2::core:core:fi_getinfo_():1352<info> No providers matched", "libfabric found no provider"),
        ("WARNING: There was an error initializing an OpenFabrics device.", "left it out"),
        ("[cn12:12345] Signal: Segmentation fault (11)", "Segmentation fault (11)"),
        ("  traceback : Signal 9 (SIGKILL) received by PID 20133", "signal 9 (SIGKILL)"),
        (
            (
                "Received a dump signal due to a collective timeout from  rank 6. Last enqueued NCCL work: 91, "
                "last completed NCCL work: 88."
            ),
            "rank 6 reported a collective that timed out; here 91 were enqueued and 88 completed",
        ),
        ("Received a dump signal due to a collective timeout from rank 6", "rank 6 reported a collective"),
        (
            "detected by watchdog at work: 4, last enqueued NCCL work: 9, last completed NCCL work: 3.",
            "9 were enqueued",
        ),
        ("NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=x, Ch 1 caused by previous Xid 149", "removed after Xid 149"),
        ("NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0", "(SAW), which was not fatal"),
        ("[Rank 2] Heartbeat monitor timed out! Process will be terminated", "watchdog thread did not move"),
        (
            "The client socket has timed out after 60000ms while trying to connect to (10.4.0.12, 29500).",
            "10.4.0.12, 29",
        ),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "an illegal memory access"),
        ("Couldn't connect to 10.1.1.2:18515", "no server at 10.1.1.2:18515"),
        ("IB device mlx5_9 not found", "no such RDMA device mlx5_9"),
        ("Port number 1 state is Down", "its state is Down"),
        ("Couldn't allocate MR", "did not register a buffer"),
        ("cma event RDMA_CM_EVENT_ADDR_ERROR, error -19", "ADDR_ERROR"),
        ("ping: local error: message too long, mtu=1500", "MTU of the own interface, 1500"),
        ("srun: error: cn04: task 3: Killed", "task 3 on cn04 ended by a signal"),
        ("srun: error: cn05: tasks 4-7: Exited with exit code 1", "task 4-7 on cn05 ended with status 1"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=991.0.", "memory was used up"),
        (
            "slurmstepd: error: *** JOB 5512 ON cn09 CANCELLED AT 2026-03-04T01:02:03 DUE TO TIME LIMIT ***",
            "TIME LIMIT",
        ),
        ("mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged", "Cable unplugged"),
        ("mlx5_core 0000:5e:00.0: health_care:188: handling bad device here", "failed its health check"),
        (
            "0000:17:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:15:01.0",
            "PCIe limits 0000:17:00.0",
        ),
        ("INFO: task python:22110 blocked for more than 120 seconds.", "waited in the kernel for more than 120 s"),
        ("DMAR: [DMA Read NO_PASID] Request device [5e:00.0] fault addr 0x7ff0000", "device 5e:00.0"),
        ("NVRM: nvidia_p2p_get_pages failed", "GPUDirect RDMA failed"),
        ("interface version 550.54.14 don't match with driver version 550.54.15. Please", "550.54.14 and the driver"),
        ("Error 802: system not yet initialized", "CUDA is not ready"),
        ("Warning FailedScheduling 3m default 0/2 nodes are available: 2 Insufficient rdma/hca_a.", "rdma/hca_a"),
        (
            "Warning FailedCreatePodSandBox 1s kubelet Failed: plugin: failed to allocate VF: no free device",
            "no free dev",
        ),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "reaches no NVIDIA driver"),
        ("Unable to determine the device handle for GPU0000:9B:00.0: Unknown Error", "lost GPU 0000:9B:00.0"),
        ("NVRM: GPU 0000:9b:00.0: RmInitAdapter failed! (0x62:0xffff:2477)", "could not start a GPU"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 44", "reported error 20034 Fatal"),
        ("EDAC MC0: 12 CE memory read error on CPU_SrcID#0_DIMM#0", "12 CE errors on CPU_SrcID#0"),
        ("CPU12: Core temperature above threshold, cpu clock throttled", "slowed its clock"),
        ("modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument", "nvidia_peermem: Invalid argument"),
        ('docker: could not select device driver "" with capabilities: [[gpu]].', "no runtime for GPUs"),
        ("nvidia-container-cli: initialization error: driver not loaded", "the container got no GPU"),
        ("./x: error while loading shared libraries: libnccl.so.2: cannot open", "the library libnccl.so.2"),
        ("mpirun: symbol lookup error: undefined symbol: opal_x201", "it lacks opal_x201"),
        ("ssh: connect to host n2 port 22: Connection refused", "log in on n2: Connection refused"),
        ("Host key verification failed.", "log in on a host: Host key"),
        ("[n1:1] PMIX ERROR: UNREACHABLE in file ptl_tcp_component.c", "lost each other: UNREACHABLE"),
        ("Caught signal 11 (Segmentation fault: address not mapped)", "signal 11 (Segmentation fault)"),
        ("nccl-launcher-8   0/1   CrashLoopBackOff   7   11m", "CrashLoopBackOff"),
    ],
)
def test_an_error_line_is_decoded(line: str, says: str) -> None:
    found = read_paste(f"some words before\n{line}\n", None)
    assert [error for error in found.errors if says in error.says and error.remedy]
    assert found.status == 1


def test_a_text_without_an_error_has_none() -> None:
    calm = "node 0 is up, the link is at 400 Gb/s\nthe state is Active, exitcode : 0\nretry later if it is down\n"
    with pytest.raises(UsageError):
        read_paste(calm, None)


def test_the_footer_of_nccl_tests_alone_is_known_and_its_average_told() -> None:
    (noted,) = read_paste("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 42.1733\n", None).noted
    assert noted.tool == "nccl-tests"
    assert "Avg bus bandwidth 42.1733" in "; ".join(noted.says)


def test_full_shared_memory_is_told() -> None:
    text = (
        "w3:8:9 [1] NCCL WARN Error: failed to extend /dev/shm/nccl-6Yy to 33 bytes, error: No space left on device\n"
    )
    assert any("/dev/shm is full" in finding.says for finding in read_paste(text, None).findings)


def test_a_row_of_k8s_netperf_is_told() -> None:
    (noted,) = read_paste("| RR Latency Results | netperf | 1024 | 1 | 41.000000 (usec)  |\n", None).noted
    assert "RR Latency Results: 41.000000 (usec)" in noted.says
    assert "sockperf" in noted.remedy


def test_few_messages_of_nccl_do_not_hide_the_start_of_a_run() -> None:
    text = (
        "# nThread 1 nGpus 2 minBytes 8 maxBytes 64 step: 2(factor)\n# Using devices\n"
        "#   Rank  0 Pid 7 on  n1 device  0 [0xaf] NVIDIA A30\nn1:7:7 [0] NCCL INFO NET/IB : No device fou\n"
    )
    (noted,) = read_paste(text, None).noted
    assert noted.tool == "nccl-tests"
    assert any("NVIDIA A30" in said for said in noted.says)


def test_a_refusal_asks_for_the_output_of_the_test_that_the_text_names() -> None:
    with pytest.raises(UsageError) as refused:
        read_paste("osu_gather is slow\nSize | one rail | two rails\n-- | -- | --\n64 | 9.1 | 6.2\n", None)
    assert "the columns Size, one rail, two rails" in refused.value.message
    assert refused.value.hint is not None
    assert "whole output of osu_gather" in refused.value.hint


def test_words_inside_other_words_make_no_tool_the_nearest() -> None:
    with pytest.raises(UsageError) as refused:
        read_paste("the driver was already loaded, and the roadblock is blocked\n", None)
    assert "fio" not in (refused.value.hint or "").partition(";")[0]


def test_an_unknown_error_without_a_rate_asks_for_the_output_of_its_program() -> None:
    with pytest.raises(UsageError) as refused:
        read_paste("the port and the GPU\nfrobnicate: Error: the gizmo is missing\n", None)
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("the output of frobnicate")


def test_a_warning_that_runs_survive_is_no_lost_process() -> None:
    with pytest.raises(UsageError):
        read_paste("[n1:1] PMIX ERROR: ERROR in file gds_ds12_lock_pthread.c at line 168\n", None)
