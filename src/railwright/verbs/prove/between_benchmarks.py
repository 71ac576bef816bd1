"""The benchmarks that `prove --hosts` runs between hosts, with their options."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from railwright.benchmarks.benchmark import AnyBenchmark
from railwright.benchmarks.nccl.subgroups import ALL, GROWING, RAILS
from railwright.benchmarks.options import Options
from railwright.benchmarks.registry import DECLARATIONS, EVERY
from railwright.results.declarations import find_benchmarks
from railwright.results.workload import Collective
from railwright.workflows.measuring import parse_benchmarks

OF_RAILS, _NCCL_SIZES = "nccl_all_reduce", "8,1M,1G"
OF_KV = {"kv_vram": "kv_vram.sizes=4K,16M", "kv_cache": "kv_cache.tokens=1024"}
"""NIXL's benchmarks between two hosts, with an option that keeps each pair of hosts short."""
OF_RDMA = ("rdma_write", "rdma_read", "rdma_send")
_RDMA_DEFAULTS = ("sizes=8,1M", "nics=each,together")
"""Every near port alone, and all of them together."""


def find_collectives(*by: Literal["mpi", "nccl"]) -> tuple[AnyBenchmark, ...]:
    """Return the collectives that span hosts: by MPI, which run on any host, and by NCCL, which need GPUs."""
    named = {name for one in by or ("mpi", "nccl") for name in find_benchmarks(Collective, DECLARATIONS, by=one)}
    return tuple(benchmark for benchmark in EVERY if benchmark.spans_hosts and benchmark.name in named)


def split_options(given: Sequence[str], screened: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the options into those for the benchmarks that screen each host, and those for runs between hosts.

    An option of NIXL's and RDMA's benchmarks applies to both, if they screen the hosts.
    """
    together = {benchmark.name for benchmark in find_collectives()}
    owners = {text: text.partition("=")[0].rpartition(".")[0] for text in given}
    paired = {*OF_KV, *OF_RDMA}
    apart = together | (paired - set(screened))
    for_hosts = tuple(text for text in given if owners[text] not in apart)
    return for_hosts, tuple(text for text in given if owners[text] in together | paired)


def parse_between(
    only: Sequence[str], options: tuple[str, ...], parts: Collection[str]
) -> list[tuple[AnyBenchmark, Options]]:
    """Parse the options of the benchmarks in `only`, or of all if it is empty, for the parts. Raises UsageError."""
    among = [word for part, word in (("collectives", f"{ALL},{GROWING}"), ("rails", RAILS)) if part in parts]
    every = find_collectives() if "collectives" in parts else find_collectives("nccl") if "rails" in parts else ()
    names = [one.name for one in every if not only or one.name in only]
    if "collectives" not in parts:
        names = [name for name in names if name == OF_RAILS]
    defaults = [f"{name}.sizes={_NCCL_SIZES}" for name in names if name.startswith("nccl_")]
    defaults += [f"{OF_RAILS}.among={','.join(among)}"] * (OF_RAILS in names)
    if "kv" in parts:
        moved = [name for name in OF_KV if not only or name in only]
        names, defaults = [*names, *moved], [*defaults, *(OF_KV[name] for name in moved)]
    if "rdma" in parts:
        sent = [name for name in OF_RDMA if not only or name in only]
        names, defaults = [*names, *sent], [*defaults, *(f"{name}.{text}" for name in sent for text in _RDMA_DEFAULTS)]
    kept = tuple(text for text in options if text.partition("=")[0].rpartition(".")[0] in names)
    return parse_benchmarks(tuple(names), (*defaults, *kept))
