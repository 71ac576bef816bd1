"""The interface's addresses: they are exactly the attached ones, and usable."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from railwright.net.recorded import find_expected
from railwright.net.view import Address, Bad, Check, Note, View


def _judge(view: View, note: Note) -> str:
    port, attached = view.existing_port(), find_expected(view)
    present = {one.address: one for one in port.addresses if one.is_global}
    device = shlex.quote(port.name)
    words = " ".join(f"{one.address}/{one.prefix_length}" for one in port.addresses if one.is_global) or "none"
    note("addresses", words, "ip address")
    if attached is not None:
        note("attached", _join_addresses(attached.addresses), attached.source)
        if missing := [one for one in attached.addresses if one not in present]:
            says = f"{port.name} lacks {_join_addresses(missing)}, which was attached and is routed here"
            command = f"ip address add {missing[0]}/{missing[0].max_prefixlen} dev {device}"
            raise Bad(says, f"{view.inside(command)}; find out what removed it")
        if strange := [one for one in present if one not in attached.addresses]:
            listed = _join_addresses(strange)
            says = f"{port.name} also has {listed}, which was not attached: packets from it are dropped"
            raise Bad(
                says, view.inside(f"ip address del {strange[0]}/{present[strange[0]].prefix_length} dev {device}")
            )
    else:
        words += "; the attached addresses are not known here"
    if not present:
        raise Bad(f"{port.name} has only link-local addresses", "check the network's ipam, then restart the pod")
    for one in present.values():
        if one.trouble:
            says = f"{one.address} is {one.trouble}: the kernel does not send from it"
            raise Bad(says, "does another interface have it? " + view.inside(f"ip -6 address show dev {device}"))
    return words


def _join_addresses(addresses: Iterable[Address]) -> str:
    return " ".join(map(str, addresses))


CHECK = Check("address", _judge, after=("interface",))
