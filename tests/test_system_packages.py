"""Hints to install name the package manager of this system, and its name of the package."""

from __future__ import annotations

import pytest

from railwright import system_packages
from railwright.system_packages import install_command


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
        ("none", "install openssh-client and iproute2 with the package manager of this system"),
    ],
)
def test_the_command_is_that_of_the_system(monkeypatch, manager, command):
    monkeypatch.setattr(system_packages.shutil, "which", lambda name: f"/usr/bin/{name}" if name == manager else None)
    assert install_command("openssh-client", "iproute2") == command


def test_conda_installs_what_it_has_where_nothing_else_does(monkeypatch):
    monkeypatch.setattr(system_packages.shutil, "which", lambda _name: None)
    monkeypatch.setattr(system_packages, "find_conda", lambda: ("conda", "install", "--channel", "conda-forge"))
    assert install_command("openssh-client") == "conda install --channel conda-forge openssh"
    assert install_command("frr", "procps").startswith("install frr and procps with")
