"""NCCL's log as a page of text: what was built, what it uses, what was chosen, and what contradicts what."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from railwright.faults.model import Finding
from railwright.report.findings_text import finding_lines
from railwright.report.wording import ABSENT, count, visible
from railwright.results.readers.nccl_log_model import Communicator, NcclLog, Ring, Search, TreeNode
from railwright.results.readers.nccl_log_summary import Hop, Shape, SizeRange, algorithms, shapes, traffic, transports
from railwright.topology.model import Topology
from railwright.units import format_bandwidth, format_size

_MAX_LISTED = 8
_MAX_RANKS = 64
_LABEL = 12
_WIDTH = 120
_SUBSYSTEM = {"coll": "collective", "p2p": "send and receive", "nvls": "NVLS"}


def render_nccl_log(log: NcclLog, findings: Sequence[Finding], topology: Topology | None) -> str:
    """The page. All text of the log is shown with its control characters as escapes."""
    lines = ["NCCL log", ""]
    lines += _head(log)
    for communicator in log.communicators[:1]:
        lines += _built(communicator)
        lines += _used(communicator)
    lines += _chosen(log)
    lines += _found(findings, topology)
    return "\n".join(lines) + "\n"


def _folded(line: str, hang: int) -> Iterator[str]:
    """A line that fits, and what does not fit below it; only a single word may be longer."""
    if len(line) <= _WIDTH:
        yield line
        return
    yield from textwrap.wrap(
        line, _WIDTH, subsequent_indent=" " * hang, break_on_hyphens=False, break_long_words=False
    )  # fmt: skip


def channel_words(channels: Iterable[int]) -> str:
    """`0-3, 8`."""
    spans: list[list[int]] = []
    for channel in sorted(channels):
        if spans and channel == spans[-1][1] + 1:
            spans[-1][1] = channel
        else:
            spans.append([channel, channel])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def order_words(ring: Ring, hosts: dict[int, str]) -> str:
    """A ring's ranks, with `|` where the host changes."""
    shown = ring.ranks[:_MAX_RANKS]
    words: list[str] = []
    for place, rank in enumerate(shown):
        before = hosts.get(shown[place - 1]) if place else hosts.get(rank)
        words += ["|"] if place and hosts.get(rank) != before else []
        words.append(str(rank))
    more = len(ring.ranks) - len(shown)
    return " ".join(words) + (f" ... {more} more" if more else "" if ring.whole else " ... (cut)")


def _row(label: str, words: str) -> str:
    return "\n".join(_folded(f"  {label:<{_LABEL}}{visible(words)}".rstrip(), 2 + _LABEL))


def _rows(label: str, items: Sequence[str]) -> Iterator[str]:
    """One item a line; what is too much is counted."""
    for place, item in enumerate(items[:_MAX_LISTED]):
        yield _row(label if place == 0 else "", item)
    if len(items) > _MAX_LISTED:
        yield _row("", f"... {len(items) - _MAX_LISTED} more")


