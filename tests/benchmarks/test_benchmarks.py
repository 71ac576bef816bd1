"""Real runs of all benchmarks, MPI benchmarks under both libraries: verified data, evidence, and records that fit the
schema.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
from tests.conftest import open_files
from tests.schemas import fits

from railwright.benchmarks.evidence import ConnectionMeter, transport_evidence
from railwright.benchmarks.registry import BENCHMARKS
from railwright.run.context import NOISE_SWITCH

ROOT = Path(__file__).parents[2]
SIZES = ("-o", "sizes=1,64K")
TINY = (
    *("-o", "array-size=3M", "-o", "file-size=4M"),
    *("-o", "file_read.sizes=4K,64K", "-o", "device_read.sizes=4K,64K"),
)
OF_TWO_RANKS = ["mpi_latency", "mpi_bandwidth", "kv_transfer"]
MPI_NAMES = {"openmpi": "Open MPI v5", "mpich": "MPICH"}


def once(driver, mpi, mpirun, names, *options, environment=None):
    """Run benchmarks under one MPI; returns (name of the MPI, results, raw lines)."""
    output = driver.folder / mpi
    words = ("run", *names, *options, "--force", "--mpirun", mpirun, "-O", str(output))
    done = driver(*words, environment=environment)
    assert done.status in (0, 1, 3), done.err  # beside other work a path may be slow, or unknown
    driver.expect_nothing_left()
    results = driver.results(folder=output)
    assert {result.benchmark for result in results} == set(names)
    return mpi, results, (output / "results.jsonl").read_bytes().splitlines()


@pytest.fixture(scope="module")
def everything(driver_of_module, mpiruns):
    """Return the results of all benchmarks, with the machine's noise."""
    names, noise = [one.name for one in BENCHMARKS], {NOISE_SWITCH: ""}
    return once(driver_of_module, "openmpi", mpiruns["openmpi"], names, *SIZES, *TINY, environment=noise)


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def measured(request, driver_of_module, mpiruns):
    """Return the results under each MPI: of all benchmarks, or of those whose ranks communicate."""
    if request.param == "openmpi":
        return request.getfixturevalue("everything")
    return once(driver_of_module, "mpich", mpiruns["mpich"], OF_TWO_RANKS, *SIZES)


def test_every_benchmark_measured_and_every_byte_was_right(measured):
    _, results, _ = measured
    for result in results:
        if result.outcome == "waived":
            needs_gpu = result.benchmark.startswith(("gpu_", "nccl_", "kv_vram"))
            assert needs_gpu or result.benchmark == "device_read", result.reason
            assert "no NVIDIA GPU" in result.reason or not needs_gpu
            continue
        assert result.outcome == "measured", result.reason
        assert result.summary.minimum > 0
        assert result.samples
        assert result.method
        if result.verification is None:
            assert result.benchmark == "core_latency"
            continue
        assert result.verification.bytes_wrong == 0
        assert result.verification.bytes_checked >= result.parameters.get("size_bytes", 1)


def test_the_noise_of_the_machine_is_measured_unless_it_is_switched_off(everything, measured):
    for (mpi, _, lines), switched_off in ((everything, False), (measured, measured[0] == "mpich")):
        noise = json.loads(lines[0])["context"].get("noise")
        assert (noise is None) is switched_off, mpi
        assert noise is None or (noise["quanta"] > 1000 and noise["quantum_s"] > 0 and 0 <= noise["lost_fraction"] < 1)


