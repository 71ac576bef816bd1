"""Mutated bytes of every kind of file that a user can give are read, or refused with one clear error, within bounds.

`make quick` tries a few hundred files, `make test-long` 100,000. A file may take 10 s of a CPU, a part 500 MB.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import resource
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType

import msgspec
import pytest
from tests.report import sample

from railwright.benchmarks.kv.geometry import parse_config
from railwright.benchmarks.linpack import hpl_dat
from railwright.benchmarks.registry import DECLARATIONS
from railwright.checks.cufile_settings import decode_properties
from railwright.checks.known_bad import decode_known_bad
from railwright.diagnosis.localise.fabric import Fabric
from railwright.diagnosis.localise.fat_tree import parse_fat_tree
from railwright.diagnosis.localise.prescribed import fabric_of_subnet
from railwright.diagnosis.localise.schedule import Screen
from railwright.diagnosis.runs.diagnose import diagnose
from railwright.errors import RailwrightError
from railwright.expected.machine import Machine
from railwright.explain.paste import read_paste
from railwright.lab.plan import PlanOptions, plan
from railwright.lab.state import Lab
from railwright.locate.journal import Journal
from railwright.locate.slurm_topology import parse_topology
from railwright.native.sampler import Row
from railwright.net.runtime import parse_record
from railwright.options.hosts import _read_hosts
from railwright.report.formats.shape_toml import render_shape
from railwright.report.text.explain import render_explained
from railwright.report.text.nccl import render_nccl_log
from railwright.results.given_file import decode_text, read
from railwright.results.readers.pasted.long_text import read_long
from railwright.results.store import Writer, load
from railwright.sampling.recording import Recording, new_about, read_recording
from railwright.sampling.sources import Source
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand
from railwright.topology.plan import apply_changes
from railwright.topology.sources.cables import read_cabling, read_subnet
from railwright.topology.sources.cluster_file import load_cluster
from railwright.topology.sources.load import name_shape
from railwright.topology.sources.look import load_path
from railwright.topology.sources.saved import encode_topology
from railwright.topology.sources.shape_file import expand_file
from railwright.verbs.prove.kept import read_kept
from railwright.verbs.simulate import _load_truth
from railwright.verbs.whatif import _load_prices
from railwright.watch.seen import Run, analyse
from railwright.workflows.acceptance import load_spec
from railwright.workflows.requirements import load_requirements

ROOT = Path(__file__).parents[2]
LONG = bool(os.environ.get("RAILWRIGHT_TEST_LONG"))
PARTS = 20 if LONG else 2
FILES = 100_000 // PARTS if LONG else 150
MOST_S, MOST_BYTES = 10, 500 * 2**20
WORDS = (
    *(b"0x" + b"f" * 5000, b"inf", b"1e308", b"-1e308", b"1" + b"0" * 400, b"9" * 5000, b"NaN", b"Infinity"),
    *(b"-1", b"0", b"18446744073709551616"),
    *(b"[" * 3000, b'{"a":' * 3000, b"a." * 3000 + b"a=1", b"null", b'"', b"'''", b"=", b"]", b"\\ud800", b"%s"),
    *(b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"\r", b"\x1b[2J", b"\xe2\x80\xae", b" " * 4000, b"\n" * 500),
)
SHAPES = ("hgx-h100", "gh200", "pcie-8gpu")
CONFIG = b"""{"model_type": "llama", "head_dim": 128, "num_attention_heads": 32, "num_hidden_layers": 32,
 "num_key_value_heads": 8, "torch_dtype": "bfloat16", "rope_scaling": {"factor": 8.0}}"""
JOURNAL = b"""{"question":"%s"}
{"asked":"b","found":{"rounds":[]}}
""" % hashlib.sha256(b'"a"').hexdigest().encode()
ATTACHMENT = b"""{"ifName":"net1","networkName":"rail0","netns":"/run/netns/a","config":"eyJ0eXBlIjoib3ZzIn0=",
"cniArgs":[["K8S_POD_NAME","b"]],"result":{"interfaces":[{"name":"net1","sandbox":"/a"}],
"ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"}],"routes":[{"dst":"10.0.0.0/8"}]}}"""
XML = b"""<system version="1"><cpu numaid="0" arch="x86_64"><pci busid="0000:01:00.0" class="0x030200"
 link_speed="16 GT/s" link_width="16"><gpu dev="0" sm="90" rank="0"/></pci></cpu></system>"""


def read_journal(path: Path) -> None:
    with Journal(path, "a"):
        pass


def explain_text(path: Path) -> None:
    raw = read(str(path))
    text = decode_text(raw, str(path)) if isinstance(raw, bytes) else read_long([(str(path), raw)])
    found = read_paste(text, None)
    for table in found.tables:
        render_explained(table)
    if found.log is not None:
        render_nccl_log(found.log, found.findings, None)


def read_fabric(path: Path) -> None:
    fabric = fabric_of_subnet(read_subnet(path, None))
    Screen(fabric, random.Random(1)).build_round()


READERS: dict[str, Callable[[Path], object]] = {
    "results.jsonl": lambda path: diagnose(load(path), DECLARATIONS),
    "saved.json": load_path,
    "capture.jsonl": load_path,
    "topology.xml": load_path,
    "matrix.txt": load_path,
    "cluster.toml": load_cluster,
    "cluster.json": lambda path: read_kept(path.parent),
    "known-bad.toml": lambda path: decode_known_bad(path.read_bytes(), "it"),
    "prices.toml": lambda path: _load_prices(str(path)),
    "acceptance.toml": lambda path: load_spec(str(path)),
    "hosts.txt": lambda path: _read_hosts(str(path)),
    "paths.txt": lambda path: load_requirements((str(path),)),
    "ibnetdiscover.txt": read_fabric,
    "host0.json": lambda path: read_cabling(path.parent),
    "topology.conf": lambda path: parse_topology(path.read_text("utf-8", "replace")),
    "cufile.json": lambda path: decode_properties(path.read_bytes()),
    "machine.toml": lambda path: build_cluster(expand_file(path, {}), 2),
    "config.json": lambda path: parse_config(path.read_bytes()),
    "faults.json": lambda path: _load_truth(fat_tree(), str(path)),
    "journal.jsonl": read_journal,
    "attachment.json": lambda path: parse_record(path.read_bytes(), "it"),
    "plan.json": lambda path: Lab("a", path.parent).plan,
    "HPL.dat": lambda path: hpl_dat.read(path.read_text("utf-8", "replace")),
    "watched.arrows": lambda path: analyse(read_recording(path), Run()),
    "tool.txt": explain_text,
}


@cache
def fat_tree() -> Fabric:
    return parse_fat_tree(["hosts=16", "gpus=2"])


@cache
def seeds() -> dict[str, list[bytes]]:
    """Return valid files of each kind."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = Writer(folder, sample.run())
        for record in (*sample.results()[:12], sample.end()):
            writer.append(record)
        writer.close()
        sources = [Source(name="cpu.user", kind="processor", unit="s", scale=0.01, path="/proc/stat", key="cpu")]
        with Recording(new_about(sources, {}, "this machine", 0.01, ["a"]), folder / "a.arrows") as recording:
            recording.add([Row(0.01 * at, [at % 50]) for at in range(300)])
        made = {file: (folder / file).read_bytes() for file in ("results.jsonl", "a.arrows")}
    external = ROOT / "testdata/external"
    tools = sorted(file for file in external.rglob("*.*") if file.suffix in (".txt", ".log", ".json"))
    pastes = sorted((ROOT / "testdata/explain/pastes").rglob("*.txt"))
    examples = ROOT / "examples"
    return {
        "results.jsonl": [made["results.jsonl"]],
        "saved.json": [encode_topology(expand("pcie-8gpu", {}))],
        "capture.jsonl": [next((ROOT / "testdata/hosts").rglob("machine.jsonl")).read_bytes()],
        "topology.xml": [XML],
        "matrix.txt": [b"\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV18\tPIX\nGPU1\tNV18\t X \tSYS\nNIC0\tPIX\tSYS\t X \n"],
        "cluster.toml": [file.read_bytes() for file in sorted((examples / "clusters").glob("*.toml"))],
        "cluster.json": [b'{"record":"cluster_proof","hosts":{"a":"","b":"lost"},"launches":2}'],
        "known-bad.toml": [(examples / "known-bad.toml").read_bytes()],
        "prices.toml": [(examples / "prices.toml").read_bytes()],
        "acceptance.toml": [(examples / "acceptance.toml").read_bytes()],
        "hosts.txt": [b"node[01-64] slots=8\nnode65 # spare\n"],
        "paths.txt": [b"memory_copy\nmpi_latency memory0>memory0\n"],
        "ibnetdiscover.txt": [file.read_bytes() for file in sorted(external.glob("ibnetdiscover/*"))]
        + [file.read_bytes() for file in sorted(external.glob("subnet/*")) if b"Switch" in file.read_bytes()[:4000]],
        "host0.json": [(ROOT / "testdata/lldpctl/host0.json").read_bytes()],
        "topology.conf": [b"SwitchName=s0 Nodes=n[0-7]\nSwitchName=s1 Nodes=n[8-15]\nSwitchName=t Switches=s[0-1]\n"],
        "cufile.json": [b'{// a comment\n"properties": {"rdma_dev_addr_list": ["10.0.0.1"]}}'],
        "machine.toml": [render_shape(apply_changes(*name_shape(name))).encode() for name in SHAPES],
        "config.json": [CONFIG],
        "faults.json": [b'[{"kind": "host", "id": "host3", "capacity": 0.5}]'],
        "journal.jsonl": [JOURNAL],
        "attachment.json": [ATTACHMENT],
        "plan.json": [msgspec.json.encode(plan(build_cluster(expand("gh200", {}), 2), PlanOptions()))],
        "HPL.dat": [hpl_dat.write(hpl_dat.HplDat((1000,), (64,), (hpl_dat.Grid(1, 2),))).encode()],
        "watched.arrows": [made["a.arrows"]],
        "tool.txt": [file.read_bytes()[:40_000] for file in (*tools, *pastes)],
    }  # fmt: skip


