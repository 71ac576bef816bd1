"""Measurements without a reference of another project: copies, NIXL, NCCL's choice, steps, files, prove."""

from __future__ import annotations

import itertools
import shutil
import sys
from pathlib import Path

from measure_gpu import udev_record
from measure_gpu.session import Session, first_gpus, only_gpus

from railwright.units import MIB

HOST_PATHS = Path(__file__).resolve().parents[2] / "host-paths"
BASELINE = HOST_PATHS / "baselines" / "gpu_copy.cu"
TRY_CUFILE = Path(__file__).resolve().parents[1] / "try-cufile"
_FEW = 4
"""The largest number of GPUs for which every kind of copy over every pair takes only a few minutes."""
_BASELINE_SIZE = (str(512 * MIB), "5")
"""The size of a copy in bytes, and the samples of a point, as in `gpu_copy`."""
_LONG_S = 560.0
"""The time limit of a run of many launches; results up to then are kept."""


def host(session: Session) -> None:
    """Capture the machine for `--from`, and keep the output of nvidia-smi."""
    session.run("topo", ["railwright", "topo"])
    session.run("topo-capture", ["railwright", "topo", "capture", "--redact", str(session.raw / "machine.jsonl")])
    session.run("nvidia-smi-topo", ["nvidia-smi", "topo", "-m"])
    session.run("audit", ["railwright", "audit"])


def copies(session: Session) -> None:
    """Measure copies over all pairs, from pageable memory and from each NUMA node, and latencies.

    The CUDA C++ program measures the same pairs for comparison. With more than four GPUs, only neighbours copy in every
    way; the other pairs copy in one way.
    """
    program = _baseline(session)
    pairs = "all" if session.gpus <= _FEW else "neighbours"
    for number in range(session.rounds):
        session.railwright(f"gpu_copy-{number}", ["gpu_copy"], [f"gpu_copy.pairs={pairs}"], _LONG_S)
        if program is None:
            break
        session.run(f"gpu_copy_baseline-{number}", [str(program), *_BASELINE_SIZE, pairs])
    if program is not None:
        program.unlink(missing_ok=True)
    every = ["host=pinned,pageable", "numa=each", "engines=ce", "directions=one", "paths=host"]
    session.railwright("gpu_copy_host", ["gpu_copy"], [f"gpu_copy.{text}" for text in every])
    session.railwright("gpu_latency", ["gpu_latency"], [])


def _baseline(session: Session) -> Path | None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        session.note("gpu_copy: no nvcc, so the copies have no reference")
        return None
    program = session.raw / "gpu_copy_baseline"
    build = [nvcc, "-O3", "-arch=native", "-o", str(program), str(BASELINE), "-lcuda"]
    return program if session.run("nvcc", build) is not None else None


def choice(session: Session) -> None:
    """Measure every algorithm and protocol of all_reduce by size, and NCCL's own choice."""
    name = "nccl_all_reduce"
    options = {"sizes": session.sizes, "placements": "out of place", "algorithms": "free,Ring,Tree"}
    options |= {"protocols": "free,LL,LL128,Simple"}
    for count in session.counts:
        chosen = [f"{name}.{key}={value}" for key, value in {**options, "gpus": str(count)}.items()]
        session.railwright(f"choice-{count}gpus", [name], chosen, _LONG_S, **first_gpus(count))


def nixl(session: Session) -> None:
    """Measure NIXL with GPU memory: every kind of transfer on the first two GPUs, GPU to GPU on all other pairs.

    Then measure it with other settings and kinds of memory than the default. With more than four GPUs, the other pairs
    only write, between processes, at the smallest and largest size, and the last part is left out.
    """
    few = session.gpus <= _FEW
    for one, other in list(itertools.combinations(range(session.gpus), 2)) or [(0, 0)]:
        options = ["links=gpu-gpu", "pairs=first"]
        if (one, other) in ((0, 1), (0, 0)):
            options = ["ucx=default,pipeline"] if few else []
        elif not few:
            options += ["processes=2", "operations=WRITE", "sizes=4K,256M"]
        shown = only_gpus(*dict.fromkeys((one, other)))
        session.railwright(f"kv_vram-{one}-{other}", ["kv_vram"], [f"kv_vram.{text}" for text in options], **shown)
    first = only_gpus(*range(min(2, session.gpus)))
    others = {
        "pageable": ["links=gpu-host,host-gpu", "host=pageable", "sizes=4K,1M,64M"],
        "no-peer-errors": ["processes=1", "ucx=no peer errors", "host=pinned,pageable", "peer-access=off,on"],
    }
    for name, options in others.items() if few else ():
        chosen = [f"kv_vram.{text}" for text in ("pairs=first", *options)]
        session.railwright(f"kv_vram-{name}", ["kv_vram"], chosen, **first)


def steps(session: Session) -> None:
    """Measure a training step, with torch if installed and with matrix products as load; most GPUs first.

    Finally measure a model given only by its number of parameters. A host of more than four GPUs has more numbers of
    GPUs to measure, and so runs fewer iterations.
    """
    few = {} if session.gpus <= _FEW else {"iterations": "25"}
    common = {"dtypes": "fp32,fp16,bf16", "compute-ms": "20", **few}
    for count in reversed(session.counts):
        for compute, buckets in (("torch", "25M,single"), ("gemm", "25M,tensor,single")):
            options = {"compute": compute, "buckets": buckets, **common}
            _step(session, f"train_step-{compute}-{count}gpus", count, options)
    for count in session.counts[-1:]:
        large = {"model": "1.5B", "dtypes": "bf16", "buckets": "25M,100M,single", "compute": "gemm"}
        _step(session, f"train_step-gemm-1.5B-{count}gpus", count, {**large, "compute-ms": "200", "iterations": "20"})


def _step(session: Session, name: str, count: int, options: dict[str, str]) -> None:
    chosen = [f"train_step.{key}={value}" for key, value in options.items()]
    session.railwright(name, ["train_step"], chosen, **first_gpus(count))


def files(session: Session) -> None:
    """Measure transfers between files and GPU memory by every way here, and test which files cuFile accepts.

    If udev's database lacks the records that cuFile needs, everything is repeated with them.
    """
    session.run("try-cufile", [sys.executable, str(TRY_CUFILE), "--logs", str(session.raw / "cufile")], _LONG_S)
    is_lacking = bool(udev_record.missing(Path("/proc/self/mountinfo").read_text()))
    runs = {"": (), "-udev": (sys.executable, udev_record.__file__)} if is_lacking else {"": ()}
    for end, within in runs.items():
        for name in ("gpu_file_read", "gpu_file_write"):
            session.railwright(f"{name}{end}", [name], [f"{name}.io-threads=1,4"], within=within)
        options = ["kv_file.backend=GDS,GDS_MT", "kv_file.memory=DRAM,VRAM"]
        session.railwright(f"kv_file{end}", ["kv_file"], options, within=within)


def prove(session: Session) -> None:
    """Run `railwright prove` with a launch of each benchmark, and keep its report."""
    folder = session.raw / f"prove-{session.free_number('prove')}"
    session.run(folder.name, ["railwright", "prove", "--launches", "1", "--output", str(folder), "--force"], _LONG_S)
