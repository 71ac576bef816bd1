"""Listings of devices, file systems, drives, jobs and sensors: how their lines look, their facts, and what helps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from railwright.results.readers.known_reports import Report
from railwright.units import format_list

_MOST_QUOTED = 4


def _quote(pattern: str) -> Callable[[str], Iterator[str]]:
    """Return a function that yields the words of the first lines that match, without their spaces."""
    mark = re.compile(rf"(?m){pattern}")

    def find(text: str) -> Iterator[str]:
        found = dict.fromkeys(" ".join(words[0].split()) for words in mark.finditer(text))
        if found:
            yield format_list(list(found)[:_MOST_QUOTED])

    return find


LISTINGS = (
    Report(
        "nvidia-smi dmon or pmon",
        r"^#\s?(?:gpu|Idx)\s+\w+\s+\w+",
        "the load of GPUs by second",
        "nvidia-smi -q -d PERFORMANCE for what holds clocks back; nccl-tests or nvbandwidth for the links",
    ),
    Report(
        "nvidia-smi --query-gpu",
        r"^(?:index|name|uuid|timestamp|pci\.bus_id|gpu_name), ?[a-z_. ]+|^\d+, NVIDIA ",
        "the state of GPUs",
        "the same under load; nvidia-smi -q -d PERFORMANCE for what holds clocks back",
        _quote(r"^\d{1,3}, NVIDIA .{1,120}$"),
    ),
    Report(
        "nvidia-smi -L",
        r"^GPU \d+: .{2,60} \(UUID: ",
        "the GPUs of a host",
        "nvidia-smi topo -m for their paths, which is described",
        _quote(r"^GPU \d{1,3}: [^(\n]{2,60}"),
    ),
    Report(
        "lsmod",
        r"^(?:Module\s+Size\s+Used by|nvidia\w*\s+\d+\s+\d+|(?:ib|mlx5|rdma|nv_peer)_\w+\s+\d{4,}\s+\d+)",
        "the kernel's modules",
        "railwright audit on that host; NCCL_DEBUG=INFO says whether GPUDirect RDMA is used",
        _quote(r"^(?:nvidia_peermem|nv_peer_mem|nvidia_fs|gdrdrv)\b"),
    ),
    Report(
        "ibdev2netdev",
        r"^\S+ port \d+ ==> \S+ \((?:Up|Down)\)",
        "RDMA devices and their interfaces",
        "ibstat for the rates; ib_write_bw -d DEVICE --report_gbits between two hosts, whose output is read",
        _quote(r"^\S{2,32} port \d{1,2} ==> \S{1,32} \(Down\)"),
    ),
    Report(
        "ibv_devices",
        r"^\s*device\s+node GUID|^\s+\w+_\d+\s+[0-9a-f]{16}$",
        "RDMA devices",
        "ibv_devinfo or ibstat for their states and rates",
        _quote(r"^\s{1,8}\w{2,20}_\d{1,3}(?=\s{1,24}[0-9a-f]{16}$)"),
    ),
    Report(
        "sminfo, ibtracert or ibping",
        r"^sminfo: |^From ca \{|-> (?:switch|ca) port \{|^Pong from |ibping statistics",
        "a path of the InfiniBand fabric",
        "ib_write_bw -d DEVICE --report_gbits between the two hosts, whose output is read",
        _quote(r"^sminfo: .{1,120}|^\d{1,9} packets transmitted.{1,80}"),
    ),
    Report(
        "ibnetdiscover",
        r'^Switch\s+\d+ "S-|^Ca\s+\d+ "H-|^vendid=0x|^sysimgguid=|^# Topology file: generated',
        "the cabling of an InfiniBand fabric",
        "railwright cabling FILE, which reads it",
    ),
    Report(
        "devlink",
        r"^\s+reporter \w+|^pci/[\da-f:.]+:",
        "the health of a NIC's driver and firmware",
        "devlink health diagnose pci/ADDRESS reporter NAME; dmesg of the time of the last dump",
        _quote(r"state error error \d{1,9} recover \d{1,9}"),
    ),
    Report(
        "counters of TCP and queues",
        r"^(?:Tcp|Udp|Ip|TcpExt|UdpExt)\w+\s+\d+\s+[\d.]+$|^\s+\d+ (?:segments retransmitted|packet receive errors"
        r"|receive buffer errors|bad segments)|\bretrans:\d+/\d+|^qdisc \w+|\bbacklog \d+b|\(dropped \d+, overlimits",
        "losses of TCP, UDP and queues",
        "the same counters a minute later, under load; iperf3 -c HOST -P 8, whose output is read",
        _quote(
            r"^(?:TcpRetransSegs|TcpExt\w{0,20}(?:Timeouts|Drops)|Udp\w{0,20}Errors)\s{1,40}[1-9]\d{0,18}"
            r"|\d{1,18} (?:segments retransmitted|packet receive errors|receive buffer errors)"
            r"|retrans:\d{1,9}/\d{1,12}|\(dropped [1-9]\d{0,12}, overlimits \d{1,12}"
        ),
    ),
    Report(
        "perf",
        r"^\s+\d+\.\d+%\s+\S+\s+\S+\s+\[[k.]\]",
        "the functions that take CPU time",
        "the benchmark's own output of the same time; mpstat -P ALL 1 for the busiest CPU",
        _quote(r"^\s{1,8}\d{1,3}\.\d{1,2}%\s.{1,100}$"),
    ),
    Report(
        "mount, df or lfs",
        r"^\S+ on /\S* type \w+ \(|^Filesystem\s+\S+\s+Used|^UUID\s+bytes|^\S+-(?:OST|MDT)[0-9a-f]{4}"
        r"|: inactive device$",
        "file systems",
        "fio with direct=1 on it, whose output is read",
        _quote(r"^\S{1,60}\s.{1,80}\s(?:9\d|100)% .{1,60}$|type nfs.{1,120}|^\S{1,40}\s{0,20}: inactive device"),
    ),
    Report(
        "nvme or smartctl",
        r"^(?:critical_warning|available_spare|percentage_used|media_errors|Percentage Used|Media and Data)\b.{0,40}:"
        r"|^Smart Log for NVME|^Node\s+(?:Generic\s+)?SN\s+Model|^/dev/nvme\d+n\d+\s+\S+\s.{1,120}[TG]B\s+/",
        "drives and their health",
        "fio with direct=1 on the drive, whose output is read, with nvme smart-log before and after",
        _quote(
            r"^(?:critical_warning|media_errors|percentage_used|temperature|Thermal \w{3,12} T[12] Trans Count)"
            r"\s{0,60}: .{1,30}$"
        ),
    ),
    Report(
        "mdstat",
        r"^md\d+ : (?:in)?active|^Personalities : ",
        "software RAID",
        "fio with direct=1 on the array and on one of its drives, whose output is read",
        _quote(
            r"\S{2,20}\[\d{1,3}\]\(F\)|\[\d{1,3}/\d{1,3}\] \[[U_]{0,40}_[U_]{0,40}\]"
            r"|(?:recovery|resync) ?= ?[\d.]{1,6}%"
        ),
    ),
    Report(
        "ceph or rados",
        r"^\s*health: HEALTH_|^\s*osd: \d+ osds|^Total (?:writes|reads) made:|^Stddev Bandwidth:|objects degraded",
        "a Ceph cluster",
        "fio with direct=1 on a mapped volume, whose output is read; ceph health detail for what is degraded",
        _quote(
            r"HEALTH_(?:WARN|ERR)|\d{1,6} osds? down|Degraded data redundancy.{1,60}"
            r"|^Bandwidth \(MB/sec\):\s{1,24}[\d.]{1,12}"
            r"|^\s{1,8}client: .{1,80}$"
        ),
    ),
    Report(
        "iozone or bonnie++",
        r"^\s+kB\s+reclen\s+write|^Version\s+[\d.]+\s+-+Sequential Output",
        "drives or a file system, often through the page cache",
        "fio with direct=1, whose output is read",
    ),
    Report(
        "counters of memory controllers",
        r"Mem (?:Read|Write) \(MB/s\)|Memory (?:read |write )?bandwidth \[MBytes/s\]|^\|\s+Metric\s+\|",
        "the memory's traffic, of all programs",
        "stream_c with one thread on each core, whose output is read, gives what the memory can do",
        _quote(r"NODE \d{1,3} Mem (?:Read|Write) \(MB/s\)\s?:\s{1,12}[\d.]{1,12}|Memory .{0,8}bandwidth .{1,60}"),
    ),
    Report(
        "a rate of arithmetic",
        r"(?i)\b\d[\d.]* ?T(?:FLOPS?|FLOP/s|flops)\b",
        "arithmetic, which no reader compares with a GPU's",
        "railwright run gpu_hpl, or HPL of NVIDIA, whose output is read, at full memory; nvidia-smi -q -d PERFORMANCE",
        _quote(r"\b\d{1,5}(?:\.\d{1,6})? ?T(?:FLOPS?|FLOP/s|flops)\b.{0,40}"),
    ),
    Report(
        "gpu-burn",
        r"proc'd: \d+ \(\d+ Gflop/s\)|^\s*GPU \d+: (?:OK|FAULTY)$|^Burning for \d+",
        "GPUs under load",
        "dcgmi diag -r 3 -i GPU for one that is FAULTY; dmesg | grep -i xid",
        _quote(r"GPU \d{1,3}: FAULTY"),
    ),
    Report(
        "Horovod's benchmark",
        r"(?i)img/sec (?:per GPU|on \d+)",
        "iterations of a training job",
        "nccl-tests on the same hosts, whose output is read; its rate does not follow from images per second",
        _quote(r"(?:Total )?[Ii]mg/sec .{3,60}$"),
    ),
    Report(
        "DeepSpeed's log of communication",
        r"^Comm\. Op\s+Message Size|tput_avg \(Gbps\)|\[Rank \d+\] step=\d+",
        "collectives of a training job, with waiting for other ranks",
        "nccl-tests on the same hosts, whose output is read and has no waiting",
    ),
    Report(
        "Mooncake's transfer engine",
        r"(?i)batch count \d+.{0,40}throughput|Transfer Engine throughput",
        "transfers of KV caches",
        "nixlbench or ib_write_bw between the two hosts, whose output is read",
        _quote(r"throughput:? [\d.]{1,12} ?[KMGT]i?B/s"),
    ),
    Report(
        "scontrol or sacct",
        r"^NodeName=|^JobId=|^\s+State=[A-Z]+|^JobID\s+|^[\d.]+(?:\.batch|\.extern)\s",
        "a node or a job of Slurm",
        "the end of the job's own output; sinfo -R for the reason of a node",
        _quote(r"State=\S{2,40}|Reason=.{2,80}|\b(?:OUT_OF_ME\+?|OUT_OF_MEMORY|NODE_FAIL|TIMEOUT|FAILED|CANCELLED\+?)\b"),
    ),
    Report(
        "kubectl get nodes",
        r"^NAME\s+STATUS\s+ROLES\s+AGE",
        "the states of nodes",
        "kubectl describe node NAME: its conditions and what is allocatable",
        _quote(r"^\S{2,80}\s{1,40}\S{0,40}(?:NotReady|SchedulingDisabled)\S{0,40}"),
    ),
    Report(
        "sensors of a server",
        r"^\s{0,8}\w[\w #]{0,40}\| (?:\d\d/\d\d/\d{4}|[\d.]+ (?:degrees C|RPM|Watts|Volts)|0x[\da-f]+)\s*\|",
        "temperatures, fans and power",
        "nvidia-smi -q -d PERFORMANCE for whether clocks are held back; the server's own event log",
        _quote(r"^\s{0,8}[\w #]{2,30}\|[^\n]{1,80}(?:\| (?:cr|nr|nc)\b|Asserted).{0,4}$"),
    ),
)  # fmt: skip
