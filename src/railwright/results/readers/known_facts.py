"""Facts in the output of tools that no reader supports: failures, links that are down, links slower than others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from railwright.results.readers.known_listings import LISTINGS
from railwright.results.readers.known_reports import REPORTS
from railwright.results.readers.known_states import find_netperf_rows
from railwright.units import format_count, format_list

_MOST = 4
_TEXT = 200_000
_LINE = 2000
"""The number of characters of a line that are searched. Blank lines are left out: many would cost much time."""


def find_known_facts(tool: str, text: str) -> tuple[str, ...]:
    """Return a sentence for each fact that the lines of a tool tell."""
    find = _FINDERS.get(tool)
    lines = (line.rstrip()[:_LINE] for line in text[:_TEXT].split("\n") if line and not line.isspace())
    return tuple(find("\n".join(lines)))[:_MOST] if find is not None else ()


_DCGM_ROW = re.compile(
    r"(?m)^\W{0,3}\|\s{0,4}([A-Z][\w /-]{2,30}?)\s{1,40}\|\s{0,4}(Pass|Fail|Skip|Warn)\b(.{0,60}?)\s*\|?$"
)
_DCGM_TEXT = re.compile(r"(?m)^\W{0,3}\|\s{0,4}(?:Warning|Error|Info)?\s{0,40}\|\s?(.{1,80}?)\s*\|?$")
_DCGM_LINKS = re.compile(r"(?m)^\s*gpuId (\d{1,3}):\s*\n\s*((?:[UDX_] ?){1,36})\s*$")


def _read_dcgm(text: str) -> Iterator[str]:
    for number, states in _DCGM_LINKS.findall(text):
        counts = Counter(states.split())
        if counts["D"]:
            yield f"{counts['D']} of {sum(counts.values())} NVLinks of GPU {number} are down"
    results = _DCGM_ROW.findall(text)
    failed = [f"{name} ({result}{rest.rstrip()})" for name, result, rest in results if result in ("Fail", "Warn")]
    if failed:
        why = " ".join("".join(part.ljust(46) for part in _DCGM_TEXT.findall(text)).split())
        yield f"not passed: {format_list(failed[:8])}{f': {why[:160]}' if why else ''}"
    elif results:
        yield f"none of the {format_count(len(results), 'result')} in the text is a failure"


_LINK = re.compile(r"==\(\s{0,8}(\d{1,2}X)\s{1,16}([\d.]{1,12} Gbps)\s{1,8}(\w{1,12})/")


def _read_iblinkinfo(text: str) -> Iterator[str]:
    rates = Counter((width, rate) for width, rate, state in _LINK.findall(text) if state == "Active")
    down = sum(state == "Down" for _, _, state in _LINK.findall(text))
    parts = [f"{count} of {width} at {rate} a lane" for (width, rate), count in rates.most_common(4)]
    if parts:
        yield f"active ports: {format_list(parts)}"
    if len(rates) > 1:
        yield "ports of unlike rates: the slower ones limit what crosses them"
    if down:
        yield f"{format_count(down, 'port')} down"


_CAPABLE = re.compile(r"LnkCap\d?:.{0,60}?Speed ([\d.]{1,5})GT/s.{0,20}?Width x(\d{1,2})")
_STATUS = re.compile(r"LnkSta:\s{0,4}Speed ([\d.]{1,5})GT/s.{0,20}?Width x(\d{1,2})")


def _read_lspci(text: str) -> Iterator[str]:
    can: tuple[float, int] | None = None
    for line in text.split("\n"):
        if found := _CAPABLE.search(line):
            can = float(found[1]), int(found[2])
        elif (found := _STATUS.search(line)) and can is not None:
            now = float(found[1]), int(found[2])
            if now[0] < can[0] or now[1] < can[1]:
                yield f"a link runs at {now[0]:g} GT/s x{now[1]} and can do {can[0]:g} GT/s x{can[1]}"
            can = None


_PEERS = re.compile(r"(?m)^\s*(GPU\d{1,3})((?:\s{1,8}(?:X|OK|CNS|NS|GNS|TNS|DR|U)){1,64})\s*$")


def _read_peers(text: str) -> Iterator[str]:
    cells = [word for _, row in _PEERS.findall(text) for word in row.split() if word != "X"]
    other = Counter(word for word in cells if word != "OK")
    if cells:
        bad = format_list([f"{count} {word}" for word, count in other.most_common(4)])
        yield f"all {len(cells)} pairs are OK" if not other else f"{sum(other.values())} of {len(cells)} pairs: {bad}"


_NVLINK = re.compile(r"(?m)^\s*Link \d{1,2}: (.{1,30}?)\s*$")


def _read_nvlink(text: str) -> Iterator[str]:
    states = Counter(_NVLINK.findall(text))
    if states:
        yield format_list([f"{count} links: {state}" for state, count in states.most_common(4)])


_PORT = re.compile(r"(?m)^\s*(?:Rate: (\d{1,4})|State: (\w{1,16})|Physical state: (\w{1,16}))\s*$")


def _read_ibstat(text: str) -> Iterator[str]:
    ports = _PORT.findall(text)
    rates = Counter(rate for rate, _, _ in ports if rate)
    states = Counter(state or physical for _, state, physical in ports if state or physical)
    if rates:
        yield f"ports: {format_list([f'{count} at {rate} Gb/s' for rate, count in rates.most_common(4)])}"
    other = format_list([f"{count} {state}" for state, count in states.items() if state not in _UP])
    if other:
        yield f"not up: {other}"


_UP = ("Active", "LinkUp")
_SPEED = re.compile(r"(?m)^\s*Speed: (\d{1,7})Mb/s")


_COUNTER = re.compile(r"(?m)^\s{1,16}(?:\[\w{1,6}\]: ?|[rt]xq?\d{1,4}: )?([a-z]\w{2,48}): (\d{1,19})\s*$")
_OF_LOSS = re.compile(
    r"(?:^|_)(?:drop|discard|err|crc|pause|lost|miss|timeout|overflow|overrun|underflow|fifo|no_|out_of|retrans|nack|cnp|ecn)"
    r"|(?:dropped|errors|errs|pause\w*|overflow|pauseframes)(?:$|_)|_drops?(?:$|_)"
)
"""Names of counters that a sound port leaves at 0, or lets grow only under congestion."""
_MOST_COUNTERS = 8


def _read_ethtool(text: str) -> Iterator[str]:
    for speed in dict.fromkeys(_SPEED.findall(text)):
        yield f"the link is at {int(speed) / 1000:g} Gb/s"
    if re.search(r"Link detected: no", text):
        yield "no link is detected"
    counts: Counter[str] = Counter()
    for name, value in _COUNTER.findall(text):
        counts[name] += int(value)
    bad = Counter({name: value for name, value in counts.items() if _OF_LOSS.search(name)})
    if shown := [f"{name} {value}" for name, value in bad.most_common(_MOST_COUNTERS) if value]:
        yield f"counters of errors, losses and pauses above 0, since the driver was loaded: {format_list(shown)}"
    elif bad:
        yield f"none of the {format_count(len(bad), 'counter')} of errors, losses and pauses in the text is above 0"


_LOADED = re.compile(r"(?m)^\s*0{3,5}\s{1,8}([\d.]{1,10})\s{1,8}([\d.]{3,12})\s*$")
_MLC_PEAK = re.compile(r"(?m)^\s*(ALL Reads|Stream-triad like)\s{0,8}:\s{0,8}([\d.]{3,12})")


def _read_mlc(text: str) -> Iterator[str]:
    for name, rate in _MLC_PEAK.findall(text)[:2]:
        yield f"{name}: {float(rate) / 1e3:.1f} GB/s"
    if found := _LOADED.search(text):
        yield f"loaded without a delay: {float(found[2]) / 1e3:.1f} GB/s at {float(found[1]):g} ns"


_STORAGE = re.compile(r"(?m)^\s*([A-Z][\w /]{2,24}?)\s*: ?(Supported|Unsupported)\s*$")
_COMPATIBLE = re.compile(r"properties\.(?:use|allow)_compat_mode\s*: ?(true|false)")


def _read_gdscheck(text: str) -> Iterator[str]:
    found = _STORAGE.findall(text)
    if found:
        can = [name for name, word in found if word == "Supported"]
        rest = f"{len(found) - len(can)} of {len(found)}"
        yield f"supported: {format_list(can) if can else 'nothing'}; not supported: {rest}"
    if mode := _COMPATIBLE.search(text):
        does = "may fall back to host memory without an error" if mode[1] == "true" else "fails instead of falling back"
        yield f"compatibility mode {mode[1]}: cuFile {does}"


_AGENT = re.compile(r"(?m)^\s*(?:Marketing Name|model name|Model name)\s{0,24}:\s{0,40}(\S.{1,60}?)\s*$")


def _read_agents(text: str) -> Iterator[str]:
    if names := list(dict.fromkeys(_AGENT.findall(text))):
        yield format_list(names[:_MOST])


_PROTOCOL = re.compile(
    r"\|\s{0,20}(\d{1,19}\.\.(?:\d{1,19}|inf))\s{0,20}\|\s?(.{3,80}?)\s{0,80}\|\s?(\S.{0,60}?)\s{0,60}\|"
)


def _read_protocols(text: str) -> Iterator[str]:
    for sizes, protocol, transport in dict.fromkeys(_PROTOCOL.findall(text)):
        yield f"{sizes} bytes: {protocol.strip()}, {transport}"


_METRIC = re.compile(
    r"((?:Training )?(?:Accelerator Utilization \[AU\]|I/O Throughput|Throughput) \([^)\n]{1,20}\)): ?([\d.]{1,16})"
)
_EXPECTED = re.compile(r"_meet_expectation: (\w{2,12})")
_REJECTED = re.compile(r"\|ERROR: (.{1,300})")


def _read_mlperf_storage(text: str) -> Iterator[str]:
    for reason in dict.fromkeys(_REJECTED.findall(text)):
        yield f"error: {reason.strip()}"
    if found := dict(_METRIC.findall(text)):
        yield format_list([f"{name} {value}" for name, value in found.items()][:_MOST])
    for verdict in dict.fromkeys(_EXPECTED.findall(text)):
        yield f"it says whether the utilization is enough: {verdict}"


_POOL_LINE = re.compile(
    r"(?m)^\s{0,16}(\S{1,90})\s{1,90}(ONLINE|DEGRADED|FAULTED|UNAVAIL|OFFLINE)\s{1,9}(\d\S{0,9})\s{1,9}(\d\S{0,9})"
    r"\s{1,9}(\d\S{0,9})"
)


def _read_zpool(text: str) -> Iterator[str]:
    found = _POOL_LINE.findall(text)
    bad = [f"{name} {state}, errors {' '.join(counts)}" for name, state, *counts in found
           if state != "ONLINE" or set(counts) != {"0"}]  # fmt: skip
    if found:
        yield format_list(bad[:_MOST]) if bad else f"all {len(found)} entries are ONLINE, without errors"


_GID = re.compile(r"(?m)^\s*(\S{2,32})\s+(\d{1,2})\s+(\d{1,4})\s+[0-9a-f:]{39}\s+(?:[\d.]{7,15}\s+)?(v[12])\b")
_GID_CHOSEN = re.compile(r"NCCL_IB_GID_INDEX=(\d{1,4})\b")


def _read_gids(text: str) -> Iterator[str]:
    entries = _GID.findall(text)
    for index in dict.fromkeys(_GID_CHOSEN.findall(text)):
        for version in dict.fromkeys(version for *_, at, version in entries if at == index):
            nics = dict.fromkeys(nic for nic, _, at, found in entries if (at, found) == (index, version))
            warns = ", which stays inside one Ethernet segment" if version == "v1" else ""
            yield f"NCCL_IB_GID_INDEX={index} is RoCE {version} on {format_list(list(nics)[:_MOST])}{warns}"


_FINDERS: dict[str, Callable[[str], Iterator[str]]] = {
    "dcgmi": _read_dcgm,
    "iblinkinfo": _read_iblinkinfo,
    "lspci": _read_lspci,
    "nvidia-smi topo -p2p": _read_peers,
    "nvidia-smi nvlink": _read_nvlink,
    "ibstat": _read_ibstat,
    "ethtool": _read_ethtool,
    "gdscheck": _read_gdscheck,
    "UCX's protocols": _read_protocols,
    "Intel Memory Latency Checker": _read_mlc,
    "a description of the host": _read_agents,
    "show_gids": _read_gids,
    "MLPerf Storage": _read_mlperf_storage,
    "zpool": _read_zpool,
    "k8s-netperf": find_netperf_rows,
    **{report.tool: report.find for report in (*REPORTS, *LISTINGS) if report.find is not None},
}
