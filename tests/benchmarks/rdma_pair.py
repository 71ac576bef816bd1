"""Runs the ranks of an RDMA benchmark as threads of one process, over the stand-in for libibverbs.

Started by test_rdma.py and test_rdma_flows.py as a child whose loader finds the stand-in. It reads cases as JSON lines
and answers each.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

from tests.benchmarks.jobs import jobs_of

from railwright.benchmarks.rdma import flows, measurement
from railwright.benchmarks.registry import find
from railwright.benchmarks.wanted_flow import FlowRequest, FlowRounds
from railwright.errors import RailwrightError
from railwright.topology.changes import add_gpu_addresses
from railwright.topology.expand import expand

_GONE_S = 5.0


class Threads:
    """Stands in for MPI between threads."""

    def __init__(self, count: int = 2) -> None:
        self._gate = threading.Barrier(count, timeout=_GONE_S)
        self._given: list[Any] = [None] * count

    def abort(self) -> None:
        self._gate.abort()

    def of(self, index: int) -> SimpleNamespace:
        def allgather(value: Any) -> list[Any]:
            self._given[index] = value
            self._gate.wait()
            found = list(self._given)
            self._gate.wait()
            return found

        return SimpleNamespace(
            allgather=allgather,
            barrier=self._gate.wait,
            bcast=lambda value: allgather(value)[0],
            gather=lambda value: allgather(value) if index == 0 else (allgather(value), None)[1],
        )


def run(case: dict[str, Any], library: ctypes.CDLL) -> dict[str, Any]:
    """Run a case: `benchmark` and `options`."""
    benchmark = find(case["benchmark"])
    topology = add_gpu_addresses(expand("hgx-h100", {}))
    (job,) = jobs_of(benchmark, topology, given={"nics": "fake0:1", "sizes": "8", **case.get("options", {})})
    threads, results, errors = Threads(), [], ["", ""]

    def work(index: int) -> None:
        rank = SimpleNamespace(index=index, size=2, job=job, comm=threads.of(index), step=lambda _text: None)
        try:
            results.extend(benchmark.run(rank))
        except RailwrightError as error:
            errors[index] = error.message
            threads.abort()
        except threading.BrokenBarrierError:
            errors[index] = "the other side is gone"

    started = time.monotonic()
    both = [threading.Thread(target=work, args=(index,), daemon=True) for index in (0, 1)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(_GONE_S * 4)
    return {
        "hung": any(thread.is_alive() for thread in both),
        "seconds": time.monotonic() - started,
        "errors": errors,
        "results": [
            {
                "quantity": one.quantity,
                "outcome": one.outcome,
                "reason": one.reason,
                "parameters": one.parameters,
                "settings": one.settings,
                "checked": one.verification.bytes_checked if one.verification else 0,
                "wrong": one.verification.bytes_wrong if one.verification else 0,
                "samples": len(one.samples),
                "evidence": {seen.claim: seen.value for seen in one.evidence},
            }
            for one in results
        ],
        "fired": bool(library.standin_fired()),
        "regions": library.standin_regions(),
    }


def answer(case: dict[str, Any], library: ctypes.CDLL) -> dict[str, Any]:
    """Run a case of either kind with its `fault` and the variables `set`."""
    for name, value in {"STANDIN_VERBS_FAULT": case.get("fault", ""), **case.get("set", {})}.items():
        os.environ[name] = value
    library.standin_reset()
    done = run_flows(case, library) if "rounds" in case else run(case, library)
    for name in case.get("set", {}):
        del os.environ[name]
    return done


def run_flows(case: dict[str, Any], library: ctypes.CDLL) -> dict[str, Any]:
    """Run the rounds of a search between `ranks` ranks: `rounds` lists the flows of each as (source, destination).

    `addresses` has the address of each rank.
    """
    names = case["addresses"]

    def ask(number: int, source: int, destination: int) -> FlowRequest:
        ends = {"source_address": names[source], "destination_address": names[destination]}
        return FlowRequest(number=number, source=source, destination=destination, **ends)

    rounds = tuple(tuple(ask(number, *ends) for number, ends in enumerate(one)) for one in case["rounds"])
    job = SimpleNamespace(case=FlowRounds(rounds=rounds, stream_s=0.05))
    threads, errors = Threads(len(names)), [""] * len(names)
    results: list[Any] = []

    def work(index: int) -> None:
        comm = threads.of(index)
        rank = SimpleNamespace(index=index, size=len(names), job=job, comm=comm, step=lambda _: None, meet=comm.barrier)
        try:
            results.extend(flows.BENCHMARK.run(rank))
        except RailwrightError as error:
            errors[index] = error.message
            threads.abort()
        except threading.BrokenBarrierError:
            errors[index] = "the other side is gone"

    all_ranks = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(names))]
    for thread in all_ranks:
        thread.start()
    for thread in all_ranks:
        thread.join(_GONE_S * 4)
    told = [
        {
            "settings": one.settings,
            "rates": one.samples,
            "checked": one.verification.bytes_checked if one.verification else 0,
            "wrong": one.verification.bytes_wrong if one.verification else 0,
        }
        for one in results
    ]
    hung = any(thread.is_alive() for thread in all_ranks)
    return {"errors": errors, "hung": hung, "flows": told, "regions": library.standin_regions()}


def main() -> None:
    library = ctypes.CDLL("libibverbs.so.1")
    measurement.PATIENCE_S = flows._PATIENCE_S = 0.5
    measurement.SAMPLE_S, measurement.SAMPLES, measurement.PINGS_S = 0.001, 2, 0.001
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(answer(json.loads(line), library))}\n")


if __name__ == "__main__":
    main()
