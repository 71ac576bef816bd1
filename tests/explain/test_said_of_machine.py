"""A table that names its link is compared with the machine's links."""

from __future__ import annotations

import pytest

from railwright.expected.machine import Machine
from railwright.explain.paste import read_paste
from railwright.topology.cluster import build_cluster
from railwright.topology.expand import expand

HEAD = "                    RDMA_Write BW Test\n Mtu             : {mtu}[B]\n Link type       : {kind}\n"
ROWS = (
    " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n"
    " 65536  5000        197.82          197.80             0.377276\n"
)


def said_of(mtu: int, kind: str, **changes: str) -> str:
    table = HEAD.format(mtu=mtu, kind=kind) + ROWS
    (one,) = read_paste(table, Machine(cluster=build_cluster(expand("hgx-h100", changes), 2))).tables
    return " ".join(one.contradictions)


@pytest.mark.parametrize(
    ("mtu", "kind", "changes", "said"),
    [
        (
            4096,
            "Ethernet",
            {"nic-protocol": "ib"},
            "the table ran over Ethernet, but the given machine's NICs are InfiniB",
        ),
        (
            4096,
            "IB",
            {"nic-protocol": "roce"},
            "the table ran over InfiniBand, but the given machine's NICs are Ethernet",
        ),
        (
            1024,
            "Ethernet",
            {"nic-protocol": "roce"},
            "the table ran with an MTU of 1024 bytes, but the given machine has 4096",
        ),
        (4096, "IB", {"nic-protocol": "ib"}, ""),
        (4096, "Ethernet", {"nic-protocol": "roce"}, ""),
    ],
)
def test_another_kind_of_link_is_said(mtu, kind, changes, said):
    found = said_of(mtu, kind, **changes)
    assert found.startswith(said) if said else not found
