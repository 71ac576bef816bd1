"""The TOML file of a machine: tables of the first level are tables, deeper ones are inline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from railwright.topology.shapes.parts import ShapeFile

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ROUND = 10**9
"""Numbers from here on are written with an exponent if they are whole multiples."""


def render_shape(shape: ShapeFile, notes: Iterable[str] = ()) -> str:
    """Return the file of a machine, after the notes as comments."""
    record = msgspec.to_builtins(shape)
    if isinstance(record["cpu"], dict):
        record["cpu"].get("smp", {}).pop("type", None)
    comments = "".join(f"# {note}\n" for note in notes)
    return f"{comments}{render_toml(record)}"


def render_toml(record: Mapping[str, object]) -> str:
    """Return the text of a record of scalars, lists and mappings. None is left out."""
    plain = {key: record[key] for key in sorted(record, key="title".__ne__) if not isinstance(record[key], Mapping)}
    tables = {key: value for key, value in record.items() if isinstance(value, Mapping)}
    blocks = ["".join(_render_lines(plain))] if plain else []
    blocks += [f"[{_render_key(key)}]\n{''.join(_render_lines(table))}" for key, table in tables.items()]
    return "\n".join(blocks)


def _render_lines(table: Mapping[str, object]) -> Iterator[str]:
    for key in sorted(table, key="sources".__eq__):
        value = table[key]
        if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            rows = "".join(f"    {_render_value(row)},\n" for row in value)
            yield f"{_render_key(key)} = [\n{rows}]\n"
        elif value is not None and value != {}:
            yield f"{_render_key(key)} = {_render_value(value)}\n"


def _render_value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case float() if value % _ROUND == 0 and value >= _ROUND:
            return f"{int(value // _ROUND)}e9"
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case Mapping():
            pairs = (f"{_render_key(key)} = {_render_value(each)}" for key, each in value.items() if each is not None)
            return f"{{ {', '.join(pairs)} }}"
        case list() | tuple():
            return f"[{', '.join(map(_render_value, value))}]"
        case _:
            return str(value)


def _render_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)
