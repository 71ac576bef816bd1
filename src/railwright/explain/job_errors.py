"""Errors of a job in lines that NCCL did not write: watchdogs, frameworks that quote NCCL, drivers and the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from railwright.checks.finding import Finding, Place
from railwright.diagnosis.nccl.failure_texts import explain_failure
from railwright.diagnosis.nccl.warnings import CLAIM
from railwright.explain.error_words import find_error_words
from railwright.explain.program_errors import explain_program_error
from railwright.explain.system_errors import explain_system_error
from railwright.results.readers.xids import XIDS
from railwright.results.records import Evidence
from railwright.units import format_duration

_WATCHDOG = re.compile(
    r"(?:\[?[Rr]ank ?(?P<rank>\d{1,7})\]?.{0,60})?Watchdog caught collective operation timeout:"
    r" WorkNCCL\(SeqNum=(?P<number>\d{1,12}), OpType=(?P<operation>\w{1,40})(?P<rest>.{0,400})"
)
_TIMEOUT = re.compile(r"Timeout\(ms\)=(\d{1,12})")
_LAST_ERROR = re.compile(r"Last error: ?(.{0,600})")
_RESULT = re.compile(r"\b(nccl(?:System|Remote|Internal|UnhandledCuda)Error|ncclInvalidUsage)\b:?(.{0,200})")
_WORDED = re.compile(
    r"NCCL (?:failure|[Ee]rror)[^\n]{0,300}?(unhandled (?:cuda|system) error|internal error|invalid (?:usage|argument)"
    r"|remote (?:error|process exited))"
)
_RESULT_OF = {
    "unhandled cuda error": "ncclUnhandledCudaError", "unhandled system error": "ncclSystemError",
    "internal error": "ncclInternalError", "invalid usage": "ncclInvalidUsage",
    "invalid argument": "ncclInvalidArgument", "remote error": "ncclRemoteError",
    "remote process exited": "ncclRemoteError",
}  # fmt: skip
"""The result codes by the words of ncclGetErrorString, which frameworks print."""
_NO_PEER_MEMORY = re.compile(r"(?:NVIDIA )?peer memory driver not(?: detected)?")
_TEST_FAILURE = re.compile(r"Test (NCCL|CUDA|Cuda) failure (\S{1,80}) '?(.{1,200}?)'?\s*$")
_XID = re.compile(r"NVRM: Xid \((PCI:[0-9a-fA-F:.]{4,20})[^)]{0,40}\): (\d{1,4})\b(.{0,200})")
_XID_BEFORE = re.compile(r"caused by previous Xid (\d{1,4})")
_AER = re.compile(r"AER: .{0,40}?(Corrected|Uncorrected|Multiple Corrected|Multiple Uncorrected)\b.{0,40}error.{0,60}")
_STORE = re.compile(r"(?:Timed out after|Socket Timeout|store.{0,20}timed? ?out|waiting for clients).{0,160}")
_MPI_ABORT = re.compile(r"MPI_ABORT was invoked on rank (\d{1,7})|exited on signal (\d{1,3}) \(([^)]{1,40})\)")
_RESULTS = {
    "ncclSystemError": "a system call, a socket or the NIC failed",
    "ncclRemoteError": "a remote process exited, or the network to it failed",
    "ncclInternalError": "NCCL met an inconsistency, often between ranks with unlike versions or environments",
    "ncclUnhandledCudaError": "a CUDA call failed",
    "ncclInvalidArgument": "NCCL was given a wrong argument",
    "ncclInvalidUsage": "NCCL was called wrongly, for example by two ranks on one GPU",
}
_NCCL_LOG = "NCCL_DEBUG=INFO on every rank, then railwright explain LOG...: its first WARN line names the cause"
_WATCHDOG_REMEDY = (
    "the rank that prints no time-out, or a lower number, is the one to look at: py-spy dump there;"
    " TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 record the operations of all"
)
ERROR_LINE = re.compile(r"\b(?:WARN(?:ING)?|ERROR|FATAL|[Ff]atal|[Ee]rror|[Ff]ailed|[Ff]ailure|Unable to)\b")
"""The words of a line that tells an error, in any program."""
_MAX_FOUND = 8
_MAX_RANKS = 16
_MAX_LINES = 200_000
_MAX_LINE = 1000


def find_job_errors(text: str) -> tuple[Finding, ...]:
    """Return what the error lines of a job tell, without lines that NCCL wrote; equal statements once."""
    found: dict[str, Finding] = {}
    ranks: dict[str, list[str]] = {}
    lines = text.split("\n")[:_MAX_LINES]
    words = find_error_words(text)
    for number, line in enumerate(lines, 1):
        of_nccl = "NCCL WARN" in line or "NCCL INFO" in line
        if len(found) < _MAX_FOUND and not of_nccl and any(word in line for word in words):
            following = lines[number] if number < len(lines) else ""
            for finding in _read_line(number, line[:_MAX_LINE], following[:_MAX_LINE]):
                found.setdefault(finding.says, finding)
                if (watchdog := _WATCHDOG.search(line)) and watchdog["rank"]:
                    ranks.setdefault(finding.says, []).append(watchdog["rank"])
    return tuple(
        replace(
            finding, says=f"rank{'s' if len(ranks[says]) > 1 else ''} {', '.join(ranks[says][:_MAX_RANKS])}: {says}"
        )
        if says in ranks
        else finding
        for says, finding in found.items()
    )


def _read_line(number: int, line: str, following: str) -> Iterator[Finding]:
    if "Got completion" in line:
        yield from _quote_nccl(number, line)
    elif watchdog := _WATCHDOG.search(line):
        timeout = _TIMEOUT.search(watchdog["rest"])
        within = f" within {format_duration(int(timeout[1]) / 1e3)}" if timeout else ""
        says = f"{watchdog['operation']} number {watchdog['number']} did not finish{within}: another rank did not"
        yield _finding("watchdog", f"{says} arrive, or the network stopped", number, line, _WATCHDOG_REMEDY)
    elif quoted := _LAST_ERROR.search(line):
        yield from _quote_nccl(number, quoted[1].strip() or following.strip())
    elif result := _RESULT.search(line):
        yield _finding("nccl_error", f"{result[1]}: {_RESULTS[result[1]]}", number, line, _NCCL_LOG)
    elif failure := _TEST_FAILURE.search(line):
        yield _finding("test_failure", f"nccl-tests ended: {failure[1]} failure, {failure[3]}", number, line, _NCCL_LOG)
    elif worded := _WORDED.search(line):
        name = _RESULT_OF[worded[1]]
        yield _finding("nccl_error", f"{name} ({worded[1]}): {_RESULTS[name]}", number, line, _NCCL_LOG)
    else:
        yield from _read_system_line(number, line)


def _read_system_line(number: int, line: str) -> Iterator[Finding]:
    """Yield what a line of the kernel, the launcher or the start-up tells."""
    if xid := _XID.search(line):
        means = XIDS.get(int(xid[2]), "NVIDIA's list of Xid errors explains it")
        if before := _XID_BEFORE.search(xid[3]):
            means = f"work was removed after Xid {before[1]}: {XIDS.get(int(before[1]), 'look for it above')}"
        remedy = "nvidia-smi -q on that host, dcgmi diag -r 3; drain the host"
        if "Nonfatal" in xid[3]:
            means, remedy = f"{means}, which was not fatal", "nvidia-smi nvlink -e, and whether a fatal one follows"
        yield _finding("gpu_error", f"Xid {xid[2]} of {xid[1]}: {means}", number, line, remedy)
    elif aer := _AER.search(line):
        remedy = "lspci -vv -s ADDRESS | grep -E 'LnkSta|DevSta'; reseat the card"
        yield _finding("pcie_errors", f"PCIe reported {aer[1].lower()} errors", number, line, remedy)
    elif abort := _MPI_ABORT.search(line):
        says = f"rank {abort[1]} called MPI_ABORT" if abort[1] else f"a process ended by signal {abort[2]} ({abort[3]})"
        yield _finding("process_ended", says, number, line, "the lines of that process above this one")
    elif _NO_PEER_MEMORY.search(line):
        says = "the container found no peer-memory module of NVIDIA: without DMA-BUF, GPUDirect RDMA is off"
        remedy = "lsmod | grep nvidia_peermem on the host; NCCL_DEBUG=INFO shows whether DMA-BUF is used instead"
        yield replace(_finding("gpudirect_off", says, number, line, remedy), certainty="possible")
    elif (program := explain_program_error(line) or explain_system_error(line)) is not None:
        yield _finding(program.fault, program.says, number, line, program.remedy)
    elif ERROR_LINE.search(line) and (known := explain_failure(line)) is not None and known.is_fatal:
        yield _finding(known.fault, known.says, number, line, known.remedy)
    elif store := _STORE.search(line):
        says = f"the job's start-up timed out: {store[0].strip()[:120]}"
        remedy = (
            "check that every process started, and that MASTER_ADDR and its port are reachable: nc -zv ADDRESS PORT"
        )
        yield _finding("startup_timeout", says, number, line, remedy)


def _quote_nccl(number: int, text: str) -> Iterator[Finding]:
    """Yield the meaning of NCCL's words that a framework or a person quotes."""
    known = explain_failure(text)
    if known is not None:
        yield _finding(known.fault, known.says, number, text, known.remedy)
    elif text:
        yield _finding("nccl_error", f"NCCL's last error: {text[:200]}", number, text, _NCCL_LOG)


def _finding(fault: str, says: str, number: int, line: str, remedy: str) -> Finding:
    return Finding(
        fault=fault,
        where=(Place("job"),),
        certainty="seen",
        says=says,
        remedy=remedy,
        evidence=(Evidence(claim=CLAIM, value=line.strip()[:300], seen=f"line {number} of the text"),),
    )
