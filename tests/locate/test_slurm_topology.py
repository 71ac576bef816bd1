"""The leaf of each host by Slurm's topology.conf."""

from __future__ import annotations

import pytest

from railwright.errors import UsageError
from railwright.locate.slurm_topology import parse_topology

FILE = """
# two leaves below two spines
SwitchName=leaf0 Nodes=gpu[001-003],login
switchname=leaf1 nodes=gpu004 LinkSpeed=400   # a comment
SwitchName=spine0 \\
  Switches=leaf[0-1]
SwitchName=top Switches=spine0
"""


def test_hosts_have_leaves_and_switches_above_are_told_apart():
    found = parse_topology(FILE)
    assert found.leaf_of == {
        "gpu001": "leaf0", "gpu002": "leaf0", "gpu003": "leaf0", "login": "leaf0", "gpu004": "leaf1",
    }  # fmt: skip
    assert found.above == ("spine0", "top")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no switch with hosts"),
        ("SwitchName=spine Switches=leaf[0-1]", "no switch with hosts"),
        ("BlockName=b0 Nodes=n[0-17]", "line 1: 'BlockName=b0': blocks have no switches"),
        ("SwitchName=leaf0 Nodes=n[0-", "line 1: Nodes must be a list of hosts"),
        ("SwitchName=leaf0 Nodes=n[0-99999999]", "line 1: Nodes must be a list of hosts"),
        ("Nodes=n[0-3]", "line 1: SwitchName must be letters"),
        ("SwitchName=leaf;0 Nodes=n0", "line 1: SwitchName must be letters"),
        ("SwitchName=a Nodes=n0\nSwitchName=b Nodes=n[0-1]", "line 2: n0 is below a and b"),
        ("<html><body>", "line 1: '<html><body>': not an option of topology.conf"),
        ("\x00\x01\x02", "not an option of topology.conf"),
    ],
)
def test_another_file_is_refused_with_its_line(text, said):
    with pytest.raises(UsageError, match=said.replace("[", r"\[").replace("(", r"\(")):
        parse_topology(text)
