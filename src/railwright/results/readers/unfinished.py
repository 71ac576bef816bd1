"""The output of a known tool without a result: of the side that prints none, or of a run that ended before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from railwright.results.readers.nccl_tests.text import PARAMETERS, RANK_LINE, find_operation
from railwright.results.readers.pasted.log_lines import Line, split_lines
from railwright.units import format_count, format_list, format_size

_ENDED = "it ended, hangs, or the text was cut there"
_RUN_TO_END = "run it again to its end and give the whole output; NCCL_DEBUG=INFO shows where it stops"


class Unfinished(NamedTuple):
    """The part of a tool's output that precedes its results."""

    tool: str
    says: tuple[str, ...]
    """The reason why there is no result, then what the output tells."""
    remedy: str


def find_unfinished(text: str) -> tuple[Unfinished, ...]:
    """Return the known tools that began in the text. The caller knows that none of their results is in it."""
    lines = split_lines(text)
    found = [unfinished for mark, describe in _TOOLS if mark.search(text) for unfinished in describe(text, lines)]
    return tuple(found) or tuple(_find_starts(lines))


def _describe_nccl_tests(_text: str, lines: list[Line]) -> Iterator[Unfinished]:
    words = [f"# {line.text.strip().lstrip('# ')}" for line in lines]  # markdown takes the sign for a heading's
    devices = [found for line in words if (found := RANK_LINE.match(line))]
    parameters = next((found for line in words if (found := PARAMETERS.match(line))), None)
    if not devices and parameters is None:
        return
    operation = find_operation(lines)
    hosts = dict.fromkeys(found[4] for found in devices)
    gpus = dict.fromkeys(found[5].strip() for found in devices if found[5].strip())
    says = [f"the text has the header of {f'the {operation}' if operation else 'a'} run and no row: {_ENDED}"]
    if devices:
        on = f"{format_count(len(devices), 'rank')} on {format_count(len(hosts), 'host')}"
        says.append(f"{on}{f', {format_list(list(gpus)[:4])}' if gpus else ''}")
    if parameters is not None:
        first, last = (format_size(int(parameters[name])) for name in ("first_size_bytes", "last_size_bytes"))
        says.append(f"sizes from {first} to {last} were asked for")
    yield Unfinished(f"nccl-tests {operation}".rstrip(), tuple(says), _RUN_TO_END)


_PERFTEST_TITLE = re.compile(
    r"(Send|RDMA_Write|RDMA_Read|Atomic)\S{0,12}(?: FETCH_AND_ADD| CMP_AND_SWAP)?(?: Bidirectional)?(?: Post List)?"
    r" (BW|Latency)\b.{0,24} Test"
)
_PERFTEST_VERB = {"Send": "send", "RDMA_Write": "write", "RDMA_Read": "read", "Atomic": "atomic"}
_PERFTEST_GPU = re.compile(r"device name = \[(.{1,60}?)\]|--use_(?:cuda|rocm)\b|\bcuMemAlloc\(\)")
_PERFTEST_SETTING = re.compile(r"(Device|Number of qps|Mtu|Link type)\s{0,16}: ?(\w{1,32})")


def _describe_perftest(text: str, _lines: list[Line]) -> Iterator[Unfinished]:
    title = _PERFTEST_TITLE.search(text)
    if title is None:
        return
    program = f"ib_{_PERFTEST_VERB[title[1]]}_{'bw' if title[2] == 'BW' else 'lat'}"
    settings = dict(_PERFTEST_SETTING.findall(text))
    is_server, has_peer = "Waiting for client" in text, "remote address" in text
    says = [f"{f'the server side of {program}' if is_server else program}, without a row: {_ENDED}"]
    if not has_peer:
        says.append("no remote address is in the text: it was cut, or the client died before it connected")
    links = {"Ethernet": "RoCE", "IB": "InfiniBand", "InfiniBand": "InfiniBand"}
    facts = [settings["Device"]] if "Device" in settings else []
    facts += [links.get(settings.get("Link type", ""), "")]
    facts += [f"MTU {settings['Mtu']}"] if "Mtu" in settings else []
    facts += [format_count(int(settings["Number of qps"]), "QP")] if settings.get("Number of qps", "").isdigit() else []
    gpu = _PERFTEST_GPU.search(text)
    facts += [f"GPU memory{f' of {gpu[1]}' if gpu[1] else ''}"] if gpu else []
    says += [", ".join(filter(None, facts))] if any(facts) else []
    one_way = title[1] != "Atomic" and title[2] == "BW"
    side = "perftest prints the result of a one-way test on the client: " if one_way and is_server else ""
    yield Unfinished("perftest", tuple(says), f"{side}give the output of the client ({program} ... SERVER), to its end")


