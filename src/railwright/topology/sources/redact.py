"""Redaction of captures: it removes the data that identify a machine, and nothing else.

A value always gets the same placeholder, so two ports of one NIC still look like two ports of one NIC.
If a file can hold anything (firmware tables, the kernel command line, configuration space), only the data that the
sources need are kept: a list of secrets is never complete.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable

from railwright.topology.sources import pci_config, smbios
from railwright.topology.sources.memory import TABLE as SMBIOS_TABLE
from railwright.topology.sources.nvidia_model import PROBE
from railwright.topology.sources.rdma_port import gid_kind
from railwright.topology.sources.smbios import Structure
from railwright.topology.sources.virtualisation import CONTAINERS, MODULE, PARAMETER

_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}(?:[0-9A-Fa-f]{2})(?![0-9A-Fa-f:])")
_UUID = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
_GUID = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{4}:){3,7}[0-9A-Fa-f]{4}(?![0-9A-Fa-f:])")
_NAMED_BY_MAC = re.compile(r"(?<![a-z0-9])(enx|ibx|wlx|rocex)([0-9a-f]{12,16})(?![0-9a-z])")
_IPV6 = re.compile(r"(?<![0-9A-Za-z:.])(?=[0-9A-Fa-f:]*::)[0-9A-Fa-f:]{3,39}(?![0-9A-Za-z:.])")
_IPV4 = re.compile(r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.])")
_GROUPS = "sys/fs/cgroup/"
_CONTROLLERS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")
_EMPTY_STRINGS = frozenset({"", "NOT SPECIFIED", "NONE", "NO DIMM", "UNKNOWN", "TO BE FILLED BY O.E.M.", "0", "N/A"})

_KEPT_STRUCTURES = frozenset({smbios.PROCESSOR, smbios.MEMORY_ARRAY, smbios.MEMORY_DEVICE, smbios.END_OF_TABLE})
# Offsets of the string numbers of serial numbers and asset tags (DSP0134 sections 7.5 and 7.18).
_SECRET_STRINGS = {smbios.PROCESSOR: (0x20, 0x21), smbios.MEMORY_DEVICE: (0x18, 0x19)}


class Redactor:
    """A consistent replacement of values over all files of a capture. `host_names` are known from the machine."""

    def __init__(self, host_names: tuple[str, ...]) -> None:
        self._placeholders: defaultdict[str, dict[str, str]] = defaultdict(dict)
        # Short names like `vm` or `db` would match inside unrelated words.
        self._host_names = tuple(sorted({name for name in host_names if len(name) > 3}, key=len, reverse=True))

    def redact(self, path: str, content: bytes) -> bytes:
        """Return the content of a file without data that identify the machine."""
        if path == SMBIOS_TABLE:
            return self._redact_smbios(content)
        if _VF_CONFIG.fullmatch(path):
            return _keep_lines("MaxTxRate")(content.decode("utf-8", errors="replace")).encode()
        if path.endswith("/config"):
            return self._redact_config_space(content)
        if path.startswith("sys/firmware/acpi/tables/"):
            return content[:36]  # the table's header: signature, length, maker
        if path == "proc/self/cgroup":
            return "".join(map(self._redact_group, content.decode("utf-8", errors="replace").splitlines())).encode()
        if _GID_FILE.fullmatch(path):
            return f"{_GIDS.get(gid_kind(content.decode('utf-8', errors='replace').strip()), '')}\n".encode()
        cleaned = self._redact_text(path, content.decode("utf-8", errors="replace"))
        return _FILE_FILTERS.get(path, str)(cleaned).encode()

    def redact_path(self, path: str) -> str:
        """Return the path without identities: some netdevs are named by their MAC address, Hyper-V's devices by a
        UUID.
        """
        if path.startswith(_GROUPS):
            *folders, file = path.removeprefix(_GROUPS).split("/")
            return _GROUPS + "/".join([*map(self._redact_level, folders), file])
        path = _UUID.sub(lambda match: self._placeholder("uuid", match.group().lower()), path)
        return _NAMED_BY_MAC.sub(lambda match: match.group(1) + self._redact_mac_name(match.group(2)), path)

    def _redact_group(self, line: str) -> str:
        """Redact a line of a process's control groups, whose path has the names of pods, jobs and users."""
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            return ""
        return f"{number}:{controllers}:{'/'.join(map(self._redact_level, path.split('/')))}\n"

    def _redact_level(self, name: str) -> str:
        """Redact the name of a control group; groups that hold a controller of the first version keep theirs."""
        return name if name in ("", "..", *_CONTROLLERS) else self._placeholder("group", name)

    def _redact_mac_name(self, digits: str) -> str:
        mac = ":".join(digits[index : index + 2] for index in range(0, 12, 2))
        return self._placeholder("mac", mac.lower()).replace(":", "") + "0" * (len(digits) - 12)

    def _redact_text(self, path: str, text: str) -> str:
        name = path.rpartition("/")[2]
        if name in ("serial", "product_serial", "board_serial", "chassis_serial", "chassis_asset_tag", "product_uuid"):
            value = text.strip()
            is_known = value in ("OracleCloud.com", "Amazon EC2") or value.upper() in _EMPTY_STRINGS
            return text if is_known else self._placeholder("serial", value) + "\n"
        text = _UUID.sub(lambda match: self._placeholder("uuid", match.group().lower()), text)
        text = _MAC.sub(lambda match: self._placeholder("mac", match.group().lower()), text)
        text = _GUID.sub(lambda match: self._placeholder("guid", match.group().lower()), text)
        if name != "fw_ver" and path not in (
            "proc/version",
            PROBE,
        ):  # there a version of four numbers looks like an address
            text = _IPV4.sub(lambda match: self._placeholder("ipv4", match.group()), text)
            text = _IPV6.sub(lambda match: self._placeholder("ipv6", match.group().lower()), text)
        text = _NAMED_BY_MAC.sub(lambda match: match.group(1) + self._redact_mac_name(match.group(2)), text)
        for host in self._host_names:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])", self._placeholder("host", host), text)
        return text

    def _placeholder(self, kind: str, value: str) -> str:
        """Return the placeholder of a value, always the same one; addresses of zeros are returned unchanged."""
        if kind in ("mac", "guid") and set(value) <= {"0", ":"}:
            return value
        known = self._placeholders[kind]
        return known.setdefault(value, _FORMATS[kind](len(known) + 1))

    def _redact_smbios(self, table: bytes) -> bytes:
        kept = []
        for structure in smbios.structures(table):
            if structure.kind not in _KEPT_STRUCTURES:
                continue
            strings = list(structure.strings)
            for offset in _SECRET_STRINGS.get(structure.kind, ()):
                index = (structure.number(offset, 1) or 0) - 1
                if 0 <= index < len(strings) and structure.string(offset).upper() not in _EMPTY_STRINGS:
                    strings[index] = self._placeholder("serial", structure.string(offset)).encode()
            formatted = structure.formatted
            if structure.kind == smbios.PROCESSOR:  # nothing after the processor's id is needed
                formatted = formatted[:8] + bytes(min(8, len(formatted) - 8)) + formatted[16:]
            kept.append(Structure(structure.kind, formatted, tuple(strings)).packed())
        return b"".join(kept)

    def _redact_config_space(self, config: bytes) -> bytes:
        """Keep the standard header, the PCI Express, ACS and ATS capabilities, and a placeholder for the serial
        number.
        """
        clean = bytearray(len(config))
        clean[: pci_config.STANDARD_HEADER_BYTES] = config[: pci_config.STANDARD_HEADER_BYTES]
        for identifier, offset in pci_config.capabilities(config):
            size = 0x3C if identifier == pci_config.CAPABILITY_PCIE else 2
            end = min(offset + size, pci_config.CONVENTIONAL_BYTES)
            clean[offset:end] = config[offset:end]
        for identifier, offset in pci_config.extended_capabilities(config):
            kept = identifier in (pci_config.EXTENDED_ACS, pci_config.EXTENDED_ATS)
            end = offset + (8 if kept else 4)
            clean[offset:end] = config[offset:end]
            if identifier == pci_config.EXTENDED_SERIAL_NUMBER:
                serial = config[offset + 4 : offset + 12]
                number = int(self._placeholder("device serial", serial.hex()))
                clean[offset + 4 : offset + 12] = number.to_bytes(8, "little")
        return bytes(clean[: len(config)])


