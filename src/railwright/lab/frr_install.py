"""The locations of FRR's daemons: Debian's package, and a newer release in a separate root folder."""

from __future__ import annotations

import os
from pathlib import Path

from railwright.errors import UsageError
from railwright.lab.nodes import FrrVersion
from railwright.system_packages import install_command

_INSTALLED = Path("/usr/lib/frr")
FRR10_VARIABLE = "RAILWRIGHT_FRR10"
"""The folder with FRR 10's unpacked Debian packages and the libraries that they need."""
_DAEMONS = ("zebra", "bgpd")
RUN_FOLDER = Path("/run/frr")
"""Parent of the folder of each node with the sockets of FRR 10's management daemon; no option moves them."""
_LOADER = "lib64/ld-linux-x86-64.so.2"
_LIBRARIES = ("usr/lib/x86_64-linux-gnu/frr", "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")


def programs(version: FrrVersion) -> dict[str, list[str]]:
    """Return the first words of each daemon's argument list, in start order. Raises UsageError if FRR is missing."""
    if version == "8":
        if not (_INSTALLED / "bgpd").exists():
            raise UsageError("FRR is not installed", hint=install_command("frr"))
        return {daemon: [str(_INSTALLED / daemon)] for daemon in _DAEMONS}
    root = Path(os.environ.get(FRR10_VARIABLE, "/opt/railwright/frr10"))
    loader = next((root / path for path in (_LOADER, f"usr/{_LOADER}") if (root / path).exists()), None)
    if loader is None or not (root / "usr/lib/frr/bgpd").exists():
        hint = f"unpack it with make test-deps, or set {FRR10_VARIABLE} to its folder"
        raise UsageError(f"FRR 10 is not in {root}", hint=hint)
    libraries = ":".join(str(root / path) for path in _LIBRARIES)
    words = [str(loader), "--library-path", libraries]
    # FRR 10 configures interfaces through its management daemon, which must start first.
    return {daemon: [*words, str(root / "usr/lib/frr" / daemon)] for daemon in ("mgmtd", *_DAEMONS)}
