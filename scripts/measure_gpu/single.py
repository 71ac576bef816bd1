"""What has no yardstick of another project: our own records of copies, NIXL, NCCL's choice, steps, files, sampling."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path

from measure_gpu.session import Session

from railwright.diagnosis.verdict import format_quantity
from railwright.results.model import Result
from railwright.results.store import load
from railwright.units import format_bandwidth, format_size

BASELINE = Path(__file__).resolve().parent.parent / "baselines" / "gpu_copy.cu"
SAMPLING_PAIRS = 5


def host(session: Session) -> list[str]:
    """The machine: a capture that can be given to `--from`, and NVIDIA's own words beside it."""
    session.run("topo", ["railwright", "topo"])
    session.run("topo-capture", ["railwright", "topo", "capture", "--redact", str(session.raw / "machine.jsonl")])
    session.run("nvidia-smi-topo", ["nvidia-smi", "topo", "-m"])
    session.run("audit", ["railwright", "audit"])
    return []


def rows(path: Path | None, *keys: str) -> list[str]:
    """Every measured point of a results file as a row: path, the parameters named, value, spread, what was seen."""
    if path is None:
        return ["nothing measured", ""]
    lines = [f"| path | {' | '.join(keys)} | median | lowest to highest | seen |", "|---|" + "---|" * (len(keys) + 3)]
    for result in load(path).results:
        named = [_shown(key, result) for key in keys]
        if result.summary is None:
            lines.append(f"| {result.path} | {' | '.join(named)} | {result.outcome} | | {result.reason[:120]} |")
            continue
        value, low, high = (
            format_quantity(result.quantity, one)
            for one in (result.summary.median, result.summary.minimum, result.summary.maximum)
        )
        seen = ", ".join(evidence.value for evidence in result.evidence)[:100]
        lines.append(f"| {result.path} | {' | '.join(named)} | {value} | {low} to {high} | {seen} |")
    return [*lines, ""]


def _shown(key: str, result: Result) -> str:
    value = result.parameters.get(key, "")
    return format_size(value) if key == "size_bytes" and isinstance(value, int) else str(value)


def copies(session: Session) -> list[str]:
    """Copies and latencies, and beside them a plain CUDA C++ program of the same method where nvcc is there."""
    path = session.railwright("gpu_copy-0", ["gpu_copy"], [])
    told = ["### Copies", "", *rows(path, "size_bytes", "engine", "host", "by", "direction")]
    told += [*_baseline(session, path)]
    latency = session.railwright("gpu_latency", ["gpu_latency"], [])
    return [*told, "### Latency", "", *rows(latency, "kind", "size_bytes", "clock")]


def _baseline(session: Session, first: Path | None) -> list[str]:
    nvcc = shutil.which("nvcc")
    if nvcc is None or first is None:
        return ["No nvcc: nothing to hold the copies against.", ""]
    program = session.raw / "gpu_copy_baseline"
    if session.run("nvcc", [nvcc, "-O3", "-arch=native", "-o", str(program), str(BASELINE), "-lcuda"]) is None:
        return ["The plain CUDA C++ program could not be built.", ""]
    theirs: dict[tuple[str, ...], list[float]] = {}
    ours: dict[tuple[str, ...], list[float]] = {}
    for number in range(session.rounds):
        text = session.run(f"gpu_copy_baseline-{number}", [str(program)])
        for line in (text or "").splitlines():
            if line.startswith("{"):
                one = json.loads(line)
                key = tuple(str(one.get(name, "")) for name in ("path", "engine", "by", "direction"))
                theirs.setdefault(key, []).append(float(one["bandwidth_bytes_per_s"]))
        path = session.railwright(f"gpu_copy-{number}", ["gpu_copy"], []) if number else first
        for result in load(path).results if path else ():
            if result.summary is not None and result.parameters.get("host", "pinned") == "pinned":
                named = (str(result.parameters.get(name, "")) for name in ("engine", "by", "direction"))
                ours.setdefault((result.path, *named), []).append(result.summary.median)
    program.unlink(missing_ok=True)
    lines = ["| path | engine | by | direction | CUDA C++ | ours | ours / CUDA C++ | itself |", "|" + "---|" * 8]
    for key in [key for key in theirs if key in ours]:
        one, other = statistics.median(theirs[key]), statistics.median(ours[key])
        itself = max(theirs[key]) / min(theirs[key]) - 1
        shown = f"{format_bandwidth(one)} | {format_bandwidth(other)} | {other / one:.4f} | {itself:.2%}"
        lines.append(f"| {' | '.join(key)} | {shown} |")
    return [*lines, ""]