def _head(log: NcclLog) -> Iterator[str]:
    versions = dict.fromkeys(f"{one.nccl}{f' (CUDA {one.cuda})' if one.cuda else ''}" for one in log.versions)
    driver = f", driver for CUDA {log.driver // 1000}.{log.driver % 1000 // 10}" if log.driver else ""
    yield _row("version", (", ".join(versions) or "not logged") + driver)
    if log.communicators:
        main = log.main
        hosts = main.nodes or len(main.hosts)
        sure = main.nodes or len(main.ranks) == main.size
        on_hosts = f"{'' if sure else 'at least '}{count(hosts, 'host')}" if hosts else "hosts not logged"
        words = f"{count(main.size, 'rank')} on {on_hosts}"
        if len(main.ranks) < main.size:
            words += f", {len(main.ranks)} of them in the log"
        if len(log.communicators) > 1:
            words += f"; the largest of {len(log.communicators)} communicators"
        yield _row("ranks", words)
        on: dict[str, list[int]] = {}
        for rank in main.ranks:
            on.setdefault(rank.host or "not logged", []).append(rank.rank)
        told = [f"{host}: {'rank' if len(one) == 1 else 'ranks'} {channel_words(one)}" for host, one in on.items()]
        yield from _rows("hosts", told)
    used = dict.fromkeys(one.name for one in log.networks if one.state == "used")
    plugins = dict.fromkeys(one.says for one in log.networks if one.state == "plugin")
    words = ", ".join(used) or "not logged"
    yield _row("network", words + (f" (provider {', '.join(plugins)})" if plugins else ""))
    listed: dict[str, list[str]] = {}
    for nic in log.nics:
        listed.setdefault(nic.host, []).append(f"{nic.index} {nic.name}{f' {nic.link}' if nic.link else ''}")
    nics: dict[tuple[str, ...], list[str]] = {}
    for host, names in listed.items():
        nics.setdefault(tuple(names), []).append(host)
    yield from _rows("NICs", [f"{', '.join(names)}{_on(hosts)}" for names, hosts in nics.items()])
    settings: dict[str, list[str]] = {}
    for one in log.settings:
        settings.setdefault(f"{one.name}={one.value}", []).append(one.host)
    yield from _rows("settings", [f"{name}{_on(list(dict.fromkeys(hosts)))}" for name, hosts in settings.items()])
    yield ""


def _on(hosts: Sequence[str]) -> str:
    named = [host for host in hosts if host]
    if not named:
        return ""
    return f"  on {', '.join(named[:3])}{f' and {len(named) - 3} more' if len(named) > 3 else ''}"


def _built(main: Communicator) -> Iterator[str]:
    hosts = {one.rank: one.host for one in main.ranks if one.host}
    yield "Built"
    if main.counts is not None:
        use = {"coll": main.counts.collective, "nvls": main.counts.nvls, "p2p": main.counts.p2p}
        words = ", ".join(f"{number} {_SUBSYSTEM[key]}" for key, number in use.items() if number is not None)
        yield _row("channels", words)
    ring_search = [one for one in main.searches if one.pattern == 4]
    if ring_search:
        one = ring_search[0]
        yield _row(
            "search",
            f"{count(one.channels, 'ring')} of {format_bandwidth(one.intra_bytes_per_s)} over {one.intra_kind} inside"
            f"{'' if (main.nodes or 2) < 2 else _between(one)} (NCCL's planning)",
        )
    found = shapes(main)
    for shape in found[:_MAX_LISTED]:
        yield from _shape(shape, hosts)
    if len(found) > _MAX_LISTED:
        yield _row("", f"... {len(found) - _MAX_LISTED} more different rings")
    yield from _trees(main)
    heads = [" ".join(str(rank) for rank in one) for one in main.nvls_heads]
    yield from _rows("NVLS heads", heads)
    yield ""


def _between(one: Search) -> str:
    return f", {format_bandwidth(one.inter_bytes_per_s)} over {one.inter_kind} to the NICs"


def _shape(shape: Shape, hosts: dict[int, str]) -> Iterator[str]:
    order = order_words(shape.ring, hosts)
    yield _row("ring", f"x{len(shape.channels):<3} {order}   (channels {channel_words(shape.channels)})")
    inside = [hop for hop in shape.hops if not _networked(hop)]
    if inside:
        yield _row("", f"     inside: {_counted([hop.label for hop in inside])}")
    crossing = [hop for hop in shape.hops if _networked(hop)]
    for hop in crossing[:_MAX_LISTED]:
        yield _row("", f"     {hop.source} → {hop.target}: {hop.label}{_gdr(hop)}")
    if len(crossing) > _MAX_LISTED:
        yield _row("", f"     ... {len(crossing) - _MAX_LISTED} more over the network")


def _networked(hop: Hop) -> bool:
    return any(side is not None and side.transport == "NET" for side in (hop.send, hop.receive))


def _gdr(hop: Hop) -> str:
    sides = [("send", hop.send), ("receive", hop.receive)]
    direct = [name for name, side in sides if side is not None and side.gdr]
    return f", GPUDirect RDMA {' and '.join(direct)}" if direct else ", no GPUDirect RDMA"


