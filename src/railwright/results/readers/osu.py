"""Reader of the OSU Micro-Benchmarks: MPI tests of 5.3 to 7.5, for hosts and GPUs, and the same format since 2.0.

    # OSU MPI-CUDA Bandwidth Test v5.6.2
    # Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)
    # Size      Bandwidth (MB/s)
    1                       0.08

MB/s is 10^6 bytes/s. Latency is one way, in us, and an average: over the calls of rank 0, or over all ranks of a
collective (where `-f` adds the minimum and the maximum average over ranks). `-z` adds percentiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from railwright.errors import UsageError
from railwright.limits.limit import Quantity
from railwright.results.readers.foreign_file import (
    Draft,
    ForeignFile,
    MeasuredValue,
    collect_files,
    latency,
    mpi_collective,
)
from railwright.results.readers.pasted.command_line import parse_environment, parse_launch_command
from railwright.results.readers.pasted.log_lines import (
    Line,
    last_row,
    parse_columns,
    refusal,
    split_runs,
    split_sections,
)
from railwright.results.readers.pasted.printed_numbers import Number, number, overlap, parse_integer, refuse_outside
from railwright.results.records import Verification
from railwright.results.workload import Message, Workload, is_gpu_memory
from railwright.topology.devices import Scalar

_TITLE = re.compile(
    r"#? ?(?:OSU (MPI|NCCL|OpenSHMEM|UPC\+{0,2})|OMB Python MPI)(?:-([A-Z]{2,10}))?(_\w{3,20})? (.{2,60}?)"
    r" Test(?: (?:v|\(Version )(\d[\w.-]{0,15})|\s*$)"
)
_COLUMN = re.compile(
    r"Size|Bandwidth \(MB/s\)|MB/s|Messages/s|Iterations|Validation|(?:(?:Avg|Min|Max) )?Lat(?:ency)? ?\(us\)"
    r"|P\d{2} Tail Lat ?\(us\)|P\d{2} Tail BW ?\(MB/s\)"
    r"|(?:Overall|Compute|Coll\. Init|MPI_Test|MPI_Wait|(?:Pure|Min|Max) Comm\.) ?\(us\)|Overlap ?\(%\)"
)
_HEADER = re.compile(
    r"\bSize(?: \(B\))?\s{1,40}(Bandwidth \(MB/s\)|(?:Avg )?Lat(?:ency)? ?\(us\)|MB/s\s{1,40}Messages/s"
    r"|Overall ?\(us\)(?=\s{1,40}Compute))"
)
_PROGRAM = re.compile(r"\bosu_[a-z_]{2,24}\b")
_UNTITLED = {"Bandwidth (MB/s)": "osu_bw", "Latency (us)": "osu_latency", "MB/s": "osu_mbw_mr"}
"""The test that is assumed for a table without a title, by its first column."""
_SIZELESS = re.compile(r"\d{1,12}(\.\d{1,6})?(\s+\d{1,12}(\.\d{1,6})?){0,9}")
_PAIRS = re.compile(r"\[ pairs: (\d{1,7}) \] \[ window size: (\d{1,7}) \]")
_BUFFERS = re.compile(r"Send Buffer on (\w{1,16}) \(\w{1,2}\) and Receive Buffer on (\w{1,16}) \(\w{1,2}\)")
_DATATYPE = re.compile(r"Datatype: (MPI_\w{2,24})")

_POINT_TO_POINT = {
    "Bandwidth": "osu_bw",
    "Bi-Directional Bandwidth": "osu_bibw",
    "Latency": "osu_latency",
    "Multiple Bandwidth / Message Rate": "osu_mbw_mr",
    "Multi Latency": "osu_multi_lat",
    "Multi-threaded Latency": "osu_latency_mt",
    "Multi-process Latency": "osu_latency_mp",
}
_ONE_SIDED = {
    "_Put": "osu_put", "_Get": "osu_get", "_Accumulate": "osu_acc", "_Get_accumulate": "osu_get_acc",
    "_Compare_and_swap": "osu_cas", "_Fetch_and_op": "osu_fop",
}  # fmt: skip
_COLLECTIVES = (
    "allgather", "allgatherv", "allreduce", "alltoall", "alltoallv", "alltoallw", "barrier", "bcast", "gather",
    "gatherv", "reduce", "reduce_scatter", "scatter", "scatterv",
)  # fmt: skip
_BUFFER_OPTIONS = re.compile(r"\bosu_\w{2,20}\b.{0,200}?\s([DHM]) ([DHM])(?:\s|$)")
_ACCELERATOR_OPTION = re.compile(r"\bosu_\w{2,20}\b.{0,200}?\s(?:-d|--accelerator)[ =]?(?:cuda|rocm|openacc|managed)")
_SIZE_OPTION = re.compile(r"\bosu_\w{2,20}\b.{0,200}?\s(?:-m|--message-size)[ =](?:\d{1,12}:)?(\d{1,12})(?:\s|$)")
_PAIRWISE = ("osu_bw", "osu_bibw", "osu_latency", "osu_latency_mt", *_ONE_SIDED.values())
_BETWEEN_TWO = ("osu_bw", "osu_bibw", "osu_latency", "osu_mbw_mr")
_NON_BLOCKING = re.compile(r"Non-[Bb]locking ")
_READ = "supported tests are those with sizes and a latency or a bandwidth, and barriers"
_ABOVE = 40
"""The number of lines above a test that are searched for its command."""
_VALUES: tuple[tuple[tuple[str, ...], Quantity, float, str], ...] = (
    (("Bandwidth", "MB/s"), "bandwidth_bytes_per_s", 1e6, "MB/s"),
    (("Messages/s",), "messages_per_s", 1, "messages/s"),
    (("Lat", "Avg Lat", "Pure Comm"), "latency_s", 1e-6, "us"),
)
"""The columns by the beginning of their names, with quantity and unit. The other columns become settings."""


class _Test(Draft, kw_only=True):
    parallel_runs: int = 0
    """The number of runs that were manually set side by side, each as a column; 0 for a table as OSU prints it."""
    in_host_memory: bool = False
    """Whether title and command name no accelerator. A table without a title does not tell."""


def recognises(text: str) -> bool:
    """Report whether the text has the first line of a test, or the header of a table."""
    is_titled = "OSU MPI" in text and (" Test v" in text or " Test (Version " in text)
    return is_titled or ("Size" in text and _HEADER.search(text) is not None)


def _workload(test: _Test) -> Workload | None:
    """Return the workload of messages between processes, or of an MPI collective."""
    if test.test not in _BETWEEN_TWO:
        found = mpi_collective(test.test.removeprefix("osu_"))
        return replace(found, in_host_memory=test.in_host_memory) if found is not None else None
    from_gpu, to_gpu = (is_gpu_memory(test.parameters.get(end)) for end in ("send_buffer", "receive_buffer"))
    return Message(
        both_ways=test.test == "osu_bibw",
        one_at_a_time=test.test == "osu_latency",
        pairs=max(1, (test.ranks or 2) // 2),
        from_gpu=from_gpu,
        to_gpu=to_gpu,
        # OSU allocates by posix_memalign at page size, so only transparent huge pages of the kernel give huge pages.
        pages="" if from_gpu or to_gpu else "small",
    )


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read every known test of the text. Raises UsageError for an unreadable table, and if no test is known."""
    parts = split_runs(text, _begins)
    above: list[Line] = []
    tests: list[_Test] = []
    unknown: list[UsageError] = []
    for part in parts:
        if _begins(part[0]):
            test, title = _begin_test(part[0])
            _read_test(test, part, [line.text for line in above[-_ABOVE:]])
            if title and not test.results:  # a test of a suite, without a table of OSU's
                unknown.append(refusal(part[0].number, f"the OSU test {title!r} is not supported", _READ))
            else:
                tests.append(test)
        else:
            tests += _read_untitled(part)
        above = part
    if unknown and not any(test.results for test in tests):
        raise unknown[0]
    begun = [test.test for test in tests if not test.results]
    for test in tests:
        test.notes += [error.message for error in unknown]
        test.notes += [f"another {name} began, and no row of it is in the text" for name in dict.fromkeys(begun)]
    return collect_files(
        tests,
        "OSU's output must contain a row of a table, got none",
        "give the output from '# OSU MPI ... Test v' to the last size",
    )


