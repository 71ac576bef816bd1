"""Between which GPUs `kv_vram` measures: a launch for each pair, and what each of them is asked for.

A launch of its own, because UCX's log then speaks of no other pair, both processes are bound near their GPUs, and a
pair that hangs costs nothing of the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from msgspec import structs

from railwright.benchmarks.base import Job, Option, Variant, one_of
from railwright.topology.gpus import usable_gpus
from railwright.topology.model import Topology
from railwright.units import parse_sizes

GPU_TO_GPU = "gpu-gpu"

OPTION = Option(
    "pairs",
    "neighbours",
    "every way between the first two GPUs and no other, the plain ones from each GPU to the next as well, or all",
    one_of("first", "neighbours", "all"),
)
"""The words of `gpu_copy`, with less of each pair: here every point takes seconds."""


def over_pairs(settled: Mapping[str, str], topology: Topology, ways: tuple[Variant, ...]) -> tuple[Variant, ...]:
    """Every way over every pair, the first two GPUs first; one launch of each way where there are fewer GPUs."""
    names = [gpu.id for gpu in usable_gpus(topology)]
    if len(names) < 2:
        return ways
    first, *others = _pairs(settled, names)
    return (
        *(structs.replace(way, gpus=first) for way in ways),
        *(
            structs.replace(way, parameters={**way.parameters, "gpus": ",".join(pair)}, gpus=pair)
            for pair in others
            for way in ways
        ),
    )


def _pairs(settled: Mapping[str, str], names: list[str]) -> list[tuple[str, str]]:
    following = [(name, _next(names, name)) for name in names]
    if settled["pairs"] == "first":
        return following[:1]
    if settled["pairs"] == "neighbours" or GPU_TO_GPU not in settled["links"]:
        return following
    return list(itertools.permutations(names, 2))


def _next(names: list[str], name: str) -> str:
    return names[(names.index(name) + 1) % len(names)]


def asked(job: Job) -> Mapping[str, str]:
    """The job's options, less what is not measured between its GPUs.

    The first two GPUs, whose launch has no `gpus` among its parameters, have all. So have all pairs with `pairs=all`,
    but that each GPU and its host memory are measured once, with the next GPU's process. Otherwise it is what is
    written from process to process, at the least and the largest size.
    """
    options = job.options
    if "gpus" not in job.variant.parameters:
        return options
    if options["pairs"] == "all":
        one, other = job.variant.gpus
        is_next = _next([gpu.id for gpu in usable_gpus(job.topology)], one) == other
        return options if is_next else {**options, "links": GPU_TO_GPU}
    sizes = parse_sizes(options["sizes"])
    return {
        **options,
        "sizes": ",".join(str(size) for size in dict.fromkeys((min(sizes), max(sizes)))),
        "processes": "2" if "2" in options["processes"] else options["processes"],
        "operations": "WRITE" if "WRITE" in options["operations"] else options["operations"],
    }
