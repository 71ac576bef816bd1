"""The RDMA ports that a rank of a search takes: named ones, or that of an address, never a guess."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from tests.benchmarks.test_rdma_plan import gid

from railwright.benchmarks.rdma import flows
from railwright.errors import CannotJudge
from railwright.native.library import NativeError
from railwright.native.verbs import Gid
from railwright.topology.near_nics import pair_ports

TWO = [gid(0, "v1", "fe80::1"), gid(1, "v2", "fe80::1"), gid(3, "v2", "::ffff:10.0.0.1"), gid(5, "v2", "fd00::1")]
OTHER = [gid(1, "v2", "fe80::2"), gid(3, "v2", "::ffff:10.0.9.1"), gid(4, "v2", "::ffff:10.1.9.1")]
IPV6 = [gid(0, "v2", "fe80::3"), gid(1, "v2", "fd00:9::3")]
INFINIBAND = [gid(0, "", "fe80::e41d")]
Devices = dict[str, list[tuple[bool, list[Gid]]]]


@pytest.fixture
def with_devices(monkeypatch: pytest.MonkeyPatch) -> Callable[[Devices], None]:
    """Gives this process RDMA devices: for each port if it is active, and its GIDs."""

    def give(devices: Devices) -> None:
        class Port:
            def __init__(self, device: str, number: int) -> None:
                if number > len(devices[device]):
                    raise NativeError(f"{device}:{number}", -22, "Invalid argument")
                active, self._gids = devices[device][number - 1]
                self.name, self.facts = f"{device}:{number}", SimpleNamespace(is_active=active)

            def __enter__(self) -> Port:
                return self

            def __exit__(self, *_error: object) -> None:
                pass

            def list_gids(self) -> list[Gid]:
                return self._gids

        monkeypatch.setattr(flows, "Port", Port)
        monkeypatch.setattr(flows, "list_devices", lambda: sorted(devices))

    return give


@pytest.mark.parametrize(
    ("devices", "address", "chosen"),
    [
        ({}, "node1:mlx5_0+mlx5_1/2", [("mlx5_0", 1), ("mlx5_1", 2)]),
        ({"a": [(True, TWO)], "b": [(True, OTHER)]}, "10.0.9.1", [("b", 1)]),
        ({"a": [(True, TWO), (True, OTHER)]}, "10.1.9.1", [("a", 2)]),
        ({"a": [(True, TWO)], "b": [(True, IPV6)]}, "fd00:9::3", [("b", 1)]),
        ({"a": [(True, TWO)], "b": [(True, IPV6)]}, "fe80::3", [("b", 1)]),
        ({"a": [(False, TWO)], "b": [(True, OTHER)]}, "10.0.9.1", [("b", 1)]),
        ({"a": [(False, TWO)], "b": [(True, OTHER)]}, "10.0.0.1", "a:1, which has the address 10.0.0.1, is not active"),
        ({"a": [(True, INFINIBAND)], "b": [(False, INFINIBAND)]}, "10.0.0.1", [("a", 1)]),
        ({"a": [(True, INFINIBAND)], "b": [(True, INFINIBAND)]}, "10.0.0.1", "several RDMA ports are active, and none"),
        ({"a": [(False, TWO)]}, "10.0.9.1", "no RDMA port is active: check with `rdma link`"),
        ({}, "10.0.9.1", "no RDMA port is active"),
    ],
)  # fmt: skip
def test_a_rank_takes_the_named_ports_or_that_of_its_address(with_devices, devices, address, chosen):
    with_devices(devices)
    if isinstance(chosen, str):
        with pytest.raises(CannotJudge, match=chosen):
            flows.choose_ports(address)
        return
    assert flows.choose_ports(address) == chosen


def test_ports_of_two_hosts_belong_together_by_name_or_else_in_order():
    assert pair_ports(["a:1", "b:1"], ["b:1", "a:1"]) == [(0, 1), (1, 0)]
    assert pair_ports(["a:1", "b:1"], ["b:1"]) == [(1, 0)]
    assert pair_ports(["a:1", "b:1"], ["c:1", "d:1", "e:1"]) == [(0, 0), (1, 1)]


def test_the_gids_of_a_flow_are_those_of_its_addresses():
    vlan = gid(7, "v2", "::ffff:10.7.0.1")
    assert flows._select([*TWO, vlan], vlan.raw) == [vlan]
    assert flows._select(TWO, b"") == TWO
    assert flows._select(TWO, vlan.raw) == TWO
