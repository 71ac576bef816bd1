"""The route between a file and a GPU: decided by the best available evidence, or unknown with all reasons."""

from __future__ import annotations

import pytest

from railwright.benchmarks.gpu.file_route import route_evidence, wrong_route
from railwright.native.cufile import Properties
from railwright.native.cufile_watch import Observation, PathCounts
from railwright.results.records import Evidence

POSIX_ALONE = Properties("0.0", True, 1140)
NOTHING = Observation(
    write=False, operations=16, moved_bytes=1 << 20, counted=None, uncounted="this version of libcufile counts nothing",
    by_driver=None, called_bytes=None, properties=None, log="",
)  # fmt: skip


@pytest.mark.parametrize(
    ("counted", "value"),
    [
        (PathCounts(16, 0, 16, 0), "nvidia-fs"),
        (PathCounts(16, 16, 0, 0), "p2pdma"),
        (PathCounts(16, 0, 0, 16), "posix"),
        (PathCounts(16, 8, 0, 8), "mixed"),
        (PathCounts(16, 0, 0, 0, 16), "mixed"),
        (PathCounts(16, 0, 0, 0), "unknown"),
    ],
)
def test_the_route_is_the_one_that_all_operations_took(counted, value):
    assert route_evidence(NOTHING._replace(counted=counted)).value == value


def test_cufile_s_counters_come_before_all_others():
    look = NOTHING._replace(counted=PathCounts(16, 0, 0, 16), by_driver=16, log="compat mode enabled")
    assert route_evidence(look).seen == "cuFile counted 16 reads: 16 by posix"


def test_nvidia_fs_own_counter_tells_where_cufile_has_none():
    told = route_evidence(NOTHING._replace(by_driver=20, log="no native GDS"))
    assert (told.value, told.seen) == ("nvidia-fs", "nvidia-fs counted 20 reads of all processes during the pass")
    assert route_evidence(NOTHING._replace(by_driver=15)).value == "unknown", "not all of them"


def test_what_the_kernel_saw_tells_where_no_other_way_is_left():
    look = NOTHING._replace(properties=POSIX_ALONE, called_bytes=(1 << 20) + 96, write=True)
    told = route_evidence(look)
    assert told.value == "posix"
    assert told.seen == (
        "the kernel counted 1.0 MiB by write() for 1 MiB, and cuFile has neither nvidia-fs nor P2PDMA here"
    )
    others = (
        {"called_bytes": (1 << 20) - 1},
        {"properties": None},
        {"properties": POSIX_ALONE._replace(nvidia_fs="2.26")},
        {"properties": POSIX_ALONE._replace(p2pdma=True)},
    )
    assert {route_evidence(look._replace(**other)).value for other in others} == {"unknown"}


def test_an_unknown_route_names_every_reason():
    assert route_evidence(NOTHING).seen == (
        "this version of libcufile counts nothing; it wrote no log; "
        "the kernel does not count this process's reads and writes"
    )
    assert route_evidence(NOTHING._replace(log="INFO", called_bytes=512)).seen == (
        "this version of libcufile counts nothing; its log does not name the route; "
        "the kernel counted 512 B by read() for 1 MiB"
    )


@pytest.mark.parametrize(
    ("way", "route", "fits"),
    [
        ("gds", "nvidia-fs", True),
        ("gds", "p2pdma", True),
        ("gds", "posix", False),
        ("gds", "mixed", False),
        ("gds", "unknown", True),
        ("cufile compat", "posix", True),
        ("cufile compat", "nvidia-fs", False),
        ("cufile compat", "mixed", False),
    ],
)
def test_the_route_is_compared_with_the_requested_one(way, route, fits):
    evidence = Evidence(claim="route", value=route, seen="cuFile counted")
    assert (wrong_route(way, evidence) == "") is fits
