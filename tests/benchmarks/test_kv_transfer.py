"""NIXL's transfers with batches, threads and requests in flight, its ways to exchange metadata, its files and objects.

An etcd and an S3 server really run, on loopback, and are gone after each test.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from railwright.benchmarks.kv import file as kv_file
from railwright.benchmarks.kv import transfer as kv_transfer
from railwright.benchmarks.kv.services import parse_service
from railwright.benchmarks.kv.timed import Point
from railwright.errors import UsageError
from railwright.native.memory import Buffer
from railwright.topology.cpu_list import format_cpu_list

ROOT = Path(__file__).parents[2]
MIB = 2**20

# The plugin is linked with a library of NVIDIA's that no package registry has, and calls it only for GPUDirect. These
# are the symbols that the loader asks for; each ends the process, so a test that passes has called none of them.
CUOBJ_SYMBOLS = (
    *("_ZN11cuObjClient11isConnectedEv", "_ZN11cuObjClient21cuMemObjGetDescriptorEPvm"),
    *("_ZN11cuObjClient21cuMemObjPutDescriptorEPv", "_ZN11cuObjClient6getCtxEPKv"),
    *("_ZN11cuObjClient8cuObjGetEPvS0_mll", "_ZN11cuObjClient8cuObjPutEPvS0_mll"),
    *("_ZN11cuObjClientC1ER10CUObjIOOps15cuObjProto_enum", "_ZN11cuObjClientD1Ev"),
)


def free_ports(count: int) -> list[int]:
    """Keep all ports open until the last is chosen, so that no two are the same."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def die_with_the_test() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@contextlib.contextmanager