def _read_untitled(part: list[Line]) -> Iterator[_Test]:
    """Yield the tables before the first title. The program named above a table, or its columns, determine the test."""
    above: list[Line] = []
    for table in split_sections(part, lambda line: _HEADER.search(line.text) is not None):
        if table and (header := _HEADER.search(table[0].text)):
            programs = [found[0] for line in above for found in _PROGRAM.finditer(line.text)]
            name = programs[-1] if programs else _UNTITLED.get(" ".join(header[1].split()[:2]), "")
            kind = "nonblocking collective" if header[1].startswith("Overall") else "collective"
            test = _Test(tool="OSU", test=name or f"osu {kind}", line=table[0].number)
            test.ranks = 2 if name in _PAIRWISE else None
            if not programs:
                test.notes.append("the text lacks the title: the test is inferred from the columns")
                test.rivals = ("osu_bibw",) if name == "osu_bw" else ()
            _read_test(test, table, [line.text for line in above[-_ABOVE:]])
            yield test
        above = table


def _begins(line: Line) -> bool:
    return ("OSU " in line.text or "OMB " in line.text) and _TITLE.match(line.text.strip()) is not None


def _begin_test(line: Line) -> tuple[_Test, str]:
    """Return a draft with the name of its test, and the title if no known program prints it (otherwise empty)."""
    found = _TITLE.match(line.text.strip())
    if found is None:
        raise refusal(line.number, "not the first line of an OSU test")
    library, accelerator, one_sided, title, version = found.groups()
    name = _find_program(one_sided, title)
    if library not in ("MPI", None):  # the same format over another library
        name = name and name.replace("osu_", f"osu_{library.lower()}_", 1)
    test = _Test(tool="OSU", version=version or "", test=name or f"osu {title.lower()}", line=line.number)
    test.in_host_memory = accelerator is None
    if accelerator:
        test.settings["accelerator"] = accelerator.lower()
    if name in _PAIRWISE or one_sided is not None:
        test.ranks = 2
    return test, "" if name else title[:60]


