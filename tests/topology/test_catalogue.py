"""The files of the catalogue: every fact has a source or is marked as assumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import jsonschema
import msgspec
import pytest

from railwright.topology.shapes import catalogue as module
from railwright.topology.shapes.catalogue import CATALOGUE, Catalogue, NameTable
from railwright.topology.shapes.names import list_spellings

FILES = Path(module.__file__).with_name("catalogue")
PARTS = {file.stem: msgspec.toml.decode(file.read_bytes()) for file in (FILES / "parts").glob("*.toml")}
MACHINES = {file.stem: msgspec.toml.decode(file.read_bytes()) for file in (FILES / "machines").glob("*.toml")}
NAMED = {"title", "name", "vendor", "switch_name", "type", "attachment", "integrated"}
"""Keys that say which part it is, and hold no number that a limit rests on."""
MARKS = {"sources", "assumed", "uplink_assumed"}
ENTRIES = {
    **{f"{kind} {name}": part for kind, parts in PARTS.items() for name, part in parts.items()},
    **{f"machine {name}": machine for name, machine in MACHINES.items()},
}


def facts(record: Mapping[str, object], above: str = "") -> Iterator[str]:
    """Yield the keys of all facts. The sources of a part say which machines have it."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from facts(value, f"{above}{key}.")
        elif key not in NAMED | MARKS and not (not above and key in CATALOGUE.parts()):
            yield above + key


def covers(cited: str, fact: str) -> bool:
    return fact == cited or fact.startswith(f"{cited}.")


@pytest.mark.parametrize("name", ENTRIES)
def test_every_fact_has_a_source_or_is_marked(name: str) -> None:
    record = ENTRIES[name]
    cited = {fact for source in record["sources"] for fact in source["facts"]}
    assert [fact for fact in facts(record) if not any(covers(each, fact) for each in cited)] == []
    known = {*facts(record), *record, *NAMED}
    assert [each for each in cited if not any(covers(each, fact) for fact in known)] == []
    for source in record["sources"]:
        assert ("document" in source) != ("assumed" in source)
        assert len(source.get("document") or source["assumed"]) > 10


def test_the_loaded_catalogue_is_that_of_the_files_and_lists_every_machine() -> None:
    names = msgspec.toml.decode((FILES / "names.toml").read_bytes())
    names["spellings"] = list_spellings(msgspec.convert(names, NameTable))
    assert msgspec.convert({"names": names, **PARTS, "shapes": MACHINES}, Catalogue) == CATALOGUE  # else: make shapes
    assert set(CATALOGUE.names.shapes) == set(MACHINES)


def test_every_machine_is_as_the_published_schema_says() -> None:
    schema = json.loads((Path(__file__).parents[2] / "schema/shape.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    assert [(name, error.message) for name, file in MACHINES.items() for error in validator.iter_errors(file)] == []
