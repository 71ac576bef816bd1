"""Parsing and formatting of quantities. Values are bytes, seconds and bytes/s.

Bandwidths print in GB/s (10^9), or in MB/s (10^6) below 0.1 GB/s; sizes print in B to TiB, and line rates in Gb/s. So
any two printed figures can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from railwright.errors import UsageError

GB = 10**9
BITS_PER_BYTE = 8
KIB = 2**10
MIB = 2**20
GIB = 2**30
TIB = 2**40

_SIZE = re.compile(r"(\d{1,20})\s*([KMGT]?)(i?B)?", re.IGNORECASE)
_STEP = re.compile(r"([x+])(.+)")
_FACTOR = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB}
_RATE = re.compile(
    r"(?P<number>\d{1,9}(?:\.\d{1,6})?)\s*(?P<prefix>[KMGT])(?P<binary>i)?(?P<unit>bit(?:/s|ps)?|b(?:/s|ps)?)?",
    re.IGNORECASE | re.ASCII,
)

MAX_SIZE_BYTES = 64 * TIB
MAX_SWEEP_SIZES = 64


def parse_size(text: str) -> int:
    """Parse `4K`, `4KiB`, `1M` or `8` as bytes. K, M, G and T are powers of 1024. Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"not a size: {text[:40]!r}", hint="write bytes, or a number with K, M, G or T, like 64K")
    size = int(match.group(1)) * _FACTOR[match.group(2).upper()]
    if size > MAX_SIZE_BYTES:
        raise UsageError(f"size {text.strip()!r} is above 64 TiB", hint="give a size that fits in this machine")
    return size


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse a sweep: `8:1M:x2` (factor), `4K:64K:+4K` (step), or `8,4K,1M`. Raises UsageError."""
    if ":" not in text:
        sizes = tuple(dict.fromkeys(parse_size(part) for part in text.split(",")))
        return _checked_sweep(sizes, text)
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise UsageError(f"not a sweep of sizes: {text[:60]!r}", hint="write FIRST:LAST:xFACTOR, like 8:1M:x2")
    first, last = parse_size(parts[0]), parse_size(parts[1])
    step = _STEP.fullmatch(parts[2].strip()) if len(parts) == 3 else _STEP.fullmatch("x2")
    if step is None:
        raise UsageError(f"not a step: {parts[2][:40]!r}", hint="write xFACTOR or +STEP, like x2 or +4K")
    multiply, amount = step.group(1) == "x", parse_size(step.group(2))
    if last < first or (multiply and (amount < 2 or first == 0)) or amount == 0:
        raise UsageError(
            f"the sweep {text[:60]!r} never ends or is empty",
            hint="FIRST must not exceed LAST, and the sizes must grow",
        )
    sizes_list = [first]
    while len(sizes_list) <= MAX_SWEEP_SIZES:
        following = sizes_list[-1] * amount if multiply else sizes_list[-1] + amount
        if following > last:
            break
        sizes_list.append(following)
    return _checked_sweep(tuple(sizes_list), text)


def _checked_sweep(sizes: tuple[int, ...], text: str) -> tuple[int, ...]:
    if len(sizes) > MAX_SWEEP_SIZES:
        raise UsageError(f"the sweep {text[:60]!r} has more than {MAX_SWEEP_SIZES} sizes", hint="take a larger step")
    if min(sizes) < 1:
        raise UsageError(f"the sweep {text[:60]!r} has a size of 0 bytes", hint="give sizes of at least 1 byte")
    return sizes


def parse_line_rate(text: str) -> float:
    """Parse `400Gb/s`, `400Gbps`, `400G`, `1.6Tb/s`, `50GB/s` or `46.6GiB/s` as bits per second.

    Case distinguishes bits (b) from bytes (B), and a NIC's `400G` means Gb/s. Raises UsageError. For a text whose case
    is ambiguous, such as `50gb/s`, `50GB/S` or `400GB`, the error shows both readings.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        hint = "write a line rate like 400Gb/s or 50GB/s"
        if "t/s" in text.lower():
            hint += "; GT/s counts transfers per lane: multiply by the link's width and encoding"
        raise UsageError(f"not a rate: {text[:40]!r}", hint=hint)
    number, prefix, binary, unit = match.groups()
    is_bytes = _counts_bytes(prefix, unit or "", is_binary=binary is not None)
    if is_bytes is None:
        prefix = prefix.upper()
        bits, octets = (f"{number}{prefix}{letter}/s" for letter in "bB")
        reading = f"{bits}, or {octets} for {float(number) * BITS_PER_BYTE:g} {prefix}b/s"
        raise UsageError(f"the rate {text.strip()!r} may mean bits or bytes", hint=f"write {reading}")
    step, power = (1024 if binary else 1000), "KMGT".index(prefix.upper()) + 1
    return float(number) * float(step) ** power * (BITS_PER_BYTE if is_bytes else 1)


