"""Files and GPU memory over stand-ins for libcuda and libcufile: real ranks, real files, no GPU."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os

import pytest
from tests.benchmarks.jobs import job_of, jobs_of
from tests.stand_ins import build, environment, stand_ins  # noqa: F401 - a fixture
from tests.topology.machines import archive

from railwright.benchmarks.registry import BENCHMARKS, ON_REQUEST, find
from railwright.errors import UsageError
from railwright.launch.local import LocalLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.results.records import Evidence
from railwright.run.measure import Measurement
from railwright.run.plan import plan_launches
from railwright.topology.cpu_list import format_cpu_list
from railwright.topology.expand import expand
from railwright.topology.sources.load import load

VERBS = ("read", "write")
SMALL = {"file-size": "1M", "sizes": "4K,64K", "depth": "3", "large-depth": "2", "order": "sequential"}
DEFAULTS = {
    "gpu_file_read": SMALL,
    "gpu_file_write": SMALL | {"passes": "2"},
    "kv_file": {"file-size": "1M", "sizes": "4K", "batches": "1"},
}
EVERY_CPU = format_cpu_list(os.sched_getaffinity(0))
# The time limit of a launch on a busy machine; a hang is noticed by silence long before.
SILENCE_S = 120.0

# Whether cuFile may be opened here must not depend on the machine that the tests run on; the rank finds this first.
SITE = """
import os
from railwright.native import cufile
cufile.explain_unusable = lambda: os.environ.get("TEST_CUFILE_UNUSABLE", "")
"""


@pytest.fixture(scope="module")
def two_gpus():
    return load(str(archive("2xh200-firecracker-vm")))


@pytest.fixture
def measure(stand_ins, two_gpus, tmp_path, monkeypatch):
    """Run all launches of a benchmark on a GPU of a recorded machine, over files in the test's own folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(name, *, topology=two_gpus, faults=None, **options):
        benchmark = find(name)
        folder, site = tmp_path / "files", tmp_path / "site"
        for one in (folder, site):
            one.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(SITE)
        given = {"directory": str(folder)} | DEFAULTS[name] | options
        addresses = [gpu.address for gpu in two_gpus.of_kind("gpu")]
        variables = os.environ | environment(stand_ins, *addresses) | {"PYTHONPATH": str(site)} | (faults or {})
        found = []
        for job in jobs_of(benchmark, topology, tuple(sorted(os.sched_getaffinity(0))), given):
            planned = PlannedLaunch(benchmark, job, benchmark.plan(job))
            if planned.plan.waived:
                found.append(planned.make_unmeasured("waived", planned.plan.waived))
                continue
            found.extend(Session(planned, LocalLauncher(), variables, SILENCE_S).results())
        assert not list(folder.iterdir()), "a file was left behind"
        return found

    return run


@pytest.fixture
def in_a_run(stand_ins, two_gpus, tmp_path, monkeypatch):
    """Run kv_file, or another benchmark, with NIXL's own plugins over stand-ins for CUDA and cuFile."""
    cudart, site, files = (tmp_path / name for name in ("cudart", "site", "files"))
    for one in (cudart, site, files):
        one.mkdir()
    versions = tmp_path / "versions"
    versions.write_text("libcudart.so.13 { global: *; };\n")
    build("cudart.c", cudart / "libcudart.so.13", f"-Wl,--version-script={versions}")
    (site / "sitecustomize.py").write_text(SITE)
    addresses = [gpu.address for gpu in two_gpus.of_kind("gpu")]

    def run(name="kv_file", **options):
        faults = {fault: options.pop(fault) for fault in list(options) if fault.startswith("STANDIN")}
        variables = environment(stand_ins, *addresses, **faults) | {"PYTHONPATH": str(site), "TMPDIR": str(tmp_path)}
        variables["LD_LIBRARY_PATH"] += f":{cudart}"
        with monkeypatch.context() as patched:
            for variable, value in variables.items():
                patched.setenv(variable, value)
            benchmark = find(name)
            small = {"file-size": "64K", "batches": "1"} if name == "kv_file" else SMALL
            asked = benchmark.parse({"directory": str(files)} | small | options)
            planned = plan_launches(two_gpus, [(benchmark, asked)])
            found = [result for one in planned for result in Measurement().results(one)]
        assert not list(files.iterdir()), "a file was left behind"
        return found

    return run


