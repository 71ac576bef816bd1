"""Builds measured.md from the records in its folder, and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from railwright.report.text import wording
from railwright.report.text.comparison import closing_words
from railwright.results.compare import ComparedPoint, Comparison, compare
from railwright.results.store import load
from railwright.units import format_size

PLAIN, SWITCHED, OFFLOADED = "pf_n2", "switchdev_n2", "pf_offload_n2"
CONTENTION, ABOUT = "contention.json", "about.json"

HEAD = """# pf_ against switchdev_

The same transfers between two nodes, by the plain interface (`pf_`) and from pod to pod through Open vSwitch with \
railwrightd's flows (`switchdev_`).

**What this is not:** there is no NIC here.
Open vSwitch's userspace datapath (AF_PACKET, no poll-mode driver) stands in for the switch inside the NIC, and every \
packet passes it in software, on the cores that the ranks use as well.
So the figures show that the way works with every transfer and what it costs in software.
Of a ConnectX, whose own switch forwards the same flows, they say nothing.
"""

WAYS = """
## The ways

| name | way |
|---|---|
| `pf_` | namespace, veth, the rail's leaf (the kernel routes), veth, namespace |
| `switchdev_` | pod, veth, Open vSwitch, veth, the same leaf, veth, Open vSwitch of the other node, veth, pod |

`pf_` and `switchdev_` have the same MTU ({mtu_bytes} B), interface name and settings of TCP.
The userspace datapath needs whole checksums, so the pods' interfaces make them and each segment in software, and \
those of `pf_` as well: the two shall differ by Open vSwitch alone.
{offloads}
Two ranks, one on each node (`n2`), Open MPI over TCP; NIXL over UCX's TCP.
{rounds} rounds of {transfers} launches; each launch is done over all ways before the next, in changing order.
The counters of each rank's own interface prove the way in every record; Open vSwitch's uplinks counted {switched} \
while `switchdev_` ran and {beside} while the others did (BGP).

Machine: {cores} cores, load average {load}, our own part included; kernel {kernel}, Open vSwitch {openvswitch}.
{busy}
Two polling ranks leave Open vSwitch no core of its own here.
It ran before all else (nice -20), as the NIC's switch that it stands for waits for no core; the ranks had nice \
{niceness}.

    railwright compare {plain}.jsonl {switched_name}.jsonl

