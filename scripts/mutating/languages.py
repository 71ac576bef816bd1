"""The possible alterations of a file per language: cosmic-ray's operators, gremlins' tokens, and a few C tokens.

Each class lists the changes of single lines in a file, and reports whether a changed file still runs. A change that
does not compile or import, or that alters only an annotation, says nothing about tests.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[2]
GREMLINS = ROOT / ".cache/gremlins"

Changes = dict[int, dict[str, list[Callable[[], str | None]]]]
"""Line number -> kind of change -> functions that return the altered line, or None if other lines change as well."""


@dataclass(frozen=True)
class Language:
    """A language in a tree of the repository: its files by package, and their possible changes."""

    tree: Path

    def packages(self) -> dict[str, list[Path]]:
        raise NotImplementedError

    def changes(self, path: Path) -> Changes:
        raise NotImplementedError

    def runs(self, path: Path, text: str) -> bool:
        """Report whether the file can be loaded with this text. The file itself is restored."""
        raise NotImplementedError

    def loads(self, path: Path, text: str, argv: list[str], cwd: Path) -> bool:
        held = path.read_text()
        path.write_text(text)
        try:
            environment = os.environ | {"PYTHONPATH": str(self.tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
            return subprocess.run(argv, cwd=cwd, env=environment, capture_output=True).returncode == 0
        finally:
            path.write_text(held)


class Python(Language):
    """Python, altered by cosmic-ray. Operators that take arguments, such as a variable's name, are left out."""

    def packages(self) -> dict[str, list[Path]]:
        source = self.tree / "src/railwright"
        found = defaultdict(list)
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source).parts
            found[parts[0] if len(parts) > 1 else "."].append(path)
        return found

    @functools.cache  # noqa: B019 - one object, for one draw
    def changes(self, path: Path) -> Changes:
        text = path.read_text()
        lines, nodes = text.splitlines(), list(ast_nodes(get_ast(text)))
        found: Changes = defaultdict(lambda: defaultdict(list))
        for name in sorted(operator_names()):
            if get_operator(name).arguments():
                continue
            operator = get_operator(name)()
            positions = [position for node in nodes for position in operator.mutation_positions(node)]
            for occurrence, ((line, _), _) in enumerate(positions):
                altered = functools.partial(_altered_line, lines, text, operator, occurrence)
                found[line][name.split("_")[0]].append(altered)
        return found

    def runs(self, path: Path, text: str) -> bool:
        if _bare(text) == _bare(path.read_text()):
            return False
        module = ".".join(path.relative_to(self.tree / "src").with_suffix("").parts).removesuffix(".__init__")
        return self.loads(path, text, [str(ROOT / ".venv/bin/python"), "-c", f"import {module}"], self.tree)


class Go(Language):
    """Go, altered at the tokens that gremlins lists, by `SWAPS`. Generated files are in node/api, not here."""

    def packages(self) -> dict[str, list[Path]]:
        found = defaultdict(list)
        for path in sorted((self.tree / "node").rglob("*.go")):
            parts = path.relative_to(self.tree / "node").parts
            if parts[0] in ("cmd", "internal") and not path.stem.endswith("_test"):
                found["cmd" if parts[0] == "cmd" else f"internal/{parts[1]}"].append(path)
        return found

    def changes(self, path: Path) -> Changes:
        lines = path.read_text().splitlines()
        found: Changes = defaultdict(lambda: defaultdict(list))
        for one in self._tokens.get(path.relative_to(self.tree / "node").as_posix(), ()):
            line, column = lines[one["line"] - 1], one["column"] - 1
            for token, other in SWAPS[one["type"]]:
                if line.startswith(token, column):
                    altered = line[:column] + other + line[column + len(token) :]
                    found[one["line"]][one["type"]].append(lambda altered=altered: altered)
                    break
        return found

    def runs(self, path: Path, text: str) -> bool:
        return self.loads(path, text, ["go", "build", "-o", os.devnull, f"./{path.parent.name}"], path.parents[1])

    @functools.cached_property
    def _tokens(self) -> dict[str, list[dict]]:
        """Return all tokens that gremlins finds. It collects coverage first, so tests are built, but none is run."""
        found = {}
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "listed.json")
            argv = [str(GREMLINS), "unleash", "--dry-run", "--silent", "--output", str(output)]
            argv += [f"--invert-{name}" for name in ("assignments", "bitwise", "logical", "loopctrl")]
            environment = os.environ | {"GOFLAGS": "-buildvcs=false -run=^$ -vet=off"}
            subprocess.run([*argv, "."], cwd=self.tree / "node", env=environment, check=True, capture_output=True)
            for file in json.loads(output.read_text())["files"]:
                mutations = file["mutations"]
                mutations.sort(key=lambda one: (one["line"], one["column"], one["type"]))
                found[file["file_name"]] = mutations
        return found


