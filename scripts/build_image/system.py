"""The root of the image: Debian packages by apt, unpacked and not configured, and wheels in their own environment.

No program of the image runs during the build, so any machine builds for either architecture. What the packages would
do when they are configured is done here: users, the name service, compiled modules.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from build_image.materials import Part, hash_file

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-wheels/bin/python"
HOME = "opt/railwright"
USER_ID = 1000
PACKAGES = (
    "base-files",
    "coreutils",
    "dash",
    "iproute2",
    "libc-bin",
    "libstdc++6",
    "openssh-client",
    "openssh-server",
    "python3",
)
# Only the scripts that configure packages need these; nothing of Perl is left.
CONFIGURING = {
    "adduser",
    "debconf",
    "dpkg",
    "init-system-helpers",
    "libfile-find-rule-perl",
    "libnumber-compare-perl",
    "libpam-runtime",
    "libperl5.36",
    "libsemanage-common",
    "libsemanage2",
    "libsepol2",
    "libtext-glob-perl",
    "lsb-base",
    "passwd",
    "perl",
    "perl-base",
    "perl-modules-5.36",
    "runit-helper",
    "sysvinit-utils",
    "tar",
    "ucf",
    "usrmerge",
}
LEFT_OUT = (
    "./usr/share/man/*",
    "./usr/share/locale/*",
    "./usr/share/doc-base/*",
    "./usr/share/lintian/*",
    "./usr/share/bash-completion/*",
    "./usr/share/info/*",
    "./usr/share/zoneinfo/*",
    "./lib/systemd/*",
    "./etc/init.d/*",
)
USERS = f"""root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
sshd:x:100:65534::/run/sshd:/usr/sbin/nologin
railwright:x:{USER_ID}:{USER_ID}::/tmp:/bin/sh
"""
GROUPS = f"root:x:0:\ntty:x:5:\nnogroup:x:65534:\nrailwright:x:{USER_ID}:\n"
CONFIG = {
    "User": f"{USER_ID}:{USER_ID}",
    # HOME for users that /etc/passwd does not list; the rest is what NVIDIA's container toolkit reads.
    "Env": [
        f"PATH=/{HOME}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/tmp",
        "LANG=C.UTF-8",
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ],
    "Entrypoint": [f"/{HOME}/bin/python", "-P", "-m", "railwright"],
    "WorkingDir": "/tmp",
}


@dataclass(frozen=True)
class Architecture:
    """The names of an architecture: Debian's, OCI's and the platforms of its wheels."""

    debian: str
    oci: str

    def platforms(self, machine: str) -> list[str]:
        """Return the platforms of wheels that run on Debian 12, the newest first."""
        return [f"manylinux_2_{minor}_{machine}" for minor in range(36, 16, -1)] + [f"manylinux2014_{machine}"]


ARCHITECTURES = {"x86_64": Architecture("amd64", "amd64"), "aarch64": Architecture("arm64", "arm64")}


def run(*words: object, **variables: str) -> str:
    """Run a program and return its output. Exits with the end of its output if it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **variables},
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))[:300]} failed: {done.stdout[-2000:]}")
    return done.stdout


def install(root: Path, work: Path, architecture: str, requirements: list[Path]) -> list[Part]:
    """Install packages and wheels into an empty root. Returns what it is made of."""
    debian = ARCHITECTURES[architecture].debian
    for name in ("bin", "lib", "lib64", "sbin"):  # Debian's packages expect the merged /usr
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    packages = [
        unpack_package(path, root) for path in sorted(download_packages(work, debian)) if not is_configuring(path)
    ]
    (root / "tmp").mkdir(exist_ok=True)
    for name, text in {"passwd": USERS, "group": GROUPS}.items():
        (root / "etc" / name).write_text(text, encoding="utf-8")
    shutil.copy(root / "usr/share/libc-bin/nsswitch.conf", root / "etc/nsswitch.conf")
    version = make_environment(root)
    wheels = [unpack_wheel(path, root) for path in sorted(download_wheels(work, architecture, version, requirements))]
    compile_modules(root, f"usr/lib/python{version}", f"{HOME}/lib")
    return [*packages, *wheels]


def download_packages(work: Path, debian: str) -> list[Path]:
    """Return the packages and all that they depend on, from this machine's sources, checked by apt's keys."""
    state = work / "apt"
    for folder in ("state/lists/partial", "cache/archives/partial", "log"):
        (state / folder).mkdir(parents=True)
    (state / "status").touch()
    config = {
        "Dir::State": state / "state",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "Dir::Log": state / "log",
        "APT::Architecture": debian,
        "APT::Architectures": debian,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
    }
    words = [
        "apt-get",
        "--quiet",
        "--quiet",
        *(word for name, value in config.items() for word in ("-o", f"{name}={value}")),
    ]
    run(*words, "update", LC_ALL="C")
    run(*words, "install", "--yes", "--download-only", *PACKAGES, LC_ALL="C", DEBIAN_FRONTEND="noninteractive")
    return list((state / "cache/archives").glob("*.deb"))


