"""Results of a machine with eight GPUs, for tests of findings about single GPUs."""

from msgspec.structs import replace

from railwright.benchmarks.registry import DECLARATIONS
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.results.records import Context, Result, ResultFile, Run, Verification
from railwright.results.statistics import summarise
from railwright.topology.expand import expand

CLEAN = Verification(method="a test", bytes_checked=100, bytes_wrong=0)
HEALTHY = {"gpu_samples": 12, "gpu_clock_min_hz": 1980e6, "gpu_clock_median_hz": 1980e6, "gpu_clock_min_of": "gpu0",
           "gpu_throttle": "none", "gpu_temperature_max_c": 61.0}  # fmt: skip


def machine():
    """A machine with eight H100 with known clocks."""
    host = expand("hgx-h100", {})
    clocks = {"sm_clock_max_hz": 1980e6, "sm_clock_application_hz": 1980e6}
    return replace(host, devices=tuple(replace(device, facts={**device.facts, **clocks}) if device.kind == "gpu"
                                       else device for device in host.devices))  # fmt: skip


def measured(path, value, *, launches=3, noise=0.001, quantity="bandwidth_bytes_per_s", settings=HEALTHY, **parameters):
    return [
        Result(
            benchmark="gpu_copy",
            quantity=quantity,
            path=path,
            parameters={"size_bytes": 1 << 29, **parameters},
            settings=settings,
            launch=launch,
            summary=summarise([value * (1 - noise), value, value * (1 + noise)]),
            verification=CLEAN,
        )
        for launch in range(launches)
    ]


def findings(results, topology=None):
    run = Run(railwright="0", started_at="2026-01-01T00:00:00+00:00", command=("railwright",),
              context=Context(host="h", kernel="k"), topology=topology or machine())  # fmt: skip
    found = diagnose(ResultFile(run=run, results=tuple(results)), DECLARATIONS).findings
    return [one for one in found if one.fault.startswith("gpu_")]


def near(number):
    return f"memory{number // 4}>gpu{number}"


def host_copies(slow=None, value=41e9, **changed):
    return [
        result for number in range(8) for result in measured(near(number), value if number == slow else 55e9, **changed)
    ]
