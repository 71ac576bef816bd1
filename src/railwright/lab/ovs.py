"""Open vSwitch of a host: an ovsdb-server and an ovs-vswitchd of its own, with the userspace datapath.

They come up without a bridge: which ports go where is for whoever uses the lab. `ovs-vsctl --db=unix:FOLDER/db.sock`
reaches the database, and `FOLDER/BRIDGE.mgmt` a bridge, from outside the namespace too.
"""

from __future__ import annotations

from pathlib import Path

from railwright.errors import UsageError
from railwright.lab.state import Lab, must
from railwright.process import Finished, run

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_TIMEOUT_S = 30.0


def check_installed() -> None:
    """Raises UsageError if Open vSwitch is not installed."""
    if not SCHEMA.exists():
        raise UsageError("Open vSwitch is not installed", hint="apt-get install openvswitch-switch ethtool")


def start(lab: Lab, host: str) -> None:
    """Start both daemons of a host; all their files are in one folder. Raises RailwrightError, with what they said."""
    folder = lab.node_folder(host) / "ovs"
    folder.mkdir(parents=True)
    environment = ["env", *(f"OVS_{what}={folder}" for what in ("RUNDIR", "DBDIR", "SYSCONFDIR", "LOGDIR"))]

    def check(finished: Finished) -> None:
        must(finished, f"Open vSwitch of {host} did not start", "try it without --ovs")

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