def is_configuring(path: Path) -> bool:
    """Report whether only scripts that do not run here need the package."""
    return path.name.partition("_")[0] in CONFIGURING


def unpack_package(path: Path, root: Path) -> Part:
    """Unpack a package, with its licence but without manuals and translations."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", path], stdout=subprocess.PIPE) as packed:
        words = ["tar", "--extract", "--file=-", "--directory", root, "--keep-directory-symlink", "--no-same-owner"]
        done = subprocess.run([*words, *(f"--exclude={name}" for name in LEFT_OUT)], stdin=packed.stdout, check=False)
    if packed.returncode or done.returncode:
        sys.exit(f"{path.name} cannot be unpacked")
    name, version, architecture = run(
        "dpkg-deb", "--show", "--showformat", "${Package} ${Version} ${Architecture}", path
    ).split()
    documents = root / "usr/share/doc" / name
    if documents.is_dir() and not documents.is_symlink():
        for file in documents.iterdir():
            if file.name != "copyright":
                shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()
    return Part("deb", name, version, architecture, hash_file(path))


def make_environment(root: Path) -> str:
    """Make the environment of the wheels. Returns the image's Python version, which must be this one's."""
    version = next(path.name.removeprefix("python") for path in (root / "usr/lib").glob("python3.*"))
    own = run(PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    if own != version:
        sys.exit(
            f"the Python of .venv-wheels must be {version}, like the image's, because it compiles modules, got {own}"
        )
    home = root / HOME
    (home / "bin").mkdir(parents=True)
    (home / f"lib/python{version}/site-packages").mkdir(parents=True)
    (home / "bin/python").symlink_to("/usr/bin/python3")
    (home / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n")
    return version


def download_wheels(work: Path, architecture: str, version: str, requirements: list[Path]) -> list[Path]:
    """Return the wheels with the hashes of the requirements, for the image's architecture and Python."""
    folder = work / "wheels"
    words = [
        PYTHON,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "download",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--implementation",
        "cp",
        "--python-version",
        version,
        "--dest",
        folder,
    ]
    for platform in ARCHITECTURES[architecture].platforms(architecture):
        words += ["--platform", platform]
    for file in requirements:
        run(*words, "--requirement", file)
    return list(folder.glob("*.whl"))


def unpack_wheel(path: Path, root: Path) -> Part:
    """Unpack a wheel into the environment, as the specification of wheels says. Its scripts start with our Python."""
    home = root / HOME
    site = next((home / "lib").glob("python3.*")) / "site-packages"
    places = {"purelib": site, "platlib": site, "scripts": home / "bin", "data": home, "headers": home / "include"}
    with zipfile.ZipFile(path) as wheel:
        about = next(name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        metadata = email.message_from_bytes(wheel.read(about))
        for entry in wheel.infolist():
            if entry.is_dir():
                continue
            top, _, rest = entry.filename.partition("/")
            kind, _, inner = rest.partition("/")
            target = places[kind] / inner if top.endswith(".data") else site / entry.filename
            target.parent.mkdir(parents=True, exist_ok=True)
            content = wheel.read(entry)
            if kind == "scripts":
                content = re.sub(rb"\A#!python[w]?", f"#!/{HOME}/bin/python".encode(), content)
            target.write_bytes(content)
            is_program = kind == "scripts" or entry.external_attr >> 16 & stat.S_IXUSR
            target.chmod(0o755 if is_program else 0o644)
    licence = metadata["License-Expression"] or metadata["License"] or ""
    return Part(
        "pypi",
        metadata["Name"],
        metadata["Version"],
        "",
        hash_file(path),
        licence.strip().splitlines()[0][:100] if licence.strip() else "",
    )


def add_own_wheel(root: Path, path: Path) -> Part:
    """Make the layer of this package: its modules compiled, its command, and the mark that it came in an image."""
    version = run(PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    site = root / HOME / f"lib/python{version}/site-packages"
    site.mkdir(parents=True)
    part = unpack_wheel(path, root)
    (next(site.glob("railwright-*.dist-info")) / "INSTALLER").write_text("railwright-image\n", encoding="utf-8")
    compile_modules(root, f"{HOME}/lib")
    command = root / HOME / "bin/railwright"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec /{HOME}/bin/python -P -m railwright "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    (root / "run/sshd").mkdir(parents=True)  # sshd refuses to start as root without it
    return part


def compile_modules(root: Path, *folders: str) -> None:
    """Compile the modules: the image is read-only, so what is not compiled here would be compiled at every start."""
    for folder in folders:
        run(
            PYTHON,
            "-m",
            "compileall",
            "-q",
            "-s",
            root,
            "-p",
            "/",
            "--invalidation-mode",
            "unchecked-hash",
            root / folder,
        )


def read_version() -> str:
    """Return the version of this source."""
    text = (ROOT / "src/railwright/__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]  # type: ignore[index]