def of(results, **parameters):
    return [one for one in results if parameters.items() <= one.parameters.items()]


@pytest.mark.parametrize("verb", VERBS)
def test_every_way_is_measured_and_every_byte_checked(measure, verb):
    results = measure(f"gpu_file_{verb}", faults={"STANDIN_CUFILE_ROUTE": "nvfs"})
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    for way, route in (("gds", "nvidia-fs"), ("cufile compat", "posix"), ("bounce", "pinned buffers")):
        small, small_latency, large, large_latency = of(results, way=way)
        assert [one.quantity for one in (small, large)] == ["operations_per_s", "bandwidth_bytes_per_s"]
        assert (small.parameters["size_bytes"], large.parameters["size_bytes"]) == (4096, 65536)
        assert (small.settings["workers"], large.settings["workers"]) == (3, 2)
        assert small.path.split(">")[verb == "read"] == "gpu0"
        assert small_latency.quantity == large_latency.quantity == "latency_s"
        assert {one.evidence[0].value for one in of(results, way=way)} == {route}
        for one in (small, large):
            times = 2 if verb == "read" else 1
            assert (one.verification.bytes_checked, one.verification.bytes_wrong) == (times << 20, 0)
            assert one.settings["operations_per_pass"] == (1 << 20) // one.parameters["size_bytes"]
            assert len(one.samples) == (7 if verb == "read" else 2)
            assert one.settings["cpu_s_per_gb"] >= 0
            assert "pages" not in one.parameters
            assert one.parameters.get("operation", "read") == verb
        assert 0 < large_latency.summary.median <= large_latency.summary.p99
        assert ("cufile_version" in large.settings) == (way != "bounce")
        assert large.settings.get("library_cpus") == (None if way == "bounce" else EVERY_CPU)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("way", "fault"), [("cufile compat", "STANDIN_CUFILE_CORRUPT"), ("bounce", "STANDIN_CUDA_CORRUPT")]
)
def test_data_that_is_wrong_on_the_gpu_or_in_the_file_is_counted(measure, verb, way, fault):
    results = measure(f"gpu_file_{verb}", ways=way, sizes="64K", faults={fault: "1"})
    assert all(one.verification.bytes_wrong > 0 for one in results)


