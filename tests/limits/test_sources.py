"""No number in `limits` without a source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import railwright.limits

FOLDER = Path(railwright.limits.__file__).parent
# 0, 1 and 2 count and halve; 8 is the bits of a byte; 1e6 and 1e9 turn MT/s and GT/s into transfers, 1e-6 us into s.
ARITHMETIC = {0, 1, 2, 8, 1e6, 1e9, 1e-6}


def unsourced_numbers(source: str) -> list[str]:
    """Return the numbers outside `Constant(...)` that are no arithmetic, no key of a table of constants, and no
    slice of a text.
    """
    tree = ast.parse(source)
    sourced: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Constant":
            sourced.update(ast.walk(node))
        elif isinstance(node, ast.Dict) and all(_holds_constant(value) for value in node.values):
            sourced.update(key for key in node.keys if key is not None)
            sourced.update(part for value in node.values if isinstance(value, ast.Tuple) for part in value.elts)
        elif isinstance(node, ast.Slice) or (  # a text or list cut for display
            (isinstance(node, ast.GeneratorExp) and _holds_constant(node.elt))
            or (isinstance(node, ast.DictComp) and _holds_constant(node.value))
        ):
            sourced.update(ast.walk(node))
    return [
        f"line {node.lineno}: {node.value}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
        and node not in sourced
        and node.value not in ARITHMETIC
    ]


def _holds_constant(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) and getattr(part.func, "id", "") == "Constant" for part in ast.walk(node))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_no_number_is_without_a_source(path: Path) -> None:
    assert unsourced_numbers(path.read_text(encoding="utf-8")) == []


def test_a_number_without_a_source_would_be_found() -> None:
    assert unsourced_numbers("RATE = 25e9") == ["line 1: 25000000000.0"]
    assert unsourced_numbers("def f(x): return x * 0.95") == ["line 1: 0.95"]
    assert unsourced_numbers("A = Constant(value=0.8, unit='', source=S)") == []
    assert unsourced_numbers("A = {a: b for a, b in ((7, 25e9),)}") == ["line 1: 7", "line 1: 25000000000.0"]
    assert unsourced_numbers("A = {a: Constant(value=b, unit='', source=S) for a, b in ((7, 25e9),)}") == []
