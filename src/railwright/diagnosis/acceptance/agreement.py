"""The agreement between a vendor and a customer: a TOML file with paths and the values that they must reach."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from railwright.diagnosis.verdicts.policy import MAX_REQUIREMENTS, Requirement, parse_requirements
from railwright.diagnosis.verdicts.verdict import format_quantity
from railwright.errors import UsageError
from railwright.limits.limit import Quantity
from railwright.topology.devices import Scalar
from railwright.units import BITS_PER_BYTE, format_size, parse_line_rate, parse_size

PAIRS = "pairs"
"""The name of the measurement between all hosts by `prove --hosts`, which is not a benchmark."""
_MAX_TEXT = 200
_MAX_HOSTS = 100_000
_SHARE = re.compile(r"(\d(?:\.\d{1,6})?)\s*of\s+(?:the\s+)?(limit|expected)", re.ASCII)
_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*([A-Za-z/]{1,10})", re.ASCII)
_UNITS: dict[str, tuple[float, Quantity]] = {
    **{unit: (factor, "latency_s") for unit, factor in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0))},
    **{f"{prefix}op/s": (factor, "operations_per_s") for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6))},
    **{f"{prefix}msg/s": (factor, "messages_per_s") for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6))},
    **{f"{prefix}FLOP/s": (factor, "flop_per_s") for prefix, factor in (("G", 1e9), ("T", 1e12), ("P", 1e15))},
}
_HINT = "write it like '6 GB/s', '2 us', '50 kop/s', '40 TFLOP/s', '0.9 of the limit' or '0.9 of the expected'"


class AgreementLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A `[[line]]` of the file. Without `least` and `most` the path must be ok by its own limit and band."""

    path: str
    """The path as in `--require`: a benchmark, optionally with a path; `pairs host0>*`."""
    least: str = ""
    """The lower bound: `6 GB/s`, `48 Gb/s`, `50 kop/s`, `40 TFLOP/s`, `0.9 of the limit`, or `0.9 of the expected`."""
    most: str = ""
    """The upper bound: `2 us`."""
    size: str = ""
    """The size of the point that counts, such as `1MiB`; by default the headline of the curve."""
    where: dict[str, Scalar] = {}
    """Parameters that a result must have to count: `{ transport = "shm", threads = 2 }`."""
    note: str = ""


class AgreementFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The contents of the file."""

    title: str
    reference: str = ""
    """Order, contract or version of the specification, printed verbatim."""
    between: tuple[str, ...] = ()
    """The parties that sign."""
    hosts: int | None = None
    """The number of hosts that must take part."""
    line: tuple[AgreementLine, ...]


class Bound(NamedTuple):
    """A lower or upper bound of a value."""

    is_least: bool
    value: float
    quantity: Quantity | None
    """None if `value` is a share of the path's own limit or expected value."""
    of: Literal["limit", "expected"] = "limit"
    """The whole of a share; `expected` is the low end of the band."""

    def __str__(self) -> str:
        share = f"{self.value:g} of the {self.of}"
        words = share if self.quantity is None else format_quantity(self.quantity, self.value)
        return f"at {'least' if self.is_least else 'most'} {words}"


class Item(NamedTuple):
    """A parsed line."""

    required: Requirement
    bounds: tuple[Bound, ...]
    size_bytes: int | None
    where: tuple[tuple[str, Scalar], ...]
    note: str

    @property
    def quantities(self) -> set[Quantity]:
        """The quantities of the bounds; only curves of these quantities match."""
        return {bound.quantity for bound in self.bounds if bound.quantity is not None}

    def __str__(self) -> str:
        size = f" at {format_size(self.size_bytes)}" if self.size_bytes is not None else ""
        where = "".join(f", {name.replace('_', ' ')} {value}" for name, value in self.where)
        note = f" ({self.note})" if self.note else ""
        return f"{self.required}{where}{size}{note}: {' and '.join(map(str, self.bounds)) or 'ok, by its own limit'}"


class Spec(NamedTuple):
    """The conditions for the acceptance of a machine or cluster."""

    title: str
    reference: str
    between: tuple[str, ...]
    hosts: int | None
    items: tuple[Item, ...]


def parse_agreement(asked: AgreementFile, known: Sequence[str]) -> Spec:
    """Parse an agreement. Raises UsageError for the first invalid text, number or line."""
    for text in (asked.title, asked.reference, *asked.between, *(line.note for line in asked.line)):
        if len(text) > _MAX_TEXT or not text.isprintable():
            raise UsageError(
                f"text must be printable and at most {_MAX_TEXT} characters, got {text[:40]!r}",
                hint="shorten the text",
            )
    if not asked.title.strip() or not asked.line:
        raise UsageError("a specification must have a title and at least one [[line]]", hint="see docs/acceptance.md")
    if len(asked.line) > MAX_REQUIREMENTS or len(asked.between) > 10:
        raise UsageError(
            f"a specification must have at most {MAX_REQUIREMENTS} lines and 10 parties", hint="remove some"
        )
    if asked.hosts is not None and not 1 <= asked.hosts <= _MAX_HOSTS:
        raise UsageError(
            f"hosts must be 1 to {_MAX_HOSTS}, got {asked.hosts}", hint="give the number of hosts that take part"
        )
    items = []
    for number, line in enumerate(asked.line, 1):
        try:
            items.append(_parse_line(line, known))
        except UsageError as error:
            raise UsageError(f"line {number}: {error.message}", hint=error.hint) from error
    return Spec(asked.title, asked.reference, asked.between, asked.hosts, tuple(items))


def _parse_line(line: AgreementLine, known: Sequence[str]) -> Item:
    parsed = parse_requirements([line.path], [*known, PAIRS])
    if not parsed:
        raise UsageError("path must not be empty", hint="write path = 'BENCHMARK' or 'BENCHMARK PATH'")
    bounds = tuple(
        _parse_bound(text, is_least=least) for text, least in ((line.least, True), (line.most, False)) if text
    )
    size_bytes = parse_size(line.size) if line.size else None
    return Item(parsed[0], bounds, size_bytes, tuple(sorted(line.where.items())), line.note)


def _parse_bound(text: str, *, is_least: bool) -> Bound:
    share = _SHARE.fullmatch(text.strip())
    if share is not None:
        if not is_least or not 0 < float(share[1]) <= 1:
            raise UsageError(
                f"a share of the {share[2]} must be in `least` and at most 1, got {text[:40]!r}",
                hint=f"write least = '0.9 of the {share[2]}'",
            )
        return Bound(is_least, float(share[1]), None, "limit" if share[2] == "limit" else "expected")
    amount = _AMOUNT.fullmatch(text.strip())
    if amount is not None and amount[2] in _UNITS:
        factor, quantity = _UNITS[amount[2]]
        return Bound(is_least, float(amount[1]) * factor, quantity)
    try:
        return Bound(is_least, parse_line_rate(text) / BITS_PER_BYTE, "bandwidth_bytes_per_s")
    except UsageError as error:
        raise UsageError(f"bound must be a value with a unit, got {text[:40]!r}", hint=_HINT) from error
