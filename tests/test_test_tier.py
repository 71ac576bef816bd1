"""The scripts of the test tiers: a tier that cannot be built fails, or with --may-be-waived is skipped by name."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.conftest import wait_until

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tree(tmp_path):
    """A checkout with only the script; each test defines the builds and the `go` command."""
    (tmp_path / "scripts").mkdir()
    for script in ("test-tier", "build-beside"):
        shutil.copy(ROOT / "scripts" / script, tmp_path / "scripts")
    for script in ("unpack-frr10", "build-image"):
        program(tmp_path / "scripts" / script, "exit 0")
    for tier in ("vm", "k8s", "tools"):
        program(tmp_path / "node" / "test" / tier / "build", "echo /somewhere")
    program(tmp_path / "tests" / "aarch64" / "build", "echo /somewhere")
    program(tmp_path / "tests" / "aarch64" / "run", 'echo "emulated $*"; exit ${GO_STATUS:-0}')
    program(tmp_path / "go", 'echo "go $*"; env | grep ^RAILWRIGHT_TEST_NEEDS | sort; exit ${GO_STATUS:-0}')
    return tmp_path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def run(tree: Path, *arguments: str, go_status: int = 0) -> tuple[int, str]:
    done = subprocess.run(
        [tree / "scripts" / "test-tier", *arguments],
        env={**os.environ, "GO": str(tree / "go"), "GO_STATUS": str(go_status)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("tier", ["vm", "k8s"])
def test_a_tier_that_cannot_be_built_is_waived_by_name_and_fails_otherwise(tree, tier):
    program(tree / "node" / "test" / tier / "build", 'echo "no such package: kube" >&2; echo; exit 7')
    cause = f"the tier {tier} could not be built: no such package: kube (all of it: .cache/build-{tier}.log)"
    status, told = run(tree, tier)
    assert (status, told) == (1, f"{cause}\n")
    status, told = run(tree, "--may-be-waived", tier)
    assert (status, told) == (0, f"{cause}\nwaived: the tier {tier}; make test-{tier} builds and runs it\n")
    assert "no such package" in (tree / ".cache" / f"build-{tier}.log").read_text()


def test_kubernetes_without_frr_10_is_not_built(tree):
    program(tree / "scripts" / "unpack-frr10", "echo no mirror has it; exit 100")
    assert run(tree, "k8s")[0] == 1
    status, told = run(tree, "--may-be-waived", "k8s")
    assert status == 0
    assert "no mirror has it" in told
    assert "waived: the tier k8s" in told
    assert run(tree, "vm")[0] == 0


def test_the_emulated_tier_needs_no_go_and_is_waived_like_the_others(tree):
    assert run(tree, "aarch64")[1].endswith("emulated \n")
    assert run(tree, "--may-be-waived", "aarch64")[1].endswith("emulated --short\n")
    assert run(tree, "--may-be-waived", "aarch64", go_status=1)[0] == 1
    program(tree / "tests" / "aarch64" / "build", 'echo "binfmt_misc cannot be registered without root" >&2; exit 1')
    status, told = run(tree, "--may-be-waived", "aarch64")
    assert status == 0
    assert "could not be built: binfmt_misc cannot be registered without root" in told
    assert "waived: the tier aarch64; make test-aarch64 builds and runs it" in told


@pytest.mark.parametrize("options", [[], ["--may-be-waived"]])
def test_what_was_built_decides_and_may_not_skip_itself(tree, options):
    status, told = run(tree, *options, "k8s", go_status=1)
    assert status == 1
    assert "waived" not in told
    status, told = run(tree, *options, "k8s")
    assert status == 0
    ran = next(line for line in told.splitlines() if line.startswith("go "))
    assert ran.endswith("-tags k8s ./test/k8s ./internal/tenants/kubernetes")
    assert (" -short " in ran) == bool(options)
    assert [line for line in told.splitlines() if line.startswith("RAILWRIGHT")] == [
        f"RAILWRIGHT_TEST_NEEDS_{part}=1" for part in ("FRR", "OVS", "ROOT")
    ]


def test_what_failed_stands_at_the_end_without_what_explains_it(tree):
    explained = "".join(f"        pod/{number} is Running\n" for number in range(100))
    failed = "        families_test.go:48: of 10 packets of 9000 bytes 0 were answered\n"
    part = "--- FAIL: TestKubernetes (70 s)\n    --- FAIL: TestKubernetes/families (9 s)\n"
    told_by_go = f"{part}{failed}    rest_test.go:33: untried\n"
    (tree / "told").write_text(f"{told_by_go}{explained}FAIL\n")
    program(tree / "go", f"cat {tree}/told; exit 1")
    status, told = run(tree, "k8s")
    assert status == 1
    whole, again = told.split("Failures, with the first lines of each message (all of it: .cache/test-k8s.log):\n")
    assert whole.endswith(f"{explained}FAIL\n")
    assert again == told_by_go + explained[: explained.index("        pod/7 ")]
    assert (tree / ".cache" / "test-k8s.log").read_text() == f"{told_by_go}{explained}FAIL\n"


@pytest.mark.parametrize("arguments", [[], ["tools-of-others"], ["vm", "k8s"]])
def test_another_tier_is_misuse(tree, arguments):
    status, told = run(tree, *arguments)
    assert status == 2
    assert "give one of: aarch64 k8s vm" in told


def beside(tree: Path, *command: str) -> int:
    argv = [tree / "scripts" / "build-beside", "k8s", *command]
    return subprocess.run(argv, capture_output=True, timeout=300, check=False).returncode


@pytest.mark.parametrize("build", ["echo /somewhere", "exit 1", "sleep 100"])
def test_a_build_beside_a_command_leaves_its_exit_status_alone(tree: Path, build: str) -> None:
    program(tree / "node" / "test" / "k8s" / "build", build)
    assert beside(tree, "bash", "-c", "exit 7") == 7
    assert beside(tree, "true") == 0


def test_a_build_that_has_not_ended_with_the_command_is_ended_with_all_that_it_started(tree: Path) -> None:
    program(tree / "node" / "test" / "k8s" / "build", "sleep 100 & echo $! > started; wait")
    command = "until [ -s started ]; do sleep 0.05; done"
    assert beside(tree, "bash", "-c", command) == 0
    started = int((tree / "started").read_text())
    wait_until(lambda: not Path(f"/proc/{started}").exists(), "the end of what the build started")


def whole(tree: Path, tier: str, make: str = "") -> tuple[int, str]:
    """Run scripts/test with `tier` as its test-tier script and `make` as make. Returns its status and output."""
    shutil.copy(ROOT / "scripts" / "test", tree / "scripts")
    program(tree / "scripts" / "test-tier", tier)
    program(tree / "make", f"echo made $2; {make}")
    environment = {**os.environ, "MAKE": str(tree / "make")}
    words = [tree / "scripts" / "test"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_whole_tells_what_each_tier_took_and_what_ran_beside_them(tree):
    status, told = whole(tree, "echo tier $2")
    assert status == 0
    said, took = told.split("What each tier took:\n")
    assert [line for line in said.splitlines() if not line.startswith("==")] == [
        *(f"made {tier}" for tier in ("quick", "check", "test-machine")),
        "tier k8s",
        "made test-node",
        "tier vm",
        "tier aarch64",
    ]
    names = [line.split()[0] for line in took.splitlines()]
    assert names == ["quick", "check", "machine", "k8s", "node", "vm", "aarch64", "together"]


def test_a_failed_tier_hides_no_result_of_a_later_one(tree):
    fails = '[ "$2" != vm ] || { echo no flow; exit 5; }'
    status, told = whole(tree, f"echo tier $2; {fails}", "[ $2 != test-machine ] || exit 3")
    assert status == 1
    said, took = told.split("What each tier took:\n")
    tiers = [line for line in said.splitlines() if line.startswith(("made", "tier", "no flow"))]
    assert tiers[2:] == ["made test-machine", "tier k8s", "made test-node", "tier vm", "no flow", "tier aarch64"]
    assert [line.split()[0] for line in took.splitlines() if line.endswith(", failed")] == ["machine", "vm"]
    assert took.endswith("failed: machine vm\n")


def test_the_end_of_the_whole_ends_what_runs_beside_it(tree):
    tier = '[ "$2" != vm ] || { sleep 100 & echo $! > started; wait; }'
    make = "[ $2 != test-node ] || { until [ -s started ]; do sleep 0.05; done; kill -TERM $PPID; }"
    status, told = whole(tree, f"cd {tree}; {tier}", f"cd {tree}; {make}")
    assert status != 0
    assert "What each tier took:" in told
    started = int((tree / "started").read_text())
    wait_until(lambda: not Path(f"/proc/{started}").exists(), "the end of what ran beside")


def test_quick_passes_where_both_languages_do_and_shows_both(tree):
    (tree / ".venv").mkdir()
    (tree / ".venv" / "dev-ready").touch()
    program(tree / "bin" / "python", 'echo "python $2"; exit ${PYTHON_STATUS:-0}')
    words = ["make", "--file", ROOT / "Makefile", "--old-file", ".venv/dev-ready", "quick", "BIN=bin", f"GO={tree}/go"]
    for python, go in (("0", "0"), ("1", "0"), ("0", "1"), ("1", "1")):
        environment = {**os.environ, "PYTHON_STATUS": python, "GO_STATUS": go}
        done = subprocess.run(
            words, cwd=tree, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert (done.returncode == 0) == (python == go == "0"), (python, go, done.stderr)
        assert "python pytest\n" in done.stdout
        assert "go test -parallel 8 ./...\n" in done.stdout
