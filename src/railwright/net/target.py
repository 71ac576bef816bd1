"""A question about a pod, and the namespace, interfaces and attachments that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from railwright.errors import CannotJudge, UsageError, unknown_name
from railwright.net.pod import Pod, netns_path, read_pod, same_netns
from railwright.net.railwrightd import DEFAULT_SOCKET, Railwrightd
from railwright.net.view import ON_THE_NODE, Address, Attached, Known, Unseen

_CLUSTER_INTERFACE = "eth0"  # Kubernetes names the cluster's own network so in every pod
_KINDS_OF_PODS = frozenset({"", "veth", "macvlan", "ipvlan"})  # hardware (a VF) has none


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question about a pod. Without `pod` and `netns` it is about our own namespace."""

    pod: str | None = None
    """NAMESPACE/NAME."""
    netns: str | None = None
    interfaces: tuple[str, ...] = ()
    to: tuple[Address, ...] = ()
    """Addresses of pods of the same tenant, anywhere."""
    peer_netns: str | None = None
    """Of a pod of the same tenant on this machine, whose addresses stand beside `to`."""
    stranger_netns: str | None = None
    """Of a pod of another tenant, on this machine."""
    leaves: Mapping[str, str] = field(default_factory=dict)
    """The namespace of a rail's leaf, where it is on this machine."""
    without: frozenset[str] = frozenset()
    """Checks that are left out, with the packets that they alone need."""
    vty_socket: str | None = None
    """The folder of FRR's sockets; None: where vtysh looks for them."""
    daemon: Railwrightd = field(default_factory=Railwrightd)


@dataclass(frozen=True)
class Target:
    """The target of a question: a namespace, and what railwrightd attached in it."""

    question: Question
    name: str
    netns: str | None
    mine: dict[str, Attached] | Unseen
    all: tuple[Attached, ...]

    def attached(self, interface: str) -> Known:
        """The attachment of that interface, as railwrightd has it."""
        return self.mine.get(interface) if isinstance(self.mine, dict) else self.mine


def find_target(question: Question) -> Target:
    """Find the target. Raises UsageError for a pod that is not there, and CannotJudge if that is not known."""
    if question.pod is not None and question.netns is not None:
        raise UsageError("--pod and --netns both name the pod", hint="give one of the two")
    if question.pod is not None:
        return _by_pod(question, question.pod, question.daemon.attached())
    if question.netns is None:
        return _here(question)
    attached, netns = question.daemon.attached(), netns_path(question.netns)
    if isinstance(attached, Unseen):
        return Target(question, netns, netns, attached, ())
    mine = {one.interface: one for one in attached if same_netns(one.netns, netns)}
    return Target(question, next((str(one.pod) for one in mine.values()), netns), netns, mine, attached)


def _here(question: Question) -> Target:
    socket = question.daemon.socket or DEFAULT_SOCKET
    if Path(socket).exists():
        what = f"no pod is named, and this is a node: railwrightd's socket {socket} is here"
        raise UsageError(what, hint="railwright net check --pod NAMESPACE/NAME; railwrightd list shows the pods")
    why = Unseen("seen from inside the pod, where railwrightd cannot be asked", ON_THE_NODE)
    return Target(question, "this pod", None, why, ())


def _by_pod(question: Question, name: str, attached: tuple[Attached, ...] | Unseen) -> Target:
    if isinstance(attached, Unseen):
        raise CannotJudge(f"where the pod {name[:80]} is cannot be told: {attached.why}", hint=attached.remedy)
    mine = {one.interface: one for one in attached if str(one.pod) == name}
    if not mine:
        raise unknown_name("pod on this node", name, {str(one.pod) for one in attached})
    paths = {one.netns for one in mine.values()}
    if len(paths) != 1 or "" in paths:
        what = f"railwrightd names {len(paths - {''})} network namespaces of {name}"
        raise CannotJudge(what, hint="give the pod's with --netns /proc/PID/ns/net")
    return Target(question, name, netns_path(paths.pop()), mine, attached)


def with_peer(question: Question) -> Question:
    """The question with the addresses of `peer_netns` among those of `to`. Raises as `netns_path` and `read_pod`."""
    if question.peer_netns is None:
        return question
    peer = read_pod(netns_path(question.peer_netns))
    found = [
        address
        for name in _like_rails(peer)
        for version in (4, 6)
        for address in peer.ports[name].sources(version)[:1]
        if address not in question.to
    ]
    if not found:
        raise UsageError(f"{question.peer_netns} has no interface with an address", hint="give a pod's namespace")
    return replace(question, to=(*question.to, *found))


def _like_rails(pod: Pod) -> tuple[str, ...]:
    there = tuple(name for name, port in pod.ports.items() if port.kind in _KINDS_OF_PODS)
    return tuple(name for name in there if name != _CLUSTER_INTERFACE) or there


def rail_interfaces(target: Target, pod: Pod) -> tuple[str, ...]:
    """The attached interfaces, else those that look like a rail's. Raises UsageError for a missing one."""
    there = tuple(pod.ports)
    attached = tuple(sorted(target.mine)) if isinstance(target.mine, dict) else ()
    for name in target.question.interfaces:
        if name not in (*there, *attached):
            raise unknown_name(f"interface in {target.name}", name, (*there, *attached))
    found = attached or _like_rails(pod)
    if not found:
        raise CannotJudge(f"{target.name} has no interface but the loopback", hint="was it attached to a rail at all?")
    return found
