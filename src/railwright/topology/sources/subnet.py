"""An InfiniBand subnet: cables from `ibnetdiscover`, and the switches' forwarding tables from `dump_fts` or `ibroute`.

Switch 16 "S-0000000000200003" # "leaf3" base port 0 lid 6 lmc 0 [1] "H-0000000000100018"[1](100019) # "host12" lid 19
4xSDR

Unicast lids [0x0-0x16] of switch DR path slid 0; dlid 0; 0,1,5,7 guid 0x0000000000200003 (leaf3): 0x0001 005 : (Channel
Adapter portguid 0x0000000000100001: 'host0')

Both tools belong to infiniband-diags; the speeds of a lane are those of InfiniBand Architecture Specification,
PortInfo.
"""

from __future__ import annotations

import re

from railwright.errors import UsageError
from railwright.topology.sources.ibnetdiscover import read_nodes
from railwright.topology.subnet import Node, Plug, Subnet, Wire

_LID = re.compile(r"# lid (\d{1,6}) lmc \d")
_RATE = re.compile(r"\s(\d{1,2})x(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b")
_LANE_BITS_PER_S = {"SDR": 2.5e9, "DDR": 5e9, "QDR": 10e9, "FDR10": 10.3125e9, "FDR": 14.0625e9, "EDR": 25.78125e9,
                    "HDR": 53.125e9, "NDR": 106.25e9, "XDR": 212.5e9}  # fmt: skip
_TABLE = re.compile(r"Unicast lids .{0,200}\bguid 0x([0-9a-f]{1,16})\b")
_ENTRY = re.compile(r"0x([0-9a-f]{1,4})\s+(\d{1,3})\s")
_DROPPED = 255
_MAX_ENTRIES = 50_000_000


def parse_subnet(cables: str, tables: str = "") -> Subnet:
    """Parse a subnet. Raises UsageError for other text, and for tables of other switches."""
    nodes, rows = read_nodes(cables)
    wires: dict[frozenset[Plug], Wire] = {}
    lids: dict[Plug, int] = {}
    for row in rows:
        ends = Plug(row.node, int(row.port)), Plug(row.peer, int(row.peer_port))
        rate = _RATE.search(row.rest)
        signalling = int(rate[1]) * _LANE_BITS_PER_S[rate[2]] if rate else None
        wires.setdefault(frozenset(ends), Wire(ends, signalling))
        if not nodes[row.node].is_switch and (lid := _LID.search(row.rest)):
            lids[ends[0]] = int(lid[1])
    if not any(node.is_switch for node in nodes.values()):
        raise UsageError("the file has no switch", hint="give the output of ibnetdiscover without options")
    known = tuple(wire for wire in wires.values() if all(end.guid in nodes for end in wire.ends))
    return Subnet(nodes, known, lids, _parse_tables(tables, nodes) if tables else {})


def _parse_tables(text: str, nodes: dict[str, Node]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    table: dict[int, int] = {}
    entries = 0
    for line in text.splitlines():
        if begun := _TABLE.match(line):
            table = found.setdefault(f"S-{int(begun[1], 16):016x}", {})
        elif entry := _ENTRY.match(line):
            entries += 1
            if int(entry[2]) != _DROPPED:
                table[int(entry[1], 16)] = int(entry[2])
        if entries > _MAX_ENTRIES:
            raise UsageError(
                f"the tables must have at most {_MAX_ENTRIES} entries", hint="give the tables of one subnet"
            )
    if not found:
        raise UsageError("the file has no forwarding table", hint="give the output of dump_fts (infiniband-diags)")
    lacking = [node.name for guid, node in nodes.items() if node.is_switch and guid not in found]
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        message = f"the file lacks the table of {lacking[0][:60]}{more}"
        raise UsageError(message, hint="take both from one subnet at one time: ibnetdiscover, then dump_fts")
    return found
