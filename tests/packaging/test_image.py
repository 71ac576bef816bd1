"""The container image: whole, small, and of use to any user without a place to write but /tmp."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USER = 4711
pytestmark = [pytest.mark.machine, pytest.mark.long]


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("image") / "image.tar"
    subprocess.run([ROOT / "scripts/build-image", "--without-nixl", path], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def root(archive, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("root")
    subprocess.run([ROOT / "scripts/unpack-image", archive, path], check=True)
    path.chmod(0o755)
    return path


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}


def test_the_archive_is_whole_and_holds_at_most_250_mb(archive):
    found = members(archive)
    blobs = {name.rpartition("/")[2]: content for name, content in found.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(content).hexdigest() == digest for digest, content in blobs.items())
    (only,) = json.loads(found["index.json"])["manifests"]
    manifest = json.loads(blobs[only["digest"].partition(":")[2]])
    config = json.loads(blobs[manifest["config"]["digest"].partition(":")[2]])
    assert config["architecture"] == {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    assert len(config["rootfs"]["diff_ids"]) == len(manifest["layers"]) == 2


def test_the_root_is_small_and_no_program_changes_its_user(root):
    files = [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
    assert sum(file.lstat().st_size for file in files) < 250e6
    assert not [file for file in files if not file.is_symlink() and file.stat().st_mode & 0o6000]


def test_the_bill_names_each_package_and_wheel_of_the_root(archive, root):
    bill = json.loads(archive.with_suffix(".cdx.json").read_text())
    assert bill == json.loads((root / "opt/railwright/share/railwright.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    named = {part["name"].lower().replace("_", "-") for part in bill["components"]}
    wheels = {
        path.name.partition("-")[0] for path in root.glob("opt/railwright/lib/python3*/site-packages/*.dist-info")
    }
    assert {name.lower().replace("_", "-") for name in wheels} <= named
    assert {path.name for path in (root / "usr/share/doc").iterdir() if not path.is_symlink()} <= named
    assert all(len(part["hashes"][0]["content"]) == 64 for part in bill["components"])


def test_two_builds_are_equal(archive, tmp_path):
    again = tmp_path / "again.tar"
    subprocess.run([ROOT / "scripts/build-image", "--without-nixl", again], check=True, capture_output=True)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(archive.read_bytes()).digest()


def inside(root: Path, *words: str, status: tuple[int, ...] = (0,)) -> str:
    """Run a command as a user that the image does not know, with a read-only root and an empty /tmp."""
    script = """
        mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"
        mount -t proc proc "$1/proc"; mount --rbind /sys "$1/sys"; mount --rbind /dev "$1/dev"
        mount -t tmpfs -o mode=1777 tmp "$1/tmp"; root=$1; user=$2; shift 2
        exec chroot --userspec="$user:$user" "$root" /usr/bin/env -i PATH=/opt/railwright/bin:/usr/bin HOME=/tmp \
            RAILWRIGHT_NOISE=off sh -c 'cd /tmp && exec "$@"' sh "$@"
    """
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script, "sh", root, str(USER), *words]
    done = subprocess.run(argv, text=True, capture_output=True, timeout=300, check=False)
    assert done.returncode in status, (done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def test_any_user_measures_without_a_place_to_write_but_tmp(root):
    words = ("-o", "mpi_latency.sizes=8", "-o", "mpi_latency.transports=shm", "-o", "memory_copy.sizes=64K", "--force")
    said = inside(root, "railwright", "run", "memory_copy", "mpi_latency", "--alone", *words, status=(0, 1, 3))
    assert "mpi_latency" in said
    assert "not run" not in said


def test_a_missing_part_is_told_in_words_for_an_image(root):
    assert "scripts/build-image --with FILE" in inside(root, "railwright", "--version")