def _counted(words: Sequence[str]) -> str:
    known = dict.fromkeys(word for word in words if word != "?")
    told = [f"{word} x{words.count(word)}" for word in known]
    unknown = words.count("?")
    return ", ".join(told + ([f"{unknown} not logged"] if unknown else []))


def _trees(main: Communicator) -> Iterator[str]:
    by_channel: dict[int, list[TreeNode]] = {}
    for node in main.trees:
        by_channel.setdefault(node.channel, []).append(node)
    alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for channel, nodes in by_channel.items():
        alike.setdefault(tuple((node.rank, node.up) for node in nodes), []).append(channel)
    for pairs, channels in list(alike.items())[:_MAX_LISTED]:
        roots = ", ".join(str(rank) for rank, up in pairs if up < 0) or ABSENT
        depth = _depth(dict(pairs))
        words = (
            f"root {roots}, depth {depth}" if len(pairs) == main.size else f"{len(pairs)} of {main.size} ranks logged"
        )
        yield _row("tree", f"x{len(channels):<3} {words}   (channels {channel_words(channels)})")


def _depth(parents: dict[int, int]) -> int:
    """Steps from the root to the farthest rank; a loop, which cannot be, ends at the number of ranks."""
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


def _used(main: Communicator) -> Iterator[str]:
    yield "Connections"
    words = ", ".join(f"{name} x{number}" for name, number in transports(main))
    yield _row("transports", words or "none logged")
    proxied = [one for one in main.connections if one.proxy is not None]
    if proxied:
        proxies = channel_words({one.proxy for one in proxied if one.proxy is not None})
        yield _row("PXN", f"{count(len(proxied), 'send')} through the NIC of another rank: {proxies}")
    elif main.pxn is not None:
        yield _row("PXN", "allowed, no ring uses it" if main.pxn else "rings do not use it")
    items = [
        f"{one.host or 'host'} {one.network} NIC {one.nic} {one.direction:<7} {one.connections:>3},"
        f" GPUDirect RDMA {one.gdr}{f', for other ranks {one.proxied}' if one.proxied else ''}"
        for one in traffic(main)
    ]
    yield from _rows("NICs used", items)
    yield ""


def _chosen(log: NcclLog) -> Iterator[str]:
    ranges = algorithms(log)
    if ranges:
        yield "Chosen by size"
        yield from (_range(one) for one in ranges[: 4 * _MAX_LISTED])
        yield ""
    best = [one for one in log.tuning if one.operation == "AllReduce" and one.bandwidth_bytes_per_s > 0]
    if best:
        yield "NCCL's own estimates for AllReduce (latency, algbw)"
        for one in best:
            latency = f"{one.latency_s * 1e6:.1f} us"
            name = f"{one.algorithm} {one.protocol}"
            yield _row("", f"{name:<20}{latency:>9}  {format_bandwidth(one.bandwidth_bytes_per_s):>10}")
        yield ""


def _range(one: SizeRange) -> str:
    sizes = format_size(one.first_bytes)
    if one.last_bytes != one.first_bytes:
        sizes += f" to {format_size(one.last_bytes)}"
    channels = f", {count(one.channels, 'channel')}" if one.channels else ""
    return _row(one.operation[: _LABEL - 1], f"{sizes:<22}{one.algorithm} {one.protocol}{channels}  x{one.times}")


def _found(findings: Sequence[Finding], topology: Topology | None) -> Iterator[str]:
    real = [one for one in findings if one.certainty != "could not look"]
    blind = [one for one in findings if one.certainty == "could not look"]
    machine = (
        f"held against {topology.name}"
        if topology is not None
        else "no machine given: against the log's own tables only"
    )
    yield f"Contradictions ({visible(machine)})"
    for finding in real:
        for line in finding_lines(finding):
            yield from _folded(f"  {line}", 12 if line.startswith(" ") else 4)
    if not real:
        yield "  none found"
    if blind:
        yield ""
        yield "Could not look"
        for one in blind:
            yield from _folded(f"  {visible(one.fault)}: {visible(one.says)}", 4)
        for remedy in dict.fromkeys(one.remedy for one in blind):
            yield from _folded(f"  next: {visible(remedy)}", 8)