{closing}
B/A is switchdev_ over pf_, with its interval over the rounds: below 1 is slower in rates and faster in latencies.
"""

BUSY = (
    "Its cores were {busy:.0%} busy before the first transfer.",
    "**Its cores were {busy:.0%} busy before the first transfer:** intervals are wide, and the figures are rough.",
)
BUSY_ABOVE = 0.25
SAYS_OFFLOADS = (
    "What a veth gains by leaving them undone, as Linux makes it, is not in these figures (`--offloads` measures it).",
    "The last column is a plain veth that leaves segments and checksums undone, as Linux makes it.",
)


def write(folder: Path) -> Path:
    """Write measured.md from the records in a folder. Raises UsageError if they cannot be read."""
    names = [name for name in (PLAIN, SWITCHED, OFFLOADED) if name != OFFLOADED or (folder / f"{name}.jsonl").exists()]
    files = {name: load(folder / f"{name}.jsonl") for name in names}
    comparison = compare(files[PLAIN], files[SWITCHED])
    beside = compare(files[PLAIN], files[OFFLOADED]) if OFFLOADED in files else None
    about = json.loads((folder / ABOUT).read_text())
    run = files[PLAIN].run
    lines = [
        HEAD,
        f"`{' '.join(run.command)}`, {run.started_at[:10]}.",
        WAYS.format(
            **about,
            switched=_bytes(about["switched_bytes"][SWITCHED]),
            beside=_bytes(sum(count for name, count in about["switched_bytes"].items() if name != SWITCHED)),
            cores=run.context.cores,
            busy=BUSY[run.context.busy_fraction > BUSY_ABOVE].format(busy=run.context.busy_fraction),
            kernel=run.context.kernel,
            plain=PLAIN,
            switched_name=SWITCHED,
            closing=closing_words(comparison),
            offloads=SAYS_OFFLOADS[beside is not None],
        ),
        *tables(comparison, beside),
    ]
    if (folder / CONTENTION).exists():
        lines += contention_lines(json.loads((folder / CONTENTION).read_text()))
    page = folder / "measured.md"
    page.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return page


def tables(comparison: Comparison, beside: Comparison | None) -> Iterable[str]:
    """Yield a table for each curve; collectives are shown by busbw."""
    offloaded = (
        {_key(point): wording.quantity(point.quantity, point.b.median) for point in beside.points} if beside else {}
    )
    column = (" pf_ with offloads |", "---|") if beside else ("", "")
    shown = [point for point in comparison.points if _is_shown(point)]
    for title, group in wording.group_by_key(shown, _title):
        yield f"\n## {title}\n"
        yield f"| size | pf_ | switchdev_ | B/A | interval | |{column[0]}"
        yield f"|---|---|---|---|---|---|{column[1]}"
        for point in group:
            cells = [*_cells(point), *([offloaded.get(_key(point), wording.ABSENT)] if beside else [])]
            yield f"| {' | '.join(cells)} |"
    for lone in comparison.one_sided:
        where = "pf_" if lone.measured_in == "a" else "switchdev_"
        yield f"\nOnly in {where}: {lone.benchmark} {lone.parameters}: {lone.why}"


def _is_shown(point: ComparedPoint) -> bool:
    return point.parameters.get("rate", "busbw") == "busbw" and not (
        "rate" not in point.parameters and point.quantity == "latency_s" and _is_collective(point)
    )


def _is_collective(point: ComparedPoint) -> bool:
    return point.benchmark in ("mpi_all_reduce", "mpi_all_gather", "mpi_reduce_scatter", "mpi_all_to_all")


def _title(point: ComparedPoint) -> str:
    what = "busbw" if _is_collective(point) else wording.QUANTITY_WORDS[point.quantity]
    operation = str(point.parameters.get("operation", ""))
    return " ".join(word for word in (point.benchmark, operation, what) if word)


def _cells(point: ComparedPoint) -> Sequence[str]:
    interval = point.interval
    return (
        format_size(int(point.parameters["size_bytes"])),
        wording.quantity(point.quantity, point.a.median),
        wording.quantity(point.quantity, point.b.median),
        wording.ratio(point.ratio),
        f"{wording.ratio(interval.low)} to {wording.ratio(interval.high)}" if interval else wording.ABSENT,
        point.statement,
    )


def _key(point: ComparedPoint) -> tuple[str, str, str]:
    return point.benchmark, point.quantity, str(sorted(point.parameters.items()))


def contention_lines(record: dict[str, Any]) -> list[str]:
    """Yield the table of the rates that the pods of a PF reached."""
    limit = record["payload_limit_bits_per_s"]
    mtu, seconds, streams = record["mtu_bytes"], record["window_s"], record["tcp_streams_of_a_pod"]
    line = _rate(record["line_rate_bits_per_s"])
    lines = [
        "\n## Two pods on one PF\n",
        f"The PF's port is held to {line} in both directions, with FCS, preamble and gap of each frame (tbf).",
        f"So its limit (docs/limits.md) is {_rate(limit)} of TCP's payload, ({mtu} - 52)/({mtu} + 38) of that.",
        "VFs are logical: it is the ceiling of all of them together.",
        f"Each pod has {streams} TCP connections with a pod of the other node, for {seconds:.0f} s.",
        f"The bound of c, its `maxRate`, is {_rate(record['bound_bits_per_s'])}.\n",
        "| who | each | together | of the PF's limit | packets: pods sent, PF, pods received | dropped by the rate |",
        "|---|---|---|---|---|---|",
    ]
    for phase in record["phases"]:
        counts = phase["counts"]
        each = ", ".join(f"{pod['pod']} {_rate(pod['payload_bits_per_s'])}" for pod in phase["pods"])
        packets = ", ".join(str(counts[name]["packets"]) for name in ("sent_by_pods", "by_pf", "received_by_pods"))
        lines.append(
            f"| {phase['name']} | {each} | {_rate(phase['payload_bits_per_s'])} |"
            f" {phase['payload_bits_per_s'] / limit:.1%} | {packets} | {counts['dropped_by_the_rate']} |"
        )
    payload = sum(phase["counts"]["payload_received_bytes"] for phase in record["phases"])
    lines += [
        "",
        f"Every byte that the pods' programs sent was received ({_bytes(payload)}); what was dropped, TCP sent again.",
        "Of the packets that pods sent and the PF did not pass, its rate's queue dropped what the last column says.",
        "The bound of c (a meter) dropped what c sent above it.",
        "The rest was lost in the sockets between the kernel and Open vSwitch, which no NIC has.",
    ]
    return lines


def _rate(bits_per_s: float) -> str:
    return f"{bits_per_s / 1e6:.1f} Mb/s".replace(".0 ", " ")


def _bytes(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