_UCX_BOX = re.compile(r"\| (API|Test|Send memory|Recv memory|Message size):\s{1,20}(\S.{0,80}?)\s{1,100}\|")


def _describe_ucx_perftest(text: str, _lines: list[Line]) -> Iterator[Unfinished]:
    box = dict(_UCX_BOX.findall(text))
    if "Test" not in box:
        return
    is_server = "Waiting for connection" in text or "Accepted connection" in text
    side = "the server side of ucx_perftest, without a row" if is_server else f"ucx_perftest without a row: {_ENDED}"
    memory = f", {box.get('Send memory', '?')} to {box.get('Recv memory', '?')}" if "Send memory" in box else ""
    size = f", messages of {box['Message size']} bytes" if "Message size" in box else ""
    says = (side, f"{box['Test']}{memory}{size}")
    remedy = "the client prints the results: give the output of ucx_perftest SERVER ..., to its line Final"
    yield Unfinished("ucx_perftest", says, remedy)


_OSU_TITLE = re.compile(r"# ?(OSU \S.{2,80} Test\b.{0,20})")


def _describe_osu(_text: str, lines: list[Line]) -> Iterator[Unfinished]:
    title = next((found[1] for line in lines if (found := _OSU_TITLE.match(line.text.strip()))), "")
    if title:
        yield Unfinished(
            "OSU", (f"the title of {title} and no row: {_ENDED}",), "run it again to its end, with all ranks"
        )


_PEER_DEVICE = re.compile(r"(?m)^Device: (\d{1,3}), (\S.{0,50}?), pciBusID")
_PEER_ACCESS = re.compile(r"(?m)^Device=(\d{1,3}) (CAN|CANNOT) Access Peer Device=(\d{1,3})[ \t]*$")


def _describe_peer_test(text: str, _lines: list[Line]) -> Iterator[Unfinished]:
    models = Counter(model for _, model in _PEER_DEVICE.findall(text))
    pairs = _PEER_ACCESS.findall(text)
    says = [f"p2pBandwidthLatencyTest began, and no result is in the text: {_ENDED}"]
    says += [format_list([f"{count} {model}" for model, count in models.most_common(_MOST_FACTS)])] if models else []
    can = sorted({tuple(sorted((int(first), int(second)))) for first, word, second in pairs if word == "CAN"})
    without = sum(word == "CANNOT" for _, word, _ in pairs)
    if pairs and not without:
        says.append(f"peer access: all {len(pairs)} pairs and directions in the text")
    elif pairs:
        shown = format_list([f"{first}-{second}" for first, second in can[:_MOST_FACTS]]) if can else "none"
        says.append(f"peer access: {len(pairs) - without} of {len(pairs)} pairs and directions, between GPUs {shown}")
    yield Unfinished("p2pBandwidthLatencyTest", tuple(says), "give it with its matrices")


_LISTED_TEST = re.compile(r"(?m)^\s{0,8}\d{1,3}, (\w{3,60}):\s*$")


def _describe_nvbandwidth_list(text: str, _lines: list[Line]) -> Iterator[Unfinished]:
    names = _LISTED_TEST.findall(text)
    says = (f"the list of {format_count(len(names), 'test')} that nvbandwidth has, and no run of one",)
    if names:
        yield Unfinished("nvbandwidth -l", says, f"nvbandwidth -t {names[0]}: give the output with its matrices")


