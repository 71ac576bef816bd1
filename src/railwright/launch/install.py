"""Installs a hashed list of wheels with pip, without their declared dependencies."""

from __future__ import annotations

from pathlib import Path

from railwright.process import Finished, run

_TIMEOUT_S = 1800.0


def install(python: str, requirements: Path) -> Finished:
    """Run pip, and return how it ended."""
    arguments = ["install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--disable-pip-version-check"]
    return run([python, "-P", "-m", "pip", *arguments, "--requirement", str(requirements)], timeout_s=_TIMEOUT_S)
