"""NIXL with GPU memory: the plan, UCX's own log, and the findings if UCX emulates transfers.

The logs are of two H200 (NIXL 1.5.1, UCX 1.23). What only a GPU can show is not tested.
"""
# ruff: noqa: F811 - a fixture of another module is imported, and is an argument

from __future__ import annotations

import os

import msgspec
import pytest
from tests.benchmarks.jobs import jobs_of
from tests.stand_ins import environment, stand_ins  # noqa: F401 - a fixture
from tests.topology.machines import archive

from railwright.benchmarks.evidence import ucx_protocol_evidence
from railwright.benchmarks.kv import vram as kv_vram
from railwright.benchmarks.kv.vram_options import Move
from railwright.benchmarks.registry import BENCHMARKS, find
from railwright.checks import peer_access_off, rma_emulated
from railwright.checks.check import Facts
from railwright.errors import UsageError
from railwright.faults import tcp_fallback
from railwright.launch.mpi import MpiLauncher
from railwright.launch.session import PlannedLaunch, Session
from railwright.results.readers.ucx import protocols as ucx_protocols
from railwright.results.records import Evidence, Result
from railwright.topology.expand import expand
from railwright.topology.sources.load import load

MIB = 2**20
SILENCE_S = 120.0


def table(configuration: str, title: str, *rows: tuple[str, str, str]) -> str:
    """Return a table as UCX prints it after its time stamp."""
    stamp = "[1795320179.018694] [vm:728  :0]   "
    lines = [f"| initiator {configuration} |", f"| {title} |", "| Range | Description | Config |"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "".join(f"{stamp}+-----+\n{stamp}{line}\n" for line in lines)


PUT, GET = "remote memory write by ucp_put*", "remote memory read by ucp_get*"
EMULATED = ("0..inf", "software emulation", "tcp/lo")
DEFAULT = (
    table("self cfg#0", f"{PUT}(multi) from host memory to host", ("0..4294967295", "short", "cuda_copy/cuda"))
    + table("intra-node cfg#2", f"{PUT} from host memory to host", ("0..inf", "zero-copy", "cma/memory"))
    + table("intra-node cfg#2", f"{PUT} from host memory to cuda/dev[3]", EMULATED)
    + table("intra-node cfg#2", "active message by ucp_am_send*(multi) from host memory", ("0..626", "short", "tcp/lo"))
    + table("intra-node cfg#2", f"{PUT}(multi) from cuda/GPU0 to cuda/dev[3]", ("0..inf", "zero-copy", "cuda_ipc/cuda"))
    + table("intra-node cfg#2", f"{PUT}(multi) from cuda/GPU0 to host", EMULATED)
    + table("intra-node cfg#2", f"{GET}(multi) into host memory from cuda/dev[2]", EMULATED)
)
ALONE = table("self cfg#1", f"{PUT}(multi) from cuda/GPU0 to host", EMULATED)
PIPELINE = table(
    "intra-node cfg#2",
    f"{PUT}(multi) from cuda/GPU0 to host",
    ("0", "(?) rndv using no data fetch", ""),
    ("1..4M", "(?) rndv using zero-copy flushed write to remote, cuda_copy, frag cuda", "cuda_ipc/cuda"),
    ("4194305..14076194", "(?) rndv using pipeline cuda_copy, write to remote, frag host", "cma/memory"),
    (
        "14076195..inf",
        "(?) rndv using pipeline zero-copy flushed write to remote, cuda_copy, frag cuda",
        "cuda_ipc/cuda",
    ),
) + table("intra-node cfg#2", "rendezvous data send(multi) from cuda/GPU0 to cuda/dev[2]", ("1..inf", "x", "y/z"))


@pytest.fixture
def log(tmp_path):
    def write(text: str):
        path = tmp_path / "ucx.log"
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="module")
def two_gpus():
    return load(str(archive("2xh200-firecracker-vm")))


def job_on(topology, launch=0, **options):
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    return jobs_of(find("kv_vram"), topology, cpus, options)[launch]


# --- UCX's log


def test_a_transfer_between_gpus_is_seen_as_cuda_ipc(log):
    seen = ucx_protocol_evidence(log(DEFAULT), "WRITE", 256 * MIB, ("cuda", "cuda"))
    assert (seen.value, seen.seen) == ("cuda_ipc/cuda", "UCX_PROTO_INFO: ucp_put by zero-copy")


