"""The fields read from railwrightd match its schemas. Its own tests check the schemas and samples against its types."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.conftest import ROOT
from tests.schemas import FOLDER, fits

from railwright.errors import CannotJudge
from railwright.net.checks import bgp, drops, flows
from railwright.net.railwrightd import WRITTEN, Flows, List, Status, read_flows, read_list, read_status

READ: dict[str, tuple[Any, Callable[[str], Any]]] = {
    "list": (List, read_list),
    "status": (Status, read_status),
    "flows": (Flows, read_flows),
}
LATER = {
    "list": {"netns", "gateways", "open_tenants", "gateway_mac", "dropped", "counted"},
    "status": {"dropped", "prefixes"},
    "flows": {"why"},
}
"""Fields that may be missing, because old daemons do not have them or their value is empty."""
SAMPLES = {verb: json.loads((ROOT / f"testdata/railwrightd/{verb}.json").read_text()) for verb in READ}
SCHEMAS = {verb: json.loads((FOLDER / f"railwrightd-{verb}.schema.json").read_text()) for verb in READ}

each_verb = pytest.mark.parametrize("verb", list(READ))
Path = tuple[str | int, ...]


def resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    return whole["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def required_within(ours: dict[str, Any], theirs: dict[str, Any], whole: dict[str, Any], path: str) -> Iterator[Path]:
    """Yield the paths of the fields that we require. Fail if the two schemas differ in a field that we read."""
    ours = resolved(ours, whole)
    kind = "string" if all(isinstance(word, str) for word in theirs.get("enum", [0])) else theirs["type"]
    assert ours["type"] == kind, path
    assert ours.get("pattern") == theirs.get("pattern"), path
    if kind == "array":
        yield from ((0, *rest) for rest in required_within(ours["items"], theirs["items"], whole, f"{path}[]"))
    if isinstance(values := ours.get("additionalProperties"), dict):
        assert not list(required_within(values, theirs["additionalProperties"], whole, f"{path}[...]"))
    assert set(ours.get("required", ())) <= set(theirs.get("required", ())), path
    for name, field in ours.get("properties", {}).items():
        if name in ours.get("required", ()):
            yield (name,)
        inner = required_within(field, theirs["properties"][name], whole, f"{path}.{name}")
        yield from ((name, *rest) for rest in inner)


def schema_of(verb: str) -> dict[str, Any]:
    """Return msgspec's schema of the type that is read."""
    return msgspec.json.schema(READ[verb][0], schema_hook=lambda kind: msgspec.json.schema(WRITTEN[kind]))


def required(verb: str) -> list[Path]:
    ours = schema_of(verb)
    return list(required_within(ours, SCHEMAS[verb], ours, verb))


def complaint(verb: str, output: Any) -> CannotJudge:
    with pytest.raises(CannotJudge) as raised:
        READ[verb][1](json.dumps(output))
    assert f"railwrightd-{verb}.schema.json" in raised.value.hint
    assert "railwrightd --version" in raised.value.hint
    return raised.value


def holder(output: Any, path: Path) -> Any:
    for step in path[:-1]:
        output = output[step]
    return output


@each_verb
def test_the_daemons_sample_fits_its_schema_and_is_read(verb: str) -> None:
    fits(SAMPLES[verb], f"railwrightd-{verb}")
    assert len(READ[verb][1](json.dumps(SAMPLES[verb]))) == 2


@each_verb
def test_what_is_read_is_in_the_schema_and_what_may_be_missing_is_known(verb: str) -> None:
    names = {path[-1] for path in required(verb)}
    read = {name for one in schema_of(verb)["$defs"].values() for name in one.get("properties", ())}
    assert read - names == LATER[verb]


@each_verb
def test_a_missing_or_wrong_field_is_named_with_the_value_seen(verb: str) -> None:
    for path in required(verb):
        output = copy.deepcopy(SAMPLES[verb])
        del holder(output, path)[path[-1]]
        assert f"missing required field `{path[-1]}`" in complaint(verb, output).message, path
        output = copy.deepcopy(SAMPLES[verb])
        holder(output, path)[path[-1]] = 47.11
        message = complaint(verb, output).message
        assert f".{path[-1]}`: 47.11" in message, (path, message)


def test_texts_that_are_no_address_no_prefix_and_no_count_are_named() -> None:
    wrong = {
        ("list", "attached", "addresses"): ["10.1.0.5; reboot"],
        ("list", "attached", "gateways"): ["fe80::g"],
        ("list", "attached", "dropped"): {"spoofed": "lots"},
        ("status", "rails", "prefixes"): ["10.1.0.5/16"],
    }
    for (verb, records, field), value in wrong.items():
        output = copy.deepcopy(SAMPLES[verb])
        output[records][0][field] = value
        message = complaint(verb, output).message
        seen = next(iter(value.values() if isinstance(value, dict) else value))
        assert field in message, message
        assert seen in message, message


def test_fields_of_tomorrow_and_counts_of_64_bits_are_no_matter() -> None:
    output = copy.deepcopy(SAMPLES["list"])
    for one in (output, *output["attached"], output["attached"][0]["key"]):
        one["of_tomorrow"] = {"any": 1}
    first, second = read_list(json.dumps(output))
    assert (str(first.pod), first.interface, first.dropped["other_tenant"]) == ("tenant-a/trainer-0", "net1", 2**64 - 1)
    assert (second.addresses[0].version, second.gateways, second.counted) == (4, (), False)
    assert read_status(json.dumps(SAMPLES["status"]))["rail0"].problems == tuple(SAMPLES["status"]["problems"])


def test_a_field_that_stands_twice_cannot_hide_the_error() -> None:
    with pytest.raises(CannotJudge, match="missing required field `"):
        read_list('{"attached": [{}], "attached": []}')


def test_the_words_that_checks_look_for_are_the_schemas() -> None:
    attached = SCHEMAS["list"]["properties"]["attached"]["items"]["properties"]
    assert {flows._PART, bgp._PART} <= set(attached["parts"]["items"]["enum"])
    assert {drops._SPOOFED, drops._NO_LEAF} <= set(attached["dropped"]["propertyNames"]["enum"])
