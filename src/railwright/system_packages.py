"""The command that installs a package of this system's distribution."""

from __future__ import annotations

import contextlib
import platform
import shlex
import shutil

from railwright.installation import find_conda

_LIKE_DNF = ("dnf", "yum", "microdnf", "tdnf")
"""The managers with the packages of Fedora: also those of Amazon Linux 2, of small images and of Azure Linux."""
_MANAGERS = {"apt-get": "install", **dict.fromkeys(_LIKE_DNF, "install"), "zypper": "install", "pacman": "-S",
             "apk": "add"}  # fmt: skip
"""The package managers, in the order in which they are looked for, and the word that installs."""
_OF_SYSTEMS = {
    **dict.fromkeys(("debian", "ubuntu"), ("apt-get",)),
    **dict.fromkeys(("fedora", "rhel", "centos", "amzn", "azurelinux", "mariner", "photon"), _LIKE_DNF),
    **dict.fromkeys(("suse", "opensuse", "sles"), ("zypper",)),
    "arch": ("pacman",),
    "alpine": ("apk",),
}
"""The managers by ID and ID_LIKE of os-release(5): Fedora and Arch also package apt-get."""
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
    manager = _find_manager()
    if manager is None and (conda := find_conda()) and all(package in _IN_CONDA_FORGE for package in packages):
        return shlex.join([*conda, *dict.fromkeys(_IN_CONDA_FORGE[package] for package in packages)])
    if manager is None:
        return f"install {' and '.join(packages)} with the package manager of this system"
    family = "dnf" if manager in _LIKE_DNF else manager
    names = dict.fromkeys(_NAMES.get(package, {}).get(family, package) for package in packages)
    return f"{manager} {_MANAGERS[manager]} {' '.join(names)}"


def _find_manager() -> str | None:
    """Return the installed package manager of this system, or else any that is installed."""
    found = [name for name in _MANAGERS if shutil.which(name) is not None]
    named: dict[str, str] = {}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        named = platform.freedesktop_os_release()
    systems = f"{named.get('ID', '')} {named.get('ID_LIKE', '')}".split()
    own = (name for system in systems for name in _OF_SYSTEMS.get(system, ()) if name in found)
    return next(own, next(iter(found), None))
