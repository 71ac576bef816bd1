"""The next command after a table, in terms of the tool that printed it.

A fault's own command is that for NCCL, or one that suits every tool. UCX documents `UCX_PROTO_INFO` and `ucx_info -d`
in its FAQ, Intel MPI `I_MPI_DEBUG`, libfabric `FI_LOG_LEVEL`.
"""

from __future__ import annotations

from msgspec.structs import replace

from railwright.faults.fault import Hypothesis
from railwright.results.readers.foreign_file import ForeignFile
from railwright.topology.devices import Topology
from railwright.topology.gpus import is_nvidia

_MPI = "mpirun -x UCX_PROTO_INFO=y (libfabric: FI_LOG_LEVEL=info; Intel MPI: I_MPI_DEBUG=10)"
_ROUTES = {
    "OSU": _MPI,
    "IMB": _MPI,
    "ucx_perftest": "UCX_PROTO_INFO=y ucx_perftest",
    "UCC": "UCX_PROTO_INFO=y UCC_LOG_LEVEL=info ucc_perftest",
    "nixlbench": "UCX_PROTO_INFO=y nixlbench",
}
"""The command that shows on which transport and device each size goes, for tools whose library chooses."""
_OTHER_BACKEND = "NIXL_LOG_LEVEL=debug nixlbench"
_BY_LIBRARY = {
    "gpudirect_off": "{route} shows whether GPU memory is sent without a copy or through host memory; ucx_info -d |"
    " grep cuda; lsmod | grep peermem",
    "nic_across_sockets": "{route} names the device of each size; nvidia-smi topo -m (SYS between a GPU and its NIC);"
    " echo $UCX_NET_DEVICES",
    "nic_unused": "{route} names the devices of each size; ucx_info -d | grep Device; echo $UCX_NET_DEVICES; rdma link",
    "p2p_disabled": "{route} should show cuda_ipc; ucx_info -d | grep cuda_ipc; nvidia-smi topo -p2p r",
    "tcp_fallback": "{route} shows tcp instead of rc_mlx5 or dc_mlx5; ucx_info -d | grep Transport; rdma link and"
    " ibv_devices in the job's container",
    "uplinks_shared": "the same test between two hosts of one leaf; the switches' uplink counters differ, and"
    " UCX_IB_NUM_PATHS=4 or adaptive routing changes the rate",
}
_PEER_ACCESS = "nvidia-smi topo -p2p r; nvidia-smi nvlink -s"
_BY_VERBS = {
    "p2p_disabled": _PEER_ACCESS,
    "nic_across_sockets": "nvidia-smi topo -m (SYS between a GPU and its NIC); cat"
    " /sys/class/infiniband/mlx5_N/device/numa_node; ib_write_bw -d mlx5_N --use_cuda=N --report_gbits with both NICs",
    "nic_unused": "ib_write_bw -d mlx5_N --report_gbits with each NIC; rdma link",
    "uplinks_shared": "the same test between two hosts of one leaf; ib_write_bw -d mlx5_N -q 4 --report_gbits or"
    " adaptive routing changes the rate",
}
_BY_SOCKETS = {
    "p2p_disabled": _PEER_ACCESS,
    "mtu_small": "ip link show dev NIC | grep mtu; ping -M do -s 8972 HOST; iperf3 -c HOST -P 8",
    "nic_across_sockets": "cat /sys/class/net/NIC/device/numa_node; numactl -N NODE iperf3 -c HOST -P 8",
    "nic_unused": "ip -s link (the bytes of each NIC before and after the test)",
    "uplinks_shared": "the same test between two hosts of one leaf; iperf3 -c HOST -P 8 spreads over several links",
}
_BY_COPIES = _BY_VERBS | {"p2p_disabled": f"{_PEER_ACCESS}; nvbandwidth -t device_to_device_memcpy_read_ce"}
_SAYS = {
    "p2p_disabled": "the data does not go directly from GPU to GPU over NVLink, but through host memory or the NICs",
}
"""The hypotheses of faults that word them for NCCL, for tools that do not use it."""
_FOR_AMD = {
    "nvidia-smi topo -p2p r": "rocm-smi --showtopoaccess",
    "nvidia-smi nvlink -s": "rocm-smi --shownodesbw",
    "nvidia-smi topo -m": "rocm-smi --showtopo",
    "nvidia-smi -q -d PERFORMANCE,CLOCK": "rocm-smi --showclocks",
    "nvbandwidth -t device_to_device_memcpy_read_ce": "rocm_bandwidth_test -a",
    "--use_cuda": "--use_rocm",
    "cuda_ipc": "rocm_ipc",
    "grep cuda": "grep rocm",
    "; lsmod | grep peermem": "; dmesg | grep -i peer",
}
_FILES = "iostat -x 1 beside the test (queue and utilisation of each drive); cat /proc/mounts; railwright audit"
_COPIES = "nvidia-smi topo -m; nvidia-smi -q -d PERFORMANCE,CLOCK; lspci -vv -s ADDRESS | grep LnkSta"
_CPUS = "lscpu; numactl -H; railwright audit (governor, NUMA, huge pages)"
_WITHOUT_A_FAULT = {
    "nccl-tests": "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET, then railwright explain LOG",
    "perftest": "ib_write_bw -d mlx5_N -q 4 --report_gbits; ibv_devinfo -v -d mlx5_N (active_mtu, active_speed)",
    "iperf3": "iperf3 -c HOST -P 8; ethtool NIC; ss -ti",
    "nvbandwidth": _COPIES,
    "CUDA samples": _COPIES,
    "rocm_bandwidth_test": "rocm-smi --showtopo; rocm-smi --showclocks; lspci -vv -s ADDRESS | grep LnkSta",
    "gdsio": "gdscheck -p; cat /proc/driver/nvidia-fs/stats; railwright storage cufile-json --check /etc/cufile.json",
    **dict.fromkeys(("fio", "elbencho", "IOR", "mdtest", "kbench"), _FILES),
    **dict.fromkeys(("STREAM", "HPL", "NVIDIA HPL", "HPCG", "Intel LINPACK"), _CPUS),
}
"""The command after a slow table to which no fault fits."""