@pytest.mark.parametrize(("verb", "memories"), [("put", ("cuda", "host")), ("get", ("host", "cuda"))])
def test_emulation_is_in_the_value_and_not_only_the_transport_below_it(log, verb, memories):
    seen = ucx_protocol_evidence(log(DEFAULT), "WRITE" if verb == "put" else "READ", 4096, memories)
    assert seen.value == "software emulation over tcp/lo"
    assert seen.seen == f"UCX_PROTO_INFO: ucp_{verb} by software emulation"


def test_host_memory_is_not_mistaken_for_a_gpu_s_in_the_same_log(log):
    assert ucx_protocol_evidence(log(DEFAULT), "WRITE", 4096).value == "cma/memory"
    # UCX's own operations, without "(multi)", say nothing about NIXL's transfers.
    both = DEFAULT + table("intra-node cfg#2", f"{PUT} from cuda/GPU0 to host", ("0..inf", "zero-copy", "x/y"))
    assert "emulation" in ucx_protocol_evidence(log(both), "WRITE", 4096, ("cuda", "host")).value


def test_transfers_of_an_agent_to_itself_are_in_another_table(log):
    assert ucx_protocol_evidence(log(DEFAULT), "WRITE", 4096, ("cuda", "host"), to_self=True).value == "unknown"
    assert "emulation" in ucx_protocol_evidence(log(ALONE), "WRITE", 4096, ("cuda", "host"), to_self=True).value
    nothing = ucx_protocol_evidence(log(ALONE), "WRITE", 4096, ("cuda", "host"))
    assert nothing.seen == "UCX's log has no put of 4 KiB between cuda and host to a peer"


@pytest.mark.parametrize(
    ("size", "transport", "how"),
    [
        (4096, "cuda_ipc/cuda", "flushed write to remote"),
        (4 * MIB + 1, "cma/memory", "pipeline cuda_copy"),
        (256 * MIB, "cuda_ipc/cuda", "pipeline zero-copy"),
    ],
)
def test_the_pipeline_s_transports_are_read_by_size(log, size, transport, how):
    seen = ucx_protocol_evidence(log(PIPELINE), "WRITE", size, ("cuda", "host"))
    assert seen.value == transport
    assert how in seen.seen


def test_a_log_of_nonsense_has_no_protocol():
    lines = [
        "",
        "|",
        "| cfg# |",
        "| remote memory write by ucp_put* |",
        "| 0..x | a | b |",
        "| x" * 5000,
        "| cfg#1 | |",
    ]
    assert ucx_protocols.read(lines) == ()


# --- findings


def result_with(value: str, path: str = "gpu0>memory0", processes: int = 2) -> Result:
    return Result(
        benchmark="kv_vram",
        quantity="bandwidth_bytes_per_s",
        path=path,
        method="",
        parameters={"processes": processes},
        evidence=(Evidence(claim="ucx_protocol", value=value, seen="UCX_PROTO_INFO: ucp_put by software emulation"),),
    )


def test_emulation_is_one_finding_for_each_cause_with_all_its_paths_and_its_remedy(two_gpus):
    value = "software emulation over tcp/lo"
    results = (
        *(result_with(value), result_with(value), result_with(value, "memory0>gpu0"), result_with("cuda_ipc/cuda")),
        result_with(value, "gpu0>gpu1", processes=1),
    )
    facts = Facts(topology=two_gpus, results=results)
    between, inside = rma_emulated.CHECK.look(facts)
    assert between.where == ("kv_vram", "gpu0>memory0", "memory0>gpu0", "processes 2")
    assert inside.where == ("kv_vram", "gpu0>gpu1", "processes 1")
    assert between.certainty == "seen"
    assert "Between two processes UCX moved data by software emulation over tcp/lo" in between.says
    assert "(3 points)" in between.says
    assert "UCX_RMA_PPLN_ENABLE=y" in between.remedy
    assert "ucx_error_handling_mode=none" in inside.remedy
    assert between.costs
    assert [one.seen for one in between.evidence] == ["UCX_PROTO_INFO: ucp_put by software emulation"]
    assert tcp_fallback.FAULT.look(facts) == (), "no ptrace right would help"


def test_a_transport_is_no_finding(two_gpus):
    for value in ("cuda_ipc/cuda", "cma/memory", "cuda_copy/cuda", "unknown"):
        assert rma_emulated.CHECK.look(Facts(topology=two_gpus, results=(result_with(value),))) == ()


def of_one_process(protocol: str, access: str = "no peer access") -> Result:
    seen = (
        Evidence(claim="ucx_protocol", value=protocol, seen="a log"),
        Evidence(claim="peer_access", value=access, seen="-"),
    )
    return msgspec.structs.replace(result_with(protocol, "gpu0>gpu1", processes=1), evidence=seen)


