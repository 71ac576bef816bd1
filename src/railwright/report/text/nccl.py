"""NCCL's log as a page of text: rings and trees, connections, chosen algorithms, and contradictions."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from railwright.checks.finding import Finding
from railwright.diagnosis.nccl.warnings import QUOTED, is_warning
from railwright.groups import group_by_key
from railwright.report.text.findings import finding_lines
from railwright.report.text.wording import ABSENT, escape, join_first
from railwright.results.readers.nccl_log.model import Communicator, NcclLog, Ring
from railwright.results.readers.nccl_log.summary import Hop, Shape, SizeRange, algorithms, shapes, traffic, transports
from railwright.topology.cpu_list import format_cpu_list
from railwright.topology.devices import Topology
from railwright.units import format_bandwidth, format_count, format_size

_MAX_LISTED = 8
_MAX_FAILURES = 8
_MAX_CONTRADICTIONS = 100
_MAX_RANKS = 64
_LABEL = 12
_WIDTH = 120
_SUBSYSTEM = {"coll": "collective", "p2p": "send and receive", "nvls": "NVLS"}


def render_nccl_log(log: NcclLog, findings: Sequence[Finding], topology: Topology | None) -> str:
    """Render the page, with the control characters of the log escaped."""
    warnings = [finding for finding in findings if is_warning(finding)]
    failures = [finding for finding in warnings if finding.certainty == "seen"]
    hints = [finding for finding in warnings if finding.certainty != "seen"]
    lines = [*failure_lines(failures), "NCCL log", "", *_head(log)]
    if hints:
        undecided = any(finding.fault == QUOTED for finding in hints)
        title = "Other warnings" if undecided else "Warnings that did not end the run"
        lines += (title, *(f"  {line}".rstrip() for line in failure_lines(hints)))
    if log.communicators:
        lines += (*_built_lines(log.main), *_connection_lines(log.main))
    others = [finding for finding in findings if not is_warning(finding)]
    return "\n".join([*lines, *_choice_lines(log), *_contradiction_lines(others, topology)]) + "\n"


def failure_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield what failed, with its line and the next step, as the first lines of a page."""
    for finding in findings[:_MAX_FAILURES]:
        yield from _wrap(escape(finding.says), 2)
        for seen in finding.evidence:
            yield from _wrap(f"  seen    {escape(f'{seen.seen}: {seen.value}')}", 10)
        yield from _wrap(f"  next    {escape(finding.remedy)}", 10)
    if len(findings) > _MAX_FAILURES:
        yield f"and {len(findings) - _MAX_FAILURES} more warnings: --json prints all"
    if findings:
        yield ""


