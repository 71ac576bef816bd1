"""The meaning of the texts of NCCL's warnings, and of the same texts where a framework quotes them.

The texts are those of NCCL 2.4 to 2.30 (src/transport/net_ib, src/misc, src/bootstrap.cc, src/init.cc, src/include/
checks.h). The names of work completions are those of libibverbs (`ibv_wc_status`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MOST = 1000
"""The number of characters of a text that are searched."""


class Failure(NamedTuple):
    """The meaning of a warning."""

    fault: str
    says: str
    """The failure, without the place where it occurred."""
    remedy: str
    nic: str = ""
    peer: str = ""
    follows: bool = False
    """Whether another error, often of another process, caused this one."""
    is_fatal: bool = True
    """Whether the operation failed. Other warnings are hints."""


_COMPLETION = re.compile(
    r"Got completion(?: from peer (?P<peer>\S{1,80}))? with (?:error |status=)(?:(?P<name>[A-Za-z_ ]{1,40})\()?"
    r"(?P<status>\d{1,3})\)?,? opcode[= ](?:\w{1,40}\()?-?\d{1,5}\)?,?(?P<rest>.{0,600})"
)
_VENDOR = re.compile(r"vendor[_ ]err[= ](\d{1,8})")
_HCA = re.compile(r"\bhca (\S{1,64})|NET/IB ?: ([A-Za-z][\w.-]{1,40}):\d{1,3}\b|\bdev(?:ice)? ([a-z]\w{0,8}_\d{1,4})\b")
_ADDRESS = re.compile(r"\[?([0-9A-Fa-f:.]{2,45}?)\]?(?:%\w{1,20})?<\d{1,6}>$|(\S{1,80}?)(?:<\d{1,6}>)?$")
_READ_PEER = "read the log of {peer} first: the first error of the whole job is the cause"
_COUNTERS = "then the counters of {nic} (rdma statistic, and link_downed and symbol_error in its sysfs counters)"
_STATUSES = {
    1: ("local length error", "a receive buffer is smaller than the message", "use one NCCL version on all ranks"),
    2: (
        "local QP operation error",
        "the NIC refused the request of this side",
        "dmesg for the NIC's driver; use one driver and firmware on all hosts",
    ),
    4: (
        "local protection error",
        "the NIC may not access the memory of this side; NCCL hints at ACS, which breaks GPUDirect RDMA",
        "lspci -vvv | grep ACSCtl as root (ReqRedir+ redirects); NCCL_NET_GDR_LEVEL=LOC for a comparison",
    ),
    5: (
        "work request flushed",
        "the connection had failed already: this follows another error, often of the peer",
        _READ_PEER,
    ),
    9: (
        "remote invalid request",
        "{peer} refused the request: its receive buffer or its queue does not fit, or its process restarted",
        f"{_READ_PEER}; use one NCCL version and one environment on all ranks",
    ),
    10: (
        "remote access error",
        "the NIC of {peer} may not access the memory that was addressed there",
        f"{_READ_PEER}; there: lspci -vvv | grep ACSCtl, dmesg, and NCCL_NET_GDR_LEVEL=LOC for a comparison",
    ),
    11: ("remote operation error", "{peer} could not complete the request", _READ_PEER),
    12: (
        "transport retry counter exceeded",
        "{peer} did not acknowledge. Either the path or the peer process is gone (port, switch, GID, or exit)",
        f"{_READ_PEER}, {_COUNTERS}",
    ),
    13: (
        "RNR retry counter exceeded",
        "{peer} had no receive buffer ready: its process is stuck or too slow",
        f"{_READ_PEER}; py-spy dump or a stack of that process",
    ),
}
_OTHER_STATUS = ("a status of ibv_wc_status", "the NIC failed the request", f"{_READ_PEER}; dmesg on both hosts")


class _Text(NamedTuple):
    """A pattern of warnings with their meaning. Groups of the pattern may stand in the sentences."""

    pattern: re.Pattern[str]
    fault: str
    says: str
    remedy: str
    follows: bool = False
    is_fatal: bool = True


def _text(pattern: str, *words: str, follows: bool = False, is_fatal: bool = True) -> _Text:
    fault, says, remedy = words
    return _Text(re.compile(pattern), fault, says, remedy, follows, is_fatal)


_TEXTS = (
    _text(
        r"Failed to open libibverbs",
        "nccl_no_verbs",
        "NCCL could not open libibverbs, so it cannot use InfiniBand or RoCE",
        "install rdma-core (libibverbs1) in the job's image; ibv_devices there must list the NICs",
    ),
    _text(
        r"Call to ibv_open_device failed|Unable to open device (?P<nic>\S{1,40})",
        "nccl_no_device",
        "NCCL could not open a NIC for RDMA",
        "ls /dev/infiniband in the job's container: pass it in (docker --device=/dev/infiniband, a device plugin in a"
        " pod); ibv_devinfo there must list the NIC",
    ),
    _text(
        r"(?:Error: )?network (?P<name>.{1,60}?) not found",
        "nccl_plugin_missing",
        "the network {name}, which NCCL_NET asks for, was not found: its plugin was not loaded",
        "ldd of libnccl-net.so and LD_LIBRARY_PATH in the job; NCCL_NET_PLUGIN; NCCL_DEBUG=INFO shows NET/Plugin lines",
    ),
    _text(
        r"Failed to initialize any NET plugin|NET/OFI (?:Couldn't|Unable to|Failed to) (?:find|initialize|get)",
        "nccl_plugin_missing",
        "no network plugin could be initialized",
        "fi_info -p efa (or the provider) and ibv_devices in the job's container; LD_LIBRARY_PATH of the plugin",
    ),
    _text(
        r"(?:Bootstrap|NET/Socket|NET/IB) ?: [Nn]o (?:usable listening |socket |IP )?interface found"
        r"|no device found matching",
        "nccl_bootstrap",
        "NCCL found no interface for its start-up",
        "ip address in the job's container; NCCL_SOCKET_IFNAME (or NCCL_OOB_NET_IFNAME) must name one that is up",
    ),
    _text(
        r"(?:[Cc]onnect(?: to|ing to) (?P<peer>[\w.:%\[\]-]{1,80}(?:<\d{1,6}>)?)|Call to connect\b)"
        r".{0,80}?(?P<why>Connection timed out|Connection refused|No route to host|Network is unreachable"
        r"|Software caused connection abort|Connection reset by peer|Cannot assign requested address|Invalid argument)",
        "nccl_bootstrap",
        "a TCP connection of NCCL to {peer} failed: {why}",
        "nc -zv to that address from the job; a firewall, an interface that the others cannot reach"
        " (NCCL_SOCKET_IFNAME), or a peer that exited",
    ),
    _text(
        r"wrong (?:type|magic) \S{1,24} != \S{1,24}",
        "nccl_wrong_peer",
        "a connection came from another job, another program or another version of NCCL",
        "one NCCL version on all ranks; no other job with the same NCCL_COMM_ID or MASTER_PORT; no port scanner on that"
        " network (NCCL_SOCKET_IFNAME)",
    ),
    _text(
        r"exceeded (?:error )?retry|(?:[Mm]aximum|[Tt]oo many) retr(?:y|ies).{0,40}(?:connect|accept)",
        "nccl_bootstrap",
        "a TCP connection of NCCL was given up after all retries",
        "nc -zv to the peer's address from the job; NCCL_SOCKET_IFNAME; the limits of open files and of the backlog"
        " (ulimit -n, sysctl net.core.somaxconn)",
    ),
    _text(
        r"[Bb]ootstrap.{0,80}?(?:timed? ?out|timeout)|[Tt]imed out.{0,60}(?:bootstrap|waiting for (?:all )?ranks)",
        "nccl_bootstrap",
        "NCCL's start-up timed out: not all ranks arrived",
        "check that every rank started, and NCCL_SOCKET_IFNAME on all hosts",
    ),
    _text(
        r"(?:Connection closed by remote peer|[Cc]onnection reset by peer|Broken pipe)(?: (?P<peer>[^\s]{1,80}))?",
        "nccl_peer_closed",
        "{peer} closed its connection: its process exited or was killed",
        _READ_PEER,
        follows=True,
    ),
    _text(
        r"Failed to execute operation (?P<name>\w{1,24}) from|Socket recv failed|Could not receive type from local"
        r"|[Pp]roxy (?:[Cc]all|[Mm]essage).{0,60}failed|\[Service thread\] (?:Accept failed|Error)",
        "nccl_proxy_failed",
        "a step of NCCL's proxy thread failed: this follows another error",
        "the first warning of the job, and the log of the rank that it names",
        follows=True,
    ),
    _text(
        r"Failed to (?:find|open|load).{0,30}lib(?:cuda|nvidia-ml)\S{0,12}|nvmlInit\S{0,8} (?:failed|returned)",
        "nccl_no_driver",
        "NCCL did not find the library of NVIDIA's driver, so it cannot use what needs it (cuMem, NVLS, DMA-BUF)",
        "ldconfig -p | grep -E 'libcuda|libnvidia-ml' in the job's container; docker run --gpus all; in WSL"
        " LD_LIBRARY_PATH=/usr/lib/wsl/lib",
        is_fatal=False,
    ),
    _text(
        r"(?:NVLS|NVLink SHARP|[Mm]ulticast).{0,120}(?:fail|error|not |invalid)"
        r"|[Ff]ailed to (?:bind|create|map).{0,30}(?:NVLS|NVLink SHARP|[Mm]ulticast)",
        "nccl_no_nvls",
        "NVLink SHARP (multicast) could not be set up: {all}",
        "nvidia-smi -q | grep -A 4 Fabric (Completed, Success); systemctl status nvidia-fabricmanager;"
        " NCCL_NVLS_ENABLE=0 for a comparison",
    ),
    _text(
        r"all (?:NV)?[Ll]inks are in[Aa]ctive",
        "nvlink_down",
        "NVIDIA's library finds all NVLinks of a GPU inactive",
        "nvidia-smi nvlink -s; systemctl status nvidia-fabricmanager; dmesg | grep -i xid; then a reset of the GPU",
    ),
    _text(
        r"NET/OFI .{0,120}(?:completed with error|error (?:\d|code)|RC: -?\d)",
        "nccl_ofi_error",
        "libfabric failed a request: {all}",
        "fi_info -p efa on both hosts; the security group and the placement of the hosts; FI_LOG_LEVEL=warn",
    ),
    _text(
        r"failed to (?:open CUDA IPC handle|peer with device [^:\n]{1,40}?) ?: ?\d{1,5} (?P<why>[^\n]{1,120})",
        "nccl_no_peer_access",
        "a GPU could not map the memory of another GPU of the host: {why}",
        "nvidia-smi topo -p2p r: the pair must be OK; all processes of the host must see both GPUs"
        " (CUDA_VISIBLE_DEVICES, one container with --gpus all); NCCL_P2P_DISABLE=1 goes around it",
    ),
    _text(
        r"Cuda failure (?:\d{1,5} )?'?(?P<why>[^'\n]{1,120}?)'?(?:$|\.$)",
        "nccl_cuda_error",
        "a CUDA call failed: {why}",
        "dmesg | grep -i xid and nvidia-smi on that host; CUDA_LAUNCH_BLOCKING=1 names the kernel of an illegal access",
    ),
    _text(
        r"(?:Duplicate GPU detected|Multiple Ranks are using the same GPU).{0,200}",
        "nccl_duplicate_gpu",
        "two ranks use one GPU",
        "give each rank its own GPU: CUDA_VISIBLE_DEVICES or torch.cuda.set_device(local_rank) before init",
    ),
    _text(
        r"Error while (?:creating|attaching to) shared memory segment (?P<name>\S{1,80})(?:.{0,40}?size (?P<size>\d+))?"
        r"|(?:posix_fallocate|ftruncate|/dev/shm/nccl).{0,90}No space left",
        "nccl_shared_memory",
        "NCCL could not create shared memory: /dev/shm is full, too small or not shared",
        "df -h /dev/shm in the container; docker run --shm-size=8g or --ipc=host; in a pod an emptyDir in memory",
    ),
    _text(
        r"Call to ibv_(?:exp_)?(?:reg_mr|create_qp|create_cq|alloc_pd)\S{0,24} failed"
        r"(?: with error (?P<why>[^,\n]{1,60}))?",
        "nccl_verbs_call",
        "the NIC's driver refused memory or a queue: {why}",
        "ulimit -l in the job must be unlimited; for GPU memory lsmod | grep nvidia_peermem; dmesg",
    ),
    _text(
        r"ibv_modify_qp\S{0,8} failed(?: with (?:error |\d{1,4} )?(?P<why>[^,\n]{1,60}))?",
        "nccl_verbs_call",
        "the NIC could not connect to its peer: {why}",
        "ibv_devinfo -v and show_gids: NCCL_IB_GID_INDEX must be a RoCE v2 entry that the peer reaches; ping between"
        " the two interfaces",
    ),
    _text(
        r"async fatal event|[Gg]ot async event ?: (?:port error|.{0,20}fatal)",
        "nccl_nic_event",
        "the NIC reported a fatal event, such as a port that went down",
        "dmesg and ibstat on that host; the switch's log for its port",
    ),
    _text(
        r"[Gg]ot (?:non-fatal )?async event ?: (?P<why>[^\n(]{1,60})",
        "nccl_nic_event",
        "the NIC reported: {why}",
        "dmesg and ibstat on that host",
        is_fatal=False,
    ),
    _text(
        r"Mismatched NCCL version detected.{0,120}",
        "nccl_versions_differ",
        "ranks run different NCCL versions",
        "start all ranks from the same image or with the same LD_LIBRARY_PATH",
    ),
    _text(
        r"Message truncated : received (?P<got>\d{1,12}) bytes instead of (?P<want>\d{1,12})",
        "nccl_mismatch",
        "ranks exchanged {got} bytes where {want} were expected: they call different operations or run other versions",
        "compare NCCL versions and the order of collectives on all ranks",
    ),
    _text(
        r"SHARP coll init error|[Cc]annot (?:create|connect to) SHARP|Cannot initialize CollNet",
        "nccl_no_sharp",
        "SHARP, reduction inside the switches, could not be used: NCCL goes on without it",
        "sharp_hello, and the aggregation manager (sharp_am) of the fabric; NCCL_COLLNET_ENABLE=0 if it is not wanted",
        is_fatal=False,
    ),
    _text(
        r"NUMA(?: auto)? balancing|iommu=pt",
        "nccl_host_hint",
        "the host has a setting that slows transfers: {all}",
        "sysctl kernel.numa_balancing=0; iommu=pt on the kernel's command line",
        is_fatal=False,
    ),
)  # fmt: skip


def explain_failure(text: str) -> Failure | None:
    """Return the meaning of the text of a warning; None if the text is not known."""
    text = text[:_MOST]
    if completion := _COMPLETION.search(text):
        return _explain_completion(completion, text)
    for known in _TEXTS:
        if found := known.pattern.search(text):
            groups = {name: value.strip() for name, value in found.groupdict(default="").items()}
            peer = _address(groups.pop("peer", ""))
            words = {"why": "no reason given", **{k: v for k, v in groups.items() if v}, "all": text.strip()[:200]}
            fill = {**words, "peer": peer or "the peer"}
            return Failure(
                known.fault, known.says.format(**fill), known.remedy.format(**fill), _nic(text), peer, known.follows,
                known.is_fatal,
            )  # fmt: skip
    return None


def _explain_completion(found: re.Match[str], text: str) -> Failure:
    status, nic, peer = int(found["status"]), _nic(text), _address(found["peer"] or "")
    name, means, remedy = _STATUSES.get(status, _OTHER_STATUS)
    fill = {"peer": peer or "the peer", "nic": nic or "the NIC"}
    vendor = _VENDOR.search(text)
    driver = nic.partition("_")[0] if nic else "the NIC"
    code = f"; vendor err {vendor[1]} is {driver}'s own code" if vendor else ""
    return Failure(
        "nccl_completion_error", f"status {status} = {name}: {means.format(**fill)}{code}", remedy.format(**fill),
        nic, peer, follows=status == 5,
    )  # fmt: skip


def _nic(text: str) -> str:
    found = _HCA.search(text)
    return next(filter(None, found.groups()), "") if found else ""


def _address(peer: str) -> str:
    """Return the peer without its port: `10.7.0.9<40112>` is 10.7.0.9."""
    found = _ADDRESS.search(peer)
    return next(filter(None, found.groups()), "") if found and peer else ""
