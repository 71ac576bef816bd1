"""The curves of a watched job, drawn in characters, as many as fit on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from railwright.report.text.watch import rate_words
from railwright.report.text.wording import escape
from railwright.watch.now import BIN_S, Bins, longest_recording_s

SPANS_S = (5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)
KEYS = "+ - zoom   < > move   f follow   q end"
_BARS = " ▁▂▃▄▅▆▇█"
_ROWS = 2
_NAME_COLUMNS, _RATE_COLUMNS = 20, 24
_MIN_COLUMNS = 10


@dataclass(frozen=True)
class View:
    """The drawn stretch of time, and the first drawn curve."""

    zoom: int = 1
    """An index into SPANS_S."""
    end_s: float | None = None
    """None follows the newest sample."""
    first: int = 0

    def apply_key(self, key: str, now_s: float) -> View:
        """Return the view after a key; an unknown key changes nothing."""
        span_s = SPANS_S[self.zoom]
        end_s = now_s if self.end_s is None else self.end_s
        match key:
            case "+" | "=":
                return replace(self, zoom=max(0, self.zoom - 1))
            case "-":
                return replace(self, zoom=min(len(SPANS_S) - 1, self.zoom + 1))
            case "<" | "left":
                return replace(self, end_s=max(min(span_s, now_s), end_s - span_s / 2))
            case ">" | "right":
                return replace(self, end_s=None if end_s + span_s / 2 >= now_s else end_s + span_s / 2)
            case "f":
                return replace(self, end_s=None)
            case "up" | "down":
                return replace(self, first=max(0, self.first + (1 if key == "down" else -1)))
        return self


def picture_lines(
    watched: Sequence[tuple[str, Bins | str]], view: View, columns: int, rows: int, *, keys: bool
) -> Iterator[str]:
    """Yield a head, then each curve with its newest and its highest rate.

    `watched` pairs a host's name, or "" for this host, with its bins or the reason for their absence.
    Curves that do not fit are counted.
    """
    now_s = longest_recording_s(watched)
    end_s = now_s if view.end_s is None else min(view.end_s, now_s)
    begin_s = max(0.0, end_s - SPANS_S[view.zoom])
    stretch = f"{begin_s:.1f} to {end_s:.1f} s{'' if view.end_s is None else f' of {now_s:.1f} s, held'}"
    head = f"{stretch}   {KEYS}" if keys else stretch
    yield head if len(head) < columns else stretch
    if now_s < 2 * BIN_S:
        yield "no sample yet"
        return
    width = max(_MIN_COLUMNS, columns - _NAME_COLUMNS - _RATE_COLUMNS - 1)
    curves = [
        curve for name, curves_or_reason in watched for curve in _curves(name, curves_or_reason, begin_s, end_s, width)
    ]
    room = max(1, (rows - 2) // _ROWS)
    first = min(view.first, max(0, len(curves) - room))
    for curve in curves[first : first + room]:
        yield from curve
    if len(curves) > room:
        yield f"{first + 1} to {min(first + room, len(curves))} of {len(curves)} curves; up and down show the others"


def _curves(name: str, bins: Bins | str, begin_s: float, end_s: float, width: int) -> Iterator[list[str]]:
    if isinstance(bins, str):
        yield [f"{escape(name)}: {escape(bins)}"]
        return
    for kind, unit in bins.kinds:
        # The last bin is still being filled.
        rates = bins.rates((kind, unit), begin_s, max(begin_s + BIN_S, min(end_s, bins.seconds - BIN_S)), width)
        above, below = bars(rates)
        label = f"{name} {kind}".strip()
        newest, highest = f" {rate_words(unit, rates[-1])}", f" of {rate_words(unit, max(rates))} at most"
        yield [
            f"{escape(label)[: _NAME_COLUMNS - 1]:{_NAME_COLUMNS}}{above}{newest}",
            f"{'':{_NAME_COLUMNS}}{below}{highest}",
        ]


def bars(rates: Sequence[float]) -> tuple[str, str]:
    """Draw columns two characters high, in eighths of a character; a rate above zero is always visible."""
    highest = max(rates, default=0.0)
    steps = _ROWS * (len(_BARS) - 1)
    heights = [max(1, round(steps * rate / highest)) if rate > 0 else 0 for rate in rates]
    full = len(_BARS) - 1
    return "".join(_BARS[max(0, height - full)] for height in heights), "".join(
        _BARS[min(full, height)] for height in heights
    )
