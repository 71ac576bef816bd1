"""The wheels of `make wheels`: the same bytes each time, and all verbs on a machine without a compiler."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from tests.conftest import PATIENCE_S

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "testdata/external/nccl_tests/2.19.6-all_reduce-p2p-off-2xh200.txt"
pytestmark = pytest.mark.machine


def build(folder: Path) -> Path:
    subprocess.run([ROOT / "scripts/build-wheels", folder], check=True, capture_output=True)
    return folder


def wheel_for(architecture: str, folder: Path) -> Path:
    (wheel,) = folder.glob(f"railwright-*-py3-none-manylinux_2_28_{architecture}.whl")
    return wheel


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory, dist) -> dict[str, str]:
    """The environment of a host that has the wheel, its requirements and no compiler on PATH."""
    python = ROOT / ".venv-host/bin/python"  # `make .venv-host/ready` installed the requirements
    words = ["-q", "--no-deps", "--no-index", "--force-reinstall", wheel_for("x86_64", dist)]
    subprocess.run([python, "-m", "pip", "install", *words], check=True)
    home = tmp_path_factory.mktemp("host")
    tools = home / "bin"
    tools.mkdir()
    for name in ("sh", "ip", "tc", "nft", "sysctl", "mount", "umount", "nsenter"):
        if found := shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin"):
            (tools / name).symlink_to(found)
    return {"PATH": f"{python.parent}:{tools}", "HOME": str(home), "LANG": "C.UTF-8"}


def run(installed, tmp_path, *words: str, status: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        ["railwright", *words], env=installed, cwd=tmp_path, text=True, capture_output=True, check=False,
        timeout=3 * PATIENCE_S,  # of several launches
    )  # fmt: skip
    assert done.returncode in status, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def test_both_architectures_have_the_library_and_no_sources(dist):
    for architecture, machine in (("x86_64", 62), ("aarch64", 183)):
        with zipfile.ZipFile(wheel_for(architecture, dist)) as wheel:
            names = wheel.namelist()
            header = wheel.read("railwright/native/_loops.so")[:20]
        assert int.from_bytes(header[18:20], "little") == machine
        assert not [name for name in names if name.endswith((".c", ".h", ".cu", ".pyc"))]
        assert "railwright/py.typed" in names
        pages = {name.rpartition("/share/man/man1/")[2] for name in names if ".data/data/share/man/man1/" in name}
        assert {"railwright.1", "railwright-prove.1", "railwright-lab-up.1"} <= pages


@pytest.mark.long
def test_the_same_source_gives_the_same_bytes(dist, tmp_path):
    build(tmp_path)
    first, second = (
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("railwright-*")}
        for folder in (dist, tmp_path)
    )
    assert len(second) == 3
    assert first == second


def test_the_copy_kernel_calls_no_memcpy():
    """A loop that became a call would measure libc, whose stores bypass the cache."""
    library = ROOT / "src/railwright/native/_loops.so"
    words = ["objdump", "--disassemble=run_kernel", library]
    code = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert "run_kernel" in code
    assert "call" not in code


def test_the_description_has_no_relative_link(dist):
    with zipfile.ZipFile(wheel_for("x86_64", dist)) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        text = wheel.read(name).decode()
    assert "Description-Content-Type: text/markdown" in text
    assert "](docs/" not in text
    assert "](node/" not in text


@pytest.fixture(scope="module")
def source(tmp_path_factory, dist) -> Path:
    """The unpacked source archive."""
    folder = tmp_path_factory.mktemp("source")
    (archive,) = dist.glob("railwright-*.tar.gz")
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    (top,) = folder.iterdir()
    return top


def test_the_source_archive_has_all_that_git_knows(source):
    words = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"]
    known = set(subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines())
    here = {str(path.relative_to(source)) for path in source.rglob("*") if not path.is_dir()}
    assert here - known == {"PKG-INFO"}
    assert {name for name in known - here if (ROOT / name).exists()} == set()


@pytest.mark.long
def test_the_source_archive_builds_the_same_archive_and_wheel(source, dist, tmp_path):
    (source / ".venv-wheels").symlink_to(ROOT / ".venv-wheels")
    subprocess.run([source / "scripts/build-wheels", tmp_path, "aarch64"], check=True, capture_output=True)
    assert wheel_for("aarch64", tmp_path).read_bytes() == wheel_for("aarch64", dist).read_bytes()
    (first,), (second,) = (folder.glob("railwright-*.tar.gz") for folder in (dist, tmp_path))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.long
def test_the_tests_of_the_source_archive_run_there(source):
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/results/test_old_files.py", "tests/test_units.py"]
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    python = ROOT / ".venv/bin/python"
    subprocess.run([python, *words], cwd=source, env=environment, check=True, capture_output=True)


def test_a_host_without_compiler_explains_and_derives(installed, tmp_path):
    assert "p2p_disabled" in run(
        installed, tmp_path, "explain", str(TABLE), "--host", "hgx-h200", "gpus=2", status=(1,)
    )
    limits = run(installed, tmp_path, "limits", "--host", "hgx-h100", "--collective", "all_reduce", "--json")
    assert json.loads(limits.splitlines()[0])


def test_a_host_without_compiler_measures_and_judges(installed, tmp_path):
    words = ("-o", "mpi_latency.sizes=8:1K:x16", "-o", "mpi_latency.transports=shm", "-o", "memory_copy.sizes=64K",
             "--force", "--output", "found")  # fmt: skip
    run(installed, tmp_path, "run", "memory_copy", "mpi_latency", *words, status=(0, 1, 3))
    lines = [json.loads(line) for line in (tmp_path / "found/results.jsonl").read_text().splitlines()]
    results = [line for line in lines if line["record"] == "result"]
    assert {line["benchmark"] for line in results} >= {"memory_copy", "mpi_latency"}
    assert all(line["verification"]["bytes_wrong"] == 0 for line in results if line.get("verification"))
    run(installed, tmp_path, "judge", "found", status=(0, 1, 3))
    assert (tmp_path / "found/report.html").stat().st_size > 10_000


def test_a_missing_part_is_named_with_the_command_for_this_installation(installed, dist, tmp_path):
    wheel = wheel_for("x86_64", dist).as_uri()
    said = run(installed, tmp_path, "--version")
    for extra in ("gpu", "hpl", "tables", "samples"):
        assert f"pip install 'railwright[{extra}] @ {wheel}'" in said
    said = run(installed, tmp_path, "run", "deepcam_read", "--alone", "--force", status=(0, 3))
    assert f"railwright[samples] @ {wheel}" in said.replace("\n", "").replace(" ", "").replace("@", " @ ")


def test_wheels_in_a_folder_replace_the_index(installed, tmp_path):
    (tmp_path / "nixl_cu13-0.1-py3-none-any.whl").touch()
    offline = installed | {"PIP_INDEX_URL": "http://127.0.0.1:9"}
    words = ["railwright", "setup", "nixl", "--wheels", str(tmp_path)]
    done = subprocess.run(words, env=offline, text=True, capture_output=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "installing nixl failed" in done.stderr
    assert "pip download --no-deps" in done.stderr


def test_a_host_without_compiler_watches_a_job(installed, tmp_path):
    loop = "i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done"
    assert "CPU" in run(installed, tmp_path, "watch", "--", "sh", "-c", loop, status=(0, 3))


def test_a_host_without_compiler_searches_a_lab(installed, tmp_path):
    name = f"wheel{os.getpid()}"
    run(installed, tmp_path, "lab", "up", "hgx-h100", "nics=1", "--count", "2", "--name", name)
    try:
        # A busy machine may slow a port, which is then named: what is searched here is the wheel, not the lab.
        found = run(installed, tmp_path, "locate", "--lab", name, "--json", status=(0, 1, 3))
        assert json.loads(found.splitlines()[-1])["tested"]["links_filled"]
    finally:
        run(installed, tmp_path, "lab", "down", "--name", name)