_VF_CONFIG = re.compile(r".*/sriov/\d+/config")
_GID_FILE = re.compile(r".*/infiniband/[^/]+/ports/\d+/gids/\d+")
_GIDS = {
    "empty": "0000:0000:0000:0000:0000:0000:0000:0000",
    "link-local": "fe80:0000:0000:0000:0000:0000:0000:0001",
    "IPv4": "0000:0000:0000:0000:0000:ffff:f000:0001",
    "IPv6": "2001:0db8:0000:0000:0000:0000:0000:0001",
}
"""Replacements that keep only the kind of an address."""

_FORMATS: dict[str, Callable[[int], str]] = {
    "serial": lambda number: f"SERIAL-{number}",
    "host": lambda number: f"host-{number}",
    "uuid": lambda number: f"00000000-0000-0000-0000-{number:012x}",
    "mac": lambda number: f"02:00:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
    "guid": lambda number: f"0000:0000:{number >> 16 & 0xFFFF:04x}:{number & 0xFFFF:04x}",
    "ipv4": lambda number: f"240.0.{number >> 8 & 255}.{number & 255}",
    "ipv6": lambda number: f"2001:db8::{number:x}",
    "device serial": str,
    "group": lambda number: f"group-{number}",
}


def _keep_lines(*kept: str) -> Callable[[str], str]:
    """Keep the lines of a file that begin with one of `kept`."""
    return lambda text: "".join(f"{line}\n" for line in text.splitlines() if line.startswith(kept))


