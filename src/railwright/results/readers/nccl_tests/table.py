"""The rows of an nccl-tests table, from text or JSON, checked against the formulas of nccl-tests.

algbw = size / time and busbw = algbw x factor, each within the rounding of its column (nccl-tests src/*.cu, `*GetBw`).
Until 2020-06 all_gather and reduce_scatter printed busbw as algbw too (nccl-tests ec1b5e2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import field
from msgspec.structs import replace

from railwright import busbw
from railwright.errors import UsageError
from railwright.results.readers.foreign_file import Draft, MeasuredValue
from railwright.results.readers.nccl_tests.rows import TYPE_BYTES, Row, Timing
from railwright.results.readers.pasted.log_lines import refusal
from railwright.results.readers.pasted.printed_numbers import Number, Range, overlap
from railwright.results.records import Verification
from railwright.results.workload import Collective
from railwright.topology.devices import Scalar
from railwright.units import format_count


class Table(Draft, kw_only=True):
    """A table with the surrounding output. Its `test` is the operation."""

    tool: str = "nccl-tests"
    rows: list[Row] = field(default_factory=list)
    wrong_column: str = "#wrong"
    cpu_time: bool = False
    out_of_bounds: int | None = None
    average: Number | None = None
    algbw_is_busbw: bool = False
    named_ranks: int | None = None
    """The highest rank in the device lines plus one, if some lines are missing; a lower bound on the ranks."""

    @property
    def is_computed(self) -> bool:
        """Whether algbw is computed from size and time of a row: not for all_to_allv, nor for CPU time (`-C`)."""
        return not self.cpu_time and self.test != "all_to_allv"

    def add_row(self, row: Row) -> None:
        """Append a row of a later size, or of a new series or cycle. Raises UsageError if sizes are mixed up."""
        previous = self.rows[-1] if self.rows else None
        cycle = previous.cycle if previous else 0
        if previous is not None and previous.series == row.series and not self._rises(previous, row):
            first = next(other.size_bytes for other in self.rows if other.series == row.series)
            if row.size_bytes != first or previous.size_bytes != self.settings.get("last_size_bytes"):
                raise refusal(
                    row.line,
                    f"size {row.size_bytes} follows size {previous.size_bytes}: rows of several tables are mixed",
                    "nccl-tests built without MPI=1 prints one table per process; otherwise give one table, or label "
                    "the ranks",
                )
            cycle += 1
        self.rows.append(replace(row, cycle=cycle))

    def _rises(self, previous: Row, row: Row) -> bool:
        same = row.size_bytes == previous.size_bytes
        divided = self.test in busbw.PER_RANK_COUNTED if self.test else bool(row.count) and row.elements_per_count != 1
        may_repeat = divided or not row.size_bytes
        return row.size_bytes > previous.size_bytes or (same and may_repeat)

    def finish(self, logged_ranks: int | None = None, launched_ranks: int | None = None) -> None:
        """Settle operation and ranks, check the rows and convert them to results.

        Raises UsageError for a contradiction.

        `logged_ranks` is the number of ranks of the communicators in NCCL's own log, `launched_ranks` that of the
        command above the table, which counts if the rates allow it.
        """
        _settle_operation(self)
        self.workload = Collective(operation=self.test)
        _settle_ranks(self, logged_ranks, launched_ranks)
        for row in self.rows:
            _check_row(self, row)
        self.notes.extend(_closing_notes(self))
        for row in self.rows:
            for timing in row.timings if row.sends else ():
                _add(self, row, timing)


_NAME_IT = "name it with --collective NAME, or add the command line above the table"
_BY_COLUMNS = {
    # divided, rooted, reducing
    (False, False, True): "all_reduce",
    (True, False, True): "reduce_scatter",
    (False, True, True): "reduce",
    (False, True, False): "broadcast",
    (False, False, False): "send_recv",
}


def _settle_operation(table: Table) -> None:
    """Determine the operation of a table that does not name it. Raises UsageError if its columns do not determine it.

    nccl-tests skips the in-place data check of all_to_all and send_recv, which have no in-place form.
    """
    if table.test:
        return
    row = next((row for row in table.rows if row.count), None)
    if row is None and any(timing.busbw.low > timing.algbw.high for row in table.rows for timing in row.timings):
        table.test = "all_reduce"
        table.notes.append("the text does not name the test; only all_reduce has a busbw above its algbw")
        return
    if row is None:
        raise UsageError(
            "the table must have a row with data, count and type to determine its operation, got none", hint=_NAME_IT
        )
    divided, rooted, reducing = row.elements_per_count != 1, row.root >= 0, row.redop not in ("", "none")
    table.test = _BY_COLUMNS.get((divided, rooted, reducing), "")
    checked = {timing.placement for timing in row.timings if timing.wrong is not None}
    if len(row.timings) > 1 and not rooted and divided != reducing:
        if checked == {"out_of_place"}:
            table.test = "all_to_all" if divided else "send_recv"
        elif checked and divided:
            table.test = "all_gather"
    if not table.test and not rooted:
        table.test, table.rivals = "all_gather", ("all_to_all",)
        table.notes.append(
            "the table does not say whether it is all_gather or all_to_all: it is read as all_gather; --collective"
            " all_to_all overrides this"
        )
        return
    if not table.test:
        raise refusal(row.line, "the table does not say whether it is gather or scatter", _NAME_IT)
    table.notes.append(f"the text does not name the test; {table.test} has the same columns")


def _settle_ranks(table: Table, logged_ranks: int | None, launched_ranks: int | None) -> None:
    """Take the ranks from the device lines, or derive them from size and count, NCCL's log, rates or the command.

    Raises UsageError if they contradict each other.
    """
    data = [row for row in table.rows if row.sends]
    if table.test in busbw.PER_RANK_COUNTED and any(row.count for row in data):
        ratios = {row.line: row.elements_per_count for row in data if row.count}
        lowest, ratio = min(ratios.values()), max(ratios.values())
        if lowest != ratio or ratio.denominator != 1:
            line = next(line for line, one in ratios.items() if one != lowest or ratio.denominator != 1)
            raise refusal(line, "size / (count x bytes of the type) must be the same integer, the ranks, in every row")
        if table.ranks is None:
            table.ranks = int(ratio)
            table.notes.append(f"no device lines: size and count imply {table.ranks} ranks")
        elif ratio != table.ranks:
            why = f"size {data[0].size_bytes} implies {ratio} ranks, but the device lines name {table.ranks}"
            raise refusal(data[0].line, why)
    if table.ranks is None and logged_ranks is not None:
        table.ranks = logged_ranks
        table.notes.append(f"no device lines: NCCL's log has {logged_ranks} ranks")
    if table.ranks is None:
        _solve_ranks(table, data, launched_ranks)
    named, table.named_ranks = table.named_ranks, None
    if named is None or table.ranks == named:
        return
    if table.ranks is None:
        table.ranks = named
    elif "threads" in table.settings:
        table.ranks = named  # the header is complete, so the contradicting row is refused
    else:
        differ = f"the device lines name rank {named - 1}, but busbw / algbw implies {table.ranks} ranks"
        table.notes.append(f"{differ}: they are not from the same run")


def _solve_ranks(table: Table, data: Sequence[Row], launched_ranks: int | None) -> None:
    minimum, maximum, line = 1, busbw.MAX_RANKS, 0
    timed = [(row, timing) for row in data for timing in row.timings if timing.algbw.low > 0]
    for row, timing in timed:
        bus, algbw = timing.busbw, timing.algbw
        found = busbw.bound_ranks(table.test, bus.low / algbw.high, bus.high / algbw.low)
        if found is None:
            table.notes.append(f"no device lines: the number of ranks of a {table.test} cannot be deduced")
            return
        if max(minimum, found[0]) > min(maximum, found[1]):
            ranks = f"for the ranks of line {line}" if found[0] <= found[1] else "for any number of ranks"
            raise refusal(row.line, f"busbw {bus.text} is not algbw {algbw.text} x the factor of {table.test} {ranks}")
        minimum, maximum, line = max(minimum, found[0]), min(maximum, found[1]), row.line
    if minimum == maximum:
        table.ranks = minimum
        table.notes.append(f"no device lines: busbw / algbw implies {minimum} ranks")
    elif launched_ranks is not None and minimum <= launched_ranks <= maximum:
        table.ranks = launched_ranks
        table.notes.append(f"no device lines: the command above the table starts {launched_ranks} ranks")
    else:
        table.notes.append(f"no device lines: busbw / algbw allows {minimum} to {maximum} ranks")


def _check_row(table: Table, row: Row) -> None:
    """Check the columns of a row against each other. Raises UsageError for a contradiction."""
    if table.test not in busbw.PER_RANK_COUNTED and row.count and row.elements_per_count != 1:
        why = f"size {row.size_bytes} is not count {row.count} x {TYPE_BYTES[row.type]} B of {row.type}"
        raise refusal(row.line, why)
    if row.size_bytes and row.count == 0:
        raise refusal(row.line, f"size {row.size_bytes} with a count of 0")
    for timing in row.timings if row.sends else ():
        _check_timing(table, row, timing)


def _check_timing(table: Table, row: Row, timing: Timing) -> None:
    time, algbw = timing.time_us, timing.algbw
    if time.value <= 0:
        raise refusal(row.line, f"time must be above 0 us, got {time.text}")
    low, high = algbw.range()
    share = None if table.ranks is None else float(busbw.busbw_factor(table.test, table.ranks))
    if table.is_computed:
        size = float(busbw.counted_bytes(table.test, row.size_bytes, table.ranks or 1))
        # bytes/us is MB/s
        computed = (size / time.high / 1e3, size / max(time.low, time.high * 1e-3) / 1e3)
        if not overlap((low, high), computed):
            table.algbw_is_busbw = share is not None and _is_old_definition(table, timing, computed, share)
            if table.algbw_is_busbw:
                return
            size_over_time = f"size {row.size_bytes} / time {time.text} us = {size / time.value / 1e3:.2f} GB/s"
            raise refusal(row.line, f"algbw {algbw.text} GB/s is not {size_over_time}")
        low, high = max(low, computed[0]), min(high, computed[1])
    if share is not None and not overlap(timing.busbw.range(), (low * share, high * share)):
        factor = f"{share:.4g}, the factor of {table.test} for {table.ranks} ranks"
        raise refusal(row.line, f"busbw {timing.busbw.text} is not algbw {algbw.text} x {factor}")


def _is_old_definition(table: Table, timing: Timing, computed: Range, share: float) -> bool:
    """Report whether the algbw column holds the busbw, as before 2020-06."""
    if table.test not in ("all_gather", "reduce_scatter") or timing.algbw.text != timing.busbw.text:
        return False
    return overlap(timing.algbw.range(), (computed[0] * share, computed[1] * share))


def _add(table: Table, row: Row, timing: Timing) -> None:
    """Add a timing of a row with data: algbw in bytes/s, computed from size and time where possible."""
    seconds = timing.time_us.value * 1e-6
    value = timing.algbw.value * 1e9
    if table.is_computed:
        value = float(busbw.counted_bytes(table.test, row.size_bytes, table.ranks or 1)) / seconds
    parameters: dict[str, Scalar] = {
        "size_bytes": row.size_bytes,
        "placement": timing.placement,
        **({"type": row.type} if row.type else {}),
        **({"redop": row.redop} if row.redop not in ("", "none") else {}),
        **({"root": row.root} if row.root >= 0 else {}),
    }
    settings: dict[str, Scalar] = {"duration_s": seconds, **timing.extras}
    if table.ranks is not None:
        settings["busbw_bytes_per_s"] = busbw.bus_bandwidth(table.test, table.ranks, value)
    measured = MeasuredValue("bandwidth_bytes_per_s", value, f"{timing.busbw.text} GB/s busbw")
    table.add(row.line, [measured], parameters, settings, _verification(table, row, timing), launch=row.cycle)


def _verification(table: Table, row: Row, timing: Timing) -> Verification | None:
    is_count = table.wrong_column == "#wrong"
    # The old column is the largest difference. Only the footer counts wrong values, without their rows.
    if timing.wrong is None or (not is_count and table.out_of_bounds != 0):
        return None
    wrong = min(round(timing.wrong * TYPE_BYTES.get(row.type, 1)), 2**63 - 1) if is_count else 0
    method = f"nccl-tests {table.wrong_column}"
    return Verification(method=method, bytes_checked=row.size_bytes, bytes_wrong=wrong)


def _closing_notes(table: Table) -> Iterable[str]:
    """Yield the notes about the whole table."""
    timings = [timing for row in table.rows for timing in row.timings]
    if table.average is not None:
        average = f"the average bus bandwidth of {table.average.text} GB/s"
        yield f"{average} averages all sizes and both placements: it says nothing about any size"
        mean = sum(timing.busbw.value for timing in timings) / max(len(timings), 1)
        slack = 0.0051 + 1e-5 * mean + table.average.half
        if abs(mean - table.average.value) > slack:
            yield f"the mean busbw of the rows is {mean:.4g} GB/s, not {table.average.text}: rows are missing"
    if timings and all(timing.wrong is None for timing in timings):
        yield "the data was not checked"
        if table.test == "all_to_all" and table.settings.get("validation") == 0:
            yield (
                "without its check (-c 0) nccl-tests sends memory that was never written: on 4 H200 this all_to_all"
                " takes up to a tenth less time than with data, from 32 MiB to 1 GiB"
            )
    elif table.wrong_column != "#wrong" and table.out_of_bounds != 0:
        yield "the wrong rows are unknown: this version prints the largest error and one count for all rows"
    if table.out_of_bounds:
        yield f"nccl-tests counted {format_count(table.out_of_bounds, 'value')} out of bounds: the data was wrong"
    if empty := sum(not row.sends for row in table.rows):
        yield f"rows with less than 16 bytes per rank send nothing and are left out: {empty}"
    if table.algbw_is_busbw:
        yield "this version prints busbw in both columns: algbw was computed from size and time"
    if table.cpu_time:
        yield "the time column is CPU time (-C): bandwidths are as printed"
    if table.ranks == 1:
        yield "1 rank: no data crossed a link; nccl-tests built without MPI=1 runs like this in each process"