def _find_program(one_sided: str | None, title: str) -> str:
    """Return the program that prints a title, or "" if none is known."""
    if one_sided is not None:
        kind = {"bandwidth": "bw", "bi-directional bandwidth": "bibw"}.get(title.lower(), "latency")
        return f"{_ONE_SIDED[one_sided]}_{kind}" if one_sided in _ONE_SIDED else ""
    plain = _NON_BLOCKING.sub("", title).lower().removesuffix(" latency").removesuffix(" personalized exchange")
    plain = plain.replace("all-to-all", "alltoall").replace("broadcast", "bcast")
    if plain in _COLLECTIVES:
        return f"osu_{'i' if _NON_BLOCKING.match(title) else ''}{plain}"
    return _POINT_TO_POINT.get(title, "")


def _read_test(test: _Test, part: list[Line], above: list[str]) -> None:
    """Read the lines of a test."""
    _read_launch_command(test, above)
    test.last_line = last_row(part)
    for line in part:
        text = line.text.strip()
        if text.startswith(("#", "Size ", "Overall")) or "[ pairs:" in text:
            _read_comment(test, text, line.number)
        elif _SIZELESS.fullmatch(text) and test.columns and "Size" not in test.columns:
            _read_barrier(test, text.split(), line.number)
        elif text[:1].isdigit() and "Size" in test.columns:
            _read_row(test, text.split(), line.number)
    test.notes = [*_notes(test), *test.notes]
    test.workload = _workload(test)


def _read_launch_command(test: _Test, above: list[str]) -> None:
    """Read ranks and hosts from the command line above the test."""
    command = parse_launch_command(above)
    test.environment = parse_environment(above)
    if test.ranks is None and command.ranks is not None:
        test.ranks, test.hosts = command.ranks, command.hosts
    elif command.ranks == test.ranks:
        test.hosts = command.hosts
    if (ends := _BUFFER_OPTIONS.search(f"{command.words} ")) and test.test in _PAIRWISE:
        memories = {"D": "device", "H": "host", "M": "managed"}
        test.parameters |= {"send_buffer": memories[ends[1]], "receive_buffer": memories[ends[2]]}
    test.in_host_memory &= _ACCELERATOR_OPTION.search(command.words) is None
    if to := _SIZE_OPTION.search(f"{command.words} "):
        test.settings |= {"last_size_bytes": int(to[1]), "step_factor": 2}


def _read_comment(test: _Test, text: str, line: int) -> None:
    rest = text.lstrip("# ").replace("Size (B)", "Size")
    if found := _PAIRS.search(text):
        test.ranks, test.settings["window"] = 2 * int(found[1]), int(found[2])
    elif found := _BUFFERS.search(text):
        test.parameters |= {"send_buffer": found[1].lower(), "receive_buffer": found[2].lower()}
    elif found := _DATATYPE.search(text):
        test.settings["datatype"] = found[1]
    elif rest.startswith("Size"):
        test.columns = parse_columns(rest, _COLUMN, line, shown=rest[:80], min_columns=2)
    elif rest.startswith(("Avg Lat", "Overall(", "Overall (")):  # a barrier, which has no sizes
        test.columns = parse_columns(rest, _COLUMN, line, shown=rest[:80])


