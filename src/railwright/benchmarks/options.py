"""A benchmark's options: text on the command line, parsed into a frozen struct.

A benchmark's struct has an `Option` in place of each field's default: the default text, the help and the parser. Text,
defaults, help and errors therefore share one source, and each value is parsed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from railwright.errors import UsageError, unknown_name


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The base of each benchmark's options; has none itself.

    Ranks receive the options as JSON, so every value must be valid in JSON.
    """


O = TypeVar("O", bound=Options, covariant=True)  # noqa: E741 - the options of a benchmark, wherever it is generic


@dataclass(frozen=True)
class Option:
    """A setting as text. `parse` converts it to the field's value and raises UsageError for invalid text."""

    default: str
    help: str
    parse: Callable[[str], object]
    name: str = ""
    """The name on the command line; empty means the field's name with hyphens."""


def option(default: str, help: str, parse: Callable[[str], object], name: str = "") -> Any:  # noqa: A002, ANN401
    """Return an `Option` as a field of a struct."""
    return Option(default, help, parse, name)


def list_options(kind: type[Options]) -> dict[str, tuple[str, Option]]:
    """Return a struct's options and field names, by command-line name."""
    found = {}
    for field in msgspec.structs.fields(kind):
        if isinstance(field.default, Option):
            found[field.default.name or field.name.replace("_", "-")] = (field.name, field.default)
    return found


def parse_options(kind: type[O], given: Mapping[str, str], defaults: Mapping[str, str], owner: str) -> O:
    """Parse the options of `owner`. `defaults` override those of the struct. Raises UsageError."""
    known = list_options(kind)
    for name in given:
        if name not in known:
            raise unknown_name(f"option of {owner}", name, known)
    texts, values = {**defaults, **given}, {}
    for name, (field, option) in known.items():
        try:
            values[field] = option.parse(texts.get(name, option.default))
        except UsageError as error:
            hint = error.hint or option.help
            raise UsageError(f"{owner} {name}: {error.message}", hint=hint) from error
    return kind(**values)


def is_whole(text: str, most: int, least: int = 1) -> bool:
    """Report whether a text is a whole number from `least` to `most`."""
    whole = (
        text.isascii() and text.isdecimal() and len(text) <= len(str(most))
    )  # isdecimal also accepts digits of other scripts
    return whole and least <= int(text) <= most


def word_or(word: str, value: object, parse: Callable[[str], object]) -> Callable[[str], Any]:
    """Return a parser that maps `word` to `value` and passes other text to `parse`."""
    return lambda text: value if text == word else parse(text)


def whole_number(most: int, least: int = 1) -> Callable[[str], int]:
    """Return a parser of a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        if not is_whole(text, most, least):
            raise UsageError(f"must be a whole number from {least} to {most}, got {text[:40]!r}")
        return int(text)

    return parse


def whole_numbers(most: int, most_values: int) -> Callable[[str], tuple[int, ...]]:
    """Return a parser of at most `most_values` distinct, comma-separated whole numbers from 1 to `most`."""
    one = whole_number(most)

    def parse(text: str) -> tuple[int, ...]:
        given = text.count(",") + 1
        if given > most_values:
            raise UsageError(f"at most {most_values} values are allowed, got {given}", hint="take a larger step")
        return tuple(dict.fromkeys(one(part.strip()) for part in text.split(",")))

    return parse


def choice(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of a comma-separated choice among `allowed`, which removes duplicates."""

    def parse(text: str) -> tuple[str, ...]:
        parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        for part in parts:
            if part not in allowed:
                raise unknown_name("choice", part, allowed)
        return parts

    return parse


def single_choice(*allowed: str) -> Callable[[str], str]:
    """Return a parser of a single choice among `allowed`."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise unknown_name("choice", text, allowed)
        return text

    return parse


def yes_or_no(text: str) -> bool:
    """Parse `yes` or `no`."""
    return single_choice("yes", "no")(text) == "yes"