def test_copies_of_a_process_that_did_not_enable_peer_access_are_a_finding(two_gpus):
    others = (
        of_one_process("cuda_copy/cuda", "peer access"),
        of_one_process("software emulation over tcp/lo"),
        result_with("cuda_copy/cuda"),
    )
    assert peer_access_off.CHECK.look(Facts(topology=two_gpus, results=others)) == ()
    facts = Facts(topology=two_gpus, results=(*others, of_one_process("cuda_copy/cuda")))
    (found,) = peer_access_off.CHECK.look(facts)
    assert found.where == ("kv_vram", "gpu0>gpu1", "processes 1")
    assert found.certainty == "seen"
    assert "(1 points)" in found.says
    assert "cudaDeviceEnablePeerAccess" in found.remedy
    assert {one.claim: one.value for one in found.evidence} == {
        "ucx_protocol": "cuda_copy/cuda",
        "peer_access": "no peer access",
    }


# --- plans


def test_every_link_is_planned_from_either_side_in_two_processes_and_in_one(two_gpus):
    job = job_on(two_gpus)
    every = job.options.moves(2)
    assert len(every) == len(set(every)) == 6
    paths = {(move.processes, move.link): move.path(job, "WRITE") for move in every}
    assert paths == {
        (2, "gpu-gpu"): "gpu0>gpu1",
        (2, "gpu-host"): "gpu0>memory0",
        (2, "host-gpu"): "memory0>gpu0",
        (1, "gpu-gpu"): "gpu0>gpu1",
        (1, "gpu-host"): "gpu0>memory0",
        (1, "host-gpu"): "memory0>gpu0",
    }
    assert {move.path(job, "READ") for move in every} == {"gpu1>gpu0", "memory0>gpu0", "gpu0>memory0"}


def test_the_path_follows_the_data_and_the_initiator_is_the_side_that_posts(two_gpus):
    job = job_on(two_gpus)
    by_gpu, by_host = Move("gpu-host", 2, "pinned"), Move("host-gpu", 2, "pinned")
    assert by_gpu.path(job, "READ") == by_host.path(job, "WRITE") == "memory0>gpu0"
    assert by_gpu.case(job, 4096, "READ").initiator == "gpu0"
    assert by_host.case(job, 4096, "WRITE").initiator == "memory0"
    assert (by_gpu.memories, by_host.memories) == (("cuda", "host"), ("host", "cuda"))
    assert Move("gpu-gpu", 1, "").memories == ("cuda", "cuda")
    assert "host" not in Move("gpu-gpu", 2, "").case(job, 4096, "READ").parameters()


def test_one_gpu_is_its_own_peer_in_two_processes_only():
    one = find("kv_vram").parse({"links": "gpu-gpu"}).moves(1)
    assert one == [Move("gpu-gpu", 2, "")]


def test_the_default_is_not_named_so_that_it_compares_with_runs_without_the_option():
    jobs = jobs_of(find("kv_vram"), load(str(archive("1xh100-probed-vm"))), given={"ucx": "default,pipeline"})
    assert [job.case.parameters() for job in jobs] == [{}, {"ucx": "pipeline"}]


def test_peer_access_is_a_launch_of_its_own_and_needs_two_gpus(two_gpus):
    given = {"peer-access": "off,on", "pairs": "first", "ucx": "no peer errors"}
    ways = [job.case.parameters() for job in jobs_of(find("kv_vram"), two_gpus, given=given)]
    assert ways == [{"ucx": "no peer errors"}, {"ucx": "no peer errors", "peer_access": "on"}]
    alone = job_on(load(str(archive("1xh100-probed-vm"))), **{"peer-access": "on"})
    assert kv_vram.BENCHMARK.plan(alone).waived == "2 GPUs are needed, 1 was found"
    apart = job_on(two_gpus, **{"peer-access": "on", "processes": "2"})
    assert "two GPUs of one process" in kv_vram.BENCHMARK.plan(apart).waived
    assert not kv_vram.BENCHMARK.plan(job_on(two_gpus, **{"peer-access": "on"})).waived


def test_without_a_gpu_it_is_waived_by_name():
    plan = kv_vram.BENCHMARK.plan(job_on(expand("laptop", {})))
    assert plan.waived == "no NVIDIA GPU was found"


@pytest.mark.parametrize(("option", "value"), [("links", "host-host"), ("processes", "3"), ("ucx", "fast")])
def test_an_option_that_cannot_be_used_is_refused(option, value):
    with pytest.raises(UsageError):
        find("kv_vram").parse({option: value})


