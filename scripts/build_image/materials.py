"""The bill of materials of the image, in CycloneDX 1.6: every Debian package and wheel, with its hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True)
class Part:
    """A package, and the file that it was installed from."""

    kind: str
    """The type of its package URL: `deb` or `pypi`."""
    name: str
    version: str
    architecture: str
    sha256: str
    licence: str = ""
    """As the package states it; empty if it has only texts, as Debian's packages."""

    @property
    def url(self) -> str:
        """The package URL."""
        vendor, more = ("debian/", f"?arch={self.architecture}") if self.kind == "deb" else ("", "")
        return f"pkg:{self.kind}/{vendor}{quote(self.name)}@{quote(self.version)}{more}"


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def keep(parts: list[Part], folder: Path) -> None:
    """Store the parts of a layer beside it."""
    (folder / "parts.json").write_text(json.dumps([asdict(part) for part in parts]), encoding="utf-8")


def recall(folder: Path) -> list[Part]:
    """Return the parts of a stored layer."""
    return [Part(**part) for part in json.loads((folder / "parts.json").read_text(encoding="utf-8"))]


def describe(version: str, parts: list[Part]) -> str:
    """Return the bill as JSON. It has no time and no serial number, so that two builds are equal."""
    components = [
        {
            "type": "library",
            "bom-ref": part.url,
            "name": part.name,
            "version": part.version,
            "purl": part.url,
            "hashes": [{"alg": "SHA-256", "content": part.sha256}],
            **({"licenses": [{"license": {"name": part.licence}}]} if part.licence else {}),
        }
        for part in sorted(parts, key=lambda part: part.url)
    ]
    about = {"component": {"type": "container", "name": "railwright", "version": version}}
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": about, "components": components}
    return json.dumps(bill, indent=1) + "\n"