def test_every_line_of_the_results_fits_the_schema(measured):
    _, results, lines = measured
    kinds = Counter(json.loads(line)["record"] for line in lines)
    assert (kinds["run"], kinds["end"]) == (1, 1)
    assert kinds["result"] == len(results) > 10
    for line in lines:
        record = json.loads(line)
        fits(record, "result")
    record["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError):  # a schema that accepts anything proves nothing
        fits(record, "result")


def test_both_transports_of_both_mpis_ran_where_they_were_asked_to(measured):
    """Check the claim against a second source: the loopback interface's packets in the run's own counters."""
    name, results, lines = measured
    for benchmark in ("mpi_latency", "mpi_bandwidth"):
        for transport in ("shm", "tcp"):
            found = [one for one in results if one.benchmark == benchmark and one.parameters["transport"] == transport]
            asked = [(one.parameters["size_bytes"], one.parameters["pages"]) for one in found]
            assert asked == [(1, "small"), (65536, "small"), (65536, "huge")], "below 64 KiB pages decide nothing"
            for one in (one for one in found if one.outcome == "measured"):
                seen = {evidence.claim: evidence.value for evidence in one.evidence}
                assert seen == {"transport": transport, "pages": one.parameters["pages"]}
                assert one.settings["mpi"].startswith(MPI_NAMES[name])
                assert one.settings["thread_level"] == "single"
                assert one.ranks == 2
    moved = json.loads(lines[-1])["counters_moved"]["net.lo.tx_bytes"]
    sent = 65536 * (1010 * 2 + 64 * 22)
    assert moved > sent, "what TCP sent at 64 KiB alone must have crossed the loopback interface"


def test_nixl_moves_data_both_ways_and_names_ucx_s_protocol(measured):
    name, results, _ = measured
    found = [one for one in results if one.benchmark == "kv_transfer"]
    for operation in ("WRITE", "READ"):
        ours = [one for one in found if one.parameters["operation"] == operation]
        assert [(one.parameters["size_bytes"], one.quantity) for one in ours] == [
            (1, "latency_s"),
            (65536, "latency_s"),
            (65536, "bandwidth_bytes_per_s"),
        ]
        for one in ours:
            claims = {evidence.claim: evidence for evidence in one.evidence}
            assert set(claims) == {"ucx_protocol", "transport"}
            assert one.settings["mpi"].startswith(MPI_NAMES[name])
            if one.parameters["size_bytes"] > 1:
                assert claims["ucx_protocol"].value != "unknown", claims["ucx_protocol"].seen


def test_file_reads_say_which_engine_ran(everything):
    _, results, _ = everything
    found = [one for one in results if one.benchmark == "file_read"]
    assert {(one.parameters["size_bytes"], one.quantity) for one in found} == {
        (4096, "operations_per_s"),
        (4096, "latency_s"),
        (65536, "bandwidth_bytes_per_s"),
        (65536, "latency_s"),
    }
    for one in found:
        seen = {evidence.claim: evidence.value for evidence in one.evidence}
        assert seen == {"engine": one.parameters["engine"], "pages": one.parameters["pages"]}
        assert one.settings["o_direct"] is True
        assert one.verification.bytes_checked == 4 << 20


@pytest.mark.parametrize("engine", ["io_uring", "threads"])
def test_the_engine_that_was_asked_for_is_the_one_that_reads(railwright, engine):
    process = railwright.start(
        *("run", "file_read", "-o", f"engine={engine}", "-o", "sizes=4K", "-o", "file-size=64M", "-o", "depth=16"),
        "--force",
    )
    seen = set()

    def of_the_rank():
        rank = railwright.rank(0)
        if rank is not None:
            seen.update(kinds_at_work(rank.pid))
        return process.poll() is not None

    railwright.wait_until(of_the_rank, "the end of the reads")
    assert railwright.finish(process).status == 3
    assert {one.parameters["engine"] for one in railwright.results()} == {engine}
    assert seen == {engine}, "the kernel saw another engine than the record says"


def kinds_at_work(pid: int) -> set[str]:
    """The kernel's evidence: a ring among the descriptors, or many threads."""
    kinds = set()
    try:
        if any("io_uring" in target for target in open_files(pid)):
            kinds.add("io_uring")
        if len(list(Path(f"/proc/{pid}/task").iterdir())) > 8:
            kinds.add("threads")
    except OSError:
        pass
    return kinds


@pytest.mark.parametrize(
    ("sent", "moved", "value"),
    [(1000, 1000, "tcp"), (1000, 5000, "tcp"), (1000, 0, "shm"), (1000, 500, "shm"), (1000, 501, "mixed"),
     (1000, 999, "mixed"), (1000, None, "unknown")],
)  # fmt: skip
def test_the_transport_is_judged_by_what_crossed_the_loopback_interface(sent, moved, value):
    assert transport_evidence(sent, moved, "shm").value == value


def test_a_process_counts_what_its_own_connections_carry():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as near:
        near.connect(listening.getsockname())
        far, _ = listening.accept()
        with far, socket.create_server(("127.0.0.1", 0)):
            meter = ConnectionMeter()
            assert meter.moved_bytes() == 0
            near.sendall(b"x" * 10_000)
            received = 0
            while received < 10_000:
                received += len(far.recv(1 << 16))
            far.sendall(b"y")  # acknowledges all that came before
            near.recv(1)
            # Both ends are of this process: what one sent and what the other received.
            assert meter.moved_bytes() >= 20_000
            assert meter.moved_bytes() < 21_000


def test_a_transport_that_did_not_run_makes_the_record_failed(railwright, mpirun):
    """Shared memory is requested, but the library's environment forces TCP."""
    wrapper = railwright.folder / "mpirun"
    variables = (
        "OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo "
        "MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp FI_TCP_IFACE=lo"
    )
    library = Path(mpirun).parent.parent / "lib"
    (railwright.folder / "lib").symlink_to(library)
    wrapper = railwright.folder / "bin" / "mpirun"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexport {variables}\nexec {mpirun} "$@"\n')
    wrapper.chmod(0o755)
    done = railwright(
        *(
            "run",
            "mpi_latency",
            "-o",
            "sizes=4K",
            "-o",
            "transports=shm",
            "-o",
            "pages=small",
            "--force",
            "--mpirun",
            str(wrapper),
        )
    )
    assert done.status == 3
    (result,) = railwright.results()
    assert result.outcome == "failed"
    assert "shm was requested, but this rank's TCP carried" in result.reason
    assert result.reason.endswith("it ran over tcp")
    assert result.samples, "what was measured is kept all the same"
