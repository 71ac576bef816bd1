"""Environment variables that override each other or name devices that the machine does not have.

NCCL User Guide, Environment Variables; `ucx_info -c -f` for UCX; libfabric's fi_efa(7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from railwright.checks.check import Check, Facts, Findings
from railwright.checks.finding import Place
from railwright.checks.parts import efas
from railwright.checks.settings import parse_integer, short
from railwright.results.records import Evidence
from railwright.topology.devices import Topology

Contradictions = Iterator[tuple[tuple[str, ...], str]]
Environment = Mapping[str, str]
_GID_CHOICES = ("NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ROCE_VERSION_NUM")
_BOUNDS = (("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"), ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS"))
_MAX_NAMES = 64


def _signs(facts: Facts) -> Findings:
    for rule in _RULES:
        for names, says in rule(facts.environment, facts.topology):
            yield CHECK.finding(
                (Place("environment"),),
                says,
                *(
                    Evidence(claim="setting", value=f"{name}={short(facts.environment[name])}", seen="environment")
                    for name in names
                ),
            )


def _has_value(environment: Environment, name: str, *values: str) -> bool:
    return environment.get(name, "").strip().upper() in values


def _find_ineffective_ib(environment: Environment, _: Topology) -> Contradictions:
    """Find InfiniBand settings that have no effect because InfiniBand is switched off."""
    off = "NCCL_IB_DISABLE" if _has_value(environment, "NCCL_IB_DISABLE", "1") else ""
    off = off or ("NCCL_NET" if _has_value(environment, "NCCL_NET", "SOCKET") else "")
    useless = [name for name in environment if name.startswith("NCCL_IB_") and name != "NCCL_IB_DISABLE"]
    if off and useless:
        yield (off, *useless), f"{off}={short(environment[off])} makes {', '.join(useless)} ineffective"


def _find_reversed_bounds(environment: Environment, _: Topology) -> Contradictions:
    for least, most in _BOUNDS:
        low, high = (parse_integer(environment.get(name, "")) for name in (least, most))
        if low is not None and high is not None and low > high:
            yield (least, most), f"{least}={low} is above {most}={high}"


def _find_ineffective_gid(environment: Environment, _: Topology) -> Contradictions:
    index = parse_integer(environment.get("NCCL_IB_GID_INDEX", ""))
    useless = [name for name in _GID_CHOICES if name in environment]
    if index is not None and useless:
        yield ("NCCL_IB_GID_INDEX", *useless), f"NCCL_IB_GID_INDEX={index} makes {', '.join(useless)} ineffective"


def _find_mixed_families(environment: Environment, _: Topology) -> Contradictions:
    """Find different IP versions for bootstrap and RoCE: possible, but seldom intended."""
    socket, ib = "NCCL_SOCKET_FAMILY", "NCCL_IB_ADDR_FAMILY"
    values = [environment.get(name, "").strip().upper() for name in (socket, ib)]
    if set(values) == {"AF_INET", "AF_INET6"}:
        yield (socket, ib), f"{socket} is {values[0]} and {ib} is {values[1]}"


def _find_nvls_conflict(environment: Environment, _: Topology) -> Contradictions:
    wanted = environment.get("NCCL_ALGO", "").strip().upper()
    if _has_value(environment, "NCCL_NVLS_ENABLE", "0") and "NVLS" in wanted and not wanted.startswith("^"):
        yield ("NCCL_NVLS_ENABLE", "NCCL_ALGO"), "NCCL_ALGO requests NVLS, but NCCL_NVLS_ENABLE=0 switches it off"


def _find_p2p_conflict(environment: Environment, _: Topology) -> Contradictions:
    wanted = environment.get("NCCL_P2P_LEVEL", "").strip().upper() not in ("", "LOC", "0")
    if _has_value(environment, "NCCL_P2P_DISABLE", "1") and wanted:
        yield ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"), "NCCL_P2P_DISABLE=1 makes NCCL_P2P_LEVEL ineffective"


def _find_absent_devices(environment: Environment, topology: Topology) -> Contradictions:
    """Find RDMA devices that do not exist. NCCL accepts prefixes, or full names after `=`; UCX `device:port`."""
    known = {str(nic.facts["rdma_device"]) for nic in topology.of_kind("nic") if nic.facts.get("rdma_device")}
    wanted = environment.get("NCCL_IB_HCA", "").strip()
    if known and wanted and not wanted.startswith("^"):
        exact = wanted.startswith("=")
        names = [_strip_port(name) for name in wanted.lstrip("=").split(",")[:_MAX_NAMES]]
        absent = [
            name for name in names if not any(device == name if exact else device.startswith(name) for device in known)
        ]
        if absent:
            yield (
                ("NCCL_IB_HCA",),
                f"NCCL_IB_HCA names {short(', '.join(absent))}, the machine has {_format_names(known)}",
            )
    devices = [name for name in environment.get("UCX_NET_DEVICES", "").split(",")[:_MAX_NAMES] if ":" in name]
    # Patterns and ranges match several devices, and a caret inverts the list.
    plain = [name for name in devices if not set("*[^") & set(name)]
    absent = [name for name in map(_strip_port, plain) if name not in known]
    if known and absent:
        says = f"UCX_NET_DEVICES names {short(', '.join(absent))}, the machine has {_format_names(known)}"
        yield ("UCX_NET_DEVICES",), says


def _find_absent_efa(environment: Environment, topology: Topology) -> Contradictions:
    if _has_value(environment, "FI_PROVIDER", "EFA") and topology.of_kind("nic") and not efas(topology):
        yield ("FI_PROVIDER",), "FI_PROVIDER=efa, but no NIC of the machine is an EFA"


def _find_unused_ucx(environment: Environment, _: Topology) -> Contradictions:
    useless = [name for name in ("UCX_TLS", "UCX_NET_DEVICES") if name in environment]
    if _has_value(environment, "OMPI_MCA_pml", "OB1", "CM") and useless:
        pml = environment["OMPI_MCA_pml"]
        yield (
            ("OMPI_MCA_pml", *useless),
            f"pml={short(pml)} of Open MPI does not use UCX: {', '.join(useless)} ineffective",
        )


def _strip_port(name: str) -> str:
    return name.strip().partition(":")[0]


def _format_names(known: set[str]) -> str:
    return short(", ".join(sorted(known)))


_RULES: tuple[Callable[[Environment, Topology], Contradictions], ...] = (
    _find_ineffective_ib,
    _find_reversed_bounds,
    _find_ineffective_gid,
    _find_mixed_families,
    _find_nvls_conflict,
    _find_p2p_conflict,
    _find_absent_devices,
    _find_absent_efa,
    _find_unused_ucx,
)

CHECK = Check(
    name="environment_contradicts",
    summary="environment variables contradict each other or the machine",
    right="environment variables agree with each other and with the machine",
    certainty="likely",
    remedy="remove the unintended variable: unset NAME, or leave it out of the job's environment",
    signs=_signs,
    needs_results=True,
)