def _counts_bytes(prefix: str, unit: str, *, is_binary: bool) -> bool | None:
    """Report whether the unit of a rate is bytes rather than bits. None if its case is ambiguous."""
    letter, rest = unit[:1], unit[1:]
    if not unit or rest.lower().startswith("it"):
        return False
    if is_binary or (letter == "B" and rest in ("/s", "ps")):
        return True
    says_bits = letter == "b" and (rest.lower() == "ps" or prefix.isupper())
    return False if says_bits else None


def format_size(size_bytes: float) -> str:
    """Format a size, such as 8 B, 64 KiB, 1.5 MiB or 24 GiB."""
    for factor, unit in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= factor:
            value = size_bytes / factor
            return f"{value:.0f} {unit}" if value == int(value) or value >= 100 else f"{value:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def format_bandwidth(bytes_per_s: float) -> str:
    """Format a rate with three significant figures in GB/s (10^9), or in MB/s (10^6) below 0.1 GB/s."""
    if bytes_per_s < 0.1 * GB:
        return f"{_significant(bytes_per_s / 1e6)} MB/s"
    return f"{_significant(bytes_per_s / GB)} GB/s"


def format_line_rate(bits_per_s: float) -> str:
    """Format a line rate, such as 400 Gb/s."""
    return f"{bits_per_s / 1e9:g} Gb/s"


def format_duration(seconds: float) -> str:
    """Format a duration, such as 264 ns, 3.92 us, 1.05 ms or 2.3 s, in minutes from 120 s on."""
    if seconds == 0:
        return "0 s"
    for factor, unit in ((1e-6, "ns"), (1e-3, "us"), (1.0, "ms")):
        if abs(seconds) < factor:
            return f"{_significant(seconds / factor * 1000)} {unit}"
    if seconds < 120:
        return f"{_significant(seconds)} s"
    return f"{seconds / 60:.1f} min"


def format_operations(per_s: float) -> str:
    """Format a rate of a drive's reads or writes, such as 65.1 kop/s."""
    return _format_rate(per_s, "op/s")


def format_messages(per_s: float) -> str:
    """Format a rate of messages between processes, such as 2.50 Mmsg/s."""
    return _format_rate(per_s, "msg/s")


def _format_rate(per_s: float, unit: str) -> str:
    if per_s >= 1e6:
        return f"{_significant(per_s / 1e6)} M{unit}"
    return f"{_significant(per_s / 1e3)} k{unit}" if per_s >= 1000 else f"{_significant(per_s)} {unit}"


def format_flops(per_s: float) -> str:
    """Format a rate of floating-point operations, such as 48.5 TFLOP/s or 4.86 GFLOP/s."""
    for factor, unit in ((1e18, "EFLOP/s"), (1e15, "PFLOP/s"), (1e12, "TFLOP/s")):
        if per_s >= factor:
            return f"{_significant(per_s / factor)} {unit}"
    return f"{_significant(per_s / 1e9)} GFLOP/s"


def _significant(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun, such as `1 path` or `3 paths`."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def format_list(names: Sequence[str]) -> str:
    """Format names as a list in a sentence: `a`, `a and b`, or `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
