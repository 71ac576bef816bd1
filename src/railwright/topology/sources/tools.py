"""Software of this machine, from its own programs: run for `audit` or a capture, each for a few seconds.

`ucx_info -v` and `-d`; `ompi_info --parsable --all` (built_with_cuda_support); `mpichversion`; and for each
port the programs of `port_settings`. No program of a capture is started.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec

from railwright.errors import RailwrightError
from railwright.process import query
from railwright.reading import InvalidContent, decode_json
from railwright.topology.devices import Scalar
from railwright.topology.settings import NONE, SETTING
from railwright.topology.sources.notes import Notes
from railwright.topology.sources.pollers import find_pollers
from railwright.topology.sources.port_settings import ask_ports, port_settings
from railwright.topology.sources.root import Root, Unreadable, printable
from railwright.topology.sources.tools_model import MOST, TOOLS, Mpi, Tools, Ucx

TIMEOUT_S = 10.0
_OFI_NCCL = ("/opt/amazon/aws-ofi-nccl", "/opt/amazon/ofi-nccl", "/opt/aws-ofi-nccl")
"""The install folders of aws-ofi-nccl in AWS images and by the EFA installer (aws-ofi-nccl README; EFA 1.3x)."""
_NAME = re.compile(r"[\w.:+-]{1,64}", re.ASCII)
_VERSION = re.compile(r"[\w.+-]{1,40}", re.ASCII)
_LINES = {"transports": re.compile(r"(?m)^#?\s+Transport:\s+(\S{1,64})\s*$"),
          "devices": re.compile(r"(?m)^#?\s+Device:\s+(\S{1,64})\s*$")}  # fmt: skip
_CUDA = re.compile(r"(?m)^mca:(?:opal|mpi):base:param:(?:opal|mpi)_built_with_cuda_support:value:(true|false)$")
_MPICH = re.compile(r"(?m)^MPICH Version:\s+(\S{1,40})\s*$")
_MPICH_CUDA = re.compile(r"--with-cuda(?!=no)[= ']")


def ask_tools() -> bytes | Unreadable:
    """Return the document of `tools_model`. A program that hangs is ended, and only its answer is missing."""
    problems: dict[str, str] = {}
    found = Tools(
        pollers=find_pollers(),
        ucx=_ucx(problems),
        mpi=_mpi(problems),
        ports=ask_ports(lambda program, *words: _run_tool(problems, program, program, *words)),
        ofi_nccl=_ofi_nccl(),
        problems=problems,
    )
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"


def _run_tool(problems: dict[str, str], name: str, program: str, *words: str) -> str | None:
    """Return the output of a program; None if it is missing or fails, which is noted."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        finished = query((path, *words), timeout_s=TIMEOUT_S)
    except RailwrightError as error:
        problems[name] = error.message[:200]
        return None
    if finished.timed_out or finished.returncode != 0:
        why = f"gave no answer within {TIMEOUT_S:g} s" if finished.timed_out else finished.describe()
        problems[name] = f"{program} {why}"[:200]
        return None
    return "\n".join(finished.output)


def _ucx(problems: dict[str, str]) -> Ucx | None:
    version, listed = (_run_tool(problems, "ucx", "ucx_info", word) for word in ("-v", "-d"))
    return parse_ucx(version, listed) if version is not None and listed is not None else None


def parse_ucx(version: str, listed: str) -> Ucx:
    """Parse the output of `ucx_info -v` and `ucx_info -d`."""
    version_line = re.search(r"(?m)^#?\s*(?:Library version:|Version)\s+(\S{1,40})", version)
    each = {name: tuple(dict.fromkeys(line.findall(listed)))[:MOST] for name, line in _LINES.items()}
    return Ucx(
        version=version_line[1] if version_line is not None and _VERSION.fullmatch(version_line[1]) else "",
        transports=tuple(name for name in each["transports"] if _NAME.fullmatch(name)),
        devices=tuple(name for name in each["devices"] if _NAME.fullmatch(name) and ":" in name),
    )


def _mpi(problems: dict[str, str]) -> Mpi | None:
    output = _run_tool(problems, "mpi", "ompi_info", "--version")
    if output is not None:
        version = re.search(r"Open MPI v?(\S{1,40})", output)
        built = _run_tool(problems, "mpi", "ompi_info", "--parsable", "--all")
        flags = _CUDA.findall(built or "")
        cuda = "true" in flags if flags else None
        return Mpi(name=f"Open MPI {version[1]}" if version is not None else "Open MPI", cuda=cuda)
    output = _run_tool(problems, "mpi", "mpichversion")
    version = _MPICH.search(output or "")
    if output is None or version is None:
        return None
    return Mpi(name=f"MPICH {version[1]}", cuda=_MPICH_CUDA.search(output) is not None)


def _ofi_nccl() -> str | None:
    found = (str(file) for place in _OFI_NCCL for file in sorted(Path(place).glob("lib*/**/libnccl-net*.so")))
    return next(found, None)


def read_tools(root: Root, notes: Notes) -> tuple[dict[str, Scalar], dict[str, dict[str, Scalar]]]:
    """Return the facts of the host, and those of the NIC of each netdev.

    A machine without the document has neither: checks that need them report that they could not look.
    """
    raw = root.read_bytes(TOOLS)
    if isinstance(raw, Unreadable):
        return {}, {}
    try:
        found = decode_json(raw, Tools)
    except InvalidContent as error:
        notes.missing("software", f"{TOOLS} is not valid: {printable(str(error).encode())[:160]}")
        return {}, {}
    ucx = found.ucx or Ucx(version=NONE)
    polling = (poller.program if poller.interval_s is None else f"{poller.program} every {poller.interval_s:g} s"
              for poller in found.pollers[:MOST])  # fmt: skip
    facts: dict[str, Scalar] = {
        "driver_pollers": ", ".join(map(_escape, polling)) or NONE,
        "driver_polled_s": min((poller.interval_s for poller in found.pollers if poller.interval_s), default=NONE),
        "ofi_nccl": _escape(found.ofi_nccl or NONE),
        "ucx": _escape(ucx.version),
        "ucx_transports": _format_names(ucx.transports),
        "ucx_devices": _format_names(ucx.devices),
        "mpi": _escape(found.mpi.name if found.mpi is not None else NONE),
    }
    if found.mpi is not None and found.mpi.cuda is not None:
        facts["mpi_cuda"] = found.mpi.cuda
    for name, why in found.problems.items():
        for fact in [fact for fact in facts if fact.partition("_")[0] == name]:
            notes.missing(SETTING, _escape(why), fact)
            del facts[fact]
    return facts, {port.netdev: port_settings(port) for port in found.ports[:MOST] if _NAME.fullmatch(port.netdev)}


def _format_names(names: tuple[str, ...]) -> str:
    return " ".join(_escape(name) for name in names[:MOST]) or NONE


def _escape(text: str) -> str:
    return printable(text[:200].encode("utf-8", "replace"))