def _keep_parameters(text: str) -> str:
    return " ".join(word for word in text.split() if PARAMETER.fullmatch(word)) + "\n"


def _keep_release(text: str) -> str:
    """Keep `Linux version 6.8.0-41-generic`, without the builder."""
    return " ".join(text.split()[:3]) + "\n"


def _keep_module_names(text: str) -> str:
    """Keep module names without their addresses, which would help an attacker of the kernel."""
    names = [line.split(" ")[0] for line in text.splitlines()]
    return "".join(f"{name} 0 0 - Live 0x0\n" for name in names if MODULE.fullmatch(name))


def _keep_group_kinds(text: str) -> str:
    """Keep the container system that made the control groups, without the container's own name."""
    return "".join(f"0::/{kind}\n" for kind in CONTAINERS if kind in text) or "0::/\n"


def _keep_shared_memory(text: str) -> str:
    """Keep the mount of /dev/shm; other mounts name servers and people."""
    return "".join(f"{line}\n" for line in text.splitlines() if " /dev/shm tmpfs " in f" {line} ")


def _keep_driver_release(text: str) -> str:
    """Keep NVIDIA's line, without the builder of the driver."""
    return text.partition("\n")[0].partition("(")[0].rstrip() + "\n"


_FILE_FILTERS: dict[str, Callable[[str], str]] = {
    "proc/cmdline": _keep_parameters,
    "proc/version": _keep_release,
    "proc/modules": _keep_module_names,
    "proc/1/cgroup": _keep_group_kinds,
    # The capabilities and allowed CPUs of the capturing process.
    "proc/self/status": _keep_lines("CapEff:", "Seccomp:", "Cpus_allowed_list:"),
    "proc/self/mounts": _keep_shared_memory,
    "proc/driver/nvidia/version": _keep_driver_release,
    "proc/driver/nvidia/params": _keep_lines("RegistryDwords:"),
}