_TOOLS: tuple[tuple[re.Pattern[str], Callable[[str, list[Line]], Iterator[Unfinished]]], ...] = (
    (re.compile(r"\bRank +\d+ .{0,60}Pid|\bnThread \d|_perf\b.{0,200}\n#"), _describe_nccl_tests),
    (re.compile(r"(?:BW|Latency)\b.{0,24} Test"), _describe_perftest),
    (re.compile(r"\| Test: "), _describe_ucx_perftest),
    (re.compile(r"# ?OSU "), _describe_osu),
    (re.compile(r"\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]"), _describe_peer_test),
    (re.compile(r"(?m)^\s*Index, Name:"), _describe_nvbandwidth_list),
)
_STARTS = (
    ("iperf3", r"Server listening on (?:TCP )?(?:port )?\d+|Connecting to host \S+, port", "give the client's output"),
    ("nvbandwidth", r"^nvbandwidth Version", "give the output with its matrices"),
    (
        "rocm_bandwidth_test",
        r"RocmBandwidthTest Version",
        "give it to its matrices of copy peak bandwidth, for which -a is enough",
    ),
    (
        "nccl-tests",
        r"# Avg bus bandwidth\s|# Out of bounds values\s",
        "give its rows: the average mixes all sizes and tells nothing of one",
    ),
    ("bandwidthTest", r"\[CUDA Bandwidth Test\]", "give it with its transfers"),
    ("fio", r"^fio-\d|: \(g=\d+\): rw=|^Jobs: \d+ \(f=", "give the output to 'Run status group'"),
    (
        "HPCG",
        r"HPCG result is|^Final Summary::|HPCG-Benchmark",
        "give the file HPCG-Benchmark_*.txt that the run wrote",
    ),
    ("HPL", r"HPLinpack \d|^T/V +N +NB", "give the output to the line with Gflops"),
    ("STREAM", r"STREAM version", "give the output to 'Triad'"),
    ("IMB", r"Intel\(R\) MPI Benchmarks|# Benchmarking ", "give the output with the rows of a benchmark"),
    ("nixlbench", r"NIXLBench Configuration|\bnixlbench\s+-|^Block Size \(B\)", "give the output to its table"),
    ("IOR", r"^IOR-\d", "give the output to 'Max Write'"),
    ("elbencho", r"^OPERATION +RESULT TYPE", "give the output with its phases"),
)
"""The first lines of other tools, and the part of the output that has the results."""


_FACTS = {
    "nccl-tests": r"(Avg bus bandwidth) {0,12}: ([\d.]{1,12})",
    "HPL": r"^(N|NB|P|Q) {1,8}: {1,8}(\d[\d ]{0,60}?) *$",
    "fio": r"^(Jobs: \d+) .{0,60}?\]((?:\[[rwt]=[^\]\n]{1,40}\]){1,6})",
    "nixlbench": r"(backend|initiator_seg_type|target_seg_type|op_type)(?:[= ]|=\[.{1,90}?\]\) {0,60}: )"
    r"([A-Z]\w{1,20})\b",
    "STREAM": r"(Array size|Number of Threads requested) = (\d+)",
}
"""The settings that a tool prints before its results."""
_MOST_FACTS = 8


def _find_starts(lines: list[Line]) -> Iterator[Unfinished]:
    begins = [line.text[:300] for line in lines]
    for tool, mark, remedy in _STARTS:
        if any(map(re.compile(mark).search, begins)):
            says = f"{tool} began, and no result is in the text: {_ENDED}"
            facts = re.compile(_FACTS.get(tool, r"(?!)"))
            found = dict(pair for line in lines for pair in facts.findall(line.text[:600]))
            told = ", ".join(f"{name} {value}" for name, value in list(found.items())[:_MOST_FACTS])
            yield Unfinished(tool, (says, told) if told else (says,), remedy)
