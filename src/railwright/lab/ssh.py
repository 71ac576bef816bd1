"""The sshd of each host, as in a cluster, with keys of this lab only.

Each sshd listens on its host's loopback addresses, in its namespace, and accepts the lab's key. It neither reads nor
changes the configuration of the machine or the user. `ssh -F LAB/ssh/config host1` connects from a host of the lab to
another; packets from outside the lab do not reach it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from railwright.errors import UsageError
from railwright.lab.nodes import LabPlan, Node
from railwright.lab.state import ENTER, NETNS, Lab, check_succeeded
from railwright.process import run
from railwright.system_packages import install_command
from railwright.writing import write_file

_SSHD = Path("/usr/sbin/sshd")
_SEPARATION = Path("/run/sshd")
_TIMEOUT_S = 30.0
_KEY = "id_ed25519"
_PORT = 22
_HINT = "try it without --ssh"


def check_installed() -> None:
    """Check that sshd and ssh-keygen are installed. Raises UsageError."""
    if not _SSHD.exists() or shutil.which("ssh-keygen") is None:
        raise UsageError("sshd is not installed", hint=install_command("openssh-server"))


def config_path(lab: Lab) -> Path:
    """Return the configuration file for `ssh -F`."""
    return lab.folder / "ssh/config"


def _find_folder(lab: Lab, host: str) -> Path:
    """Return the folder of a host's sshd. The node's folder belongs to FRR's user, and sshd trusts no keys below it."""
    return config_path(lab).parent / host


def prepare(lab: Lab) -> None:
    """Create the lab's key, and an ssh configuration that lists every host by name and addresses."""
    folder = config_path(lab).parent
    folder.mkdir(mode=0o700)
    _make_key(folder / _KEY, f"railwright lab {lab.name}")
    write_file(config_path(lab), config_text(lab.plan, folder))
    # Debian creates this empty folder at boot; sshd refuses to run without it.
    _SEPARATION.mkdir(mode=0o755, exist_ok=True)


def start(lab: Lab, host: str) -> None:
    """Start a host's sshd, which listens when this returns. Raises RailwrightError with sshd's output."""
    node, folder = lab.plan.node(host), _find_folder(lab, host)
    folder.mkdir(mode=0o700)
    _make_key(folder / "host_key", f"{host} of railwright lab {lab.name}")
    write_file(folder / "authorized_keys", config_path(lab).with_name(f"{_KEY}.pub").read_bytes())
    write_file(folder / "sshd_config", daemon_text(node, folder))
    log = folder / "sshd.log"
    enter = [*ENTER, "enter", str(NETNS / lab.namespace(host)), host]
    argv = [*enter, str(_SSHD), "-f", str(folder / "sshd_config"), "-E", str(log)]
    check_succeeded(run(argv, timeout_s=_TIMEOUT_S), f"sshd of {host} did not start", _HINT, log)


def write_known_hosts(lab: Lab) -> None:
    """Write every host's key to known_hosts, so that ssh can verify each connection."""
    lines = []
    for node in lab.plan.of_kind("host"):
        key = (_find_folder(lab, node.name) / "host_key.pub").read_text(encoding="ascii").split()
        lines.append(f"{','.join([node.name, *node.loopbacks])} {key[0]} {key[1]}\n")
    write_file(config_path(lab).with_name("known_hosts"), "".join(lines))


def daemon_text(node: Node, folder: Path) -> str:
    """Return `sshd_config`, which accepts only the lab's key."""
    lines = [
        *(f"ListenAddress [{address}]:{_PORT}" if ":" in address else f"ListenAddress {address}:{_PORT}"
          for address in node.loopbacks),
        f"HostKey {folder}/host_key",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        f"PidFile {folder}/sshd.pid",
        "AuthenticationMethods publickey",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "UsePAM no",
        "PermitRootLogin prohibit-password",
        "AllowUsers root",
        "AllowTcpForwarding no",
        "AllowAgentForwarding no",
        "AllowStreamLocalForwarding no",
        "PermitTunnel no",
        "PermitUserEnvironment no",
        "X11Forwarding no",
        "PrintMotd no",
        "UseDNS no",
        "MaxStartups 64",
        # A session whose client is gone ends, and its command with it.
        "ClientAliveInterval 5",
        "ClientAliveCountMax 3",
    ]  # fmt: skip
    return "\n".join([*lines, ""])


def config_text(plan: LabPlan, folder: Path) -> str:
    """Return `ssh_config` with names and addresses of the hosts; it uses no file or agent of the user."""
    lines = []
    for node in plan.of_kind("host"):
        lines += [f"Host {node.name}", f"    HostName {node.loopbacks[0]}"]
        lines += [f"Host {node.name} {' '.join(node.loopbacks)}", f"    HostKeyAlias {node.name}"]
    lines += [
        "Host *",
        "    User root",
        f"    IdentityFile {folder}/{_KEY}",
        "    IdentitiesOnly yes",
        "    IdentityAgent none",
        f"    UserKnownHostsFile {folder}/known_hosts",
        "    GlobalKnownHostsFile none",
        "    StrictHostKeyChecking yes",
        "    UpdateHostKeys no",
        "    BatchMode yes",
        "    ConnectTimeout 5",
        "    LogLevel ERROR",
    ]
    return "\n".join([*lines, ""])


def _make_key(path: Path, comment: str) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    check_succeeded(run(argv, timeout_s=_TIMEOUT_S), f"cannot make the key {path.name}", _HINT)