def choice(session: Session) -> list[str]:
    """Every algorithm and protocol of all_reduce by size, and what NCCL's own choice costs against the best."""
    name = "nccl_all_reduce"
    options = {"sizes": "8:1G:x4", "placements": "out of place", "algorithms": "free,Ring,Tree"}
    options |= {"protocols": "free,LL,LL128,Simple"}
    path = session.railwright("choice", [name], [f"{name}.{key}={value}" for key, value in options.items()])
    if path is None:
        return ["nothing measured", ""]
    text = session.run("choice-judged", ["railwright", "judge", str(path)]) or ""
    start = text.find("Best by size")
    return ["### NCCL's choice", "", "```", text[start : start + 6000] if start >= 0 else "no table", "```", ""]


def nixl(session: Session) -> list[str]:
    """NIXL with GPU memory, as UCX chooses and with its pipeline for RMA on."""
    path = session.railwright("kv_vram", ["kv_vram"], ["kv_vram.ucx=default,pipeline"])
    return ["### NIXL", "", *rows(path, "size_bytes", "operation", "initiator", "processes", "ucx")]


def steps(session: Session) -> list[str]:
    """A training step, with torch where it is there and as a load of matrix products."""
    told = ["### train_step", ""]
    for compute in ("torch", "gemm"):
        options = {"compute": compute, "dtypes": "fp32,bf16", "compute-ms": "20"}
        chosen = [f"train_step.{key}={value}" for key, value in options.items()]
        path = session.railwright(f"train_step-{compute}", ["train_step"], chosen)
        told += [f"compute={compute}", "", *rows(path, "part", "dtype", "buckets", "overlap", "rate")]
    return told


def files(session: Session) -> list[str]:
    """Files to GPU memory by every way that this machine has."""
    told = []
    for name in ("gpu_file_read", "gpu_file_write"):
        path = session.railwright(name, [name], [])
        told += [f"### {name}", "", *rows(path, "size_bytes", "depth", "threads", "way")]
    return told


def sampling(session: Session) -> list[str]:
    """What the sampling of clocks and power costs: the same runs with and without it, in turn."""
    options = ["nccl_all_reduce.sizes=8,256M", "nccl_all_reduce.placements=out of place"]
    options += ["nccl_all_reduce.evidence=no"]
    ratios: dict[int, list[float]] = {}
    for number in range(SAMPLING_PAIRS):
        seen: dict[str, dict[int, float]] = {}
        for state in ("on", "off"):
            path = session.railwright(
                f"sampling-{state}-{number}", ["nccl_all_reduce"], options, RAILWRIGHT_GPU_SAMPLING=state
            )
            results = [one for one in (load(path).results if path else ()) if one.quantity == "latency_s"]
            seen[state] = {int(one.parameters["size_bytes"]): one.summary.median for one in results if one.summary}
        for size in seen["on"].keys() & seen["off"].keys():
            ratios.setdefault(size, []).append(seen["on"][size] / seen["off"][size])
    lines = ["### The cost of sampling", "", "| all_reduce of | time with / without | pairs |", "|---|---|---|"]
    for size, found in sorted(ratios.items()):
        told = f"{statistics.median(found):.4f} ({min(found):.4f} to {max(found):.4f})"
        lines.append(f"| {format_size(size)} | {told} | {len(found)} |")
    return [*lines, ""]
