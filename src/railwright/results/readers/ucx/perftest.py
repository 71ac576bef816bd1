"""Reader of ucx_perftest (UCX 1.3 to 1.20): the table of its stages, and the CSV of -v.

    |    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
    Final:                    10      0.353  2202.916  2202.916    45394.37   45394.37         454         454

The eight numbers are iterations; time per message at the percentile, since the last line, and overall; and bandwidth
and message rate, each since the last line and overall. MB is 2^20 bytes (`print_progress` of
src/tools/perf/perftest.c). ucx_perftest prints a line per second, and the last line covers the whole run. In a latency
test the time is one way. In a bandwidth test it is the time to post a message (`overhead`) and, overall, the inverse of
the message rate.
"""

from __future__ import annotations

import re

from msgspec import field

from railwright.results.readers.foreign_file import Draft, ForeignFile, MeasuredValue, bandwidth, collect_files, latency
from railwright.results.readers.pasted.log_lines import Line, describe_truncation, last_row, refusal, split_runs
from railwright.results.readers.pasted.printed_numbers import Number, number, overlap
from railwright.results.workload import Message, is_gpu_memory
from railwright.topology.devices import Scalar

_HEAD = re.compile(r"# iterations \|")
_CSV = re.compile(r"iterations,(?:typical|[\d.]{1,6}_percentile)_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,")
_ROW = re.compile(r"(?:^|(?<=\s)|(?<=:))(Final|\[thread (\d{1,5})\]):?\s{1,40}(\S.{0,200})|^\s{4,40}(\d.{20,200})$")
_FINAL = re.compile(r"\bFinal:\s{1,40}\d{1,12}(?:\s{1,40}[\d.]{3,16}){5}\s{1,40}\d{1,12}\s{1,40}\d{1,12}")
_NUMBERS = re.compile(r"[\d.,']+")
_COMMAND = re.compile(r"\bucx_perftest\b(.{0,1000})")
_OPTION = re.compile(r"\s-([tsmTO])\s{0,4}(\S{1,200})")
_ONE_HOST = re.compile(r"\s(?:localhost|127\.0\.0\.1|::1)(?:\s|$)")
_TITLE = re.compile(r"={4,80} ([a-z_]{3,24}) ={4,80}|^\+([a-z_]{3,24})(?:/\S{1,80}?)?-{4,}")
_BOX = re.compile(r"\| (API|Test|Send memory|Recv memory|Message size|Window size):\s{1,20}(\S.{0,80}?)\s{1,100}\|")
_VERSION = re.compile(r"\bUCP version is (\d[\d.]{0,15})")
_ABOVE = 60
"""The number of lines above a table that are searched for its command."""
_COLUMNS = ("iterations", "percentile", "average", "overall", "bandwidth", "bandwidth_overall", "rate", "rate_overall")
_MB = 2.0**20
_MIN_RATE_RATIO = 2.0
_MIN_SECONDS = 4
_SIZE_PRECISION = 1e-3
"""The relative precision that rate and time need to compute a size."""


_Row = tuple[int, dict[str, Number]]
"""A line of results with its number."""


class _Run(Draft, kw_only=True):
    is_latency: bool | None = None
    """Whether the time is that of a message one way; None if the text does not say."""
    size: int | None = None
    final: list[_Row] = field(default_factory=list)
    seconds: dict[str, list[_Row]] = field(default_factory=dict)
    """The progress lines by thread. The last of each counts if there is no final line."""
    is_cut: bool = False


