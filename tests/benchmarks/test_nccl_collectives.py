"""The NCCL benchmarks over stand-ins for libcuda and libnccl: real ranks, real data, no GPU."""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os
import re
import subprocess

import pytest
from tests.benchmarks.jobs import job_of, jobs_of
from tests.stand_ins import FOLDER, environment, stand_ins  # noqa: F401 - a fixture
from tests.topology.machines import archive

from railwright.benchmarks.job import Job
from railwright.benchmarks.nccl import gpus
from railwright.benchmarks.nccl import options as nccl_options
from railwright.benchmarks.nccl.evidence import algorithm_evidence, contradiction
from railwright.benchmarks.registry import BENCHMARKS, EVERY, find
from railwright.busbw import busbw_factor
from railwright.errors import UsageError
from railwright.launch.local import LocalLauncher
from railwright.launch.mpi import MpiLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.results.records import Evidence
from railwright.topology.sources.load import load
from railwright.units import parse_sizes

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast")
IN_PLACE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
KIB, MIB = 1 << 10, 1 << 20
TINY = "16,4K,512K"
# The time limit of a launch on a busy machine; a hang is noticed by silence long before.
SILENCE_S = 120.0


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory):
    return load(str(archive("2xh200-firecracker-vm")))


@pytest.fixture
def measure(stand_ins, two_gpus, mpiruns, tmp_path, monkeypatch):
    """Run all launches of a benchmark on the GPUs of a recorded machine, by default one with two."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(name, *, folder=stand_ins, faults=None, topology=two_gpus, **options):
        benchmark = find(name)
        addresses = [gpu.address for gpu in topology.of_kind("gpu")]
        variables = os.environ | environment(folder, *addresses) | (faults or {})
        found = []
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        for job in jobs_of(benchmark, topology, cpus, {"sizes": TINY} | options):
            planned = PlannedLaunch(benchmark, job, benchmark.plan(job))
            if planned.plan.waived:
                found.append(planned.make_unmeasured("waived", planned.plan.waived))
                continue
            launcher = LocalLauncher() if job.ranks == 1 else MpiLauncher(mpiruns["openmpi"])
            found.extend(Session(planned, launcher, variables, SILENCE_S).results())
        return found

    return run


def of(results, quantity, **parameters):
    return [
        one
        for one in results
        if one.quantity == quantity and all(one.parameters.get(key) == value for key, value in parameters.items())
    ]


def received(operation, size, ranks):
    return size // ranks if operation == "reduce_scatter" else size


@pytest.mark.parametrize(("launched", "ranks_in"), [("plain", "processes"), ("graph", "threads")])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_moves_right_data_in_every_way(measure, operation, launched, ranks_in):
    results = measure(f"nccl_{operation}", launched=launched, ranks_in=ranks_in)
    placements = ["out of place", "in place"] if operation in IN_PLACE else ["out of place"]
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    least = 32 if operation in ("all_gather", "reduce_scatter", "all_to_all") else 16
    for placement in placements:
        times = of(results, "latency_s", placement=placement)
        busbw = of(results, "bandwidth_bytes_per_s", placement=placement, rate="busbw")
        algbw = of(results, "bandwidth_bytes_per_s", placement=placement, rate="algbw")
        assert [one.parameters["size_bytes"] for one in times] == [least, 4 * KIB, 512 * KIB]
        for time, bus, algorithm in zip(times, busbw, algbw, strict=True):
            size = time.parameters["size_bytes"]
            assert time.parameters["launched"] == launched
            assert time.parameters["ranks_in"] == ranks_in
            assert (time.path, time.ranks, len(time.samples)) == ("gpu0>gpu1", 2, 5)
            assert algorithm.samples == pytest.approx([size / one for one in time.samples], rel=1e-5)
            ratio = float(busbw_factor(operation, 2))
            assert bus.samples == pytest.approx([ratio * one for one in algorithm.samples], rel=1e-5)
            check = time.verification
            assert (check.bytes_checked, check.bytes_wrong) == (2 * received(operation, size, 2), 0)
            assert time.settings["operations"] == 20
            assert time.settings["gpus"] == "gpu0, gpu1"
            assert time.settings["largest_bytes"] == 512 * KIB
            sends = operation in nccl_options.OF_SENDS
            chosen = "send/recv" if sends else f"Ring/{'LL' if size < 65536 else 'Simple'}"
            seen = time.evidence[0].value
            assert seen == chosen or (operation in ("all_gather", "reduce_scatter") and seen.startswith("Ring/"))
    assert len(results) == 9 * len(placements)


def test_nothing_that_is_timed_is_logged_and_as_much_is_done_as_nccl_tests_does(measure, tmp_path):
    count = tmp_path / "count"
    measure("nccl_all_reduce", sizes="8:64:x2", ranks_in="threads", faults={"STANDIN_NCCL_COUNT": str(count)})
    operations, logged = map(int, count.read_text().split())
    sizes, placements = 4, 2
    assert logged == sizes * placements, "one untimed operation of each size and placement"
    assert operations == sizes + sizes * placements * (1 + 5 * (1 + 20))


def test_without_evidence_nothing_is_logged(measure, tmp_path):
    count = tmp_path / "count"
    options = {"sizes": "8", "ranks_in": "threads", "evidence": "no"}
    results = measure("nccl_all_reduce", faults={"STANDIN_NCCL_COUNT": str(count)}, **options)
    assert count.read_text().split()[1] == "0"
    assert {one.evidence for one in results} == {()}


@pytest.mark.parametrize("ranks_in", ["processes", "threads"])
def test_a_wrong_float_on_one_rank_fails_the_size_and_names_the_rank(measure, ranks_in):
    results = measure("nccl_all_reduce", ranks_in=ranks_in, faults={"STANDIN_NCCL_CORRUPT": "1"})
    good, bad = (of(results, "latency_s", size_bytes=size, placement="out of place")[0] for size in (16, 512 * KIB))
    assert good.outcome == "measured"
    assert (bad.outcome, bad.reason) == ("failed", "wrong result at 512 KiB: 4 bytes on rank 1")
    assert bad.verification.bytes_wrong == 4


def test_a_rank_that_dies_is_named_with_its_step(measure):
    *kept, failed = measure("nccl_all_reduce", sizes="8,4K", faults={"STANDIN_NCCL_KILL": "150"})
    assert {one.outcome for one in kept} == {"measured"}
    assert failed.outcome == "failed"
    assert re.match(r"rank 1 \(host \S+, pid \d+\) at step 'nccl_all_reduce 8 B in place'", failed.reason)
    assert "signal 9" in failed.reason.lower() or "SIGKILL" in failed.reason


def test_the_process_of_all_threads_that_dies_is_named(measure):
    *_, failed = measure("nccl_all_reduce", sizes="8,4K", ranks_in="threads", faults={"STANDIN_NCCL_KILL": "150"})
    assert failed.outcome == "failed"
    assert "rank 0 (host" in failed.reason
    assert "at step 'nccl_all_reduce 8 B in place'" in failed.reason
    assert "SIGKILL" in failed.reason


@pytest.mark.parametrize("ranks_in", ["processes", "threads"])
def test_without_nccl_it_is_waived_with_the_loader_s_message(measure, stand_ins, tmp_path, ranks_in):
    without = tmp_path / "without"
    without.mkdir()
    (without / "libcuda.so.1").symlink_to(stand_ins / "libcuda.so.1")
    (result,) = measure("nccl_all_reduce", folder=without, ranks_in=ranks_in)
    assert result.outcome == "waived"
    assert "NCCL cannot be loaded: libnccl.so.2" in result.reason
    assert result.reason.endswith("[gpu]' (nvidia-nccl-cu12 for CUDA 12), or give library=PATH")


def test_a_library_that_is_no_nccl_is_waived_by_name(measure, stand_ins):
    (result,) = measure("nccl_all_reduce", ranks_in="threads", library=str(stand_ins / "libcuda.so.1"))
    assert result.outcome == "waived"
    assert "libcuda.so.1 must be NCCL 2.7 or later" in result.reason


def test_a_library_that_is_not_there_is_waived_before_anything_starts(measure):
    (result,) = measure("nccl_all_reduce", library="/no/libnccl.so.2")
    assert (result.outcome, result.reason) == ("waived", "there is no NCCL at /no/libnccl.so.2")


def test_without_a_driver_it_is_waived(measure, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    (result,) = measure("nccl_all_reduce", folder=empty, ranks_in="threads")
    assert (result.outcome, "libcuda.so.1" in result.reason) == ("waived", True)


@pytest.fixture(scope="module")
def old_nccl(stand_ins, tmp_path_factory):
    """Return a folder with NCCL 2.18: no ncclAlltoAll, no ncclMemAlloc, no windows, no log that can be switched."""
    folder = tmp_path_factory.mktemp("old")
    (folder / "libcuda.so.1").symlink_to(stand_ins / "libcuda.so.1")
    flags = ["-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-DOLD"]
    subprocess.run(["cc", *flags, "-o", str(folder / "libnccl.so.2"), str(FOLDER / "nccl.c"), "-ldl"], check=True)
    return folder


def test_an_old_nccl_does_what_it_can(measure, old_nccl):
    results = measure("nccl_all_to_all", folder=old_nccl, buffers="plain,registered,symmetric", ranks_in="threads")
    plain = [one for one in results if one.outcome == "measured"]
    assert len(plain) == 9
    settings = plain[0].settings
    assert (settings["nccl"], settings["made_of"]) == ("2.18.5", "ncclSend and ncclRecv")
    assert settings["allocated_by"] == "cuMemAlloc"
    assert plain[0].evidence == (
        Evidence(claim="algorithm", value="unknown", seen="NCCL 2.18.5 cannot enable its log while it runs"),
    )
    assert [(one.parameters["buffers"], one.reason) for one in results if one.outcome == "waived"] == [
        ("registered", "NCCL 2.18.5 has no ncclCommRegister: registered buffers are not possible"),
        ("symmetric", "NCCL 2.18.5 has no ncclCommWindowRegister: symmetric buffers are not possible"),
    ]


@pytest.mark.parametrize("ranks_in", ["processes", "threads"])
def test_registered_buffers_and_windows_are_measured_and_named(measure, ranks_in):
    results = measure("nccl_all_gather", sizes="4K", buffers="registered,symmetric", ranks_in=ranks_in)
    assert {one.outcome for one in results} == {"measured"}
    assert {one.parameters["buffers"] for one in results} == {"registered", "symmetric"}
    assert {one.settings["allocated_by"] for one in results} == {"ncclMemAlloc"}
    plain = measure("nccl_all_to_all", sizes="4K", ranks_in=ranks_in)
    assert {one.settings["made_of"] for one in plain} == {"ncclAlltoAll"}
    assert not {"buffers", "algorithm", "protocol"} & set(plain[0].parameters)


def test_a_window_that_nccl_does_not_give_is_waived(measure):
    options = {"buffers": "symmetric", "ranks_in": "threads", "faults": {"STANDIN_NCCL_NO_WINDOW": "1"}}
    (result,) = measure("nccl_all_reduce", **options)
    assert result.outcome == "waived"
    assert result.reason.startswith("NCCL offers no symmetric window here")


def test_algorithms_and_protocols_are_forced_one_launch_each_and_refusals_are_nccl_s_own(measure):
    results = measure("nccl_all_reduce", sizes="8,4K", algorithms="free,Tree,PAT", protocols="free,LL128",
                      ranks_in="threads", placements="out of place")  # fmt: skip
    seen = {
        (one.parameters["algorithm"], one.parameters["protocol"]): (one.outcome, one.evidence[0].value)
        for one in results
        if one.outcome == "measured"
    }
    assert seen == {
        ("free", "free"): ("measured", "Ring/LL"),
        ("free", "LL128"): ("measured", "Ring/LL128"),
        ("Tree", "free"): ("measured", "Tree/LL"),
        ("Tree", "LL128"): ("measured", "Tree/LL128"),
    }
    refused = [one for one in results if one.outcome == "waived"]
    assert [one.parameters["size_bytes"] for one in refused] == [8, 4096] * 2
    for one in refused:
        assert one.parameters["algorithm"] == "PAT"
        assert "no algorithm/protocol available for function AllReduce" in one.reason
        assert "NCCL_ALGO was set to PAT" in one.reason


def test_a_forced_algorithm_that_did_not_run_is_not_reported_as_measured(measure):
    options = {"sizes": "8", "algorithms": "Tree", "faults": {"STANDIN_NCCL_OTHER": "1"}}
    results = measure("nccl_all_reduce", **options)
    assert {(one.outcome, one.reason) for one in results} == {("waived", "NCCL ran Ring/LL, but Tree was requested")}
    assert len(results) == 2, "one for each placement"


@pytest.mark.parametrize("evidence", ["yes", "no"])
def test_a_refusal_on_one_rank_alone_waives_the_point_on_all_and_the_others_are_measured(measure, evidence):
    options = {"sizes": "8", "algorithms": "Ring", "evidence": evidence, "faults": {"STANDIN_NCCL_REFUSE": "2"}}
    waived, *measured = measure("nccl_all_reduce", **options)
    assert (waived.outcome, waived.parameters["placement"]) == ("waived", "out of place")
    assert "invalid usage" in waived.reason
    assert {(one.outcome, one.parameters["placement"]) for one in measured} == {("measured", "in place")}
    assert {one.verification.bytes_wrong for one in measured} == {0}


def test_every_record_says_that_its_data_check_is_of_an_untimed_operation(measure):
    results = measure("nccl_all_reduce", sizes="8", ranks_in="threads")
    assert all("data check is of one untimed operation before" in one.method for one in results)


def test_with_nvls_forbidden_records_say_so_and_nvls_is_waived(measure, monkeypatch):
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    waived, *measured = measure("nccl_all_reduce", sizes="8", algorithms="NVLS,Ring", ranks_in="threads")
    assert (waived.outcome, waived.reason) == ("waived", "NCCL_NVLS_ENABLE=0 switches NVLS off")
    assert {one.settings["nvls"] for one in measured} == {"off (NCCL_NVLS_ENABLE=0)"}
    assert {one.settings["environment"] for one in measured} == {"NCCL_ALGO=Ring NCCL_NVLS_ENABLE=0"}


@pytest.mark.parametrize(("version", "outcome"), [("23007", "measured"), ("23100", "waived")])
def test_with_nvls_forbidden_windows_are_left_to_versions_whose_source_was_read(measure, monkeypatch, version, outcome):
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    options = {"sizes": "8", "buffers": "symmetric", "faults": {"STANDIN_NCCL_VERSION": version}}
    results = measure("nccl_all_reduce", **options)
    assert {one.outcome for one in results} == {outcome}
    if outcome == "waived":
        assert results[0].reason == "windows of NCCL 2.31.0 are not known to leave NVLS off"


def test_a_process_may_use_the_cpus_near_its_gpu_and_one_of_all_threads_every_cpu_of_the_job(two_gpus, monkeypatch):
    bound = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _process, cpus: bound.append(cpus))
    monkeypatch.setattr(Job, "list_gpu_cpus", lambda _job, gpu: (3, 4) if gpu.id == "gpu1" else ())
    one = job_of(find("nccl_all_reduce"), two_gpus, (0, 1, 3, 4))
    assert [gpus.bind_near_gpu(one, rank) for rank in (0, 1, None)] == ["0-1,3-4", "3-4", "0-1,3-4"]
    assert bound == [(0, 1, 3, 4), (3, 4), (0, 1, 3, 4)]


def test_what_does_not_fit_on_the_gpus_is_waived_by_its_size(measure):
    results = measure("nccl_broadcast", sizes="8,1G", ranks_in="threads", placements="out of place")
    waived = [one for one in results if one.outcome == "waived"]
    assert [one.parameters["size_bytes"] for one in waived] == [1 << 30]
    assert waived[0].reason.startswith("1 GiB does not fit: 1 GiB of GPU memory is free")
    assert len([one for one in results if one.outcome == "measured"]) == 3


@pytest.mark.parametrize("operation", ["all_to_all", "send_recv"])
def test_what_nccl_does_not_define_in_place_is_waived_when_asked_for(measure, operation):
    results = measure(f"nccl_{operation}", sizes="4K", placements="in place", ranks_in="threads")
    assert [(one.outcome, one.parameters["placement"]) for one in results] == [("waived", "in place")]
    assert "defines no result" in results[0].reason


def job(topology, operation="all_reduce", **options):
    return job_of(find(f"nccl_{operation}"), topology, given=options)


def test_sizes_are_rounded_as_nccl_tests_rounds_them(two_gpus):
    def sizes(operation, text, ranks):
        return [one.size_bytes for one in nccl_options.sizes(operation, parse_sizes(text), ranks)]

    assert sizes("all_reduce", "1,4,10,4K", 3) == [4, 8, 4096]
    assert sizes("all_gather", "8,4K,1M", 3) == [48, 4080, 1048560]
    assert sizes("send_recv", "6", 8) == [4]
    assert nccl_options.round_size("reduce_scatter", 4096, 2) == (512, 4096, 4096, 2048)
    assert nccl_options.round_size("all_gather", 4096, 2) == (512, 4096, 2048, 4096)


def test_a_machine_without_gpus_or_with_too_few_is_waived_by_the_number(two_gpus):
    assert nccl_options.waiver_reason(job(load("laptop"))) == "no NVIDIA GPU was found"
    assert nccl_options.waiver_reason(job(two_gpus, gpus="4")) == "4 GPUs are needed, 2 were found"
    assert nccl_options.waiver_reason(job(two_gpus)) == ""


def test_the_launch_has_a_process_for_each_gpu_or_one(two_gpus):
    assert job(two_gpus).ranks == 2
    assert job(two_gpus, ranks_in="threads").ranks == 1
    plan = find("nccl_all_reduce").plan(job(two_gpus, sizes="8:8G:x2"))
    assert plan.path == "gpu0>gpu1"
    assert 60 < plan.seconds < 600, "8 B to 8 GiB within minutes"


def test_a_hang_is_noticed_after_the_longest_size_and_not_after_all_of_them(two_gpus):
    plan = find("nccl_all_reduce").plan(job(two_gpus, sizes=",".join(f"{number}M" for number in range(64, 128))))
    assert plan.silent_s < plan.seconds / 2
    tiny = find("nccl_all_reduce").plan(job(two_gpus, sizes="8"))
    assert tiny.silent_s == tiny.seconds, "a start may take as long as the whole plan"


@pytest.mark.parametrize("text", ["0", "73", "two", "", "2.0", "٣", "9" * 5000])
def test_a_number_of_gpus_that_cannot_be_is_refused(text):
    with pytest.raises(UsageError, match="must be 'all', a whole number from 1 to 72, or GPUs by name"):
        find("nccl_all_reduce").parse({"gpus": text})


def test_an_unknown_algorithm_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="there is no choice named 'Rnig'") as caught:
        find("nccl_all_reduce").parse({"algorithms": "Rnig"})
    assert "Ring" in caught.value.hint
    with pytest.raises(UsageError, match="no option of nccl_send_recv named 'algorithms'"):
        find("nccl_send_recv").parse({"algorithms": "Ring"})


def test_prove_runs_the_four_collectives_of_training_and_run_finds_all():
    names = {f"nccl_{operation}" for operation in OPERATIONS}
    assert {one.name for one in BENCHMARKS} & names == names - {"nccl_send_recv", "nccl_broadcast"}
    assert {one.name for one in EVERY} >= names
    (only,) = jobs_of(find("nccl_all_reduce"), load("laptop"))
    assert only.case.parameters() == {"launched": "plain", "ranks_in": "processes"}


LINE = "h:1:1 [0] NCCL INFO "


@pytest.mark.parametrize(
    ("log", "value"),
    [
        (LINE + "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}\n", "Ring/LL"),
        (LINE + "AllReduce: 8 Bytes -> Algo 1 proto 2 time 12.3\n", "Ring/Simple"),
        (LINE + "AllGather [Symmetric]: 8 Bytes -> Kernel AllGather_LL nchannels 1 nthreads 512 nWorks 1\n",
         "symmetric/AllGather_LL"),
        (LINE + "AllGather [Copy Engine]: 8 Bytes -> cudaMemcpy\n", "copy engine/cudaMemcpy"),
        ("", "unknown"),
        ("no log at all\x00" * 1000, "unknown"),
    ],
)  # fmt: skip
def test_the_choice_is_read_from_every_version_s_words(log, value):
    seen = algorithm_evidence(log, sends_only=False)
    assert (seen.claim, seen.value) == ("algorithm", value)
    assert len(seen.seen) <= 200


def test_the_forced_algorithm_is_compared_with_the_one_that_ran():
    line = LINE + "AllReduce: 8 Bytes -> Algo TREE proto LL128 channel{Lo..Hi}={0..3}"
    seen = algorithm_evidence(line, sends_only=False)
    assert contradiction(seen, "Tree", "free") == contradiction(seen, "free", "LL128") == ""
    assert contradiction(seen, "Ring", "free") == "NCCL ran Tree/LL128, but Ring was requested"
    assert contradiction(seen, "Tree", "Simple") == "NCCL ran Tree/LL128, but Tree/Simple was requested"
    assert contradiction(algorithm_evidence("", sends_only=False), "Ring", "LL") == ""
