"""Hints to install name the package manager of this system, and its name of the package."""

from __future__ import annotations

import pytest

from railwright import system_packages
from railwright.system_packages import install_command


def have(monkeypatch: pytest.MonkeyPatch, *managers: str, system: str = "", like: str = "") -> None:
    """Let the system have these package managers and this os-release. Without `system` it has none."""

    def os_release() -> dict[str, str]:
        if not system:
            raise OSError("no os-release")
        return {"ID": system, **({"ID_LIKE": like} if like else {})}

    monkeypatch.setattr(system_packages.shutil, "which", lambda name: f"/usr/bin/{name}" if name in managers else None)
    monkeypatch.setattr(system_packages.platform, "freedesktop_os_release", os_release)


@pytest.mark.parametrize(
    ("managers", "system", "like", "command"),
    [
        (("apt-get", "dnf"), "fedora", "", "dnf install openssh-clients"),
        (("apt-get", "dnf"), "rocky", "rhel centos fedora", "dnf install openssh-clients"),
        (("apt-get", "yum"), "amzn", "centos rhel fedora", "yum install openssh-clients"),
        (("dnf", "zypper"), "opensuse-leap", "suse opensuse", "zypper install openssh-clients"),
        (("apt-get", "zypper"), "sles", "suse", "zypper install openssh-clients"),
        (("apt-get", "pacman"), "manjaro", "arch", "pacman -S openssh"),
        (("apt-get", "apk"), "alpine", "", "apk add openssh-client"),
        (("apt-get", "dnf"), "linuxmint", "ubuntu debian", "apt-get install openssh-client"),
        (("microdnf", "apt-get"), "rhel", "fedora", "microdnf install openssh-clients"),
        (("tdnf", "apt-get"), "photon", "", "tdnf install openssh-clients"),
        (("apt-get",), "fedora", "", "apt-get install openssh-client"),
        (("apt-get",), "gentoo", "", "apt-get install openssh-client"),
        ((), "gentoo", "", "install openssh-client with the package manager of this system"),
    ],
)
def test_the_manager_of_the_system_comes_before_others_that_are_installed(monkeypatch, managers, system, like, command):
    have(monkeypatch, *managers, system=system, like=like)
    assert install_command("openssh-client") == command


def test_a_package_that_holds_two_is_named_once(monkeypatch):
    have(monkeypatch, "pacman", system="arch")
    assert install_command("openssh-client", "openssh-server") == "pacman -S openssh"


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("apt-get", "apt-get install openssh-client iproute2"),
        ("dnf", "dnf install openssh-clients iproute"),
        ("yum", "yum install openssh-clients iproute"),
        ("microdnf", "microdnf install openssh-clients iproute"),
        ("tdnf", "tdnf install openssh-clients iproute"),
        ("zypper", "zypper install openssh-clients iproute2"),
        ("apk", "apk add openssh-client iproute2"),
        ("pacman", "pacman -S openssh iproute2"),
        ("none", "install openssh-client and iproute2 with the package manager of this system"),
    ],
)
def test_the_command_is_that_of_the_system(monkeypatch, manager, command):
    have(monkeypatch, manager)
    assert install_command("openssh-client", "iproute2") == command


def test_conda_installs_what_it_has_where_nothing_else_does(monkeypatch):
    monkeypatch.setattr(system_packages.shutil, "which", lambda _name: None)
    monkeypatch.setattr(system_packages, "find_conda", lambda: ("conda", "install", "--channel", "conda-forge"))
    assert install_command("openssh-client") == "conda install --channel conda-forge openssh"
    assert install_command("frr", "procps").startswith("install frr and procps with")