def _read_barrier(test: _Test, words: list[str], line: int) -> None:
    """Read the single row of a test without sizes."""
    if len(words) != len(test.columns):
        return
    numbers = {name: number(word, name, line) for name, word in zip(test.columns, words, strict=True)}
    _check(numbers, 0, line)
    average = numbers.get("Pure Comm.(us)", numbers[test.columns[0]])
    test.add(line, [latency(average, "us")], {}, _extras(numbers))


def _read_parallel_runs(test: _Test, words: list[str], line: int) -> None:
    """Read a row of several runs that were manually set side by side under one header."""
    if not test.parallel_runs:
        test.parallel_runs = len(words) - 1
        test.notes.append(
            f"the header is of one run, but its rows have {test.parallel_runs} values: each column is read as a run"
        )
    if test.is_whole(len(words), test.parallel_runs + 1, line, "the rows above have"):
        test.rise_to(parse_integer(words[0], "size", line), line)
        for place, word in enumerate(words[1:], 1):
            _add(test, {test.columns[1]: word}, line, {"column": place})


def _read_row(test: _Test, words: list[str], line: int) -> None:
    if not words[0].isdecimal() or (len(words) > 1 and not (words[1][:1].isdigit() or words[1] in ("nan", "inf"))):
        return  # output of another program
    if test.parallel_runs or (len(words) > len(test.columns) == 2 and not test.results and all(map(_is_number, words))):
        _read_parallel_runs(test, words, line)
    elif cells := test.cells(words, line):
        test.rise_to(parse_integer(cells.pop("Size"), "size", line), line)
        _add(test, cells, line, {})


def _is_number(word: str) -> bool:
    return word.replace(".", "", 1).isdecimal()


def _add(test: _Test, cells: dict[str, str], line: int, which: dict[str, Scalar]) -> None:
    """Add the values of a row by column, at the last size. `which` distinguishes the runs of a row."""
    size = test.last[0]
    checked = _verification(cells.pop("Validation", ""), size, line)
    numbers = {name: number(cell, name, line) for name, cell in cells.items()}
    _check(numbers, size, line)
    values = (
        MeasuredValue(quantity, cell.value * scale, f"{cell.text} {unit}")
        for name, cell in numbers.items()
        for begins, quantity, scale, unit in _VALUES
        if name.startswith(begins)
    )
    test.add(line, values, {"size_bytes": size, **which}, _extras(numbers), checked)


def _verification(word: str, size: int, line: int) -> Verification | None:
    if word in ("", "-"):
        return None
    if word not in ("Pass", "Fail"):
        raise refusal(line, f"validation must be Pass or Fail, got {word[:20]!r}")
    # OSU does not print the number of wrong bytes. Fail means at least one.
    return Verification(method="OSU -c", bytes_checked=size, bytes_wrong=0 if word == "Pass" else max(size, 1))


def _check(numbers: dict[str, Number], size: int, line: int) -> None:
    megabytes, messages = numbers.get("MB/s"), numbers.get("Messages/s")
    if megabytes and messages and not overlap(megabytes.range(), messages.range(size / 1e6)):
        raise refusal(line, f"{megabytes.text} MB/s is not {messages.text} messages/s x {size} bytes")
    latencies = {name[:3]: cell for name, cell in reversed(numbers.items()) if name[3:].startswith(" Lat")}
    if {"Avg", "Min", "Max"} <= latencies.keys():
        refuse_outside("average", latencies["Avg"], latencies["Min"], latencies["Max"], line, " us")


def _extras(numbers: dict[str, Number]) -> dict[str, Scalar]:
    """Return percentiles, extremes over ranks, and iterations."""
    extras: dict[str, Scalar] = {}
    for name, cell in numbers.items():
        kind = name[:3].lower()
        if name.startswith("P"):
            is_latency = "Lat" in name
            extras[f"{kind}_s" if is_latency else f"{kind}_bytes_per_s"] = cell.value * (1e-6 if is_latency else 1e6)
        elif name.startswith(("Min", "Max")):
            extras[f"{kind}_rank_s"] = cell.value * 1e-6
        elif name == "Iterations":
            extras["iterations"] = int(cell.value)
    return extras


def _notes(test: _Test) -> Iterator[str]:
    columns = test.columns
    if any("MB/s" in column for column in columns):
        yield "MB/s is 10^6 bytes/s"
    if any("Lat" in column for column in columns) and not any(column.startswith("P") for column in columns):
        yield "each latency is a mean: a single delay shifts it (osu -z prints percentiles)"
    if "Validation" not in columns:
        yield "the data was not checked"
    if test.ranks is None:
        yield "OSU does not print the number of ranks: give --ranks N"