def word_for_tool(supposed: Hypothesis, file: ForeignFile, host: Topology) -> Hypothesis:
    """Return the hypothesis with the words and the command of the tool that printed the table."""
    if file.workload.transport == "nccl":
        return replace(supposed, tell_apart=_for_gpus(supposed.tell_apart, host))
    route = _find_route(file)
    by_transport = {"verbs": _BY_VERBS, "sockets": _BY_SOCKETS, "library": _BY_LIBRARY}
    commands = by_transport.get(file.workload.transport, _BY_COPIES)
    command = commands.get(supposed.fault, supposed.tell_apart).format(route=route)
    says = supposed.says if commands is _BY_COPIES else _SAYS.get(supposed.fault, supposed.says)
    says = says.replace("NCCL uses ", "the data goes over ")
    return replace(supposed, says=says, tell_apart=_for_gpus(command, host))


def suggest_command(file: ForeignFile, host: Topology) -> str:
    """Return the next command after a slow table to which no fault fits; empty for an unknown tool."""
    command = _WITHOUT_A_FAULT.get(file.tool, "")
    if not command and file.workload.transport == "library":
        command = f"{_find_route(file)} shows transport and device of each size; ucx_info -d lists those available"
    return _for_gpus(command, host)


def _find_route(file: ForeignFile) -> str:
    backend = str(file.results[0].settings.get("backend", "UCX")).upper() if file.results else "UCX"
    return _ROUTES.get(file.tool, "UCX_PROTO_INFO=y") if backend.startswith("UCX") else _OTHER_BACKEND


def _for_gpus(command: str, host: Topology) -> str:
    gpus = host.of_kind("gpu")
    if gpus and not is_nvidia(gpus[0]):
        for words, theirs in _FOR_AMD.items():
            command = command.replace(words, theirs)
    return command