def service(argv: list[str], port: int, log: Path):
    """Run a server until the end of the block, or until the test dies; fails if it does not answer."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            preexec_fn=die_with_the_test,
        )
    try:
        deadline = time.monotonic() + 300
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, log.read_text("utf-8", "replace")[-2000:]
            assert time.monotonic() < deadline, f"{argv[0]} does not answer"
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def etcd(tmp_path):
    """Return the URL of the test's own etcd."""
    program = shutil.which("etcd")
    assert program, "etcd is missing: make test-deps (Debian package etcd-server)"
    port, peer = free_ports(2)
    url = f"http://127.0.0.1:{port}"
    argv = [
        *(program, "--data-dir", str(tmp_path / "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
        *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
        *("--initial-cluster", f"default=http://127.0.0.1:{peer}"),
    ]
    with service(argv, port, tmp_path / "etcd.log"):
        yield url


def etcd_asks(url: str, path: str, body: dict[str, str]) -> dict:
    request = urllib.request.Request(f"{url}/v3/{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def moto_server() -> str:
    """moto's S3 server, in its own virtual environment, because it is a test tool and not a dependency."""
    program = ROOT / ".venv-moto/bin/moto_server"
    assert program.exists(), "the S3 server is missing: make test-deps"
    return str(program)


@pytest.fixture
def bucket(tmp_path):
    """Return the URL of a bucket in the test's own S3 server."""
    [port] = free_ports(1)
    with service([moto_server(), "-H", "127.0.0.1", "-p", str(port)], port, tmp_path / "s3.log"):
        url = f"http://127.0.0.1:{port}/kvblocks"
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=300):
            pass
        yield url


@pytest.fixture
def object_client(tmp_path):
    """Return an environment in which the OBJ plugin loads, with S3 credentials."""
    source, folder = tmp_path / "cuobj.c", tmp_path / "cuobj"
    folder.mkdir()
    source.write_text("void abort(void);\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in CUOBJ_SYMBOLS))
    library = folder / "libcuobjclient.so.1"
    flags = ["-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{library.name}"]
    subprocess.run(["cc", *flags, "-o", str(library), str(source)], check=True)
    return {
        "LD_LIBRARY_PATH": str(folder),
        "AWS_ACCESS_KEY_ID": "AKIATESTONLY",
        "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    }


def run(railwright, name, *options, **settings):
    arguments = [part for option in options for part in ("-o", option)]
    done = railwright("run", name, *arguments, "--force", **settings)
    railwright.expect_nothing_left()
    return done


def of(results, **parameters):
    return [one for one in results if parameters.items() <= one.parameters.items()]


def test_batches_are_verified_and_each_descriptor_costs_something(railwright):
    done = run(railwright, "kv_transfer", "sizes=4K", "batches=1,64")
    assert done.status == 3, done.err
    for operation in ("WRITE", "READ"):
        (one,) = [r for r in railwright.results() if r.parameters == {"size_bytes": 4096, "operation": operation}]
        many, rate = of(railwright.results(), operation=operation, batch=64)
        assert (many.quantity, rate.quantity) == ("latency_s", "bandwidth_bytes_per_s")
        assert one.verification.bytes_checked == 4096
        assert many.verification.bytes_checked == 64 * 4096
        assert one.verification.bytes_wrong == many.verification.bytes_wrong == 0
        assert many.settings["descriptors"] == 64
        # One 256 KiB block takes a fraction of what 64 blocks of 4 KiB do: had NIXL joined them, this would not hold.
        assert many.summary.minimum > 8 * one.summary.minimum
        assert rate.summary.median == pytest.approx(64 * 4096 / many.summary.median, rel=0.05)


def test_threads_and_requests_in_flight_move_all_their_bytes(railwright):
    done = run(railwright, "kv_transfer", "sizes=64K", "threads=3", "depth=2", "batches=4")
    assert done.status == 3, done.err
    latency, rate = of(railwright.results(), operation="WRITE")
    assert rate.parameters == {"size_bytes": 65536, "operation": "WRITE", "batch": 4, "threads": 3, "depth": 2}
    assert rate.verification.bytes_checked == 65536 * 4 * 3 * 2
    assert rate.verification.bytes_wrong == 0
    assert len(rate.samples) == 7
    assert rate.settings["iterations"] == latency.summary.count
    assert latency.summary.count % (7 * 3) == 0, "7 passes of 3 threads"
    assert len(rate.settings["cpus"].split(",")) == 3 + 1
    assert {evidence.claim for evidence in rate.evidence} == {"ucx_protocol", "transport"}


def test_metadata_is_exchanged_in_three_ways_and_each_is_proved_by_a_write(railwright, etcd):
    done = run(railwright, "kv_transfer", "sizes=64K", "operations=WRITE", "metadata=etcd,socket,mpi", f"etcd={etcd}")
    assert done.status == 3, done.err
    exchanges = of(railwright.results(), operation="metadata")
    assert {one.parameters["metadata"] for one in exchanges} == {"mpi", "socket", "etcd"}
    for one in exchanges:
        assert one.outcome == "measured", one.reason
        assert one.quantity == "latency_s"
        assert len(one.samples) == 3
        assert one.summary.minimum > 0
        assert (one.verification.bytes_checked, one.verification.bytes_wrong) == (4096, 0)
    for one in of(railwright.results(), operation="WRITE"):
        assert one.settings["metadata_by"] == "etcd", "the first way is the one that the transfers use"
        assert one.verification.bytes_wrong == 0
    everything = {"key": "AA==", "range_end": "AA=="}
    assert "kvs" not in etcd_asks(etcd, "kv/range", everything), "keys were left in the store"
    revision = int(etcd_asks(etcd, "kv/range", everything)["header"]["revision"])
    assert revision > 6, "the store was never written to"


def test_a_missing_etcd_is_waived_by_name_and_the_rest_is_measured(railwright):
    [port] = free_ports(1)
    run(railwright, "kv_transfer", "sizes=4K", "operations=WRITE", "metadata=etcd,mpi", f"etcd=http://127.0.0.1:{port}")
    (waived,) = of(railwright.results(), metadata="etcd")
    assert waived.outcome == "waived"
    assert waived.reason == f"no etcd answers at http://127.0.0.1:{port}: Connection refused"
    (transfer,) = of(railwright.results(), operation="WRITE")
    assert transfer.settings["metadata_by"] == "mpi"


def test_without_an_etcd_the_option_is_named(railwright):
    run(railwright, "kv_transfer", "sizes=4K", "metadata=etcd")
    (waived,) = railwright.results()
    assert waived.outcome == "waived"
    assert waived.reason == "no etcd address was given: -o etcd=http://HOST:PORT"


def test_without_cma_ucx_and_a_finding_report_tcp(railwright):
    done = run(railwright, "kv_transfer", "sizes=64K", environment={"UCX_TLS": "tcp,self"})
    assert done.status == 1, done.err
    for one in railwright.results():
        protocol, transport = one.evidence
        assert "tcp/" in protocol.value
        assert transport.value == "tcp"
    assert "tcp_fallback" in done.out
    assert f"({len(railwright.results())} points)" in done.out, "both directions, over however many lanes"


def test_ucx_s_own_limits_are_named_when_it_refuses(railwright):
    run(railwright, "kv_transfer", "sizes=4K", environment={"UCX_TLS": "posix,self"})
    (failed,) = railwright.results()
    assert failed.outcome == "failed"
    assert "UCX_TLS=posix,self" in failed.reason


def test_what_does_not_fit_the_buffer_is_waived_point_by_point(railwright):
    run(railwright, "kv_transfer", "sizes=4K,1M", "batches=1,16", "operations=WRITE", "buffer=8M")
    waived = [one for one in railwright.results() if one.outcome == "waived"]
    assert [one.parameters for one in waived] == [{"size_bytes": MIB, "operation": "WRITE", "batch": 16}]
    assert "16 MiB" in waived[0].reason
    assert "8 MiB" in waived[0].reason


@pytest.mark.parametrize("queue", ["aio", "uring", "posix_aio"])
def test_files_are_verified_and_the_kernel_reports_how_they_were_read(railwright, queue):
    done = run(railwright, "kv_file", f"queue={queue}", "sizes=4K,64K", "batches=4", "file-size=1M", "direct=yes,no")
    assert done.status == 3, done.err
    assert len(railwright.results()) == 2 * 2 * 2 * 2
    every = format_cpu_list(os.sched_getaffinity(0))
    for one in railwright.results():
        assert one.outcome == "measured", one.reason
        assert one.settings["cpus"] == (every if queue == "posix_aio" else every.partition("-")[0].partition(",")[0])
        seen = {evidence.claim: evidence.value for evidence in one.evidence}
        assert seen == {
            "backend": "POSIX",
            "queue": queue,
            "io": "direct" if one.parameters["direct"] else "page cache",
        }
        assert one.verification.bytes_wrong == 0
        assert one.verification.bytes_checked == MIB
        assert ("pagecache" in one.path) is not one.parameters["direct"]


def sectors_read() -> dict[str, int]:
    rows = [line.split() for line in Path("/proc/diskstats").read_text("ascii").splitlines()]
    return {row[2]: int(row[5]) for row in rows}


def test_a_direct_read_really_comes_from_the_drive(railwright):
    """Compare the record with the kernel's counters of the drive, which the page cache would not change."""
    before = sectors_read()
    run(railwright, "kv_file", "sizes=1M", "batches=1", "file-size=16M", "operations=READ")
    after = sectors_read()
    rate = next(one for one in railwright.results() if one.quantity == "bandwidth_bytes_per_s")
    drive, _, _ = rate.path.partition(">")
    assert rate.settings["requests_per_pass"] == 16
    assert 512 * (after[drive] - before[drive]) >= (1 + 7) * 16 * MIB


def test_objects_are_waived_with_the_loader_s_reason(railwright):
    environment = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    run(railwright, "kv_file", "backend=OBJ", "s3=http://127.0.0.1:9/bucket", environment=environment)
    (waived,) = railwright.results()
    assert waived.outcome == "waived"
    assert "libcuobjclient" in waived.reason or "no S3 answers" in waived.reason


def test_objects_are_written_to_an_s3_server_and_read_back(railwright, bucket, object_client):
    done = run(
        railwright,
        *("kv_file", "backend=POSIX,OBJ", f"s3={bucket}", "sizes=4K,64K", "batches=1,4", "file-size=256K"),
        environment=object_client,
    )
    assert done.status == 3, done.err
    objects = of(railwright.results(), backend="OBJ")
    assert len(objects) == 2 * 2 * 2 * 2
    assert of(railwright.results(), backend="POSIX")
    for one in objects:
        assert one.outcome == "measured", one.reason
        assert one.verification.bytes_wrong == 0
        assert "s3" in one.path.split(">")
    with urllib.request.urlopen(f"{bucket}?list-type=2", timeout=300) as answer:
        listing = answer.read().decode()
    tags = dict(re.findall(r"<Key>([^<]*)</Key>.*?<ETag>&?q?u?o?t?;?\"?([0-9a-f]{32})", listing))
    assert (objects[-1].parameters["operation"], objects[-1].parameters["size_bytes"]) == ("READ", 65536)
    with Buffer(2 * 65536) as buffer:  # what the reads of 64 KiB, which came last, had found there
        buffer.fill(objects[-1].settings["pattern_seed"])
        for number in range(2):
            held = ctypes.string_at(buffer.address + number * 65536, 65536)
            assert tags[f"railwright-kv/{number}"] == hashlib.md5(held).hexdigest(), "the server holds something else"
    everything = (railwright.output / "results.jsonl").read_text("utf-8") + done.out + done.err
    assert "not-a-secret" not in everything


def test_a_missing_bucket_fails_with_its_name(railwright, bucket, object_client):
    run(railwright, "kv_file", "backend=OBJ", f"s3={bucket}-not", "sizes=4K", environment=object_client)
    (failed,) = railwright.results()
    assert failed.outcome == "failed"
    assert "is the bucket kvblocks-not there" in failed.reason


def test_objects_without_credentials_or_bucket_are_waived_before_anything_starts(railwright):
    clean = {name: "" for name in os.environ if name.startswith("AWS_")}
    run(railwright, "kv_file", "backend=OBJ", "s3=http://127.0.0.1:9/bucket", environment=clean)
    (waived,) = railwright.results()
    assert waived.reason.startswith("no credentials for S3 in the environment")


@pytest.mark.parametrize(
    ("benchmark", "option", "value", "says"),
    [
        ("kv_transfer", "batches", "0", "must be a whole number from 1 to 65536"),
        ("kv_transfer", "batches", "1,,2", "must be a whole number"),
        ("kv_transfer", "batches", ",".join(map(str, range(1, 100))), "at most 16 values are allowed, got 99"),
        ("kv_transfer", "batches", "1e3", "must be a whole number"),
        ("kv_transfer", "threads", "65", "must be a whole number from 1 to 64"),
        ("kv_transfer", "depth", "-1", "must be a whole number"),
        ("kv_transfer", "metadata", "carrier-pigeon", "no choice named 'carrier-pigeon'"),
        ("kv_transfer", "etcd", "127.0.0.1:2379", "address must be"),
        ("kv_transfer", "etcd", "http://127.0.0.1:99999", "invalid address"),
        ("kv_transfer", "etcd", "file:///etc/passwd", "address must be"),
        ("kv_transfer", "etcd", "http://h:1/path", "an etcd address must have no path"),
        ("kv_transfer", "etcd", "http://h:1\n/x", "address must be"),
        ("kv_transfer", "etcd", "http://" + "a" * 300, "address must be"),
        ("kv_transfer", "etcd", "http://[::1", "invalid address"),
        ("kv_file", "s3", "http://h:1", "must be a bucket name of"),
        ("kv_file", "s3", "http://h:1/../../etc", "must be a bucket name of"),
        ("kv_file", "s3", "http://h:1/bu$(id)", "must be a bucket name of"),
        ("kv_file", "s3", "http://h:1/bucket?x=1", "address must be"),
        ("kv_file", "queue", "mmap", "no choice named 'mmap'"),
        ("kv_file", "sizes", "2G", "at most 1 GiB"),
        ("kv_file", "directory", "/nowhere/at/all", "must be a folder"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_with_its_name(benchmark, option, value, says):
    found = {one.BENCHMARK.name: one.BENCHMARK for one in (kv_transfer, kv_file)}[benchmark]
    with pytest.raises(UsageError) as caught:
        found.parse({option: value})
    assert caught.value.message.startswith(f"{benchmark} {option}: ")
    assert says in caught.value.message
    assert caught.value.hint
    assert len(caught.value.message) < 300


def test_a_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(UsageError) as caught:
        kv_transfer.BENCHMARK.parse({"etcd": "http://root:hunter2@127.0.0.1:2379"})
    assert "hunter2" not in str(caught.value)
    assert parse_service("https://store.example").url == "https://store.example:443"
    assert parse_service("http://[::1]:5/b").url == "http://[::1]:5"


def test_the_default_plan_is_nixlbench_s_and_large_blocks_are_timed_less_often():
    assert Point(operation="WRITE", size_bytes=4096).repeats() == (100, 1000)
    assert Point(operation="WRITE", size_bytes=MIB).repeats() == (100, 1000)
    assert Point(operation="READ", size_bytes=64 * MIB).repeats() == (6, 62)
    assert Point(operation="READ", size_bytes=1024 * MIB).repeats() == (1, 16)
    assert Point(operation="READ", size_bytes=MIB, batch=256).repeats() == (6, 62)
    assert Point(operation="READ", size_bytes=64 * MIB, batch=16, threads=64).repeats() == (1, 10)
    options = kv_transfer.BENCHMARK.parse({"sizes": "8:1G:x2", "batches": "1,256"})
    assert len(options.points()) == 2 * 2 * 28


def test_the_target_of_a_transfer_that_dies_takes_nothing_else_with_it(railwright):
    process = railwright.start(
        *("run", "kv_transfer", "-o", "sizes=64M", "-o", "threads=2", "-o", "metadata=socket", "--force")
    )
    railwright.wait_until(lambda: len(railwright.records()) > 1, "the metadata's result")
    victim = railwright.wait_until(lambda: railwright.rank(1), "rank 1")
    os.kill(victim.pid, signal.SIGKILL)
    railwright.finish(process)
    railwright.expect_nothing_left()
    assert railwright.results()[-1].outcome == "failed"
