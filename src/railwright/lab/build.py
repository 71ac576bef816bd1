"""Builds a lab: namespaces, links, rates, FRR and Open vSwitch. The journal names each thing before it is made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor

from railwright.errors import UsageError
from railwright.lab import frr, links, ovs, ssh, state
from railwright.lab.frr_install import RUN_FOLDER, programs
from railwright.lab.nodes import LabPlan, Node, host_route
from railwright.lab.remove import remove
from railwright.lab.state import Lab, check_succeeded
from railwright.lab.wait import wait_settled
from railwright.process import run
from railwright.system_packages import install_command
from railwright.writing import write_file

_TOOLS = {"ip": "iproute2", "tc": "iproute2", "sysctl": "procps"}
_ADDRESSES_AND_PORTS = 0x33
"""Bits of fib_multipath_hash_fields (Linux Documentation/networking/ip-sysctl)."""
_TIMEOUT_S = 120.0
_HINT = "the kernel may lack what a lab needs (veth, tbf)"
SETTLE_WITHIN_S = 60.0

Say = Callable[[str], None]


def up(plan: LabPlan, say: Say | None = None, settle_within_s: float = SETTLE_WITHIN_S) -> Lab:
    """Build the lab and wait until the kernel of every node has all its routes.

    On any failure, an interrupt included, everything built so far is removed; after a SIGKILL `remove` finds it.
    Raises UsageError if this machine cannot build the lab, RailwrightError if a command fails, and CannotJudge if
    routes are missing after the timeout.
    """
    state.require_root()
    _check_tools(plan)
    with state.lock_lab(plan.name) as folder:
        lab = state.create(plan)
        try:
            with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as executor:
                _build(lab, executor, say or (lambda _: None), settle_within_s)
        except BaseException:
            remove(plan.name, folder)
            raise
        write_file(lab.folder / "ready", b"")
    return lab


def _build(lab: Lab, executor: Executor, say: Say, settle_within_s: float) -> None:
    plan = lab.plan
    say(f"namespaces and links: {plan.summary()}")
    namespaces = [lab.namespace(node.name) for node in plan.nodes]
    lab.record("namespace", *namespaces)
    _batch(lab, "namespaces", ["ip"], [f"netns add {name}" for name in namespaces])
    list(executor.map(lambda node: _set_kernel(lab, node), plan.nodes))  # raises the first error
    _batch(lab, "cables", ["ip"], _cable_lines(lab))
    list(executor.map(lambda node: _set_ports(lab, node), plan.nodes))
    if any(node.ovs for node in plan.nodes):
        say("Open vSwitch")
        list(executor.map(lambda node: _start_ovs(lab, node), plan.nodes))
    if plan.ssh:
        say("sshd")
        ssh.prepare(lab)
        list(executor.map(lambda node: ssh.start(lab, node.name), plan.of_kind("host")))
        ssh.write_known_hosts(lab)
    say("FRR")
    list(executor.map(lambda node: _start_frr(lab, node), plan.nodes))
    say("waiting for routes")
    wait_settled(lab, executor, settle_within_s)


def _check_tools(plan: LabPlan) -> None:
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            raise UsageError(f"{tool} is not installed", hint=install_command(package))
    for version in {node.frr for node in plan.nodes}:
        programs(version)
    if any(node.ovs for node in plan.nodes):
        ovs.check_installed()
    if plan.ssh:
        ssh.check_installed()


def _batch(lab: Lab, step: str, tool: list[str], lines: Iterable[str]) -> None:
    """Run many lines of `ip` or `tc` in one child process. Raises RailwrightError if one fails."""
    file = lab.folder / f"{step}.batch"
    write_file(file, "\n".join([*lines, ""]))
    check_succeeded(run([*tool, "-batch", str(file)], timeout_s=_TIMEOUT_S), f"cannot set up {step}", _HINT)
    file.unlink()


def _set_kernel(lab: Lab, node: Node) -> None:
    settings = {
        "net.ipv4.ip_forward": 1,
        "net.ipv6.conf.all.forwarding": 1,
        "net.ipv6.conf.default.forwarding": 1,
        # A rail's traffic may return through another port.
        "net.ipv4.conf.all.rp_filter": 0,
        "net.ipv4.conf.default.rp_filter": 0,
        # Hash both addresses and both ports. Policy 1 would use a socket's own random hash, which a veth keeps: the
        # same ports would take a different path each time. The protocol is left out: a UDP trace then shows TCP's path.
        "net.ipv4.fib_multipath_hash_policy": 3,
        "net.ipv6.fib_multipath_hash_policy": 3,
        "net.ipv4.fib_multipath_hash_fields": _ADDRESSES_AND_PORTS,
        "net.ipv6.fib_multipath_hash_fields": _ADDRESSES_AND_PORTS,
        # A seed for each node; with one seed, all flows of a spine take the same superspine. Linux 6.11 and later.
        "net.ipv4.fib_multipath_hash_seed": lab.plan.nodes.index(node) + 1,
        "net.ipv6.conf.all.keep_addr_on_down": 1,
        "net.ipv6.conf.default.keep_addr_on_down": 1,
        # A cable has no other hosts, and a BGP session would wait until DAD frees the link-local address.
        "net.ipv6.conf.default.accept_dad": 0,
        "net.ipv6.conf.default.accept_ra": 0,
        # Users examine a lab with traceroute and ping.
        "net.ipv4.icmp_ratelimit": 0,
        "net.ipv6.icmp.ratelimit": 0,
        # A switch answers 1,000 messages a second otherwise, and searches trace the ports of all hosts at once.
        "net.ipv4.icmp_msgs_per_sec": 1_000_000,
        "net.ipv4.icmp_msgs_burst": 10_000,
    }
    folder = lab.node_folder(node.name)
    folder.mkdir(parents=True)
    file = folder / "sysctl.conf"
    write_file(file, "".join(f"{name} = {value}\n" for name, value in settings.items()))
    argv = ["sysctl", "--quiet", "--ignore", "--load", str(file)]
    check_succeeded(lab.run(node.name, argv), f"cannot set the kernel settings of {node.name}", _HINT)


def _cable_lines(lab: Lab) -> Iterable[str]:
    for cable in lab.plan.cables:
        a, b, mtu = lab.namespace(cable.a), lab.namespace(cable.b), cable.mtu_bytes
        yield f"link add {cable.a_port} mtu {mtu} netns {a} type veth peer name {cable.b_port} mtu {mtu} netns {b}"


def _set_ports(lab: Lab, node: Node) -> None:
    lines = ["link set lo up", *(f"address add {host_route(address)} dev lo" for address in node.loopbacks)]
    for rail in node.rails:
        lines += [f"address add {host_route(address)} dev {rail.port}" for address in rail.addresses]
    cables = lab.plan.cables_of(node.name)
    lines += [f"link set {cable.port_of(node.name)} up" for cable in cables]
    _batch(lab, f"ports-{node.name}", ["ip", "-n", lab.namespace(node.name)], lines)
    rated = [" ".join(links.shape(cable.port_of(node.name), cable)) for cable in cables if cable.rate_bits_per_s]
    if rated:
        _batch(lab, f"rates-{node.name}", ["tc", "-n", lab.namespace(node.name)], rated)


def _start_ovs(lab: Lab, node: Node) -> None:
    """Turn off checksum offload towards Open vSwitch hosts, and start Open vSwitch if the node has it.

    Its userspace datapath does not fill in the checksums that an offload leaves out.
    """
    for cable in lab.plan.cables_of(node.name):
        if lab.plan.node(cable.a).ovs:
            argv = ["ethtool", "-K", cable.port_of(node.name), "tx", "off"]
            check_succeeded(lab.run(node.name, argv), f"cannot turn off checksum offload on {node.name}", _HINT)
    if node.ovs:
        ovs.start(lab, node.name)


def _start_frr(lab: Lab, node: Node) -> None:
    folder = lab.node_folder(node.name)
    for name, text in (("zebra", frr.zebra_text(lab.plan, node)), ("bgpd", frr.bgpd_text(lab.plan, node))):
        file = folder / f"{name}.conf"
        write_file(file, text)
        shutil.chown(file, "frr", "frr")
    # FRR's daemons may enter their node's folder, and read nothing else of the lab.
    shutil.chown(folder, "frr", "frr")
    folder.chmod(0o700)
    shutil.chown(folder.parent, "root", "frr")
    folder.parent.chmod(0o710)
    pathspace = lab.namespace(node.name) if node.frr == "10" else None
    if pathspace is not None:
        outside = RUN_FOLDER / pathspace
        lab.record("folder", str(outside))
        outside.mkdir(parents=True)
        shutil.chown(outside, "frr", "frr")
    for daemon, program in programs(node.frr).items():
        argv = frr.start_argv(program, daemon, str(folder), pathspace)
        check_succeeded(lab.run(node.name, argv), f"cannot start {daemon} on {node.name}", _HINT)