def _wrap(line: str, hang: int) -> list[str]:
    """Wrap a line with a hanging indent. A single long word is not broken."""
    indent = " " * hang
    return textwrap.wrap(line, _WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def channel_words(channels: Iterable[int]) -> str:
    """Format channels like `0-3, 8`."""
    return format_cpu_list(channels).replace(",", ", ")


def order_words(ring: Ring, hosts: dict[int, str]) -> str:
    """Format a ring's ranks in order, with `|` where the host changes."""
    shown = ring.ranks[:_MAX_RANKS]
    words: list[str] = []
    for place, rank in enumerate(shown):
        before = hosts.get(shown[place - 1]) if place else hosts.get(rank)
        words += ["|"] if place and hosts.get(rank) != before else []
        words.append(str(rank))
    more = len(ring.ranks) - len(shown)
    return " ".join(words) + (f" ... {more} more" if more else "" if ring.whole else " ... (cut)")


def _row(label: str, words: str) -> str:
    return "\n".join(_wrap(f"  {label:<{_LABEL}}{escape(words)}".rstrip(), 2 + _LABEL))


def _rows(label: str, items: Sequence[str], rest: str = "... {} more") -> Iterator[str]:
    """Yield an item per line, and count those beyond the limit."""
    for item in items[:_MAX_LISTED]:
        yield _row(label, item)
        label = ""
    if len(items) > _MAX_LISTED:
        yield _row("", rest.format(len(items) - _MAX_LISTED))


def _head(log: NcclLog) -> Iterator[str]:
    versions = dict.fromkeys(f"{entry.nccl}{f' (CUDA {entry.cuda})' if entry.cuda else ''}" for entry in log.versions)
    driver = f", driver for CUDA {log.driver // 1000}.{log.driver % 1000 // 10}" if log.driver else ""
    yield _row("version", (", ".join(versions) or "not logged") + driver)
    if log.communicators:
        yield from _ranks(log)
    used = dict.fromkeys(entry.name for entry in log.networks if entry.state == "used")
    plugins = dict.fromkeys(entry.says for entry in log.networks if entry.state == "plugin")
    words = ", ".join(used) or "not logged"
    yield _row("network", words + (f" (provider {', '.join(plugins)})" if plugins else ""))
    nics = group_by_key(log.nics, lambda nic: nic.host)
    listed = (
        (", ".join(f"{entry.index} {entry.name} {entry.link}".rstrip() for entry in entries), host)
        for host, entries in nics
    )
    yield from _rows("NICs", _merge_hosts(listed))
    yield from _rows("torn", [f"line {line}, read as {fact}" for line, fact in log.torn.items()])
    yield from _rows("settings", _merge_hosts((f"{entry.name}={entry.value}", entry.host) for entry in log.settings))
    yield ""


def _ranks(log: NcclLog) -> Iterator[str]:
    main = log.main
    hosts = main.nodes or len(main.hosts)
    sure = main.nodes or len(main.ranks) == main.size
    on_hosts = f"{'' if sure else 'at least '}{format_count(hosts, 'host')}" if hosts else "hosts not logged"
    words = f"{format_count(main.size, 'rank')} on {on_hosts}"
    if len(main.ranks) < main.size:
        words += f", {len(main.ranks)} of them in the log"
    if len(log.communicators) > 1:
        words += f"; the largest of {len(log.communicators)} communicators"
    yield _row("ranks", words)
    hosts_listed = []
    for host, ranks in group_by_key(main.ranks, lambda rank: rank.host or "not logged"):
        hosts_listed.append(
            f"{host}: {'rank' if len(ranks) == 1 else 'ranks'} {channel_words(rank.rank for rank in ranks)}"
        )
    yield from _rows("hosts", hosts_listed)


def _merge_hosts(items: Iterable[tuple[str, str]]) -> list[str]:
    """Merge equal items of several hosts, with the names of up to three hosts."""
    rows = []
    for words, pairs in group_by_key(items, lambda pair: pair[0]):
        hosts = [host for host in dict.fromkeys(host for _, host in pairs) if host]
        rows.append(f"{words}  on {join_first(hosts, 3)}" if hosts else words)
    return rows


def _built_lines(main: Communicator) -> Iterator[str]:
    hosts = {item.rank: item.host for item in main.ranks if item.host}
    yield "Built"
    if main.counts is not None:
        use = {"coll": main.counts.collective, "nvls": main.counts.nvls, "p2p": main.counts.p2p}
        words = ", ".join(f"{number} {_SUBSYSTEM[key]}" for key, number in use.items() if number is not None)
        yield _row("channels", words)
    search = next((item for item in main.searches if item.pattern == 4), None)
    if search is not None:
        words = f"{format_count(search.channels, 'ring')} of {format_bandwidth(search.intra_bytes_per_s)}"
        words += f" over {search.intra_kind} inside"
        if main.nodes != 1:
            words += f", {format_bandwidth(search.inter_bytes_per_s)} over {search.inter_kind} to the NICs"
        yield _row("search", f"{words} (NCCL's planning)")
    found = shapes(main)
    for shape in found[:_MAX_LISTED]:
        yield from _shape(shape, hosts)
    if len(found) > _MAX_LISTED:
        yield _row("", f"... {format_count(len(found) - _MAX_LISTED, 'more distinct ring')}")
    yield from _trees(main)
    yield from _rows("NVLS heads", [" ".join(map(str, item)) for item in main.nvls_heads])
    yield ""


def _shape(shape: Shape, hosts: dict[int, str]) -> Iterator[str]:
    order = order_words(shape.ring, hosts)
    yield _row("ring", f"x{len(shape.channels):<3} {order}   (channels {channel_words(shape.channels)})")
    inside = [hop.label for hop in shape.hops if not _crosses_network(hop)]
    if inside:
        counted = [f"{label} x{number}" for label, number in Counter(inside).items() if label != "?"]
        counted += [f"{inside.count('?')} not logged"] if "?" in inside else []
        yield _row("", f"     inside: {', '.join(counted)}")
    crossing = [
        f"     {hop.source} → {hop.target}: {hop.label}{_gdr_words(hop)}" for hop in shape.hops if _crosses_network(hop)
    ]
    yield from _rows("", crossing, "     ... {} more over the network")


def _crosses_network(hop: Hop) -> bool:
    return any(side is not None and side.transport == "NET" for side in (hop.send, hop.receive))


def _gdr_words(hop: Hop) -> str:
    sides = [("send", hop.send), ("receive", hop.receive)]
    direct = [name for name, side in sides if side is not None and side.gdr]
    return f", GPUDirect RDMA {' and '.join(direct)}" if direct else ", no GPUDirect RDMA"


def _trees(main: Communicator) -> Iterator[str]:
    by_channel = group_by_key(main.trees, lambda node: node.channel)
    alike = group_by_key(by_channel, lambda tree: tuple((node.rank, node.up) for node in tree[1]))
    for pairs, trees in list(alike)[:_MAX_LISTED]:
        roots = ", ".join(str(rank) for rank, up in pairs if up < 0) or ABSENT
        words = f"root {roots}, depth {_depth(dict(pairs))}"
        if len(pairs) != main.size:
            words = f"{len(pairs)} of {main.size} ranks logged"
        yield _row("tree", f"x{len(trees):<3} {words}   (channels {channel_words(channel for channel, _ in trees)})")


def _depth(parents: dict[int, int]) -> int:
    """Return the steps from the root to the farthest rank; an invalid loop ends at the number of ranks."""
    steps: dict[int, int] = {}
    for start in parents:
        path: list[int] = []
        here = start
        while here in parents and here not in steps and len(path) <= len(parents):
            path.append(here)
            here = parents[here]
        base = steps.get(here, -1)
        for place, rank in enumerate(reversed(path)):
            steps[rank] = base + place + 1
    return max(steps.values(), default=0)


def _connection_lines(main: Communicator) -> Iterator[str]:
    yield "Connections"
    words = ", ".join(f"{name} x{number}" for name, number in transports(main))
    yield _row("transports", words or "none logged")
    proxied = [item for item in main.connections if item.proxy is not None]
    if proxied:
        proxies = channel_words({item.proxy for item in proxied if item.proxy is not None})
        yield _row("PXN", f"{format_count(len(proxied), 'send')} through the NIC of another rank: {proxies}")
    elif main.pxn is not None:
        yield _row("PXN", "allowed, no ring uses it" if main.pxn else "rings do not use it")
    items = [
        f"{item.host or 'host'} {item.network} NIC {item.nic} {item.direction:<7} {item.connections:>3},"
        f" GPUDirect RDMA {item.gdr}{f', for other ranks {item.proxied}' if item.proxied else ''}"
        for item in traffic(main)
    ]
    yield from _rows("NICs used", items)
    yield ""


def _choice_lines(log: NcclLog) -> Iterator[str]:
    ranges = algorithms(log)
    if ranges:
        yield "Chosen by size"
        yield from (_range(item) for item in ranges[: 4 * _MAX_LISTED])
        yield ""
    best = [item for item in log.tuning if item.operation == "AllReduce" and item.bandwidth_bytes_per_s > 0]
    if best:
        yield "NCCL's own estimates for AllReduce (latency, algbw)"
        for item in best:
            name, latency = f"{item.algorithm} {item.protocol}", f"{item.latency_s * 1e6:.1f} us"
            yield _row("", f"{name:<20}{latency:>9}  {format_bandwidth(item.bandwidth_bytes_per_s):>10}")
        yield ""


def _range(sizes_range: SizeRange) -> str:
    sizes = format_size(sizes_range.first_bytes)
    if sizes_range.last_bytes != sizes_range.first_bytes:
        sizes += f" to {format_size(sizes_range.last_bytes)}"
    channels = f", {format_count(sizes_range.channels, 'channel')}" if sizes_range.channels else ""
    return _row(
        sizes_range.operation[: _LABEL - 1],
        f"{sizes:<22}{sizes_range.algorithm} {sizes_range.protocol}{channels}  x{sizes_range.times}",
    )


def _contradiction_lines(findings: Sequence[Finding], topology: Topology | None) -> Iterator[str]:
    real = [finding for finding in findings if finding.certainty != "could not look"]
    blind = [finding for finding in findings if finding.certainty == "could not look"]
    machine = f"compared with {topology.name}" if topology else "no machine given: only the log's own tables"
    yield f"Contradictions ({escape(machine)})"
    for finding in real[:_MAX_CONTRADICTIONS]:
        for line in finding_lines(finding):
            yield from _wrap(f"  {line}", 12 if line.startswith(" ") else 4)
    if len(real) > _MAX_CONTRADICTIONS:
        yield f"  and {len(real) - _MAX_CONTRADICTIONS} more: --json prints all"
    if not real:
        yield "  none found"
    if blind:
        yield ""
        yield "Could not look"
        for finding in blind:
            yield from _wrap(f"  {escape(finding.fault)}: {escape(finding.says)}", 4)
        for remedy in dict.fromkeys(finding.remedy for finding in blind):
            yield from _wrap(f"  next: {escape(remedy)}", 8)
