"""What a reader hands back: the table of another tool as results of ours, with what must be known to read it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from railwright.limits.model import Quantity
from railwright.results.model import Result, Summary, Verification
from railwright.results.statistics import summarise
from railwright.topology.model import Scalar


class ForeignFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One run of one tool. A text with several runs gives several of these."""

    tool: str
    """`nccl-tests`, `OSU`, `perftest`, `nixlbench`, `gdsio`, `fio`, `HPL`, `NVIDIA HPL`."""
    version: str = ""
    """As printed; empty where the tool prints none."""
    test: str
    """`all_reduce`, `ib_write_bw`, `osu_bw`, `hpl` ..."""
    ranks: int | None = None
    """None where the text does not say; a result then has the default of 1, which means nothing."""
    hosts: int | None = None
    gpus: tuple[str, ...] = ()
    """The names of the GPU models, each once."""
    environment: dict[str, str] = {}
    """NCCL_* variables, from the command line or NCCL's own log."""
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    """What the reader of the table must know: units, data not checked, rows missing, averages that mean nothing."""


class Reader(Protocol):
    """A module of this package that reads one format."""

    NAME: str
    """The tool, and the words that its output is known by: `fio (fio-3, IOPS=)`."""

    def recognises(self, text: str) -> bool:
        """Whether the text has this format's fixed words. Cheap: no regular expression, no line by line."""
        ...

    def read(self, text: str) -> tuple[ForeignFile, ...]:
        """Every run in the text. Raises UsageError with line, value and reason when a table is not what it claims."""
        ...


def point(
    *,
    benchmark: str,
    quantity: Quantity,
    value: float,
    shown: str,
    line: int,
    method: str,
    parameters: dict[str, Scalar],
    settings: dict[str, Scalar] | None = None,
    path: str = "",
    ranks: int | None = None,
    hosts: int | None = None,
    verification: Verification | None = None,
    summary: Summary | None = None,
    launch: int = 0,
) -> Result:
    """One row of a table. `value` in SI units; `shown` is the tool's own string with its own unit; `line` from 1."""
    value = _rounded(value)
    return Result(
        benchmark=benchmark,
        quantity=quantity,
        path=path,
        method=method,
        parameters=parameters,
        settings={**(settings or {}), "shown": shown, "line": line},
        launch=launch,
        ranks=ranks or 1,
        hosts=hosts or 1,
        samples=(value,),
        summary=summary or summarise((value,)),
        verification=verification,
    )


def percentiles(count: int, minimum: float, median: float, p99: float, maximum: float) -> Summary:
    """A summary of samples that the tool kept to itself. The interval of the median is not known: it is the median."""
    minimum, median, p99, maximum = (_rounded(value) for value in (minimum, median, p99, maximum))
    return Summary(
        count=count, minimum=minimum, median=median, p99=p99, maximum=maximum, median_low=median, median_high=median
    )


def _rounded(value: float) -> float:
    """Twelve digits: 8.28e6 and not 8279999.999999999. No tool prints so many."""
    return float(f"{value:.12g}")
