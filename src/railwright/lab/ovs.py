"""Open vSwitch of a host: its own ovsdb-server and ovs-vswitchd, with the userspace datapath.

They start without a bridge; the lab's user adds bridges and ports. `ovs-vsctl --db=unix:FOLDER/db.sock` reaches the
database, and `FOLDER/BRIDGE.mgmt` a bridge, also from outside the namespace.
"""

from __future__ import annotations

from pathlib import Path

from railwright.errors import UsageError
from railwright.lab.state import Lab, check_succeeded
from railwright.process import ChildResult, run
from railwright.system_packages import install_command

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_TIMEOUT_S = 30.0


def check_installed() -> None:
    """Check that Open vSwitch is installed. Raises UsageError."""
    if not SCHEMA.exists():
        raise UsageError("Open vSwitch is not installed", hint=install_command("openvswitch-switch", "ethtool"))


def start(lab: Lab, host: str) -> None:
    """Start both daemons of a host. Raises RailwrightError with the output of a daemon that fails."""
    folder = lab.node_folder(host) / "ovs"
    folder.mkdir(parents=True)
    environment = ["env", *(f"OVS_{name}={folder}" for name in ("RUNDIR", "DBDIR", "SYSCONFDIR", "LOGDIR"))]

    def check(finished: ChildResult) -> None:
        check_succeeded(finished, f"Open vSwitch of {host} did not start", "try it without --ovs")

    def start_daemon(daemon: str, *words: str) -> None:
        files = (f"--pidfile={folder}/{daemon}.pid", f"--log-file={folder}/{daemon}.log")
        background = ("--detach", "--no-chdir", "-vconsole:off")
        check(lab.run(host, [*environment, daemon, *words, *files, *background]))

    check(run(["ovsdb-tool", "create", f"{folder}/conf.db", str(SCHEMA)], timeout_s=_TIMEOUT_S))
    database = f"unix:{folder}/db.sock"
    start_daemon("ovsdb-server", f"{folder}/conf.db", f"--remote=p{database}", f"--unixctl={folder}/ovsdb.ctl")
    check(run(["ovs-vsctl", f"--db={database}", "--no-wait", "init"], timeout_s=_TIMEOUT_S))
    no_system = ("--disable-system", "--disable-system-route")
    start_daemon("ovs-vswitchd", database, *no_system, f"--unixctl={folder}/vswitchd.ctl")
