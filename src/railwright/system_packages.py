"""The command that installs a package of this system's distribution."""

from __future__ import annotations

import shlex
import shutil

from railwright.installation import find_conda

_LIKE_DNF = ("dnf", "yum", "microdnf", "tdnf")
"""The managers with the packages of Fedora: also those of Amazon Linux 2, of small images and of Azure Linux."""
_MANAGERS = {"apt-get": "install", **dict.fromkeys(_LIKE_DNF, "install"), "zypper": "install", "pacman": "-S",
             "apk": "add"}  # fmt: skip
"""The package managers, in the order in which they are looked for, and the word that installs."""
_NAMES = {
    "openssh-client": {"dnf": "openssh-clients", "zypper": "openssh-clients", "pacman": "openssh"},
    "openssh-server": {"pacman": "openssh"},
    "openvswitch-switch": {
        "dnf": "openvswitch",
        "zypper": "openvswitch",
        "pacman": "openvswitch",
        "apk": "openvswitch",
    },
    "iproute2": {"dnf": "iproute"},
    "procps": {"dnf": "procps-ng", "pacman": "procps-ng", "apk": "procps-ng"},
}
"""The names of Debian's packages in other distributions; a package that is not listed has the same name."""
_IN_CONDA_FORGE = {"openssh-client": "openssh", "openssh-server": "openssh", "procps": "procps-ng"}


def install_command(*packages: str) -> str:
    """Return the command that installs packages, given by Debian's names. Without a known manager, a sentence.

    Conda is the last choice: it has few of them, but needs no root.
    """
    manager = next((name for name in _MANAGERS if shutil.which(name) is not None), None)
    if manager is None and (conda := find_conda()) and all(package in _IN_CONDA_FORGE for package in packages):
        return shlex.join([*conda, *dict.fromkeys(_IN_CONDA_FORGE[package] for package in packages)])
    if manager is None:
        return f"install {' and '.join(packages)} with the package manager of this system"
    family = "dnf" if manager in _LIKE_DNF else manager
    names = (_NAMES.get(package, {}).get(family, package) for package in packages)
    return f"{manager} {_MANAGERS[manager]} {' '.join(names)}"
