"""The attachments of a pod as libcni, the library of container runtimes and of Multus, keeps them on the node.

Every network has such a record, whichever plugins made it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path

import msgspec

from railwright.errors import CannotJudge
from railwright.net.pod import is_same_netns
from railwright.net.recorded import Plugin, Recorded
from railwright.net.view import ON_THE_NODE, PodName, Unseen
from railwright.reading import decode_json, read_at_most

FOLDERS = ("/var/lib/cni/multus/results", "/var/lib/cni/results")
_MAX_RECORDS = 4096
_MAX_BYTES = 1 << 20


class _Interface(msgspec.Struct):
    name: str = ""
    mac: str = ""
    sandbox: str = ""


class _IP(msgspec.Struct):
    address: str
    gateway: str = ""


class _Route(msgspec.Struct):
    dst: str


class _Result(msgspec.Struct):
    interfaces: list[_Interface] = []
    ips: list[_IP] = []
    routes: list[_Route] = []


class _Chain(msgspec.Struct):
    """A network's configuration: a list of plugins, or a single one."""

    plugins: list[Plugin] = []
    type: str = ""


class _File(msgspec.Struct, rename="camel"):
    if_name: str
    network_name: str
    netns: str = ""
    config: bytes = b""
    cni_args: list[tuple[str, str]] = []
    result: _Result = msgspec.field(default_factory=_Result)


def find_records(netns: str | None, folder: str | None = None) -> dict[str, Recorded] | Unseen:
    """Return the records of a pod's interfaces by name. Records of a namespace that is gone do not count."""
    if netns is None:
        return Unseen("the container runtime's records are on the node", ON_THE_NODE)
    folders = [folder] if folder else FOLDERS
    found = {one.interface: one for one in read_records(folders) if is_same_netns(one.netns, netns)}
    if found:
        return found
    why = f"no record of {netns} is in {' or '.join(folders)}"
    return Unseen(why, "name the folder of the container runtime's records: --cni-results FOLDER")


def read_records(folders: Iterable[str]) -> list[Recorded]:
    """Read all records. Files that are no record, or end while they are read, are skipped."""
    found = []
    for folder in folders:
        try:
            files = sorted(Path(folder).iterdir())[:_MAX_RECORDS]
        except OSError:
            continue
        for file in files:
            try:
                found.append(parse_record(read_at_most(file, _MAX_BYTES), str(file)))
            except (OSError, CannotJudge):
                continue
    return found


def parse_record(content: bytes, path: str) -> Recorded:
    """Parse a record. Raises CannotJudge for anything else."""
    try:
        file = decode_json(content, _File)
        chain = decode_json(file.config or b"{}", _Chain)
        alone = [decode_json(file.config, Plugin)] if chain.type and not chain.plugins else []
        addresses = tuple(ipaddress.ip_interface(one.address).ip for one in file.result.ips)
        gateways = tuple(ipaddress.ip_address(one.gateway) for one in file.result.ips if one.gateway)
        routes = tuple(ipaddress.ip_network(one.dst, strict=False) for one in file.result.routes)
    except ValueError as error:
        raise CannotJudge(f"cannot parse {path}: {error}") from error
    words = dict(file.cni_args)
    inside = next((one for one in file.result.interfaces if one.sandbox), _Interface())
    outside = next((one for one in file.result.interfaces if not one.sandbox), _Interface())
    return Recorded(
        network=file.network_name,
        interface=file.if_name,
        pod=PodName(words.get("K8S_POD_NAMESPACE", ""), words.get("K8S_POD_NAME", "")),
        netns=file.netns,
        host_interface=outside.name,
        mac=inside.mac,
        addresses=addresses,
        gateways=gateways,
        routes=routes,
        plugins=(*chain.plugins, *alone),
        path=path,
    )
