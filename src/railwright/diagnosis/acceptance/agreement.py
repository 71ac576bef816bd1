"""What a vendor and a customer agreed on: each line a path and what it must reach, as a TOML file holds it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from railwright.diagnosis.verdicts.policy import MOST, Requirement, parse_requirements
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.errors import UsageError
from railwright.limits.limit import Quantity
from railwright.topology.devices import Scalar
from railwright.units import BITS_PER_BYTE, format_size, parse_line_rate, parse_size

PAIRS = "pairs"
"""What `prove --hosts` measures from each host to each other one: it is no benchmark of its own."""
_MOST_TEXT = 200
_MOST_HOSTS = 100_000
_OF_LIMIT = re.compile(r"(\d(?:\.\d{1,6})?)\s*of\s+(?:the\s+)?limit", re.ASCII)
_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*([A-Za-z/]{1,10})", re.ASCII)
_UNITS: dict[str, tuple[float, Quantity]] = {
    **{unit: (factor, "latency_s") for unit, factor in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0))},
    **{f"{prefix}op/s": (factor, "operations_per_s") for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6))},
    **{f"{prefix}msg/s": (factor, "messages_per_s") for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6))},
    **{f"{prefix}FLOP/s": (factor, "flop_per_s") for prefix, factor in (("G", 1e9), ("T", 1e12), ("P", 1e15))},
}
_HINT = "write it like '6 GB/s', '2 us', '50 kop/s', '40 TFLOP/s' or '0.9 of the limit'"


class AskedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One `[[line]]`. Without `least` and `most` the path must be ok by its own limit and band."""

    path: str
    """As `--require` takes it: a benchmark, or that and a path; `pairs host0>*`."""
    least: str = ""
    """`6 GB/s`, `48 Gb/s`, `50 kop/s`, `40 TFLOP/s`, or `0.9 of the limit`."""
    most: str = ""
    """`2 us`."""
    size: str = ""
    """`1MiB`: the point of the curve that counts; else the one that stands for it."""
    where: dict[str, Scalar] = {}
    """What was varied: `{ transport = "shm", threads = 2 }`; only what has all of it counts."""
    note: str = ""


class AskedSheet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The file."""

    title: str
    reference: str = ""
    """Order, contract, version of the specification: it is printed as it is."""
    between: tuple[str, ...] = ()
    """Who sign."""
    hosts: int | None = None
    """How many must have taken part."""
    line: tuple[AskedLine, ...]


class Bound(NamedTuple):
    """A value that must be reached, or not be exceeded."""

    is_least: bool
    value: float
    quantity: Quantity | None
    """None: `value` is a share of the path's own limit."""

    def __str__(self) -> str:
        words = f"{self.value:g} of the limit" if self.quantity is None else format_quantity(self.quantity, self.value)
        return f"at {'least' if self.is_least else 'most'} {words}"


class Item(NamedTuple):
    """One line, understood."""

    required: Requirement
    bounds: tuple[Bound, ...]
    size_bytes: int | None
    where: tuple[tuple[str, Scalar], ...]
    note: str

    @property
    def quantities(self) -> set[Quantity]:
        """What it has values of: of a benchmark that tells several, only the curves of these are meant."""
        return {bound.quantity for bound in self.bounds if bound.quantity is not None}

    def __str__(self) -> str:
        size = f" at {format_size(self.size_bytes)}" if self.size_bytes is not None else ""
        where = "".join(f", {name.replace('_', ' ')} {value}" for name, value in self.where)
        note = f" ({self.note})" if self.note else ""
        return f"{self.required}{where}{size}{note}: {' and '.join(map(str, self.bounds)) or 'ok, by its own limit'}"


class Spec(NamedTuple):
    """What must be met for a machine or a cluster to be accepted."""

    title: str
    reference: str
    between: tuple[str, ...]
    hosts: int | None
    items: tuple[Item, ...]


def understood(asked: AskedSheet, known: Sequence[str]) -> Spec:
    """The lines with their values. Raises UsageError for the first that says nothing or nothing possible."""
    for text in (asked.title, asked.reference, *asked.between, *(line.note for line in asked.line)):
        if len(text) > _MOST_TEXT or not text.isprintable():
            raise UsageError(
                f"the text {text[:40]!r} is too long or does not print", hint=f"up to {_MOST_TEXT} characters"
            )
    if not asked.title.strip() or not asked.line:
        raise UsageError("a specification needs a title and at least one [[line]]", hint="see docs/acceptance.md")
    if len(asked.line) > MOST or len(asked.between) > 10:
        raise UsageError(f"more than {MOST} lines, or more than 10 who sign", hint="write fewer")
    if asked.hosts is not None and not 1 <= asked.hosts <= _MOST_HOSTS:
        raise UsageError(f"{asked.hosts} hosts", hint=f"give 1 to {_MOST_HOSTS}")
    items = []
    for number, line in enumerate(asked.line, 1):
        try:
            items.append(_item(line, known))
        except UsageError as error:
            raise UsageError(f"line {number}: {error.message}", hint=error.hint) from error
    return Spec(asked.title, asked.reference, asked.between, asked.hosts, tuple(items))


def _item(line: AskedLine, known: Sequence[str]) -> Item:
    parsed = parse_requirements([line.path], [*known, PAIRS])
    if not parsed:
        raise UsageError("it names no path", hint="write path = 'BENCHMARK' or 'BENCHMARK PATH'")
    bounds = tuple(_bound(text, is_least=least) for text, least in ((line.least, True), (line.most, False)) if text)
    size_bytes = parse_size(line.size) if line.size else None
    return Item(parsed[0], bounds, size_bytes, tuple(sorted(line.where.items())), line.note)


def _bound(text: str, *, is_least: bool) -> Bound:
    share = _OF_LIMIT.fullmatch(text.strip())
    if share is not None:
        if not is_least or not 0 < float(share[1]) <= 1:
            raise UsageError(f"{text[:40]!r} is no share that must be reached", hint="write least = '0.9 of the limit'")
        return Bound(is_least, float(share[1]), None)
    amount = _AMOUNT.fullmatch(text.strip())
    if amount is not None and amount[2] in _UNITS:
        factor, quantity = _UNITS[amount[2]]
        return Bound(is_least, float(amount[1]) * factor, quantity)
    try:
        return Bound(is_least, parse_line_rate(text) / BITS_PER_BYTE, "bandwidth_bytes_per_s")
    except UsageError as error:
        raise UsageError(f"not a value: {text[:40]!r}", hint=_HINT) from error
