"""The peers to which this node's FRR has advertised an address, from vtysh."""

from __future__ import annotations

import shutil

import msgspec

from railwright.errors import CannotJudge, UsageError
from railwright.net.view import Address
from railwright.process import query
from railwright.reading import decode_json

_ASK_S = 10.0


class _Path(msgspec.Struct):
    """The fields read from `show bgp ... json`. Empty for a prefix that is unknown to FRR."""

    advertisedTo: dict[str, object] = {}  # noqa: N815 - FRR's name


def read_announced(addresses: tuple[Address, ...], socket: str | None) -> dict[Address, tuple[str, ...]]:
    """Return the BGP peers to which each address was sent as a host route.

    `socket` is the folder of FRR's sockets. None means the default. Raises CannotJudge if vtysh is not installed or
    does not print JSON.
    """
    program = shutil.which("vtysh")
    if program is None:
        raise CannotJudge("FRR's vtysh is not on PATH here", hint="run this on the pod's node, where FRR runs")
    found: dict[Address, tuple[str, ...]] = {}
    for address in addresses:
        family = "ipv4" if address.version == 4 else "ipv6"
        command = f"show bgp {family} unicast {address}/{address.max_prefixlen} json"
        try:
            ended = query([program, *(["--vty_socket", socket] if socket else []), "-c", command], timeout_s=_ASK_S)
        except UsageError as error:
            raise CannotJudge(error.message) from error
        said = "".join(ended.output)
        try:
            # A warning from vtysh may precede the JSON.
            path = decode_json(said[said.index("{") :], _Path)
        except ValueError as error:
            hint = "does FRR run here? name its sockets: --vty-socket FOLDER"
            raise CannotJudge(f"vtysh must print JSON, got {said[-200:] or 'nothing'}", hint=hint) from error
        found[address] = tuple(sorted(path.advertisedTo))
    return found
