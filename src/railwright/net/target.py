"""A question about a pod, and its target: the namespace, interfaces and attachments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from railwright.errors import CannotJudge, UsageError, unknown_name
from railwright.net.pod import Pod, is_same_netns, netns_path, read_pod
from railwright.net.railwrightd import DEFAULT_SOCKET, Railwrightd
from railwright.net.runtime import FOLDERS, read_records
from railwright.net.view import ON_THE_NODE, Address, Attached, Known, Unseen

_CLUSTER_INTERFACE = "eth0"  # Kubernetes gives the cluster's own network this name in every pod
_POD_INTERFACE_KINDS = frozenset({"", "veth", "macvlan", "ipvlan"})  # empty for hardware, such as a VF


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
    """The namespace of a pod of the same tenant on this machine, whose addresses are added to `to`."""
    stranger_netns: str | None = None
    """The namespace of a pod of another tenant on this machine."""
    leaves: Mapping[str, str] = field(default_factory=dict)
    """The network namespace of a rail's leaf, for each leaf that is on this machine."""
    without: frozenset[str] = frozenset()
    """Checks to skip, with the packets that only they need."""
    cni_results: str | None = None
    """The folder of the container runtime's records. None means the default."""
    vty_socket: str | None = None
    """The folder of FRR's sockets. None means vtysh's default."""
    daemon: Railwrightd = field(default_factory=Railwrightd)


@dataclass(frozen=True)
class Target:
    """The target of a question: a namespace, and railwrightd's attachments in it."""

    question: Question
    name: str
    netns: str | None
    mine: dict[str, Attached] | Unseen
    all: tuple[Attached, ...]

    def attached(self, interface: str) -> Known:
        """Return railwrightd's attachment of the interface. None if there is none."""
        return self.mine.get(interface) if isinstance(self.mine, dict) else self.mine


def find_target(question: Question) -> Target:
    """Find the target.

    Raises UsageError for a missing pod or namespace, and for a question on a node that names neither. Raises
    CannotJudge if the pod's namespace is unknown.
    """
    if question.pod is not None and question.netns is not None:
        raise UsageError("--pod and --netns exclude each other", hint="give one of the two")
    if question.pod is not None:
        return _find_pod(question, question.pod, question.daemon.attached())
    if question.netns is None:
        return _target_here(question)
    attached, netns = question.daemon.attached(), netns_path(question.netns)
    if isinstance(attached, Unseen):
        return Target(question, netns, netns, attached, ())
    mine = {one.interface: one for one in attached if is_same_netns(one.netns, netns)}
    return Target(question, next((str(one.pod) for one in mine.values()), netns), netns, mine, attached)


def _target_here(question: Question) -> Target:
    socket = question.daemon.socket or DEFAULT_SOCKET
    if Path(socket).exists():
        reason = f"on a node the pod must be named, and railwrightd's socket {socket} is here"
        raise UsageError(reason, hint="railwright net check --pod NAMESPACE/NAME; railwrightd list shows the pods")
    why = Unseen("railwrightd cannot be reached from inside the pod", ON_THE_NODE)
    return Target(question, "this pod", None, why, ())


def _find_pod(question: Question, name: str, attached: tuple[Attached, ...] | Unseen) -> Target:
    if isinstance(attached, Unseen):
        # Without railwrightd, the container runtime's records name the namespace of every pod on the node.
        records = read_records([question.cni_results] if question.cni_results else FOLDERS)
        here = {one.netns for one in records if str(one.pod) == name and Path(one.netns).exists()}
        if len(here) != 1:
            raise CannotJudge(f"cannot locate the pod {name[:80]}: {attached.why}", hint=attached.remedy)
        return Target(question, name, netns_path(here.pop()), attached, ())
    mine = {one.interface: one for one in attached if str(one.pod) == name}
    if not mine:
        raise unknown_name("pod on this node", name, {str(one.pod) for one in attached})
    paths = {one.netns for one in mine.values()}
    if len(paths) != 1 or "" in paths:
        got = f"{len(paths - {''})}" + ", and none for some of its interfaces" * ("" in paths)
        reason = f"railwrightd must name a single network namespace of {name}, got {got}"
        raise CannotJudge(reason, hint="name it with --netns /proc/PID/ns/net")
    return Target(question, name, netns_path(paths.pop()), mine, attached)


def add_peer(question: Question) -> Question:
    """Add the addresses of `peer_netns` to `to`. Raises as `netns_path` and `read_pod`."""
    if question.peer_netns is None:
        return question
    peer = read_pod(netns_path(question.peer_netns))
    found = [
        address
        for name in _guess_rail_interfaces(peer)
        for version in (4, 6)
        for address in peer.ports[name].sources(version)[:1]
        if address not in question.to
    ]
    if not found:
        raise UsageError(f"{question.peer_netns} has no interface with an address", hint="give a pod's namespace")
    return replace(question, to=(*question.to, *found))


def _guess_rail_interfaces(pod: Pod) -> tuple[str, ...]:
    candidates = tuple(name for name, port in pod.ports.items() if port.kind in _POD_INTERFACE_KINDS)
    return tuple(name for name in candidates if name != _CLUSTER_INTERFACE) or candidates


def rail_interfaces(target: Target, pod: Pod) -> tuple[str, ...]:
    """Return the attached interfaces, or else those that look like a rail's.

    Raises UsageError for a requested interface that does not exist, and CannotJudge if there is only the loopback.
    """
    present = tuple(pod.ports)
    attached = tuple(sorted(target.mine)) if isinstance(target.mine, dict) else ()
    for name in target.question.interfaces:
        if name not in (*present, *attached):
            raise unknown_name(f"interface in {target.name}", name, (*present, *attached))
    found = attached or _guess_rail_interfaces(pod)
    if not found:
        raise CannotJudge(
            f"{target.name} has only the loopback interface", hint="check that the pod was attached to a rail"
        )
    return found