class C(Language):
    """C, altered at tokens outside comments and strings: comparisons, sums and logic of the timed loops."""

    def packages(self) -> dict[str, list[Path]]:
        return {"native": sorted((self.tree / "src/railwright/native").glob("*.c"))}

    def changes(self, path: Path) -> Changes:
        text = path.read_text()
        lines = text.splitlines()
        bare = C_NO_CODE.sub(lambda one: re.sub(r"[^\n]", " ", one[0]), text).splitlines()
        found: Changes = defaultdict(lambda: defaultdict(list))
        for number, (line, code) in enumerate(zip(lines, bare, strict=True), 1):
            for token in C_TOKEN.finditer(code):
                altered = line[: token.start(1)] + C_SWAPS[token[1]] + line[token.end(1) :]
                found[number][token[1]].append(lambda altered=altered: altered)
        return found

    def runs(self, path: Path, text: str) -> bool:
        flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        return self.loads(path, text, ["cc", *flags, path.name], path.parent)


SWAPS = {
    "ARITHMETIC_BASE": [("+", "-"), ("-", "+"), ("*", "/"), ("/", "*"), ("%", "*")],
    "CONDITIONALS_BOUNDARY": [(">=", ">"), ("<=", "<"), (">", ">="), ("<", "<=")],
    "CONDITIONALS_NEGATION": [("==", "!="), ("!=", "=="), (">=", "<"), ("<=", ">"), (">", "<="), ("<", ">=")],
    "INCREMENT_DECREMENT": [("++", "--"), ("--", "++")],
    "INVERT_ASSIGNMENTS": [("+=", "-="), ("-=", "+="), ("*=", "/="), ("/=", "*=")],
    "INVERT_BITWISE": [("&^", "&"), ("&", "|"), ("|", "&"), ("^", "&"), ("<<", ">>"), (">>", "<<")],
    "INVERT_LOGICAL": [("&&", "||"), ("||", "&&")],
    "INVERT_LOOPCTRL": [("break", "continue"), ("continue", "break")],
    "INVERT_NEGATIVES": [("-", "+")],
}
C_NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|^[ \t]*#[^\n]*', re.DOTALL | re.MULTILINE)
C_SWAPS = {
    "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "&&": "||", "||": "&&",
    "+": "-", "-": "+", "+=": "-=", "break": "continue", "continue": "break",
}  # fmt: skip
C_TOKEN = re.compile(r"(?<=\s)(==|!=|<=|>=|<|>|&&|\|\||\+=|\+|-|break|continue)(?=[\s;])")


def _altered_line(lines: list[str], text: str, operator: Operator, occurrence: int) -> str | None:
    altered = (mutate_code(text, operator, occurrence) or "").splitlines()
    if len(altered) != len(lines):
        return None
    differing = [other for line, other in zip(lines, altered, strict=True) if line != other]
    return differing[0] if len(differing) == 1 else None


def _bare(text: str) -> str:
    """Return the code without docstrings and annotations."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if getattr(node, name, None) is not None:
                setattr(node, name, ast.Constant(None))
        for body in _bodies(node):
            body[:] = [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    return ast.dump(tree)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    body = getattr(node, "body", None)
    if isinstance(body, list):
        yield body
