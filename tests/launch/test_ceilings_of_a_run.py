"""The ceilings that `run` adds to the named benchmarks, and their options."""

from __future__ import annotations

import pytest

from railwright.errors import UsageError
from railwright.workflows.measuring import add_ceilings, parse_benchmarks


def test_ceilings_come_before_what_they_are_for_and_between_hosts_only_those_that_span_them():
    assert add_ceilings(("mpi_latency",), between_hosts=False) == (
        "memory_copy", "core_latency", "tcp_stream", "mpi_latency",
    )  # fmt: skip
    assert add_ceilings(("mpi_latency",), between_hosts=True) == ("tcp_stream", "mpi_latency")
    assert add_ceilings(("kv_vram",), between_hosts=False) == ("gpu_latency", "kv_vram")
    assert add_ceilings(("core_latency", "mpi_latency"), between_hosts=True) == (
        "tcp_stream", "core_latency", "mpi_latency",
    )  # fmt: skip


def test_an_option_is_a_ceilings_only_where_that_must_be_measured_alike():
    names = add_ceilings(("kv_transfer",), between_hosts=False)
    chosen = {one.name: options for one, options in parse_benchmarks(names, ("sizes=4K",), frozenset(names[:-1]))}
    assert chosen["kv_transfer"].sizes == (4096,)
    assert len(chosen["memory_copy"].sizes) > 1
    names = add_ceilings(("mpi_latency",), between_hosts=False)
    alike = {one.name: options for one, options in parse_benchmarks(names, ("sizes=4K",), frozenset(names[:-1]))}
    assert alike["tcp_stream"].sizes == (4096,)
    with pytest.raises(UsageError, match=r"^mpi_latency sizes"):
        parse_benchmarks(names, ("sizes=quux",), frozenset(names[:-1]))
