"""Captures of the files that the sources read, for inspection on another machine.

Discovery runs on a root that records the files read. Of these, the capture copies the files that match the list below.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from railwright.errors import UsageError
from railwright.topology.devices import Topology
from railwright.topology.sources.counters import read_counters
from railwright.topology.sources.machine import discover
from railwright.topology.sources.openvswitch import DATABASES, reduce_database
from railwright.topology.sources.redact import Redactor
from railwright.topology.sources.root import (
    MANIFEST,
    NOT_SAID,
    WITH_SETTINGS,
    ArchiveLine,
    Manifest,
    Root,
    Unreadable,
)
from railwright.writing import open_to_write, record_mode, write_file

_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_FUNCTION = rf"sys/devices/.*/{_ADDRESS}"
_PATTERNS = (
    rf"{_FUNCTION}/(vendor|device|class|numa_node|config|resource|uevent|physfn)",
    rf"{_FUNCTION}/(current|max)_link_(speed|width)",
    rf"{_FUNCTION}/sriov(_numvfs|_offset|_stride|/\d+/(config|max_tx_rate))",
    rf"{_FUNCTION}/aer_dev_(correctable|nonfatal|fatal)",
    r"sys/devices/.*/net/[^/]+/(speed|mtu|operstate|type|dev_port|phys_port_name|statistics/\w+)",
    r"sys/devices/.*/infiniband/[^/]+/(fw_ver|node_type)",
    r"sys/devices/.*/infiniband/[^/]+/ports/\d+/(link_layer|rate|state|(hw_)?counters/\w+)",
    r"sys/devices/.*/infiniband/[^/]+/ports/\d+/(gids/\d+|gid_attrs/(types|ndevs)/\d+)",
    r"sys/devices/.*/net/[^/]+/(ecn/roce_([nr]p/enable/\d|np/cnp_(dscp|802p_prio))|qos/trust|bonding/(mode|slaves))",
    r"sys/devices/.*/[^/]+/(size|model|queue/rotational|numa_node)",
    r"sys/devices/system/node/(online|node\d+/(cpulist|meminfo|distance))",
    r"sys/devices/system/cpu/(online|cpu\d+/topology/(physical_package_id|thread_siblings_list))",
    r"sys/devices/system/cpu/(isolated|cpufreq/policy\d+/(scaling_(governor|driver)|energy_performance_preference))",
    r"sys/devices/system/cpu/cpu0/cpuidle/state\d+/(name|latency|disable)",
    r"sys/kernel/mm/(transparent_hugepage/enabled|memory_peers/[\w-]+/num_(de)?alloc_mrs)",
    rf"sys/kernel/iommu_groups/\d+/(type|devices/{_ADDRESS})",
    r"sys/module/(mlx5_core/version|nvme_core/parameters/multipath|ib_core/parameters/netns_mode)",
    r"(var/lib|etc)/openvswitch/conf\.db",
    r"dev/infiniband/uverbs\d+",
    r"sys/devices/virtual/dmi/id/(sys_vendor|product_name|bios_vendor|chassis_asset_tag)",
    r"sys/firmware/dmi/tables/DMI",
    r"sys/firmware/acpi/tables/FACP",
    r"sys/hypervisor/type",
    r"sys/devices/soc0/soc_id",
    r"proc/(cpuinfo|meminfo|cmdline|modules|version|1/cgroup|self/(net/(snmp|netstat)|limits|status|mounts|cgroup))",
    r"proc/(sys/kernel/(numa_balancing|io_uring_disabled|yama/ptrace_scope)|driver/nvidia/(version|params))",
    r"sys/fs/cgroup/(.*/)?(cpu\.(max|cfs_(quota|period)_us)|rdma\.max)",
    r"\.dockerenv",
    r"run/\.containerenv",
    r"(nvidia|tools)/probe\.json",
)
PATTERNS = re.compile("|".join(_PATTERNS))
_CONTENT_DROPPED = frozenset({".dockerenv", "run/.containerenv"})  # only their existence is read
_MARKERS = re.compile(rf".*/physfn|sys/kernel/iommu_groups/\d+/devices/{_ADDRESS}|dev/infiniband/uverbs\d+")
"""Links that are only tested for existence, by the directory's listing; they become empty files."""


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a capture, and the topology as it was read on the machine."""

    destination: str
    files: int
    unreadable: int
    """Files that existed and were refused, except those whose driver has no value."""
    topology: Topology


class _Recorder(Root):
    """A root that records what was read from it. Of a database that may hold secrets it keeps only the values read."""

    def __init__(self, root: Root) -> None:
        super().__init__(root.name)
        self.holds_settings = root.holds_settings
        self._root = root
        self.files: dict[str, bytes] = {}
        self.unreadable: dict[str, str] = {}

    def read_bytes(self, path: str) -> bytes | Unreadable:
        answer = self._root.read_bytes(path)
        if isinstance(answer, bytes):
            self.files[path] = reduce_database(answer) if path in DATABASES else answer
        elif not answer.is_absent:
            self.unreadable[path] = answer.reason
        return answer

    def list(self, path: str) -> tuple[str, ...] | Unreadable:
        answer = self._root.list(path)
        if isinstance(answer, Unreadable):
            if not answer.is_absent:
                self.unreadable[path] = answer.reason
            return answer
        self.files |= {entry: b"" for name in answer if _MARKERS.fullmatch(entry := f"{path}/{name}")}
        return answer


def capture(root: Root, destination: Path, *, redact: bool) -> Captured:
    """Write a capture: a directory, or one file if `destination` ends in `.jsonl`.

    Raises UsageError for a destination that exists and is not empty, or cannot be written.
    """
    recorder = _Recorder(root)
    topology = discover(recorder, "live")
    read_counters(recorder)
    files = {path: content for path, content in sorted(recorder.files.items()) if PATTERNS.fullmatch(path)}
    files |= dict.fromkeys(_CONTENT_DROPPED & files.keys(), b"")
    unreadable = {path: reason for path, reason in sorted(recorder.unreadable.items()) if PATTERNS.fullmatch(path)}
    if redact:
        redactor = Redactor((root.name, root.name.partition(".")[0]))
        files = {redactor.redact_path(path): redactor.redact(path, content) for path, content in files.items()}
        unreadable = {redactor.redact_path(path): reason for path, reason in unreadable.items()}
    made_as = WITH_SETTINGS if root.holds_settings else 1
    manifest = Manifest(format=made_as, redacted=redact, files=len(files), unreadable=unreadable)
    files[MANIFEST] = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    try:
        if destination.suffix == ".jsonl":
            write_archive(destination, files)
        else:
            _write_directory(destination, files)
    except OSError as exc:
        raise UsageError(f"{destination} cannot be written: {exc.strerror}", hint="choose another destination") from exc
    return Captured(
        destination=str(destination),
        files=len(files),
        unreadable=sum(reason != NOT_SAID for reason in unreadable.values()),
        topology=topology,
    )


def write_archive(destination: Path, files: dict[str, bytes]) -> None:
    """Write files as an archive, a line per file in path order. Raises UsageError if it exists, and OSError if it
    cannot be written.
    """
    try:
        with os.fdopen(open_to_write(destination, os.O_WRONLY | os.O_CREAT | os.O_EXCL, record_mode()), "wb") as stream:
            for path, content in sorted(files.items()):
                stream.write(msgspec.json.encode(_line(path, content)) + b"\n")
    except FileExistsError:
        raise UsageError(f"{destination} exists", hint="choose a new file") from None


def _line(path: str, content: bytes) -> ArchiveLine:
    text = content.decode(errors="replace")
    shows_all = text.encode() == content and all(char.isprintable() or char in "\n\t" for char in text)
    return ArchiveLine(path, text=text) if shows_all else ArchiveLine(path, base64=content)


def _write_directory(destination: Path, files: dict[str, bytes]) -> None:
    destination.mkdir(parents=True, exist_ok=True)
    if any(destination.iterdir()):
        raise UsageError(f"{destination} is not empty", hint="choose a new directory")
    for path, content in files.items():
        file = destination / path  # relative and without `..`, because a root returned it
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, content, record_mode())
