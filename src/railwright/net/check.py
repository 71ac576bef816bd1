"""Inspects a pod's rail interfaces, sends packets, and runs the checks on the results."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from railwright.errors import EXIT_OK, EXIT_SLOW, EXIT_UNJUDGED, CannotJudge, UsageError
from railwright.net import frr, leaf, packets
from railwright.net.checks.offload import find_data_flows
from railwright.net.checks.registry import CHECKS
from railwright.net.host import read_host_end
from railwright.net.pod import Pod, find_routes, is_same_netns, netns_path, read_pod
from railwright.net.railwrightd import Flows
from railwright.net.recorded import Recorded, find_expected, is_foreign
from railwright.net.runtime import find_records
from railwright.net.target import Question, Target, add_peer, find_target, rail_interfaces
from railwright.net.view import (
    NOT_ATTACHED,
    ON_THE_NODE,
    Address,
    Attached,
    Forwarding,
    Isolation,
    KernelWay,
    Known,
    Line,
    Port,
    Rail,
    Unseen,
    View,
    require_seen,
    try_look,
)

_NO_PEER = "no other pod of its tenant is on this node and rail"
_UNKNOWN_PEERS = "the other pods of its tenant are not known here"
_MORE_LOOKS = 2
_NO_STRANGER = "no pod of another tenant is on this node and rail"


def check(question: Question) -> tuple[Line, ...]:
    """Return a line for each interface and check, except skipped checks and, for networks without railwrightd, its own.

    Raises UsageError for a wrong question, and CannotJudge if the pod or its interfaces cannot be inspected.
    """
    question = add_peer(question)
    target = find_target(question)
    pod = read_pod(target.netns)
    rails_of_pod = rail_interfaces(target, pod)
    names = question.interfaces or rails_of_pod
    ways = _find_ways(target, pod, tuple(dict.fromkeys((*names, *rails_of_pod))), names)
    rails, records = question.daemon.rails(), find_records(target.netns, question.cni_results)
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as executor:
        views = list(executor.map(partial(_inspect_interface, target, pod, rails, records, ways), names))
        cached = _read_flows(target, pod, views, executor)
    # Read after the packets, so that the counters include them.
    after, rails_after = question.daemon.attached(), question.daemon.rails()
    lines: list[Line] = []
    for view in views:
        again = _find_later(view.attached, after)
        view = replace(view, attached_after=again, rail_after=_find_rail(rails_after, view.attached), cached=cached)
        checks = [one for one in CHECKS if one.name not in question.without and not (one.is_ours and is_foreign(view))]
        lines += explain_failures(one.look(view) for one in checks)
    return tuple(lines)


def explain_failures(lines: Iterable[Line]) -> list[Line]:
    """Return the lines of an interface. A failure that an earlier failed check explains becomes `not looked`."""
    judged: list[Line] = []
    after = {one.name: one.after for one in CHECKS}
    bad: set[str] = set()
    for line in lines:
        cause = next((name for name in after[line.check] if name in bad), None)
        if line.state == "bad" and cause is not None:
            says = f"{line.says}; the failed check {cause} would explain it"
            line = msgspec.structs.replace(line, state="not looked", says=says, remedy=f"fix {cause} first")
        elif line.state == "bad":
            bad.add(line.check)
        judged.append(line)
    return judged


def exit_status(lines: Iterable[Line]) -> int:
    """Return 1 if a line is bad, 3 if a check could not look or there are no lines, and otherwise 0."""
    states = {line.state for line in lines}
    if "bad" in states:
        return EXIT_SLOW
    return EXIT_OK if states == {"ok"} else EXIT_UNJUDGED


def _inspect_interface(
    target: Target,
    pod: Pod,
    rails: dict[str, Rail] | Unseen,
    records: dict[str, Recorded] | Unseen,
    all_ways: dict[str, tuple[KernelWay, ...]],
    name: str,
) -> View:
    """Inspect an interface and send its packets. Fields for the later state still hold the earlier one."""
    attached, ways = target.attached(name), all_ways[name]
    port, rail = pod.ports.get(name), _find_rail(rails, attached)
    if port is not None:
        end = _make_end(target.name, target.netns, port)
        gateways, echoes = _collect_answers(target, end, port, ways, attached)
        isolations = try_look(lambda: _try_isolations(target, end, attached))
        leaf_routes = try_look(lambda: _read_leaf(target, port, attached))
    else:
        gateways = echoes = isolations = leaf_routes = Unseen(f"there is no {name}")
    view = View(
        interface=name,
        port=port,
        attached=attached,
        attached_after=attached,
        rail=rail,
        rail_after=rail,
        ways=ways,
        gateways=gateways,
        echoes=echoes,
        isolations=isolations,
        cached=(),
        announced=try_look(lambda: _read_announced(target, port, attached)),
        host_end=Unseen("the other end is not known"),
        leaf=leaf_routes,
        rdma_shared=pod.rdma_shared,
        verbs_files=pod.verbs_files,
        recorded=_find_record(records, name),
        netns=target.netns,
    )
    expected = find_expected(view)
    name = expected.host_interface if expected else ""
    return replace(view, host_end=try_look(lambda: read_host_end(view.existing_port(), name, target.netns)))


def _read_flows(target: Target, pod: Pod, views: list[View], executor: Executor) -> Flows | Unseen:
    """Read the datapath's flows of the packets that were sent.

    The datapath forgets a flow 10 s after its last packet. On a busy machine that may be before it is read, and then
    the packets are sent again.
    """
    cached = target.question.daemon.flows()
    for _ in range(_MORE_LOOKS):
        quiet = [view for view in views if _has_lost_flows(view, cached)]
        if not quiet or "offload" in target.question.without:
            break
        list(executor.map(partial(_send_again, target, pod), quiet))
        cached = target.question.daemon.flows()
    return cached


def _has_lost_flows(view: View, cached: Flows | Unseen) -> bool:
    """Report whether peers answered the interface, and the datapath has no flow of it now."""
    if isinstance(cached, Unseen) or isinstance(view.echoes, Unseen) or not isinstance(view.attached, Attached):
        return False
    return any(one.answered for one in view.echoes) and not find_data_flows(view.attached, cached)


def _send_again(target: Target, pod: Pod, view: View) -> None:
    port, echoes = pod.ports[view.interface], require_seen(view.echoes)
    end = _make_end(target.name, target.netns, port)
    try_look(lambda: packets.send(end, [one.target for one in echoes], port.mtu_bytes))


def _find_later(attached: Known, after: tuple[Attached, ...] | Unseen) -> Known:
    """Return the attachment in its later state. None if railwrightd no longer lists it."""
    if isinstance(after, Unseen):
        return after
    if not isinstance(attached, Attached):
        return None
    return next((other for other in after if (other.pod, other.interface) == (attached.pod, attached.interface)), None)


def _find_rail(rails: dict[str, Rail] | Unseen, attached: Known) -> Rail | Unseen:
    if isinstance(rails, Unseen):
        return rails
    if not isinstance(attached, Attached):
        return attached or NOT_ATTACHED
    return rails.get(attached.rail) or Unseen(f"railwrightd no longer has rail {attached.rail}")


def _find_record(records: dict[str, Recorded] | Unseen, name: str) -> Recorded | Unseen:
    if isinstance(records, Unseen):
        return records
    return records.get(name) or Unseen(f"the container runtime has no record of {name}")


def _make_end(name: str, netns: str | None, port: Port) -> packets.End:
    addresses = (*port.sources(4)[:1], *port.sources(6)[:1])
    return packets.End(name, netns, port.name, addresses, port.gateways())


def _find_ways(
    target: Target, pod: Pod, rails: tuple[str, ...], names: tuple[str, ...]
) -> dict[str, tuple[KernelWay, ...]]:
    """Return the kernel's routes to the peers of each interface.

    A named peer belongs to the interface of `rails` that its route uses. If the route uses none of them, the peer
    belongs to the interface with the nearest address, whose routes need the fix.
    """
    to = target.question.to
    neighbours = {name: [one for one in _find_peers(target, name) if one not in to] for name in names}
    everyone = (*to, *(one for some in neighbours.values() for one in some))
    ways = {way.target: way for way in find_routes(target.netns, everyone)}
    found: dict[str, list[KernelWay]] = {name: [] for name in rails}
    for address in to:
        name = ways[address].interface
        if name not in rails:
            name = max(rails, key=lambda one: _count_shared_bits(pod.ports.get(one), address))
        found[name].append(ways[address])
    return {name: (*found[name], *(ways[one] for one in neighbours[name])) for name in names}


def _find_peers(target: Target, name: str) -> tuple[Address, ...]:
    """Return the addresses of the first other pod of the tenant on the same node and rail."""
    mine = target.attached(name)
    if isinstance(mine, Attached):
        for one in target.all:
            if (one.rail, one.tenant) == (mine.rail, mine.tenant) and one.pod != mine.pod:
                return one.addresses
    return ()


def _count_shared_bits(port: Port | None, address: Address) -> int:
    """Return the maximum number of leading bits that an address of the port shares with this one. -1 without one."""
    sources = port.sources(address.version) if port else ()
    return max((address.max_prefixlen - (int(one) ^ int(address)).bit_length() for one in sources), default=-1)


def _collect_answers(
    target: Target, end: packets.End, port: Port, ways: tuple[KernelWay, ...], attached: Known
) -> packets.Answers:
    """Return the answers of gateways and peers. Requests are sent to peers only if a check needs them."""
    peers = [peer for _, peer in end.pairs(way.target for way in ways)]
    wanted = [] if target.question.without >= {"reach", "mtu"} else peers
    answers = try_look(lambda: packets.send(end, wanted, port.mtu_bytes))
    if isinstance(answers, Unseen):
        return answers, answers
    if peers:
        return answers
    no_peer = _NO_PEER if isinstance(attached, Attached) else _UNKNOWN_PEERS
    why = f"{end.interface} has no address to send from" if ways else no_peer
    return answers[0], Unseen(why, "name a peer on any node: --to ADDRESS")


def _try_isolations(target: Target, end: packets.End, attached: Known) -> tuple[Isolation, ...]:
    if "isolation" in target.question.without:
        return ()
    stranger = _find_stranger(target, end, attached)
    return packets.try_isolation(end, stranger), packets.try_isolation(stranger, end)


def _find_stranger(target: Target, end: packets.End, attached: Known) -> packets.End:
    """Find an interface of another tenant: in the named namespace, or on the same rail of this node.

    Raises UsageError if the named pod may be reached, and CannotJudge if there is no such interface.
    """
    mine = attached if isinstance(attached, Attached) else None
    if target.question.stranger_netns is not None:
        return _resolve_stranger(target.question.stranger_netns, target, end, mine)
    if mine is None:
        raise CannotJudge(
            "pods of other tenants are not known here", hint="name a pod of another tenant: --stranger-netns PATH"
        )
    for other in target.all:
        if other.rail == mine.rail and other.netns and not mine.may_talk_to(other) and Path(other.netns).exists():
            return packets.End(str(other.pod), other.netns, other.interface, other.addresses, other.gateways)
    raise CannotJudge(_NO_STRANGER, hint="name a pod of another tenant on this machine: --stranger-netns PATH")


def _resolve_stranger(given: str, target: Target, end: packets.End, mine: Attached | None) -> packets.End:
    netns = netns_path(given)
    known = [one for one in target.all if is_same_netns(one.netns, netns)]
    if mine is not None and any(mine.may_talk_to(one) for one in known):
        reason = f"{known[0].pod} may be reached: its tenant is {known[0].tenant}, this pod's is {mine.tenant}"
        raise UsageError(reason, hint="give a pod of a tenant without a TenantPeering to this one")
    ports = [port for port in read_pod(netns).ports.values() if port.sources(4) or port.sources(6)]
    if not ports:
        raise CannotJudge(f"{netns} has no interface with an address")
    nearest = max(ports, key=lambda port: max((_count_shared_bits(port, one) for one in end.addresses), default=0))
    return _make_end(str(known[0].pod) if known else netns, netns, nearest)


def _read_announced(target: Target, port: Port | None, attached: Known) -> dict[Address, tuple[str, ...]]:
    """Return the peers to which FRR has sent each address. Raises CannotJudge inside a pod, where FRR does not run."""
    if target.netns is None:
        raise CannotJudge("FRR runs on the node", hint=ON_THE_NODE)
    known = (*port.sources(4), *port.sources(6)) if port else ()
    addresses = attached.addresses if isinstance(attached, Attached) else known
    return frr.read_announced(addresses, target.question.vty_socket)


def _read_leaf(target: Target, port: Port, attached: Known) -> dict[Address, Forwarding]:
    attached = require_seen(attached or NOT_ATTACHED)
    netns = target.question.leaves.get(attached.rail)
    if netns is None:
        hint = f"on the leaf: ip route show {attached.addresses[0] if attached.addresses else 'ADDRESS'}; or skip it:"
        raise CannotJudge(f"the leaf of {attached.rail} cannot be asked from here", hint=f"{hint} --without leaf")
    return {one: leaf.find_route(netns, one) for one in attached.addresses or port.sources(4)}