def recognises(text: str) -> bool:
    """Report whether the text has the header of the table or of the CSV, or the last line."""
    is_headed = ("# iterations |" in text and "overall" in text) or "overall_lat,avg_bw,overall_bw" in text
    return is_headed or ("Final:" in text and _FINAL.search(text) is not None)


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every table.

    Raises UsageError for a message rate that is not the inverse of the time per message, or for a text without results.
    """
    above: list[Line] = []
    runs = []
    is_csv = False
    for part in split_runs(text, _begins):
        is_csv = _CSV.search(part[0].text) is not None or (is_csv and _HEAD.search(part[0].text) is None)
        run = _read_run(part, above[-_ABOVE:], is_csv)
        runs.append(run)
        above = [*([] if run.results else above), *(line for line in part if line.number > run.last[0])]
    nothing = "the output of ucx_perftest must contain a line of results, got none"
    if any(run.is_cut for run in runs):
        nothing = "the text ends inside its only line of results"
    return collect_files(runs, nothing, "give the client's whole output, starting with its header")


def _begins(line: Line) -> bool:
    """Report whether the line is a header, or the title of the next test of a batch, which prints no header."""
    return any(pattern.search(line.text) is not None for pattern in (_HEAD, _CSV, _TITLE))


def _read_run(part: list[Line], above: list[Line], is_csv: bool) -> _Run:
    run = _Run(tool="ucx_perftest", ranks=2, notes=["MB/s is 2^20 bytes/s", "the data was not checked"])
    run.last_line = last_row(part)
    for line in (*above, *part):
        found = _split_row(line.text, is_csv) if line.number >= part[0].number else None
        if found is not None:
            _read_row(run, *found, line.number)
        elif not run.line:  # lines after the results belong to the next test
            _read_description(run, line.text)
    _add_results(run)
    from_gpu, to_gpu = (is_gpu_memory(run.settings.get(end)) for end in ("send_memory", "receive_memory"))
    rails = int("put_" in run.test or "get_" in run.test)  # UCX has two rails for messages, but one for these
    run.workload = Message(from_gpu=from_gpu, to_gpu=to_gpu, rails=rails)
    return run


def _read_row(run: _Run, stage: str, words: list[str], line: int) -> None:
    if len(words) != len(_COLUMNS):
        if line == run.last_line and len(words) < len(_COLUMNS):
            run.is_cut = True
            run.notes.append(describe_truncation(line, len(words), len(_COLUMNS)))
        return
    values = {name: number(word, name, line) for name, word in zip(_COLUMNS, words, strict=True)}
    _check_rates(values, line)
    run.line, run.last = run.line or line, (line, 0)
    rows = run.seconds.setdefault(stage, []) if stage.startswith("[") else run.final
    rows.append((line, values))


def _read_description(run: _Run, text: str) -> None:
    """Read a description of the test: its command, its title in a batch, or the box that the server prints."""
    if (command := _COMMAND.search(text)) is not None:
        run.hosts = 1 if _ONE_HOST.search(f"{command[1]} ") else run.hosts
        for option, value in _OPTION.findall(command[1]):
            _take_option(run, option, value)
    elif (title := _TITLE.search(text.strip())) is not None:
        _set_test(run, title[1] or title[2])
    elif (box := _BOX.search(text)) is not None:
        _read_box(run, box[1], box[2])
    elif (version := _VERSION.search(text)) is not None:
        run.version = version[1]
    elif "overhead (usec)" in text:
        run.is_latency = False
    if "latency (usec)" in text and run.is_latency is None and "Stage" not in text:
        run.settings["header"] = "latency"


def _take_option(run: _Run, option: str, value: str) -> None:
    if option == "t" and re.fullmatch(r"[a-z_]{3,24}", value):
        _set_test(run, value)
    elif option == "s" and re.fullmatch(r"\d{1,18}(?:,\d{1,18}){0,31}", value):
        run.size = sum(map(int, value.split(",")))
    elif option == "m" and re.fullmatch(r"[a-z-]{2,24}(?:,[a-z-]{2,24})?", value):
        ends = value.split(",")
        run.settings["send_memory"], run.settings["receive_memory"] = ends[0], ends[-1]
    elif option == "T" and value.isdecimal():
        run.settings["threads"] = int(value[:6])


def _set_test(run: _Run, name: str) -> None:
    run.test = name
    run.is_latency = name.endswith("_lat")


def _read_box(run: _Run, what: str, value: str) -> None:
    if what == "Test" and not run.test:
        words = value.removeprefix("UCP ").split()
        name = "_".join(word for word in words if word.isalpha() and word not in ("match", "bandwidth", "latency"))
        run.is_latency = "bandwidth" not in value
        run.test = f"{name.replace('active_message', 'am')[:20]}_{'lat' if run.is_latency else 'bw'}"
    elif what == "Message size" and value.isdecimal() and len(value) < 19:
        run.size = int(value)
    elif what.endswith("memory"):
        run.settings["send_memory" if what[0] == "S" else "receive_memory"] = value[:24]


def _split_row(text: str, is_csv: bool) -> tuple[str, list[str]] | None:
    """Return the stage and the eight values of a row as text, or None for a line without results."""
    if is_csv:
        words = text.strip().split(",")[-len(_COLUMNS) :]
        return ("", words) if len(words) == len(_COLUMNS) and words[0].isdecimal() else None
    found = _ROW.search(text)
    if found is None:
        return None
    words = (found[3] or found[4]).split()
    if not all(_NUMBERS.fullmatch(word) for word in words):
        return None
    return (found[1] or "", [word.replace(",", "").replace("'", "") for word in words])


def _check_rates(values: dict[str, Number], line: int) -> None:
    rate, time = values["rate_overall"], values["overall"]
    if time.low <= 0 or rate.value < 1:
        return
    if not overlap(rate.range(1e-6), (0.999 / time.high, 1.001 / time.low)):
        raise refusal(line, f"{rate.text} messages/s is not 1 / {time.text} us")


def _add_results(run: _Run) -> None:
    rows = run.final or [rows[-1] for rows in run.seconds.values()]
    if not run.final and rows:
        run.notes.append("the text lacks the final line: these are the values up to the last line")
    if run.is_latency is None and rows:
        run.is_latency = run.settings.get("header") == "latency"
    run.settings.pop("header", None)
    run.test = run.test or ("ucx_lat" if run.is_latency else "ucx_bw")
    fastest = _find_fastest_second(run)
    for line, values in rows:
        _add(run, line, values, {"over": "all"} if fastest else {})
    if fastest:
        line, values = fastest  # also a row, because no limit of the machine forbids this rate
        at = {**_size_parameters(run, values), "over": "fastest second"}
        run.add(line, [bandwidth(values["bandwidth"], _MB, "MB/s")], at)
    if not run.is_latency and run.results:
        run.notes.append("the sender counts sent messages, even those that have not arrived yet")


def _size_parameters(run: _Run, values: dict[str, Number]) -> dict[str, Scalar]:
    size = run.size if run.size is not None else _derive_size(values)
    return {} if size is None else {"size_bytes": size}


def _add(run: _Run, line: int, values: dict[str, Number], over: dict[str, str]) -> None:
    at = {**_size_parameters(run, values), **over}
    held: dict[str, Scalar] = {"iterations": int(values["iterations"].value)}
    if run.is_latency:
        held["mean_s"] = values["overall"].value * 1e-6
        run.add(line, [latency(values["percentile"], "usec")], at, held)
        return
    rate = values["rate_overall"]
    found = [bandwidth(values["bandwidth_overall"], _MB, "MB/s")]
    found += [MeasuredValue("messages_per_s", rate.value, f"{rate.text} msg/s")] if rate.value else []
    run.add(line, found, at, held)


def _find_fastest_second(run: _Run) -> _Row | None:
    """Return the row of the fastest second of a bandwidth test by one thread; None if rates differ by less than 2x."""
    seconds = [row for rows in run.seconds.values() for row in rows]
    rates = [values["bandwidth"].value for _, values in seconds]
    if (
        run.is_latency
        or len(run.seconds) != 1
        or len(rates) < _MIN_SECONDS
        or max(rates) < _MIN_RATE_RATIO * min(rates)
    ):
        return None
    run.notes.append(f"the rate alternates between {min(rates):.0f} and {max(rates):.0f} MB/s from second to second")
    return max(seconds, key=lambda second: second[1]["bandwidth"].value)


def _derive_size(values: dict[str, Number]) -> int | None:
    """Compute the size as bandwidth x time per message, or None if they are too imprecise.

    Returns the multiple of the largest possible power of two within their precision.
    """
    bandwidth, time = values["bandwidth_overall"], values["overall"]
    if bandwidth.value <= 0 or time.value <= 0:
        return None
    off = bandwidth.half / bandwidth.value + time.half / time.value
    size = bandwidth.value * _MB * time.value * 1e-6
    if off > _SIZE_PRECISION or not 1 <= size < 1e15:
        return None
    for power in range(40, -1, -1):
        near: int = round(size / 2**power) << power
        if near and abs(near - size) <= off * size:
            return near
    return None
