"""Two tiers: pure tests start no process and run anywhere, tests of the machine do what a machine is needed for.

A test marked `long` runs in `make test-long` alone: another test of each change covers nearly the same code.

Whatever uses a fixture that starts processes is of the machine; other tests say it by `pytest.mark.machine`. A pure
test that starts one after all fails, so that `make quick` stays what it says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

STARTING_FIXTURES = {"railwright", "driver_of_module", "mpirun", "mpiruns", "small_disk", "stand_ins"}
LONGEST = (
    *("launch/test_nccl_hosts.py", "launch/test_nixl_hosts.py", "packaging/test_wheels.py"),
    *("launch/slurm/test_slurm.py", "launch/test_eight_hosts.py", "locate/test_hosts_search.py"),
    *("net/test_net_check.py", "launch/test_hosts.py", "launch/test_faults.py", "benchmarks/test_kv_transfer.py"),
    *("benchmarks/test_mpi_collectives.py", "lab/test_faults.py", "benchmarks/test_benchmarks.py"),
    *("benchmarks/test_hpl.py", "benchmarks/test_nccl_hosts.py"),
    *("benchmarks/test_train_step.py", "lab/test_lab_up_down.py", "launch/test_netns_hosts.py"),
    *("benchmarks/test_kv_vram.py", "main/test_interruptions.py", "benchmarks/test_nccl_collectives.py"),
    *("benchmarks/test_kv_moves_nothing.py", "main/test_refusals.py", "lab/test_traffic.py"),
    *("benchmarks/test_kv_cache.py", "lab/test_faults_on_other_hosts.py", "benchmarks/test_gpu_file.py"),
)
"""Files of the machine tier: workers take these first, so that none is left with a long one at the end."""
STARTING_EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}

_pure = False


def _refuse_processes(event: str, arguments: tuple[object, ...]) -> None:
    if _pure and event in STARTING_EVENTS:
        raise RuntimeError(
            f"a pure test would start a process ({event} {arguments!r:.200}): mark it pytest.mark.machine"
        )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "machine: starts processes; needs root, namespaces, MPI or a browser")
    config.addinivalue_line("markers", "long: runs only in `make test-long`")
    sys.addaudithook(_refuse_processes)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.relative_to(Path(__file__).parent).as_posix(), len(place)))
    for item in items:
        if item.get_closest_marker("long") and not os.environ.get("RAILWRIGHT_TEST_LONG"):
            item.add_marker(pytest.mark.skip(reason="long: `make test-long` runs it"))
        if STARTING_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.machine)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Covers fixtures too: what a module's fixture starts is started for its pure tests."""
    global _pure
    _pure = item.get_closest_marker("machine") is None
    try:
        return (yield)
    finally:
        _pure = False
