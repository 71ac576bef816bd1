"""Facts in the reports of a host, a port, a switch or a scheduler that no reader judges."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from railwright.results.readers.xids import XIDS
from railwright.units import format_count, format_list

_MOST = 8
"""The number of things that a sentence lists."""
_LOSS = re.compile(
    r"(?i)err|discard|drop|wait|down|recover|out_of|retrans|retry|nak|cnp|ecn|pause|overrun|timeout|adp|replay|miss"
)
_PAIR = re.compile(
    r"(?<![\w.])([A-Za-z_][\w.]{3,60})(?:\{[^}\n]{0,200}\}|: {0,3}\.{1,40}|[:=])? {0,24}(\d{1,20})(?![\w.:/%])"
)


def find_counters(text: str) -> Iterator[str]:
    """Yield the counters that a sound port leaves at 0, or that grow only under congestion."""
    counts: Counter[str] = Counter()
    for name, value in _PAIR.findall(text):
        if _LOSS.search(name):
            counts[name] += int(value)
    above = [f"{name} {value}" for name, value in counts.most_common(_MOST) if value]
    if above:
        yield f"counters of errors, losses and congestion above 0: {format_list(above)}"
    elif counts:
        yield f"none of the {format_count(len(counts), 'counter')} of errors, losses and congestion is above 0"


_LINK_ERROR = re.compile(r"(?m)^\s*(Link \d{1,2}): ([A-Z][\w ]{2,40}?): (\d{1,20})\s*$")


def find_link_errors(text: str) -> Iterator[str]:
    """Yield the errors of NVLinks."""
    found = _LINK_ERROR.findall(text)
    bad = [f"{link} {name} {value}" for link, name, value in found if int(value)]
    if found:
        yield format_list(bad[:_MOST]) if bad else f"all {len(found)} counters of errors are 0"


_GPU_ROW = re.compile(
    r"(?m)^\|\s{1,4}(\d{1,3})\s{1,4}([A-Z][\w -]{2,40}?)\s{2,40}\S.{0,60}\|\s{1,24}(\d{1,9}|N/A|Off) \|?\s*$"
)


def find_gpus(text: str) -> Iterator[str]:
    """Yield the GPUs, and their uncorrected errors."""
    rows = _GPU_ROW.findall(text)
    names = Counter(re.sub(r"\s+(?:On|Off)$", "", name) for _, name, _ in rows)
    if names:
        yield format_list([f"{count} {name}" for name, count in names.most_common(4)])
    bad = [f"GPU {number} {count}" for number, _, count in rows if count.isdigit() and int(count)]
    if bad:
        yield f"uncorrected ECC errors since the driver was loaded: {format_list(bad[:_MOST])}"


_REASON = re.compile(r"(?m)^\s{4,40}((?:HW|SW|Sync) [A-Z][\w ]{2,40}?)\s{1,40}: Active\s*$")
_FIELD = re.compile(
    r"(?m)^\s{4,40}((?:DRAM|SRAM) Uncorrectable\w*|Pending|Uncorrectable Error|Replays Since Reset)\s{1,40}: (\S{1,20})"
)
_PCIE = re.compile(r"Max\s{1,40}: (\d)\s{1,80}(?:Device \w{3,8}\s{1,40}: \S{1,8}\s{1,80}){0,3}?Current\s{1,40}: (\d)\b")
_WIDTH = re.compile(r"Max\s{1,40}: (\d{1,2})x\s{1,80}Current\s{1,40}: (\d{1,2})x")
_STATE = re.compile(r"Fabric\s{1,80}State\s{1,40}: ([A-Z][\w ]{2,24}\w)")


def find_gpu_states(text: str) -> Iterator[str]:
    """Yield what holds a GPU back, its errors and its PCIe link."""
    if reasons := list(dict.fromkeys(_REASON.findall(text))):
        yield f"clocks are held back by {format_list(reasons[:_MOST])}"
    if bad := [f"{name} {value}" for name, value in _FIELD.findall(text) if value not in ("0", "No", "N/A")]:
        yield format_list(list(dict.fromkeys(bad))[:_MOST])
    for most, now in dict.fromkeys(_WIDTH.findall(text)):
        if int(now) < int(most):
            yield f"PCIe has {now} of {most} lanes"
    for most, now in dict.fromkeys(_PCIE.findall(text)):
        if int(now) < int(most):
            yield f"PCIe runs at generation {now} of {most}, which is usual for a GPU at rest: look again under load"
    for state in dict.fromkeys(_STATE.findall(text)):
        yield f"state of the NVLink fabric: {state}"


_PORT = re.compile(
    r"(?m)^\s*hca_id:\s{1,8}(\S{2,32})|^\s*state:\s{1,16}PORT_(\w{2,16})|^\s*(max|active)_mtu:\s{1,16}(\d{3,5})"
)


def find_devinfo(text: str) -> Iterator[str]:
    """Yield ports that are down, and MTUs below the highest."""
    device, most = "", 0
    for name, state, which, mtu in _PORT.findall(text):
        device = name or device
        most = int(mtu) if which == "max" else most
        if state and state != "ACTIVE":
            yield f"{device or 'a port'} is {state}"
        if which == "active" and most and int(mtu) < most:
            yield f"{device or 'a port'} has an MTU of {mtu}, and could have {most}"


_ERROR = re.compile(r"(?m)^-E- (.{5,200})$")


def find_fabric_errors(text: str) -> Iterator[str]:
    """Yield the errors that a check of the fabric found."""
    for error in list(dict.fromkeys(_ERROR.findall(text)))[:3]:
        yield f"error: {error.strip()}"


def _join_values(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """Yield one sentence of the names and values that a pattern finds, the last value of each name."""
    if found := dict(pattern.findall(text)):
        yield format_list([f"{name} {value}" for name, value in found.items()])


_MODULE = re.compile(
    r"(?m)^(State|Speed|Width|FEC|Effective Physical Errors|Effective Physical BER|Link Down Counter|Recommendation)"
    r"\s{1,40}: (\S.{0,100}?)\s*$"
)


def find_module(text: str) -> Iterator[str]:
    """Yield the state of a port and its errors."""
    yield from _join_values(_MODULE, text)


_LINK_STATE = re.compile(r"(?m)^link (\S{2,32}) .{0,60}?state (\w{3,12}) physical_state (\w{3,16})")


def find_rdma_links(text: str) -> Iterator[str]:
    """Yield the links that are not up."""
    found = _LINK_STATE.findall(text)
    if bad := [f"{name} {state} ({physical})" for name, state, physical in found if state != "ACTIVE"]:
        yield f"not up: {format_list(bad[:_MOST])}"
    elif found:
        yield f"all {len(found)} links are ACTIVE"


_RING = re.compile(r"(?m)^(RX|TX):\s{1,16}(\d{1,7}|n/a|off|on)\s*$")


def find_rings(text: str) -> Iterator[str]:
    """Yield the entries of rings, or the pause frames."""
    found = _RING.findall(text)
    if found and not any(value.isdigit() for _, value in found):
        states = dict(found)
        yield f"pause frames: receive {states.get('RX', '?')}, send {states.get('TX', '?')}"
    elif len(found) >= 4:  # maxima, then settings
        most, now = dict(found[: len(found) // 2]), dict(found[len(found) // 2 :])
        yield format_list([f"{name} {now.get(name, '?')} of at most {most[name]} entries" for name in most])


_PFC = re.compile(r"(?m)^\s{0,16}enabled((?:\s{1,8}[01]){4,8})\s*$")
_TRUST = re.compile(r"Priority trust state: (\w{3,8})")


def find_pfc(text: str) -> Iterator[str]:
    """Yield the priorities with flow control."""
    for found in _PFC.findall(text)[:2]:
        on = [str(number) for number, word in enumerate(found.split()) if word == "1"]
        yield f"PFC is on for priority {format_list(on)}" if on else "PFC is off for all priorities"
    for trust in dict.fromkeys(_TRUST.findall(text)):
        yield f"the port trusts {trust}"


_INTERFACE = re.compile(r"(?m)^\d{1,5}: (\S{1,40}): <([^>\n]{2,120})> mtu (\d{2,6})")
_COUNTS = re.compile(
    r"(RX|TX):\s{1,4}bytes\s{1,8}packets\s{1,8}errors\s{1,8}dropped.{0,80}\n\s{0,12}\d{1,20}\s{1,12}\d{1,20}\s{1,12}(\d{1,20})\s{1,12}(\d{1,20}"
    r")"
)


def find_interfaces(text: str) -> Iterator[str]:
    """Yield the MTUs, and what was dropped."""
    found = _INTERFACE.findall(text)
    if found:
        yield format_list(
            [f"{name} MTU {mtu}{'' if 'LOWER_UP' in flags else ' (no link)'}" for name, flags, mtu in found][:_MOST]
        )
    for way, errors, dropped in _COUNTS.findall(text)[:4]:
        if int(errors) or int(dropped):
            yield f"{way}: {errors} errors, {dropped} dropped"


_NODE = re.compile(r"(?m)^node (\d{1,4}) (cpus|size|free):\s{0,4}(.{0,2000}?)\s*$")


def find_nodes(text: str) -> Iterator[str]:
    """Yield the memory of each NUMA node."""
    found = _NODE.findall(text)
    sizes = {node: value for node, what, value in found if what == "size"}
    if sizes:
        yield f"{format_count(len(sizes), 'NUMA node')}: {format_list(list(sizes.values())[:_MOST])}"
    if empty := [node for node, value in sizes.items() if value.startswith("0 ")]:
        yield f"no memory on node {format_list(empty[:_MOST])}"


_CPU = re.compile(
    r"(?m)^\s*(Model name|CPU\(s\)|Thread\(s\) per core|Socket\(s\)|NUMA node\(s\)):\s{1,60}(\S.{0,60}?)\s*$"
)


def find_cpus(text: str) -> Iterator[str]:
    """Yield the CPUs."""
    yield from _join_values(_CPU, text)


_LOCKED = re.compile(r"max locked memory\s{1,16}\([^)\n]{1,24}\) (\w{1,20})")


def find_limits(text: str) -> Iterator[str]:
    """Yield the limit of locked memory."""
    for value in dict.fromkeys(_LOCKED.findall(text)):
        yield f"locked memory: {value}" + (
            " kB, and RDMA needs unlimited, or the size of its buffers" if value.isdigit() else ""
        )


_KERNEL_SETTING = re.compile(r"(?m)^((?:net|vm|kernel)\.[\w.]{3,60}) ?= ?(\S.{0,60}?)\s*$")


def find_kernel_settings(text: str) -> Iterator[str]:
    """Yield the settings."""
    if found := dict(_KERNEL_SETTING.findall(text)):
        yield format_list([f"{name}={value}" for name, value in found.items()][:_MOST])


_NODES = re.compile(
    r"(?m)^\S{1,40}\s{1,20}\w{2,8}\s{1,20}\S{1,20}\s{1,12}(\d{1,6})\s{1,12}([a-z]{3,12}\S{0,2})\s{1,12}(\S{1,120})"
)


def find_partitions(text: str) -> Iterator[str]:
    """Yield the nodes that are not usable."""
    bad = [
        f"{names} {state}"
        for _, state, names in _NODES.findall(text)
        if state.startswith(("drain", "down", "fail", "drng"))
    ]
    if bad:
        yield f"not usable: {format_list(bad[:_MOST])}"


_POD = re.compile(r"(?m)^(\S{3,80})\s{1,60}(\d{1,3})/(\d{1,3})\s{1,12}([A-Z]\w{3,30})\s")


def find_pods(text: str) -> Iterator[str]:
    """Yield the pods that are not ready."""
    found = _POD.findall(text)
    bad = [f"{name} {state}" for name, ready, of, state in found if ready != of and state != "Completed"]
    if found:
        yield f"not ready: {format_list(bad[:_MOST])}" if bad else f"all {len(found)} pods are ready"


_RESOURCE = re.compile(r"(?m)^\s{1,8}([a-z][\w.-]{2,60}/[\w.-]{2,60}):\s{1,30}(\d{1,9})\s*$")


def find_resources(text: str) -> Iterator[str]:
    """Yield the resources that a node does not give in full."""
    has, _, can = text.partition("Allocatable:")
    for name, count in dict.fromkeys(_RESOURCE.findall(has)):
        left = dict(_RESOURCE.findall(can)).get(name, count)
        if count == "0" or left != count:
            yield f"{name}: {left} allocatable of {count}"


_POD_STATUS = re.compile(r"(?m)^\s{0,8}(Status|Reason|Exit Code|Restart Count):\s{1,20}(\w{1,40})\s*$")
_POD_DEVICE = re.compile(
    r"(?m)^\s{4,16}((?:nvidia|amd|mellanox|intel)\.com/[\w.-]{1,60}|rdma/[\w.-]{1,60}):\s{1,12}(\d{1,6})"
)


def find_pod_facts(text: str) -> Iterator[str]:
    """Yield the state of a pod, and the devices that it asks for."""
    found = [
        f"{name} {value}"
        for name, value in dict.fromkeys(_POD_STATUS.findall(text))
        if (name, value) != ("Restart Count", "0")
    ]
    found += [f"asks for {count} {name}" for name, count in dict.fromkeys(_POD_DEVICE.findall(text))]
    if found:
        yield format_list(found[:_MOST])


_XID = re.compile(r"\b[Xx][Ii][Dd]s?[ :(\n]{1,3}(\d{1,3})\b")


def find_xids(text: str) -> Iterator[str]:
    """Yield the meaning of each Xid that the words name."""
    for number in dict.fromkeys(int(word) for word in _XID.findall(text)):
        if number in XIDS:
            yield f"Xid {number}: {XIDS[number]}"


_DRIVER_PARAMETER = re.compile(
    r"(?m)^(EnableGpuFirmware\w{0,20}|NVreg_\w{3,50}|RegistryDwords|EnablePCIE\w{3,40}): ?(\S{1,60})"
)


def find_driver_parameters(text: str) -> Iterator[str]:
    """Yield the parameters."""
    if found := dict(_DRIVER_PARAMETER.findall(text)):
        yield format_list([f"{name}={value}" for name, value in found.items()][:_MOST])


_LATENCY_ROW = re.compile(
    r"\|\s{0,8}(\w{2,4} (?:Latency|Stream|Throughput) Results)\s{0,8}\|(.{1,600})"
    r"\|\s{0,8}([\d.]{1,20} \([\w/%]{2,12}\))\s{0,8}\|"
)


def find_netperf_rows(text: str) -> Iterator[str]:
    """Yield the value of each row of a table of k8s-netperf."""
    for name, _, value in _LATENCY_ROW.findall(text)[:4]:
        yield f"{name}: {value}"


_LOST = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)% packet loss")
_ROUND = re.compile(r"rtt min/avg/max\S{0,8} = ([\d.]{1,12})/([\d.]{1,12})/([\d.]{1,12})")


def find_rounds(text: str) -> Iterator[str]:
    """Yield losses and round trips."""
    for lost in dict.fromkeys(_LOST.findall(text)):
        yield f"{lost} % of the packets were lost"
    for low, mean, high in _ROUND.findall(text)[:2]:
        yield f"round trip of {low} to {high} ms, on average {mean}"


_PATH_MTU = re.compile(r"pmtu (\d{2,6})")


def find_path_mtu(text: str) -> Iterator[str]:
    """Yield the MTU of a path."""
    found = list(map(int, _PATH_MTU.findall(text)))
    if found:
        less = f", less than the {found[0]} of the own interface" if found[-1] < found[0] else ""
        yield f"the MTU of the path is {found[-1]}{less}"


_LATENCY = re.compile(
    r"sockperf: (?:Summary: Latency is ([\d.]{1,12}) usec|---> percentile (50|99)\.0{1,3}\s{0,4}=\s{0,8}([\d.]{1,12}))"
)


def find_socket_latency(text: str) -> Iterator[str]:
    """Yield the latencies."""
    found = [f"mean {mean} us" if mean else f"{share} % {value} us" for mean, share, value in _LATENCY.findall(text)]
    if found:
        yield f"latency, one way: {format_list(found[:4])}"


_STREAM = re.compile(r"(?m)^\s{0,4}\d{3,9}\s{1,8}\d{3,9}\s{1,8}\d{1,9}\s{1,8}(\d{1,5}\.\d\d)\s{1,8}([\d.]{1,12})\s*$")


def find_netperf(text: str) -> Iterator[str]:
    """Yield the rates."""
    for _, rate in _STREAM.findall(text)[:4]:
        yield f"{float(rate) / 1e3:.1f} Gb/s"


_TOTAL = re.compile(r"INFO: (throughput|retrans segs|total bytes|avg cpu usage)\s{0,12}:(\S{1,24})")


def find_ntttcp(text: str) -> Iterator[str]:
    """Yield the totals."""
    yield from _join_values(_TOTAL, text)


_COPIED = re.compile(r"copied, ([\d.]{1,12}) s(?:econds)?, ([\d.]{1,9} [kMGT]?i?B/s)")
_TIMING = re.compile(r"Timing (buffered disk|cached) reads: .{0,60}?= ([\d.]{1,12} MB/sec)")


def find_copies(text: str) -> Iterator[str]:
    """Yield the rates of copies."""
    for seconds, rate in _COPIED.findall(text)[:4]:
        yield f"{rate} over {seconds} s"
    for what, rate in _TIMING.findall(text)[:4]:
        yield f"{what} reads {rate}"


_SERVICE = re.compile(r"(?m)^\s{0,8}Active: (\w{4,12} \([^)\n]{2,60}\))")
_SESSION = re.compile(
    r"(?m)^(\S{2,60})\s{1,30}4\s{1,30}\d{1,10}\s.{10,80}\s(Idle|Active|Connect|OpenSent|OpenConfirm)\b"
)


def find_services(text: str) -> Iterator[str]:
    """Yield the state of a service."""
    for state in dict.fromkeys(_SERVICE.findall(text)):
        yield f"the service is {state}"


def find_sessions(text: str) -> Iterator[str]:
    """Yield the sessions that are not established."""
    if found := [f"{peer} {state}" for peer, state in _SESSION.findall(text)]:
        yield f"sessions that are not established: {format_list(found[:_MOST])}"


_HEALTH = re.compile(
    r"(?m)^\|\s{1,8}(?:-> )?(Overall Health|\d{1,3}|[A-Z][\w ]{2,30}?(?: system)?)\s{1,40}"
    r"\|\s{1,4}(Healthy|Warning|Failure)\b"
)


def find_health(text: str) -> Iterator[str]:
    """Yield the health of each part."""
    found = [f"{name if not name.isdigit() else f'GPU {name}'} {state}" for name, state in _HEALTH.findall(text)]
    if found:
        yield format_list(found[:_MOST])
