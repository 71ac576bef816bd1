"""GCC, clang and zig build the loops with glibc and musl, without a warning, and none turns STREAM into memcpy."""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LOOPS = ROOT / "src/railwright/native"
ZIG = [str(ROOT / ".venv-wheels/bin/python"), "-m", "ziglang", "cc"]
COMPILERS = {
    "gcc": ["gcc"],
    "gcc with arguments": ["gcc", "-g", "-march=x86-64-v3"],
    "gcc that is asked for memcpy": ["gcc", "-Ofast", "-ftree-loop-distribute-patterns", "-D_FORTIFY_SOURCE=2"],
    "clang": ["clang"],
    "zig": ZIG,
    "zig for musl": [*ZIG, "-target", "x86_64-linux-musl"],
    "zig for aarch64": [*ZIG, "-target", "aarch64-linux-gnu.2.28"],
    "musl-gcc": ["musl-gcc", "-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"],
}
FOREIGN = ("zig for musl", "zig for aarch64", "musl-gcc")


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.long] * (name != "gcc")) for name in COMPILERS])
def compiler(request: pytest.FixtureRequest) -> list[str]:
    words = COMPILERS[request.param]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    return words


def read_flags() -> list[str]:
    """Return the flags of the build."""
    for node in ast.parse((ROOT / "hatch_build.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "FLAGS":
            return list(ast.literal_eval(node.value))
    raise AssertionError("hatch_build.py must have FLAGS")


@pytest.mark.machine
@pytest.mark.long
def test_the_loops_are_built_without_a_warning(compiler, tmp_path):
    made = tmp_path / "_loops.so"
    sources = sorted(map(str, LOOPS.glob("*.c")))
    subprocess.run([*compiler, *read_flags(), "-o", str(made), *sources, "-ldl"], check=True)
    if compiler not in [COMPILERS[name] for name in FOREIGN]:
        assert ctypes.CDLL(str(made)).rw_stream


@pytest.mark.machine
def test_no_compiler_turns_the_kernels_into_memcpy(compiler, tmp_path):
    """The machine code must not call memcpy; a plain loop, as a control, does."""
    control = tmp_path / "control.c"
    control.write_text(
        "void f(double *restrict a, double *restrict b, long n) { for (long i = 0; i < n; i++) a[i] = b[i]; }"
    )
    for source, calls in ((LOOPS / "stream.c", False), (control, True)):
        made = tmp_path / "made.o"
        subprocess.run(
            [*compiler, "-std=c11", "-O3", "-fPIC", "-Wall", "-Werror", "-c", "-o", made, source], check=True
        )
        names = subprocess.run(["nm", "-u", made], check=True, capture_output=True, text=True).stdout
        assert any(name in names for name in ("memcpy", "memmove")) == calls, names


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", ["cc"]),
        ("  ", ["cc"]),
        ("gcc -m64", ["gcc", "-m64"]),
        ("ccache clang --target=x86_64-linux-gnu", ["ccache", "clang", "--target=x86_64-linux-gnu"]),
        ("'/opt/my gcc/bin/gcc' -DX='a b'", ["/opt/my gcc/bin/gcc", "-DX=a b"]),
    ],
)
def test_cc_may_be_a_command_line(monkeypatch, given, words):
    monkeypatch.setenv("CC", given)
    assert build_hook()._local_compiler()[0] == words


def test_a_broken_cc_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setenv("CC", "gcc '")
    with pytest.raises(SystemExit, match="CC must be a command line, got"):
        build_hook()._local_compiler()


@pytest.mark.machine
@pytest.mark.parametrize("given", ["/nowhere/gcc", "/"])
def test_a_cc_that_cannot_be_started_is_named(monkeypatch, tmp_path, given):
    monkeypatch.setenv("CC", given)
    hook = object.__new__(build_hook().NativeBuildHook)
    monkeypatch.setattr(type(hook), "root", str(tmp_path))
    with pytest.raises(SystemExit, match=f"a C compiler is needed to build the timed loops: {given}: "):
        hook.initialize("editable", {})


def build_hook() -> ModuleType:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
