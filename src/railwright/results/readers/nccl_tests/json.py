"""Reader of the file of nccl-tests `-J FILE.json`: since 2.17.6, file version 3 in 2.19.6 (nccl-tests src/util.cu).

`config.devices` has one device per process, not per GPU: with `-g 8` it names the first of eight. The file of a run
that died is not closed and therefore not JSON.
"""

from __future__ import annotations

import msgspec

from railwright.errors import UsageError
from railwright.results.readers.foreign_file import ForeignFile, decode_json
from railwright.results.readers.nccl_tests.rows import OPERATION_OF, Row, Timing
from railwright.results.readers.nccl_tests.table import Table
from railwright.results.readers.pasted.log_lines import check_length
from railwright.results.readers.pasted.printed_numbers import Number

_SIX_DECIMALS = 0.5e-6  # printf %lf
_KNOWN_VERSIONS = (1, 2, 3)
_PLACEMENTS = ("out_of_place", "in_place")


class _Half(msgspec.Struct):
    alg_bw: float
    bus_bw: float
    time: float | None = None
    cpu_time: float | None = None
    nwrong: float | None = None


class _PerIteration(msgspec.Struct):
    min_us: float
    max_us: float
    p50_us: float
    p99_us: float


class _Row(msgspec.Struct):
    size: int
    count: int
    type: str
    redop: str
    root: str
    experiment_name: str = ""
    out_of_place: _Half | None = None
    in_place: _Half | None = None
    out_of_place_per_iter: _PerIteration | None = None
    in_place_per_iter: _PerIteration | None = None


class _Device(msgspec.Struct):
    rank: int
    hostname: str
    group: int = 0
    device_info: str = ""


class _Config(msgspec.Struct):
    """The options of the run, under our names of the settings."""

    threads: int = msgspec.field(default=1, name="nthreads")
    gpus_per_thread: int = msgspec.field(default=1, name="ngpus")
    first_size_bytes: int = msgspec.field(default=0, name="minimum_bytes")
    last_size_bytes: int = msgspec.field(default=0, name="maximum_bytes")
    iterations: int = 0
    warmup_iterations: int = msgspec.field(default=0, name="warmup_iters")
    aggregated_iterations: int = 1
    devices: list[_Device] = []


class _OutOfBounds(msgspec.Struct):
    count: int


class _Average(msgspec.Struct):
    bandwidth: float | str  # "nan" if there was no row


class _File(msgspec.Struct):
    version: int
    results: list[_Row]
    args: list[str] = []
    env: list[str] = []
    nccl_version: int = 0
    config: _Config | None = None
    out_of_bounds: _OutOfBounds | None = None
    average_bus_bandwidth: _Average | None = None


def recognises(text: str) -> bool:
    """Report whether the text is a JSON object with the keys of a `-J` file."""
    return text.lstrip()[:1] == "{" and '"results"' in text and '"alg_bw"' in text and '"bus_bw"' in text


def read(text: str) -> tuple[ForeignFile, ...]:
    """Read the single run of the file; rows are counted as lines, from 1.

    Raises UsageError for invalid JSON, an unknown file version, or contradictory numbers.
    """
    hint = "a run that died does not close the file; give its text output instead"
    file = decode_json(check_length(text), _File, "-J file of nccl-tests", hint)
    if file.version not in _KNOWN_VERSIONS:
        why = f"-J file version must be {_KNOWN_VERSIONS[0]} to {_KNOWN_VERSIONS[-1]}, got {file.version}"
        raise UsageError(why, hint="give the text output of the same run")
    table = _table(file)
    table.finish()
    return (table.file(),)


def _table(file: _File) -> Table:
    config = file.config or _Config()
    table = Table(test=_operation(file), out_of_bounds=file.out_of_bounds.count if file.out_of_bounds else None)
    pairs = [entry.partition("=") for entry in file.env if entry.startswith("NCCL_")]
    table.environment = {name[:64]: value[:200] for name, _, value in pairs[:64]}
    table.settings = {**msgspec.structs.asdict(config), "nccl_version_code": file.nccl_version}
    del table.settings["devices"]
    if config.devices:
        groups = {device.group for device in config.devices}
        table.ranks = len(config.devices) * config.threads * config.gpus_per_thread // len(groups)
        table.hosts = len({device.hostname for device in config.devices}) if len(groups) == 1 else None
        table.gpus = tuple(dict.fromkeys(device.device_info.strip() for device in config.devices))
    average = file.average_bus_bandwidth.bandwidth if file.average_bus_bandwidth else None
    if isinstance(average, float):
        table.average = _number(average)
    else:
        table.notes.append("the -J file lacks the average bus bandwidth: the run did not complete")
    for place, row in enumerate(file.results, 1):
        root = int(row.root) if row.root.strip().isdecimal() else -1
        timings = tuple(_timing(table, row, placement) for placement in _PLACEMENTS if getattr(row, placement))
        table.add_row(Row(place, row.size, row.count, row.type, row.redop, root, timings))
    return table


def _operation(file: _File) -> str:
    names = [row.experiment_name for row in file.results[:1]] + file.args[:1]
    for name in names:
        stem = name.rpartition("/")[2].removesuffix("_mpi").removesuffix("_perf").lower()
        if stem in OPERATION_OF:
            return OPERATION_OF[stem]
    return ""


def _timing(table: Table, row: _Row, placement: str) -> Timing:
    half: _Half = getattr(row, placement)
    iterations: _PerIteration | None = getattr(row, f"{placement}_per_iter")
    time = half.time if half.time is not None else half.cpu_time
    if time is None or min(time, half.alg_bw, half.bus_bw, half.nwrong or 0) < 0:
        raise UsageError(f"{placement} has a missing or negative number: {half}"[:300], hint="give the text output")
    table.cpu_time = half.time is None
    extras = {}
    if iterations is not None:
        extras = {f"iteration_{name}_s": getattr(iterations, f"{name}_us") * 1e-6 for name in ("min", "max", "p99")}
    return Timing(placement, _number(time), _number(half.alg_bw), _number(half.bus_bw), half.nwrong, extras)


def _number(value: float) -> Number:
    return Number(value, _SIX_DECIMALS, f"{value:.2f}")
