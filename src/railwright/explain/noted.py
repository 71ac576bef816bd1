"""Texts without a result that can be judged: what was recognised in them, what it tells, and the next step."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

import msgspec

from railwright.checks.finding import Finding
from railwright.diagnosis.nccl.settings import COSTLY
from railwright.errors import UsageError
from railwright.explain.nearest_tools import describe_text, find_error_without_rate, find_named_test, find_nearest
from railwright.explain.topology_matrix import SOURCE, Surroundings
from railwright.results.readers.known_facts import find_known_facts
from railwright.results.readers.known_lines import KnownLines, find_known_lines
from railwright.results.readers.pasted.command_line import parse_environment
from railwright.results.readers.pasted.prefixes import remove_common_prefix
from railwright.results.readers.unfinished import find_unfinished
from railwright.topology.matrix import Matrix, parse_matrix
from railwright.units import format_count, format_list

_MAX_NAMED = 3
_WITH_ERRORS = (
    "torch.distributed", "dmesg", "a Python traceback", "UCX log", "kubectl describe", "kubectl describe node",
    "kubectl get pods", "systemctl", "ping", "words on an Xid", "Slurm or Kubernetes configuration",
)  # fmt: skip
_MAX_DEVICES = 16
_WEIGHT = 100
"""The number of recognised lines that the start of a run or a matrix counts for."""


class Noted(msgspec.Struct, frozen=True, kw_only=True, tag="noted", tag_field="record", omit_defaults=True,
            forbid_unknown_fields=True):  # fmt: skip
    """A recognised text that has nothing to judge, as printed by `railwright explain --json`."""

    tool: str
    says: tuple[str, ...]
    """The reason why nothing is judged, then the facts in the text."""
    findings: tuple[Finding, ...] = ()
    remedy: str = ""
    """The command or the file that would settle a question."""


def unwrap(text: str) -> str:
    """Return the text without the prefix and the indent that its lines share, if more of it is recognised so."""
    bare = textwrap.dedent(remove_common_prefix(text))
    return bare if bare != text and _count_recognised(bare) > _count_recognised(text) else text


def _count_recognised(text: str) -> int:
    parts = len(find_unfinished(text)) + (parse_matrix(text) is not None)
    return sum(known.lines for known in find_known_lines(text)) + _WEIGHT * parts


def note_unfinished(text: str) -> tuple[Noted, ...]:
    """Return the known tools that began in a text without any result."""
    settings = tuple(describe_settings(parse_environment(text.splitlines())))
    return tuple(
        Noted(tool=found.tool, says=(*found.says, *settings), remedy=found.remedy) for found in find_unfinished(text)
    )


def note_matrix(around: Surroundings) -> tuple[Noted, ...]:
    """Describe the machine in an `nvidia-smi topo -m`, and what is wrong in it; nothing without one."""
    if around.matrix is None:
        return ()
    unequal = tuple(_find_unequal_links(around.matrix))
    cut = around.matrix.cut_gpus
    fine = () if around.findings or unequal or cut else ("nothing wrong is visible in a matrix",)
    if cut:
        fine = (f"the rows of {format_list(cut)} are missing or cut: their NICs are not known",)
    return (
        Noted(
            tool=SOURCE,
            says=(*_describe_matrix(around.matrix), *unequal, *fine),
            findings=around.findings,
            remedy="use it as `--host FILE gpu=... nic-rate=...` beside the table of a tool, such as nccl-tests",
        ),
    )


def note_known_lines(text: str) -> tuple[Noted, ...]:
    """Describe the lines of tools that no reader supports."""
    return tuple(
        Noted(
            tool=known.tool,
            says=(
                f"no result in the text can be judged: it has {_describe(known)}, about {known.is_about}",
                *find_known_facts(known.tool, text),
            ),
            remedy=known.settles,
        )
        for known in find_known_lines(text)[:_MAX_NAMED]
    )


def list_unread(text: str, *, errors_read: bool = False) -> tuple[str, ...]:
    """Return a sentence for each tool whose lines stand beside those that were read.

    Commands are not output. The lines of a framework or the kernel count as read if their errors were.
    """
    read = {"a benchmark's command", *(_WITH_ERRORS if errors_read else ())}
    unread = [known for known in find_known_lines(text) if known.tool not in read][:_MAX_NAMED]
    return tuple(f"{_describe(known)} {'was' if known.lines == 1 else 'were'} not read" for known in unread)


def _describe(known: KnownLines) -> str:
    return f"{format_count(known.lines, 'line')} of {known.tool}"


def describe_settings(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each setting of the command that slows NCCL."""
    off = [f"{name}=1" for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE") if environment.get(name) == "1"]
    if len(off) > 1:
        yield f"forced setting: {format_list(off)} send traffic between GPUs of a host through the network transport"
    for name, value in environment.items():
        if name in COSTLY and COSTLY[name].when(value) and not (len(off) > 1 and f"{name}=1" in off):
            yield f"forced setting: {name}={value} {COSTLY[name].does}"


def refuse(text: str) -> UsageError:
    """Return the error for a text in which nothing is recognised: what it has, and the nearest tools."""
    nearest = find_nearest(text)
    if error := find_error_without_rate(text):
        return UsageError(
            f"the text matches no known tool; it has {describe_text(text)}",
            hint=f"the output of {error} from its command on, and dmesg -T of that host and minute, settle it",
        )
    if test := find_named_test(text):
        return UsageError(
            f"the text matches no known tool; it has {describe_text(text)}",
            hint=f"it names {test}: the whole output of {test}, from its command to its last line, settles it",
        )
    return UsageError(
        f"the text matches no known tool; it has {describe_text(text)}",
        hint=f"nearest are {format_list([tool for tool, _ in nearest])}; {nearest[0][1]}"
        if nearest
        else "give the output of a benchmark, such as nccl-tests, perftest, OSU or iperf3, from its first line",
    )


def _describe_matrix(matrix: Matrix) -> Iterator[str]:
    links = {int(word[2:]) for pair, word in matrix.cells.items() if word.startswith("NV")}
    word = "NVLink" if links == {1} else "NVLinks"
    joined = f", {format_list([str(count) for count in sorted(links)])} {word} between them" if links else ""
    joined = joined or (", no NVLink between them" if len(matrix.gpus) > 1 else "")
    models = f" ({format_list(matrix.models)})" if matrix.models else ""
    yield f"{format_count(len(matrix.gpus), 'GPU')}{joined}{models}"
    near = [text for nic in matrix.nics[:_MAX_DEVICES] if (text := _describe_nic(matrix, nic))]
    if near:
        yield "; ".join(near)


def _describe_nic(matrix: Matrix, nic: str) -> str:
    """Name the GPUs that are nearest to a NIC; empty for a NIC that is near none."""
    order = ("PIX", "PXB", "PHB", "NODE")
    words = {gpu: matrix.between(gpu, nic) for gpu in matrix.gpus}
    best = next((word for word in order if word in words.values()), "")
    gpus = [gpu for gpu, word in words.items() if word == best]
    name = matrix.legend.get(nic, "")
    shown = f"{nic} ({name})" if name else nic
    return f"{shown} near {format_list(gpus)} ({best})" if best else ""


def _find_unequal_links(matrix: Matrix) -> Iterator[str]:
    """Yield a sentence if GPUs have different numbers of NVLinks to the others of the host, and no cell is missing."""
    if not all(matrix.between(gpu, other) for gpu in matrix.gpus for other in matrix.gpus if other != gpu):
        return
    counts: dict[int, list[str]] = {}
    for gpu in matrix.gpus:
        words = [matrix.between(gpu, other) for other in matrix.gpus if other != gpu]
        counts.setdefault(sum(int(word[2:]) for word in words if word.startswith("NV")), []).append(gpu)
    if len(counts) > 1:
        parts = [f"{format_list(gpus[:_MAX_DEVICES])} {count}" for count, gpus in sorted(counts.items())]
        yield f"wrong: the GPUs have different numbers of NVLinks to the others: {'; '.join(parts)}"
