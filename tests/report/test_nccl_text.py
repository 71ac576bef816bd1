"""The page and the picture of NCCL's log: rings, connections and choices are visible, and a hostile log is harmless."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from railwright.diagnosis.nccl.contradictions import contradictions
from railwright.report.pictures.nccl import draw
from railwright.report.text.nccl import channel_words, render_nccl_log
from railwright.results.readers.nccl_log import log as nccl_log
from railwright.topology.expand import expand

LOGS = Path(__file__).parents[2] / "testdata" / "external" / "nccl-log"
NAMES = sorted(path.name for path in LOGS.glob("*.log"))
P4D = expand("aws-p4d", {})


def recorded(name: str) -> nccl_log.NcclLog:
    return nccl_log.read((LOGS / name).read_text(encoding="utf-8"))


def page(log: nccl_log.NcclLog, topology=None) -> str:
    return render_nccl_log(log, contradictions(log, topology), topology)


def test_one_line_per_different_ring_with_how_often_it_is_there():
    text = page(recorded("2.28.3-nvlink-2xh200.log"))
    assert "ring        x24  0 1   (channels 0-23)" in text
    assert text.count("\n  ring ") == 1
    assert "version     2.28.3 (CUDA 13.0), driver for CUDA 13.0" in text
    assert "2 ranks on 1 host" in text
    assert "AllReduce   1 MiB                 Ring LL, 24 channels  x45" in text


def test_host_changes_pxn_and_gpudirect_are_seen_at_a_glance():
    text = page(recorded("2.23.4-ib-pxn-4x2a100.log"))
    assert "x3   0 1 | 2 3 | 4 5 | 6 7   (channels 0-2)" in text
    assert "3 → 4: IBext_v8 nic5 by rank 2 → nic0, GPUDirect RDMA send and receive" in text
    assert "PXN         11 sends through the NIC of another rank: 2, 4, 6" in text
    assert "Could not look" in text


def test_hosts_of_ranks_that_are_not_in_the_log_are_not_counted_as_if_they_were():
    assert "2 ranks on at least 1 host, 1 of them in the log" in page(recorded("2.16.5-ib-gdr-over-cpu.log"))


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_log_gives_a_page_and_a_picture(name):
    log = recorded(name)
    assert "Contradictions" in page(log)
    for topology in (None, P4D):
        picture = draw(log, topology)
        ET.fromstring(picture)
        assert "<script" not in picture
        assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


def test_rings_of_a_machine_are_drawn_over_its_switches_gpus_and_nics():
    picture = draw(recorded("efa-p4d-2x8a100.log"), P4D)
    for word in ("node0", "node1", "switch0", "gpu0·0", "gpu0·8", "nic3", "2x, channels 0, 4"):
        assert word in picture, word
    assert len({f'class="ring r{place}"' for place in range(6) if f'class="ring r{place}"' in picture}) == 4


def test_control_characters_and_markup_of_a_log_are_shown_as_what_they_are():
    text = (
        "node0:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 60 commId 0xa - Init COMPLETE\n"
        "<b>:1:2 [0] NCCL INFO Channel 00/01 : 0 1\n"
        "node0:1:2 [0] NCCL INFO NCCL_PROTO set by environment to \x1b[31m<script>alert(1)</script>\n"
        "node0:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/\x1b<script>/0\n"
    )
    log = nccl_log.read(text)
    assert "\x1b" not in page(log)
    assert "\\x1b" in page(log)
    ET.fromstring(draw(log, None))


def test_a_log_without_rings_says_so_in_the_picture():
    assert "No rings in this log" in draw(nccl_log.read("h:1:2 [0] NCCL INFO Using network IB\n"), None)


def test_many_hosts_are_counted_instead_of_drawn():
    hosts = "".join(
        f"node{rank}:{rank + 1}:1 [0] NCCL INFO comm 0x1 rank {rank} nranks 9 cudaDev 0 busId 60 - Init COMPLETE\n"
        for rank in range(9)
    )
    log = nccl_log.read(hosts + "node0:1:1 [0] NCCL INFO Channel 00/01 : 0 1 2 3 4 5 6 7 8\n")
    assert "5 of 9 hosts are not drawn" in draw(log, None)
    assert "9 ranks on 9 hosts" in page(log)


@pytest.mark.parametrize(
    ("channels", "words"), [((), ""), ((3,), "3"), ((0, 1, 2), "0-2"), ((0, 4), "0, 4"), ((5, 1, 2, 9), "1-2, 5, 9")]
)
def test_channels_are_written_as_spans(channels, words):
    assert channel_words(channels) == words
