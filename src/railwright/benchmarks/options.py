"""Options of a benchmark: text on the command line, a frozen struct of that benchmark behind it.

A benchmark's struct has a field for each option, with an `Option` where its default would be: the default text, the
help and the parser. So text, defaults, help and errors all come from one place, and every value is parsed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from railwright.errors import UsageError, unknown_name


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a benchmark was asked for. The base of each benchmark's own options; by itself it has none.

    A rank gets it as JSON, so every value must be one that JSON can hold.
    """


O = TypeVar("O", bound=Options, covariant=True)  # noqa: E741 - the options of a benchmark, wherever it is generic


@dataclass(frozen=True)
class Option:
    """One setting as text. `parse` turns it into the field's value, and raises UsageError for what cannot be used."""

    default: str
    help: str
    parse: Callable[[str], object]
    name: str = ""
    """The name on the command line; empty: the field's, with hyphens."""


def option(default: str, help: str, parse: Callable[[str], object], name: str = "") -> Any:  # noqa: A002, ANN401
    """An `Option` as a field of a struct."""
    return Option(default, help, parse, name)


def options_of(kind: type[Options]) -> dict[str, tuple[str, Option]]:
    """The options of a struct by their names on the command line, each with its field."""
    found = {}
    for field in msgspec.structs.fields(kind):
        if isinstance(field.default, Option):
            found[field.default.name or field.name.replace("_", "-")] = (field.name, field.default)
    return found


def parse_options(kind: type[O], given: Mapping[str, str], defaults: Mapping[str, str], owner: str) -> O:
    """The options of `owner` with every text parsed; `defaults` go before those of the struct. Raises UsageError."""
    known = options_of(kind)
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
    """Whether a text is a whole number from `least` to `most`."""
    whole = text.isascii() and text.isdecimal() and len(text) <= len(str(most))  # digits of other scripts are decimal
    return whole and least <= int(text) <= most


def word_or(word: str, value: object, parse: Callable[[str], object]) -> Callable[[str], Any]:
    """A parser that has a value for a word, and parses any other text."""
    return lambda text: value if text == word else parse(text)


def whole_number(most: int, least: int = 1) -> Callable[[str], int]:
    """A parser of a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        if not is_whole(text, most, least):
            raise UsageError(f"not a whole number from {least} to {most}: {text[:40]!r}")
        return int(text)

    return parse


def whole_numbers(most: int, most_values: int) -> Callable[[str], tuple[int, ...]]:
    """A parser of comma-separated whole numbers from 1 to `most`, at most so many of them, each once."""
    one = whole_number(most)

    def parse(text: str) -> tuple[int, ...]:
        given = text.count(",") + 1
        if given > most_values:
            raise UsageError(f"{given} values, at most {most_values}", hint="take a larger step")
        return tuple(dict.fromkeys(one(part.strip()) for part in text.split(",")))

    return parse


def choice(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """A parser of a comma-separated choice among `allowed`: the parts chosen, each once."""

    def parse(text: str) -> tuple[str, ...]:
        parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        for part in parts:
            if part not in allowed:
                raise unknown_name("choice", part, allowed)
        return parts

    return parse


def one_of(*allowed: str) -> Callable[[str], str]:
    """A parser of exactly one of `allowed`."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise unknown_name("choice", text, allowed)
        return text

    return parse


def yes_or_no(text: str) -> bool:
    """A parser of `yes` or `no`."""
    return one_of("yes", "no")(text) == "yes"
