"""Holds what we write against the schemas that we publish; each is checked and compiled once."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema

FOLDER = Path(__file__).parents[1] / "schema"


@cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def fits(record: object, name: str) -> None:
    """Fails unless a record is what schema/NAME.schema.json says."""
    _validator(name).validate(record)
