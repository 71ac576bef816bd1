"""OCI archives for `podman load`, `ctr images import` and `skopeo copy oci-archive:`: equal roots give equal bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any, BinaryIO

from build_image.materials import hash_file

KINDS = {
    "layer": "application/vnd.oci.image.layer.v1.tar+gzip",
    "config": "application/vnd.oci.image.config.v1+json",
    "manifest": "application/vnd.oci.image.manifest.v1+json",
}


class Layer:
    """A packed layer in a folder: `layer.tar.gz`, with the digest and the size of the tar in `unpacked.json`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archive = folder / "layer.tar.gz"
        about = json.loads((folder / "unpacked.json").read_text(encoding="utf-8"))
        self.unpacked_bytes: int = about["bytes"]
        self.unpacked_digest: str = about["sha256"]


class _Counted:
    """A stream that hashes and counts what is written to it, and passes it on."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self.stream, self.digest, self.size = stream, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self.stream.write(data)


def pack_layer(root: Path, folder: Path) -> None:
    """Pack a root into the folder."""
    with (folder / "layer.tar.gz").open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        counted = _Counted(packed)
        with tarfile.open(fileobj=counted, mode="w|", format=tarfile.GNU_FORMAT) as tar:  # type: ignore[call-overload]
            for name in sorted(_list_names(root)):
                tar.add(root / name, name, recursive=False, filter=_plain)
    about = {"sha256": counted.digest.hexdigest(), "bytes": counted.size}
    (folder / "unpacked.json").write_text(json.dumps(about), encoding="utf-8")


def _list_names(root: Path) -> list[str]:
    """Return all names below a root, relative to it, without following links."""
    return [
        os.path.relpath(Path(folder, name), root)
        for folder, folders, files in os.walk(root)
        for name in folders + files
    ]


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Give a file to root, without a time. No program changes its user, and everyone may write to /tmp alone."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    if entry.name == "tmp":
        entry.mode = 0o1777
    elif not entry.issym():
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o111 else 0o644
    return entry


def write_archive(output: Path, name: str, architecture: str, layers: list[Layer], config: dict[str, Any]) -> None:
    """Write the image with its name; the file appears when it is complete."""
    digests = [hash_file(layer.archive) for layer in layers]
    text = _encode(
        {
            "architecture": architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.unpacked_digest}" for layer in layers]},
        }
    )
    blobs = {hashlib.sha256(text).hexdigest(): text}
    described = [
        _descriptor("layer", layer.archive.stat().st_size, digest)
        for layer, digest in zip(layers, digests, strict=True)
    ]
    manifest = _encode(
        {
            "schemaVersion": 2,
            "mediaType": KINDS["manifest"],
            "layers": described,
            "config": _descriptor("config", len(text), next(iter(blobs))),
        }
    )
    digest = hashlib.sha256(manifest).hexdigest()
    blobs[digest] = manifest
    named = {"io.containerd.image.name": _full_name(name), "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    only = _descriptor("manifest", len(manifest), digest) | {
        "annotations": named,
        "platform": {"architecture": architecture, "os": "linux"},
    }
    new = output.with_name(f".{output.name}.new")
    with tarfile.open(new, "w", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", _encode({"schemaVersion": 2, "manifests": [only]}))
        for one, content in blobs.items():
            _add(archive, f"blobs/sha256/{one}", content)
        for layer, one in zip(layers, digests, strict=True):
            with layer.archive.open("rb") as file:
                _add(archive, f"blobs/sha256/{one}", file, layer.archive.stat().st_size)
    new.rename(output)


def _add(archive: tarfile.TarFile, name: str, content: bytes | BinaryIO, size: int = 0) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content) if isinstance(content, bytes) else size
    archive.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else content)


def _encode(value: object) -> bytes:
    return json.dumps(value).encode()


def _descriptor(kind: str, size: int, digest: str) -> dict[str, object]:
    return {"mediaType": KINDS[kind], "digest": f"sha256:{digest}", "size": size}


def _full_name(name: str) -> str:
    """Return the image name with the registry and the folder that container runtimes add."""
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in first or ":" in first or first == "localhost" else f"docker.io/{name}"