def mutate(raw: bytes, chance: random.Random) -> bytes:
    """Change bytes of the file: flip, insert, replace a number or word, cut, repeat, or exchange parts."""
    text = bytearray(raw)
    for _ in range(chance.randint(1, 5)):
        size = max(1, len(text))
        at, other = chance.randrange(size), chance.randrange(size)
        first, last = min(at, other), min(max(at, other), min(at, other) + 400)
        match chance.randrange(8):
            case 0:
                text[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                text[at:at] = chance.choice(WORDS)
            case 2:
                text[first:last] = chance.choice(WORDS)
            case 3:
                end = at
                while end < len(text) and text[end : end + 1].isalnum():
                    end += 1
                text[at:end] = chance.choice(WORDS)
            case 4:
                del text[at:]
            case 5:
                text[at:at] = text[first:last] * chance.choice((1, 2, 50))
            case 6:
                del text[first:last]
            case _:
                text[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 16)))
    return bytes(text)


@contextlib.contextmanager
def within(seconds: int, name: str) -> Iterator[None]:
    """Limit the time on a CPU, and ten times as much on the clock: other tests run beside this one."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"{name} takes longer than {seconds} s")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, 10 * seconds)}
    before = {number: signal.signal(number, late) for number in timers}
    for timer, limit_s in timers.values():
        signal.setitimer(timer, limit_s)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_bytes_are_read_or_refused(part, tmp_path):
    kinds = sorted(READERS)
    assert kinds == sorted(seeds())
    assert all(seeds().values())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for seed in range(part * FILES, (part + 1) * FILES):
        chance = random.Random(seed)
        kind = kinds[seed % len(kinds)]
        folder = tmp_path / kind.partition(".")[0]
        folder.mkdir(exist_ok=True)
        path = folder / kind
        path.write_bytes(mutate(chance.choice(seeds()[kind]), chance))
        try:
            with within(MOST_S, f"seed {seed} ({kind})"):
                READERS[kind](path)
        except RailwrightError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed} ({kind}): {path.read_bytes()[:2000]!r}") from error
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    assert grown < MOST_BYTES, f"the files of part {part} take {grown / 2**20:.0f} MiB"


@pytest.mark.parametrize("kind", READERS)
def test_the_valid_files_are_read(kind, tmp_path):
    for raw in seeds()[kind][:3]:
        path = tmp_path / kind
        path.write_bytes(raw)
        READERS[kind](path)


def test_no_part_of_a_recording_that_is_missing_ends_the_process(tmp_path):
    """nanoarrow crashes at a null in a message: each byte of the metadata is one here."""
    (raw,) = seeds()["watched.arrows"]
    path = tmp_path / "a.arrows"
    for at in range(1000):
        path.write_bytes(raw[:at] + b"\0" + raw[at + 1 :])
        with contextlib.suppress(RailwrightError):
            read_recording(path)


ONE, HEAD = "node0:1:1 [0] NCCL INFO ", "node{at}:{at}:{at} [0] NCCL INFO "
RANK = HEAD + "comm 0x1 rank {at} nranks 1000000 cudaDev 0 busId 1000 - Init START"
DIFFERING = {
    "warnings": ["node{at}:1:1 [0] net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer {at}<9> with status=12"],
    "settings": [HEAD + "NCCL_X{at} set by environment to {at}."],
    "ranks": [RANK, "node{at}:{at}:{at} [0] a.cc:295 NCCL WARN unknown {at}"],
    "NICs": [RANK, HEAD + "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
             HEAD + "Channel 00/0 : {at}[0] -> 1[1] [send] via NET/IB/0/GDRDMA"],
    "rings": [HEAD + "Channel 00/02 : 0 1", HEAD + "Channel 00/0 : {at}[0] -> 1[1] [send] via NET/IB/0"],
    "a circle": [ONE + "comm 0x1 rank 0 nranks 1000000 cudaDev 0 busId 1000 - Init START",
                 ONE + "Ring {channel} : 0 -> 1 -> 2", ONE + "Ring {channel} : 1 -> 2 -> 3",
                 ONE + "Ring {channel} : 2 -> 3 -> 2", ONE + "Ring {channel} : 1 -> 0 -> 1"],
}  # fmt: skip


@pytest.mark.parametrize("kind", DIFFERING)
def test_a_log_whose_lines_all_differ_is_read_in_bounds(kind, tmp_path):
    """20,000 of them: what compares each part with each other takes minutes."""
    lines = DIFFERING[kind]
    numbered = ((at, line) for at in range(20_000 // len(lines)) for line in lines)
    path = tmp_path / "nccl.log"
    path.write_text("\n".join(line.format(at=at, channel=at % 1000) for at, line in numbered))
    machine = Machine(cluster=build_cluster(expand("hgx-h100", {}), 2))
    with within(MOST_S, kind):
        found = read_paste(read_long([("it", [path.read_bytes()])]), machine)
        assert found.log is not None
        page = render_nccl_log(found.log, found.findings, machine.cluster.host)
    assert page.count("\n") < 1000
