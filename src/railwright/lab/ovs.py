"""Open vSwitch of a host: an ovsdb-server and an ovs-vswitchd of its own, with the userspace datapath.

They come up without a bridge: which ports go where is for whoever uses the lab. `ovs-vsctl --db=unix:FOLDER/db.sock`
reaches the database, and `FOLDER/BRIDGE.mgmt` a bridge, from outside the namespace too.
"""

from __future__ import annotations

from pathlib import Path

from railwright.errors import RailwrightError, UsageError
from railwright.lab.state import Lab
from railwright.process import Finished, run

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_TIMEOUT_S = 30.0


def check_installed() -> None:
    """Raises UsageError where Open vSwitch is not there."""
    if not SCHEMA.exists():
        raise UsageError("Open vSwitch is not installed", hint="apt-get install openvswitch-switch ethtool")


def folder_of(lab: Lab, host: str) -> Path:
    """Database, sockets and logs of a host's Open vSwitch."""
    return lab.node_folder(host) / "ovs"


def start(lab: Lab, host: str) -> None:
    """Start both daemons of a host. Raises RailwrightError, with what they said."""
    folder = folder_of(lab, host)
    folder.mkdir(parents=True)
    environment = ["env", *(f"OVS_{what}={folder}" for what in ("RUNDIR", "DBDIR", "SYSCONFDIR", "LOGDIR"))]
    _must(run(["ovsdb-tool", "create", f"{folder}/conf.db", str(SCHEMA)], timeout_s=_TIMEOUT_S), host)
    _must(
        lab.run(
            host,
            [*environment, "ovsdb-server", f"{folder}/conf.db", f"--remote=punix:{folder}/db.sock",
             f"--unixctl={folder}/ovsdb.ctl", *_background(folder, "ovsdb-server")],
        ),
        host,
    )  # fmt: skip
    _must(run(["ovs-vsctl", f"--db=unix:{folder}/db.sock", "--no-wait", "init"], timeout_s=_TIMEOUT_S), host)
    _must(
        lab.run(
            host,
            [*environment, "ovs-vswitchd", f"unix:{folder}/db.sock", "--disable-system", "--disable-system-route",
             f"--unixctl={folder}/vswitchd.ctl", *_background(folder, "ovs-vswitchd")],
        ),
        host,
    )  # fmt: skip


def _background(folder: Path, daemon: str) -> list[str]:
    return [
        f"--pidfile={folder}/{daemon}.pid", f"--log-file={folder}/{daemon}.log", "--detach", "--no-chdir",
        "-vconsole:off",
    ]  # fmt: skip


def _must(finished: Finished, host: str) -> None:
    if finished.returncode != 0:
        said = "; ".join(finished.output[-3:]) or finished.describe()
        raise RailwrightError(f"Open vSwitch of {host} did not start: {said}", hint="try it without --ovs")