@pytest.mark.parametrize("verb", VERBS)
def test_each_thread_may_have_a_file_of_its_own(measure, verb):
    options = {"ways": "gds,bounce", "io-threads": "1,3", "files": "shared,own", "sizes": "4K,64K"}
    results = measure(f"gpu_file_{verb}", faults={"STANDIN_CUFILE_ROUTE": "nvfs"}, **options)
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    assert len(results) == 2 * 2 * 2 * 2 * 2, "ways, files, threads, sizes, quantities"
    for one in results:
        threads, size = one.parameters["threads"], one.parameters["size_bytes"]
        is_own = one.parameters.get("files") == "own"
        assert one.settings["workers"] == threads * one.parameters["depth"]
        # A third of 1 MiB in whole pages has five blocks of 64 KiB.
        blocks = threads * (((1 << 20) // threads // 4096 * 4096) // size) if is_own else (1 << 20) // size
        assert one.settings["operations_per_pass"] == blocks
        assert one.verification.bytes_checked == blocks * size * (2 if verb == "read" else 1)
        assert one.verification.bytes_wrong == 0


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", ["STANDIN_CUFILE_CORRUPT", "STANDIN_CUDA_CORRUPT"])
def test_wrong_data_of_a_thread_s_own_file_is_counted(measure, verb, fault):
    way = "bounce" if "CUDA" in fault else "cufile compat"
    results = measure(
        f"gpu_file_{verb}", ways=way, sizes="64K", files="own", faults={fault: "1"}, **{"io-threads": "2"}
    )
    assert all(one.verification.bytes_wrong > 0 for one in results)


def test_blocks_that_are_larger_than_a_thread_s_own_file_are_refused(measure):
    (waived,) = measure("gpu_file_read", ways="bounce", sizes="512K", files="own", **{"io-threads": "3"})
    assert (
        waived.reason
        == "a block must be at most 340 KiB, the size of each of the 3 files, got 512 KiB: increase file-size"
    )


def test_without_gpudirect_storage_gds_is_waived_in_cufile_s_words_and_the_rest_is_measured(measure):
    results = measure("gpu_file_read", sizes="64K")
    (waived,) = of(results, way="gds")
    assert waived.outcome == "waived"
    assert waived.reason == "cuFile driver: the nvidia-fs driver is not loaded (cuFile error 5001)"
    assert {one.parameters["way"] for one in results if one.outcome == "measured"} == {"cufile compat", "bounce"}


def test_where_cufile_would_hang_it_is_not_opened_and_says_so(measure):
    why = {"TEST_CUFILE_UNUSABLE": "/proc/modules does not exist"}
    results = measure("gpu_file_write", sizes="64K", ways="cufile compat,bounce", faults=why)
    (waived,) = [one for one in results if one.outcome == "waived"]
    assert waived.reason == "cuFile cannot be used: /proc/modules does not exist"
    assert of(results, way="bounce")[0].outcome == "measured"


def test_a_fallback_that_nobody_asked_for_fails_the_way_that_was_asked_for(measure):
    faults = {"STANDIN_CUFILE_ROUTE": "nvfs", "STANDIN_CUFILE_FALLS_BACK": "1"}
    results = measure("gpu_file_read", sizes="64K", ways="gds", faults=faults)
    assert {one.outcome for one in results} == {"failed"}
    assert results[0].reason == "gds was requested, but cuFile counted 16 reads: 16 by posix"


def test_without_counters_the_log_tells(measure):
    (rate, _) = measure("gpu_file_read", sizes="64K", ways="cufile compat", faults={"STANDIN_CUFILE_UNCOUNTED": "1"})
    assert (rate.evidence[0].value, rate.evidence[0].seen) == ("posix", "cuFile's log says: compat mode enabled")


def test_an_error_of_a_read_ends_the_launch_with_its_name(measure):
    (failed,) = measure("gpu_file_read", sizes="64K", ways="cufile compat", faults={"STANDIN_CUFILE_READ": "5030"})
    assert failed.outcome == "failed"
    assert "cuFile's internal error (cuFile error 5030)" in failed.reason


def test_without_a_gpu_both_are_waived_by_name(measure):
    without = expand("laptop", {})
    for verb in VERBS:
        results = measure(f"gpu_file_{verb}", topology=without)
        assert [one.reason for one in results] == ["no NVIDIA GPU was found"] * 3


def test_they_run_on_request_only_since_they_take_long_and_wear_drives():
    names = {benchmark.name for benchmark in ON_REQUEST}
    assert {"gpu_file_read", "gpu_file_write"} <= names
    assert not {"gpu_file_read", "gpu_file_write"} & {benchmark.name for benchmark in BENCHMARKS}


@pytest.mark.parametrize(("option", "value"), [("ways", "gds,nothing"), ("io-threads", "0"), ("engine", "threads")])
def test_an_option_that_cannot_be_used_is_refused(option, value):
    with pytest.raises(UsageError):
        find("gpu_file_read").parse({option: value})


def test_each_way_is_a_launch_of_its_own():
    jobs = jobs_of(find("gpu_file_read"), expand("laptop", {}), given={"ways": "bounce,gds"})
    assert [job.case.parameters() for job in jobs] == [{"way": "bounce"}, {"way": "gds"}]


def test_nixl_s_backends_of_cufile_are_waived_in_the_loader_s_words(measure):
    results = measure("kv_file", backend="GDS,GDS_MT", memory="DRAM,VRAM")
    assert [one.parameters for one in results] == [
        {"backend": "GDS"},
        {"backend": "GDS", "memory": "VRAM"},
        {"backend": "GDS_MT"},
        {"backend": "GDS_MT", "memory": "VRAM"},
    ]
    for one in results:
        assert one.outcome == "waived"
        backend = one.parameters["backend"]
        assert one.reason.startswith(f"NIXL's {backend} backend: ")
        assert "libcudart.so.13" in one.reason


def test_nixl_s_backends_of_cufile_are_not_tried_where_cufile_would_hang(measure):
    (one,) = measure("kv_file", backend="GDS", faults={"TEST_CUFILE_UNUSABLE": "there is no /proc/modules"})
    assert (one.outcome, one.reason) == ("waived", "NIXL's GDS backend: there is no /proc/modules")


def test_nixl_s_other_backends_move_host_memory_only(measure):
    in_host_memory, _, on_gpu = measure("kv_file", backend="POSIX", memory="DRAM,VRAM", operations="READ")
    assert (in_host_memory.outcome, in_host_memory.path.split(">")[1]) == ("measured", "memory0")
    assert on_gpu.outcome == "waived"
    assert on_gpu.reason == "NIXL's POSIX backend moves host memory only: -o backend=GDS"


def test_without_a_gpu_nixl_s_backends_of_cufile_are_waived(measure):
    (one,) = measure("kv_file", topology=expand("laptop", {}), backend="GDS")
    assert one.reason == "no NVIDIA GPU was found"


@pytest.mark.parametrize(("route", "value"), [("nvfs", "nvidia-fs"), ("posix", "posix")])
def test_nixl_s_own_plugins_are_measured_and_cufile_says_which_way_they_took(in_a_run, route, value):
    results = in_a_run(backend="GDS,GDS_MT", memory="DRAM,VRAM", sizes="16K", STANDIN_CUFILE_ROUTE=route)
    assert {one.outcome for one in results} == {"measured"}, {one.reason for one in results}
    assert len(results) == 2 * 2 * 2 * 2, "backends, memories, operations, quantities"
    for one in results:
        assert one.verification.bytes_wrong == 0
        verb = "writes" if one.parameters["operation"] == "WRITE" else "reads"
        assert one.evidence[-1] == Evidence(claim="route", value=value, seen=f"cuFile counted 4 {verb}: 4 by {value}")
        assert one.settings["cpus"] == EVERY_CPU, "a worker would wait for the thread that polls for it"


def test_a_case_in_which_the_library_crashes_is_named_and_the_cases_behind_it_are_measured(in_a_run):
    results = in_a_run(backend="GDS_MT", memory="VRAM", sizes="4K,64K", STANDIN_CUFILE_CRASH="4096")
    measured = [one for one in results if one.outcome == "measured" and one.quantity == "latency_s"]
    assert [(one.parameters["operation"], one.parameters["size_bytes"]) for one in measured] == [
        ("WRITE", 4096), ("WRITE", 65536), ("READ", 65536),
    ]  # fmt: skip
    (failed,) = [one for one in results if one.outcome == "failed"]
    assert failed.parameters == {"backend": "GDS_MT", "memory": "VRAM"}
    assert "at step 'kv_file GDS_MT READ 4 KiB x 1' ended without a message; local: killed by SIGSEGV" in failed.reason
    assert "Fatal Python error: Segmentation fault" in failed.reason
    assert results.index(failed) == 4, "in its place"


def test_a_point_in_which_cufile_crashes_is_named_and_the_points_behind_it_are_measured(in_a_run):
    options = {"ways": "cufile compat", "sizes": "4K,16K,64K", "io-threads": "1,2"}
    results = in_a_run("gpu_file_read", **options, STANDIN_CUFILE_CRASH="16384")
    measured = [one for one in results if one.outcome == "measured" and one.quantity == "latency_s"]
    assert [(one.parameters["size_bytes"], one.parameters["threads"]) for one in measured] == [
        (4096, 1), (4096, 2), (65536, 1), (65536, 2),
    ]  # fmt: skip
    first, second = [one.reason for one in results if one.outcome == "failed"]
    assert "at step 'gpu_file_read cufile compat 16 KiB sequential depth 3' ended without a message" in first
    assert "'gpu_file_read cufile compat 16 KiB sequential depth 3 x 2 threads' ended without a message" in second


def test_a_crash_in_the_last_case_or_in_none_of_them_starts_nothing_again(in_a_run):
    last = in_a_run(backend="GDS_MT", sizes="4K", operations="READ", STANDIN_CUFILE_CRASH="4096")
    assert [one.outcome for one in last] == ["failed"]
    job = job_of(find("kv_file"), expand("laptop", {}), (0,), {"backend": "GDS"})
    before = PlannedLaunch(find("kv_file"), job, find("kv_file").plan(job)).make_unmeasured("failed", "at step 'start'")
    assert find("kv_file").after_crash(job, [before]) is None
