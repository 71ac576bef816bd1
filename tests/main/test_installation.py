"""The command that adds a part fits the origin of the installation and the program that made it."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
from pathlib import Path

import pytest

from railwright import installation
from railwright.installation import Installation, find_installation
from railwright.native import nixl
from railwright.options import version

REQUIREMENTS = (
    "click>=8.2",
    "mkl>=2026.2; (platform_machine == 'x86_64') and extra == 'hpl'",
    "h5py; extra == 'samples'",
)


def test_the_command_names_the_origin(tmp_path: Path) -> None:
    wheel = tmp_path / "railwright-1-py3-none-any.whl"
    wheel.touch()
    url = wheel.as_uri()
    for here, command in (
        (Installation("pip", "pip"), "pip install 'railwright[hpl]'"),
        (Installation("pip", "/v/python"), "/v/python -m pip install 'railwright[hpl]'"),
        (Installation("pip", "pip", url), f"pip install 'railwright[hpl] @ {url}'"),
        (Installation("uv", "/v/python", url), f"uv pip install --python /v/python 'railwright[hpl] @ {url}'"),
        (Installation("uv tool", "/v/python", url), f"uv tool install --force 'railwright[hpl] @ {url}'"),
        (Installation("pipx", "/v/python", url), f"pipx install --force 'railwright[hpl] @ {url}'"),
        (Installation("pip", "pip", tmp_path.as_uri(), True), f"pip install --editable '{tmp_path}[hpl]'"),
        (Installation("pipx", "p", tmp_path.as_uri(), True), f"pipx install --force --editable '{tmp_path}[hpl]'"),
        (
            Installation("pip", "pip", "git+https://host/a@c0ffee"),
            "pip install 'railwright[hpl] @ git+https://host/a@c0ffee'",
        ),
        (Installation("image", "python"), "scripts/build-image --with FILE, with the requirements in FILE"),
    ):
        assert here.add_extra("hpl") == command


def test_an_origin_that_is_gone_is_not_named(tmp_path: Path) -> None:
    here = Installation("pip", "pip", (tmp_path / "gone.whl").as_uri(), requirements=REQUIREMENTS)
    assert here.add_extra("hpl") == "pip install 'mkl>=2026.2'"
    assert here.add_extra("samples") == "pip install h5py"


def test_what_no_origin_names_is_not_looked_for_again() -> None:
    """pipx and uv tool would fail to find railwright itself, where a folder of wheels was its origin."""
    for installer, command in (
        ("pipx", "pipx inject railwright h5py"),
        ("uv tool", "uv pip install --python /v/python h5py"),
        ("uv", "uv pip install --python /v/python 'railwright[samples]'"),
        ("pip", "/v/python -m pip install 'railwright[samples]'"),
    ):
        assert Installation(installer, "/v/python", requirements=REQUIREMENTS).add_extra("samples") == command


def test_nixl_is_missing_in_words_for_this_installation(monkeypatch) -> None:
    monkeypatch.setattr(nixl, "find_installation", lambda: Installation("image", "python"))
    assert "scripts/build-image without --without-nixl" in nixl.explain_missing()
    monkeypatch.setattr(nixl, "find_installation", lambda: Installation("pip", "pip"))
    assert "`railwright setup nixl`" in nixl.explain_missing()


def test_no_command_is_named_for_mkl_on_aarch64(monkeypatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    (line,) = (line for line in version._list_parts() if line.startswith("mkl "))
    assert line.endswith("(hpl: x86-64 alone)")


def test_packages_are_added_beside() -> None:
    assert Installation("pipx", "/v/python").add("cudf-cu13") == "pipx inject railwright cudf-cu13"
    assert Installation("uv tool", "/v/python").add("cudf-cu13") == "uv pip install --python /v/python cudf-cu13"


def test_conda_adds_what_conda_forge_has(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "conda-meta").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(installation.shutil, "which", {"mamba": "/m/mamba"}.get)
    for place, words in ((tmp_path, "mamba install"), (tmp_path / "other", f"mamba install --prefix {tmp_path}")):
        monkeypatch.setenv("CONDA_PREFIX", str(place))
        here = Installation("pip", "pip", requirements=REQUIREMENTS, conda=installation.find_conda())
        assert here.add("openmpi") == f"{words} --channel conda-forge openmpi"
        assert here.add_extra("hpl") == f"{words} --channel conda-forge 'mkl>=2026.2'"
        assert here.add("nvidia-nccl-cu13") == "pip install nvidia-nccl-cu13"
    monkeypatch.setattr(installation.shutil, "which", lambda _name: None)
    for name in ("CONDA_EXE", "MAMBA_EXE"):
        monkeypatch.delenv(name, raising=False)
    assert installation.find_conda() == ()


@pytest.mark.parametrize(
    ("files", "beside", "installer", "origin"),
    [
        ({}, "", "pip", ""),
        ({"INSTALLER": "uv\n"}, "", "uv", ""),
        ({"INSTALLER": "pip"}, "pipx_metadata.json", "pipx", ""),
        ({"INSTALLER": "uv"}, "uv-receipt.toml", "uv tool", ""),
        ({"INSTALLER": installation.IMAGE_MARK}, "", "image", ""),
        ({"direct_url.json": json.dumps({"url": "file:///a.whl", "archive_info": {}})}, "", "pip", "file:///a.whl"),
        (
            {"direct_url.json": json.dumps({"url": "https://h/a", "vcs_info": {"vcs": "git", "commit_id": "1"}})},
            "",
            "pip",
            "git+https://h/a@1",
        ),
        ({"direct_url.json": "broken"}, "", "pip", ""),
    ],
)
def test_the_metadata_tells_installer_and_origin(monkeypatch, tmp_path, files, beside, installer, origin) -> None:
    about = tmp_path / "railwright-1.dist-info"
    about.mkdir()
    for name, text in {"METADATA": "Metadata-Version: 2.1\nName: railwright\nVersion: 1\n", **files}.items():
        (about / name).write_text(text)
    if beside:
        (tmp_path / beside).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(installation, "has_pip", lambda: True)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _name: importlib.metadata.PathDistribution(about))
    found = find_installation()
    assert (found.installer, found.origin) == (installer, origin)


def test_a_tree_that_was_never_installed_is_served_by_the_index(monkeypatch) -> None:
    def refuse(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", refuse)
    assert find_installation().add_extra("tables").endswith("install 'railwright[tables]'")
