"""Lines of tools that no reader supports. They are named, so that an answer tells what was not read and what helps."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from railwright.results.readers.known_listings import LISTINGS
from railwright.results.readers.known_reports import REPORTS


class KnownLines(NamedTuple):
    """The lines of an unsupported tool in a text."""

    tool: str
    lines: int
    is_about: str
    """The subject of the tool's output."""
    settles: str
    """The command or the file that would settle a question about that subject."""


class _Tool(NamedTuple):
    """An unsupported tool: its name, a pattern of its lines, its subject, and what would settle a question."""

    tool: str
    mark: str
    is_about: str
    settles: str


_HOST = "railwright audit and railwright topo on that host"
_TOOLS = (
    _Tool(
        "torch.distributed",
        r"ProcessGroupNCCL|Watchdog caught|torch\.distributed|torchrun|DistBackendError",
        "a training job",
        "the log of every rank with NCCL_DEBUG=INFO: railwright explain LOG...",
    ),
    _Tool(
        "lspci",
        r"^\s*(?:LnkSta|LnkCap|LnkCtl|ACSCtl|ACSCap|DevCtl|DevSta|Kernel driver in use)\d?:"
        r"|^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [A-Z]",
        "PCIe devices and their links",
        _HOST,
    ),
    _Tool(
        "lspci -t",
        r"^\s*[|+\\-]+-\[?[0-9a-f]{2,4}[\].:-]",
        "the PCIe tree",
        _HOST,
    ),
    _Tool(
        "nvidia-smi nvlink",
        r"^\s*Link \d+: .{0,12}(?:GB/s|inActive|<inactive>)|^\s*Link \d+, P2P is supported",
        "the state of each NVLink",
        "nvidia-smi topo -m, and p2pBandwidthLatencyTest or nvbandwidth for the rates",
    ),
    _Tool(
        "nvidia-smi topo -p2p",
        r"^\s*GPU\d+(?:\s+(?:X|OK|CNS|NS|GNS|TNS|DR|U))+\s*$",
        "peer access between GPUs",
        "every pair must be OK; p2pBandwidthLatencyTest or nvbandwidth gives the rates",
    ),
    _Tool(
        "dmesg",
        r"NVRM: |nvidia-nvswitch\d+: |\bmlx5_core [\da-f]{4}:|pcieport .{0,40}AER:"
        r"|AER: (?:Corrected|Uncorrected|Multiple)|PCIe Bus Error",
        "errors that the kernel logged",
        "all lines with Xid and AER of that boot: dmesg -T | grep -iE 'xid|aer'",
    ),
    _Tool(
        "dcgmi",
        r"dcgmi|NvLink Link Status|^\|\s*[A-Z][\w /-]{2,30}\s*\|\s*(?:Pass|Fail|Skip|Warn)\b",
        "DCGM's diagnosis",
        "for a failed test dcgmi diag -r TEST -v -i GPU; for its link nvidia-smi nvlink -s, or nvidia-smi topo -m and"
        " nvbandwidth, whose output is read",
    ),
    _Tool(
        "DCGM's log",
        r"\[(?:/\S{0,80})?/(?:nvvs|dcgmlib|dcgm)/\S{1,120}:\d+\]",
        "how DCGM's diagnosis ran",
        "the table that dcgmi diag -r 3 -v prints, or nvbandwidth, whose output is read",
    ),
    _Tool(
        "a description of a GPU",
        r"(?i)^\s*(?:memory bus width|(?:memory|gpu max|gpu) clock rate|compute capability"
        r"|total (?:amount of )?global mem|cuda capability major/minor)",
        "what a GPU can do at most",
        "nvbandwidth -t device_local_copy for its memory, railwright run gpu_hpl for its arithmetic",
    ),
    _Tool(
        "a description of the host",
        r"^\s*(?:Marketing Name|model name|Model name|VERSION|PRETTY_NAME|NAME)\s{0,24}[:=]|amdgcn-amd-amdhsa",
        "the system, the CPUs and the GPUs",
        "the benchmark's own output on that host: rccl-tests, nccl-tests or perftest, from its first line to its last",
    ),
    _Tool(
        "Intel Memory Latency Checker",
        r"Intel\(R\) Memory Latency Checker|^Inject\s+Latency|^ALL Reads\s+:|Measuring (?:Loaded|idle|Memory|Peak)",
        "latency and bandwidth of memory",
        "STREAM with one thread on each core (stream_c), whose output is read and compared with the memory channels",
    ),
    _Tool(
        "TransferBench",
        r"TransferBench v\d|^\s*(?:Test \d+:|Executor: (?:GPU|CPU|DMA))|Transfer \d+\s*\|",
        "copies between AMD GPUs",
        "rocm_bandwidth_test -a, whose output is read, or rccl-tests",
    ),
    _Tool(
        "stacks of a program",
        r"^(?:Current thread|Thread) (?:0x[0-9a-f]+|\d+)\b|^Extension modules: |^frame #\d+: |^==== backtrace"
        r"|^\s*\d+\s+0x[0-9a-f]{8,16} \w+\(\)|^\[\S{1,60}:\d+\] \[\s?\d+\] "
        r"|^#\d+ +0x[0-9a-f]+ in ",
        "where a program stands or failed",
        "the stacks of all ranks at one moment (py-spy dump --pid PID on each host): the rank that stands elsewhere is"
        " the one to look at; NCCL_DEBUG=INFO for the log",
    ),
    _Tool(
        "warp",
        r"\bTTFB\b|Requests considered:|^\s*\* Throughput: .{0,40}obj/s",
        "requests to an object store",
        "elbencho with --s3endpoints, or fio on a mounted file system, whose output is read",
    ),
    _Tool(
        "SPDK's perf",
        r"Starting SPDK v|DPDK EAL parameters|Associating .{1,90} with lcore|^(?:PCIE|RDMA|TCP) \(.{1,120}from core",
        "an NVMe drive, or NVMe over a network, driven from user space",
        "its table of IOPS and MiB/s to the line Total; fio --direct=1 on the drive, whose output is read, to compare",
    ),
    _Tool(
        "vdbench or sysbench",
        r"avg_?\w*-\d+ .{0,80}rate|(?:read|write), (?:MiB|MB)/s:|total time:\s+[\d.]+s",
        "drives or a file system",
        "fio with direct=1, whose output is read",
    ),
    _Tool(
        "ibstat",
        r"^\s*(?:CA '\S+'|CA type:|Port GUID:|Base lid:|Link layer:|Physical state:)|^\s*Rate: \d+$",
        "RDMA ports",
        "ib_write_bw -d DEVICE --report_gbits between two hosts: railwright explain FILE --host SHAPE --count 2",
    ),
    _Tool(
        "iblinkinfo",
        r"==\(\s*\d+X .{0,60}\)==>|^(?:CA|Switch): .{1,80}:$",
        "links of the InfiniBand fabric",
        "ibnetdiscover > FILE, then railwright cabling or locate",
    ),
    _Tool(
        "show_gids",
        r"^\s*DEV\s+PORT\s+INDEX\s+GID|^\S+\s+\d\s+\d+\s+[0-9a-f:]{39}\s",
        "GID tables",
        "the log of a run with NCCL_DEBUG=INFO, beside its NCCL_IB_GID_INDEX, which should be an entry of RoCE v2",
    ),
    _Tool(
        "ucx_info",
        r"^#\s+(?:Library version|Library path|Configured with|UCP context|Transport|Device|System device):"
        r"|^#\s+(?:Memory domain|capabilities|bandwidth|max_eps):|^# UCT version=",
        "UCX's devices and transports",
        "UCX_PROTO_INFO=y of the run itself, and its osu_bw or ucx_perftest",
    ),
    _Tool(
        "UCX's protocols",
        r"\|\s*\d+\.\.(?:\d+|inf)\s*\|.{3,80}\||\bep_cfg\[\d+\]",
        "the protocol and the transport that UCX takes for each size",
        "the table of the same run, such as osu_bw or ucx_perftest, whose output is read",
    ),
    _Tool(
        "UCX log",
        r"\bUCX\s{1,4}(?:ERROR|WARN|INFO|DEBUG)\b",
        "UCX's log",
        "UCX_PROTO_INFO=y and the benchmark's table of the same run",
    ),
    _Tool(
        "fi_info",
        r"^provider: \S+|^\s+fabric: \S+$",
        "libfabric's providers",
        "FI_LOG_LEVEL=info of the run, and its table",
    ),
    _Tool(
        "vLLM",
        r"KV cache (?:usage|hit)|Avg (?:prompt|generation) throughput|External prefix cache hit"
        r"|KV Transfer metrics",
        "an inference server",
        "nixlbench between the two hosts, whose output is read",
    ),
    _Tool(
        "SGLang",
        r"(?:Prefill|Decode) batch[.,]? .{0,20}#(?:new-seq|running-req)",
        "an inference server",
        "nixlbench between the two hosts, whose output is read",
    ),
    _Tool(
        "k8s-netperf",
        r"Stream Benchmark|k8s-netperf|HOST NETWORK\s*\|"
        r"|\|\s*\w+ (?:Latency|Stream|Throughput) Results\s*\|",
        "TCP between pods",
        "between the same pods iperf3 -c POD -P 8 for a rate, whose output is read; sockperf ping-pong for a latency",
    ),
    _Tool(
        "qperf",
        r"^(?:(?:tcp|udp|rc|uc|ud|xrc|sctp|rds|ver)_\w+|conf|quit):\s*$",
        "RDMA or TCP between two hosts",
        "ib_write_bw or iperf3, which are read",
    ),
    _Tool(
        "ethtool",
        r"^\s+(?:Speed: \d+Mb/s|Auto-negotiation: |Link detected: |Supported link modes:)"
        r"|^NIC statistics:|^\s+(?:\[\w{1,6}\]: ?|rxq?\d+: |txq?\d+: )?\w*(?:rx|tx|mmc|port)_\w+: \d+\s*$",
        "a port's settings or counters",
        "the same counters a minute later under load: those that grow are at fault; iperf3 -c HOST -P 8, or ib_write_bw"
        " for RDMA, gives the rate",
    ),
    _Tool(
        "MLPerf Storage",
        r"\bmlpstorage\b|^\[(?:OUTPUT|METRIC)\] |\bdlio_benchmark\b|\d\|(?:RESULT|STATUS): ",
        "a storage benchmark that reads like a training job",
        "its lines [METRIC], which have the utilization and the I/O throughput; IOR or fio with direct=1 on the data"
        " directory, whose output is read, gives what the storage can do",
    ),
    _Tool(
        "zpool",
        r"^\s*(?:pool: \S|scan: \S|NAME\s+STATE\s+READ\s+WRITE\s+CKSUM)"
        r"|\s(?:ONLINE|DEGRADED|FAULTED|UNAVAIL)\s+\d+\s+\d+\s",
        "the drives of a ZFS pool and their errors",
        "fio with direct=1 on the pool and on one of its drives, whose output is read; zpool iostat -v 1 meanwhile",
    ),
    _Tool(
        "sar or iostat",
        r"^(?:Device|avg-cpu)\b.{0,20}(?:r/s|%user|tps)|%idle|rxkB/s",
        "load of CPUs, drives or ports",
        "the benchmark's own table of the same time",
    ),
    _Tool(
        "gdscheck",
        r"^\s*(?:NVMe|NVMe P2PDMA|NVMeOF|SCSI|NVMesh|DDN EXAScaler|IBM Spectrum Scale|NFS|WekaFS|Lustre|BeeGFS|GPFS"
        r"|Userspace RDMA)\s+: ?(?:Supported|Unsupported)"
        r"|^\s*(?:GDS release version|nvidia_fs version|properties\.\w+)\s*:",
        "GPUDirect Storage",
        "gdsio with -x 0 and -x 1 on that file system, whose output is read",
    ),
    _Tool(
        "pip or conda",
        r"^(?:Collecting|Requirement already satisfied|Successfully installed|nvidia-nccl-cu\d+==)",
        "installed packages",
        "the output of the run itself",
    ),
    _Tool(
        "LaTeX",
        r"\\begin\{(?:tabular|table)|\\(?:multirow|hline|cline)",
        "a typeset table",
        "the tool's own output, or the table as plain text with its units in the header",
    ),
    _Tool(
        "a benchmark's command",
        r"(?:^|[\s/])(?:ib_(?:write|read|send)_(?:bw|lat)|ucx_perftest|nixlbench|osu_\w+|\w+_perf|iperf3|nvbandwidth|gdsio)"
        r"(?:\s+-|\s+\\?$)",
        "a run whose output is missing",
        "the output of that command, from its first line to its last row",
    ),
    _Tool(
        "a Python traceback",
        r"^\s*Traceback \(most recent call last\)|^\s+File .\S+., line \d+, in ",
        "a program that failed",
        "the lines above it with NCCL_DEBUG=INFO on every rank",
    ),
    _Tool(
        "a training log",
        r"^(?!\[(?:OUTPUT|METRIC)\]).*(?:(?<!\[)(?i:samples|tokens|it)(?:/s\b|/sec|/second)"
        r"|(?:iter(?:ation)?|step)\s*[=:]?\s*\d+.{0,80}(?:loss|elapsed time)|samples per second|TFLOPs?/GPU"
        r"|elapsed time per iteration)",
        "iterations of a training job",
        "railwright watch beside the job, or nccl-tests on the same hosts",
    ),
    _Tool(
        "NCCL topology XML",
        r"<(?:system version|pci busid|nvlink target|net name)=",
        "NCCL's topology file",
        "the log of the run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH",
    ),
    _Tool(
        "rocm-smi",
        r"ROCm System Management|=+ (?:Hops|Link Type|Weight) between two GPUs",
        "AMD GPUs and their links",
        "rccl-tests or rocm_bandwidth_test, whose output is read",
    ),
    _Tool(
        "Slurm or Kubernetes configuration",
        r"^(?:apiVersion|kind|metadata|spec|API Version|Kind|Namespace|Annotations|Spec|Metadata):|^#SBATCH ",
        "a job's description",
        "the output of the job itself",
    ),
)
_KNOWN = tuple((known, re.compile(known.mark)) for known in (*_TOOLS, *REPORTS, *LISTINGS))
_SERVERS = ("vLLM", "SGLang", "MLPerf Storage")
"""Tools whose lines read like those of a training job."""
_MAX_LINES = 5000
_MAX_LINE = 300


@lru_cache(maxsize=2)  # a text and its form without prefixes are asked for more than once
def find_known_lines(text: str) -> tuple[KnownLines, ...]:
    """Return the unsupported tools in a text, the one with the most lines first."""
    lines = [line[:_MAX_LINE] for line in text.split("\n")[:_MAX_LINES] if "NCCL INFO " not in line]
    counts = [KnownLines(known.tool, _count(mark, lines), known.is_about, known.settles) for known, mark in _KNOWN]
    named = {found.tool for found in counts if found.lines}
    is_served = not named.isdisjoint(_SERVERS)
    kept = (found for found in counts if found.lines and not (is_served and found.tool == "a training log"))
    return tuple(sorted(kept, key=lambda found: -found.lines))


def _count(mark: re.Pattern[str], lines: list[str]) -> int:
    return len(lines) - [*map(mark.search, lines)].count(None)