def test_prove_runs_it():
    assert kv_vram.BENCHMARK in BENCHMARKS


# --- two real ranks with a real NIXL, which is told that the memory of a stand-in GPU is host memory, as it is

SITE = """
import os
from railwright.native import nixl_memory
nixl_memory.describe_memory = lambda buffer: nixl_memory.HOST
if "TEST_MOVES_NOTHING" in os.environ:
    from railwright.native import nixl
    nixl.Request.time = lambda self, *, warm, iterations, patience_s: ([1e-3] * iterations, [1e-4] * iterations)
"""


@pytest.fixture
def measure(stand_ins, two_gpus, mpiruns, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(faults=None, launch=0, **options):
        job = job_on(two_gpus, launch, **options)
        planned = PlannedLaunch(kv_vram.BENCHMARK, job, kv_vram.BENCHMARK.plan(job))
        assert not planned.plan.waived
        addresses = [gpu.address for gpu in two_gpus.of_kind("gpu")]
        # Without libnvidia-ml UCX's CUDA module is not loaded: it would call what a stand-in does not have.
        folder = tmp_path / "cuda alone"
        folder.mkdir()
        (folder / "libcuda.so.1").symlink_to(stand_ins / "libcuda.so.1")
        (folder / "sitecustomize.py").write_text(SITE)
        variables = os.environ | environment(folder, *addresses) | {"PYTHONPATH": str(folder)} | (faults or {})
        return list(Session(planned, MpiLauncher(mpiruns["openmpi"]), variables, SILENCE_S).results())

    return run


def test_every_case_moves_every_byte_and_says_which_it_was(measure):
    results = measure(sizes="4K,1M", host="pinned,pageable")
    assert {one.outcome for one in results} == {"measured"}, [one.reason for one in results]
    seen = {
        (one.path, one.parameters["operation"], one.parameters["initiator"], one.parameters["processes"],
         one.parameters.get("host", ""), one.parameters["size_bytes"])
        for one in results
    }  # fmt: skip
    assert len(seen) == len(results) == 2 * 2 * 2 * (1 + 2 + 2)
    for one in results:
        assert (one.verification.bytes_checked, one.verification.bytes_wrong) == (one.parameters["size_bytes"], 0)
        assert one.ranks == one.parameters["processes"]
        assert one.quantity == ("latency_s" if one.parameters["size_bytes"] == 4096 else "bandwidth_bytes_per_s")
        assert one.evidence[0].claim == "ucx_protocol"
        assert one.settings["warm_up"] >= 2
        assert one.settings["iterations"] >= 3


@pytest.mark.parametrize(
    ("access", "faults", "said"),
    [
        ("off", {}, "no peer access"),
        ("on", {}, "peer access"),
        ("off", {"STANDIN_CUDA_NO_ENABLE": "1"}, "no peer access"),
        ("off", {"STANDIN_CUDA_NO_PEER": "1"}, "peer access refused"),
        ("on", {"STANDIN_CUDA_NO_PEER": "1"}, "peer access refused"),
    ],
)
def test_the_peer_access_of_one_process_is_in_the_record(measure, access, faults, said):
    between, others = [], []
    for one in measure(faults, sizes="4K", pairs="first", operations="WRITE", **{"peer-access": access}):
        assert one.outcome == "measured", one.reason
        assert one.parameters.get("peer_access", "off") == access
        alone = one.parameters["processes"] == 1 and one.path == "gpu0>gpu1"
        (between if alone else others).append({seen.claim: seen.value for seen in one.evidence})
    assert [seen["peer_access"] for seen in between] == [said]
    assert len(others) == 5
    assert all("peer_access" not in seen for seen in others)


def test_unavailable_peer_access_is_named(measure):
    (failed,) = measure({"STANDIN_CUDA_NO_ENABLE": "1"}, sizes="4K", pairs="first", **{"peer-access": "on"})
    assert failed.outcome == "failed"
    assert "peer access from" in failed.reason


def test_data_that_never_arrived_is_counted_at_the_target(measure):
    results = measure({"TEST_MOVES_NOTHING": "1"}, sizes="1M")
    assert len(results) == 12
    for one in results:
        assert one.verification.bytes_wrong > 0.99 * MIB


def test_unavailable_memory_is_named(measure):
    (failed,) = measure({"STANDIN_CUDA_NO_MEMORY": "1"}, sizes="1M")
    assert failed.outcome == "failed"
    assert "cannot allocate 1 MiB on" in failed.reason
