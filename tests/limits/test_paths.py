"""The limit of a path is its narrowest link."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from railwright.errors import CannotJudge, UsageError
from railwright.expected.collective_rows import collective_row
from railwright.expected.machine import Machine
from railwright.expected.path_rows import PathLimit, list_host_rows, list_network_rows
from railwright.limits.limit import Limit, NoLimit
from railwright.topology.cluster import Cluster, build_cluster
from railwright.topology.devices import (
    Device,
    InternalLink,
    Link,
    MemoryLink,
    NvlinkLink,
    PcieLink,
    SmpLink,
    Topology,
    Unknown,
)
from railwright.topology.expand import expand
from railwright.topology.routes import list_main_paths

GEN5 = PcieLink(gt_per_s=32.0, width=16, max_payload_bytes=256)
GEN4_X8 = PcieLink(gt_per_s=16.0, width=8, max_payload_bytes=256)


def two_sockets(*, gpu_link: PcieLink = GEN5, nic_link: PcieLink = GEN5, between: str = "smp") -> Topology:
    kinds = {"cpu0": "cpu", "cpu1": "cpu", "memory0": "memory", "memory1": "memory", "gpu0": "gpu", "nic0": "nic"}
    return Topology(
        name="two sockets",
        source="shape",
        devices=tuple(Device(id=name, kind=kind) for name, kind in kinds.items()),  # type: ignore[arg-type]
        links=(
            Link(a="cpu0", b="memory0", protocol=MemoryLink(channels=8, transfers_per_s=4800e6, bus_bytes=8)),
            Link(a="cpu1", b="memory1", protocol=MemoryLink()),
            Link(a="cpu0", b="gpu0", protocol=gpu_link),
            Link(a="cpu1", b="nic0", protocol=nic_link),
            Link(a="cpu0", b="cpu1", protocol=SmpLink(name="UPI") if between == "smp" else InternalLink(name=between)),
        ),
    )


def rows(host: Topology, paths: Iterable[str]) -> tuple[PathLimit, ...]:
    return list_host_rows(Machine(cluster=build_cluster(host, 1)), paths)


def apart(cluster: Cluster, path: str) -> tuple[PathLimit, ...]:
    return list_network_rows(Machine(cluster=cluster), path)


def test_the_narrowest_link_is_named() -> None:
    (row,) = rows(two_sockets(gpu_link=GEN4_X8), ["gpu0>memory0"])
    assert isinstance(row.limit, Limit)
    assert row.limit.bottleneck == "cpu0--gpu0"
    assert "PCIe 4.0 x8" in row.limit.because
    assert row.kind == "PHB"
    assert row.expected is not None


def test_a_link_between_sockets_may_be_narrower_so_nothing_is_expected() -> None:
    (row,) = rows(two_sockets(), ["gpu0>nic0"])
    assert row.kind == "SYS"
    assert isinstance(row.limit, Limit)
    assert row.expected is None


def test_a_path_of_links_without_limits_has_none() -> None:
    (row,) = rows(two_sockets(), ["cpu1>memory1"])
    assert isinstance(row.limit, NoLimit)
    assert "memory channels are unknown" in row.limit.why


@pytest.mark.parametrize("path", ["gpu0", "gpu0>", "gpu0>gpu9", ">nic0", "gpu0-nic0"])
def test_invalid_paths_are_refused(path: str) -> None:
    with pytest.raises(UsageError) as error:
        rows(two_sockets(), [path])
    assert error.value.hint


def test_every_path_that_matters_of_a_shape_has_a_limit() -> None:
    topology = expand("hgx-h100", {})
    found = rows(topology, list_main_paths(topology))
    assert len(found) > 30
    assert {row.path for row in found if isinstance(row.limit, NoLimit)} == set()
    by_path = {row.path: row for row in found}
    assert by_path["gpu0>gpu1"].kind == "NVL"
    assert by_path["gpu0>nic0"].kind == "PIX"


def nvlink_unknown(topology: Topology, *of: str) -> Topology:
    links = tuple(link for link in topology.links if not isinstance(link.protocol, NvlinkLink))
    return replace(
        topology, links=links, unknown=tuple(Unknown(what=f"NVLink of {gpus}", why="no NVML") for gpus in of)
    )


@pytest.mark.parametrize(
    ("of", "missing"),
    [
        (("gpu0, gpu1",), ("gpu0", "gpu1")),
        (("gpu0", "gpu1"), ("gpu0", "gpu1")),
        (("gpu1",), ("gpu1",)),
        (("gpu2, gpu3, gpu4 and 5 more",), ("gpu0", "gpu1")),  # of such a list only the first ones are named
    ],
)
def test_gpus_with_unknown_nvlinks_have_no_limit_over_pcie(of: tuple[str, ...], missing: tuple[str, ...]) -> None:
    machine = nvlink_unknown(expand("hgx-h100", {}), *of)
    (row,) = rows(machine, ["gpu0>gpu1"])
    assert isinstance(row.limit, NoLimit)
    assert row.limit.why == "whether NVLink joins gpu0 and gpu1 is not known"
    assert row.limit.missing == tuple(f"{gpu}: NVLink" for gpu in missing)
    assert row.expected is None
    (same, *_) = apart(build_cluster(machine, 2), "gpu0@1:gpu1@1")
    assert same.limit == row.limit


def test_paths_that_nvlink_cannot_change_keep_their_limit() -> None:
    machine = nvlink_unknown(expand("hgx-h100", {}), "gpu2, gpu3")
    paths = rows(machine, ["gpu0>gpu1", "gpu2>memory0", "gpu2>nic2"])
    assert all(isinstance(row.limit, Limit) for row in paths)
    assert isinstance(apart(build_cluster(machine, 2), "gpu2:gpu2@1")[0].limit, Limit)
    (joined,) = rows(replace(machine, links=expand("hgx-h100", {}).links), ["gpu2>gpu3"])
    assert isinstance(joined.limit, Limit), "the links are there, whatever the list says"


def test_a_collective_of_gpus_that_nvlink_may_join_cannot_be_judged() -> None:
    machine = nvlink_unknown(expand("hgx-h100", {}), "gpu0, gpu1, gpu2 and 5 more")
    for hosts in (1, 2):
        with pytest.raises(CannotJudge, match="whether NVLink joins gpu0, gpu1") as error:
            collective_row(build_cluster(machine, hosts), "all_reduce")
        assert error.value.hint
    alone = replace(expand("hgx-h100", {"gpus": "1"}), unknown=(Unknown(what="NVLink of gpu0", why="no NVML"),))
    assert collective_row(build_cluster(alone, 2), "all_reduce").busbw_bytes_per_s.limit > 0
