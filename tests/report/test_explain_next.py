"""The next command of tables that could not be judged."""

from __future__ import annotations

import re

import pytest

from railwright.expected.machine import Machine
from railwright.explain.paste import read_paste
from railwright.options.machine import resolve_cluster
from railwright.report.text.explain import render_explained

PERFTEST = """\
 ---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             198.10             197.98             0.377617
 ---------------------------------------------------------------------------------------
"""
IPERF = """\
Connecting to host 10.0.0.2, port 5201
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  20.0 GBytes  17.2 Gbits/sec   12             sender
[  5]   0.00-10.00  sec  20.0 GBytes  17.2 Gbits/sec                  receiver
"""


@pytest.mark.parametrize(
    ("text", "words", "absent"),
    [(PERFTEST, "perftest: -a", "iperf3"), (IPERF, "iperf3 -c HOST -P 8", "perftest: -a")],
)
def test_an_unknown_table_names_the_command_that_may_judge_it(text, words, absent):
    (found,) = read_paste(text, Machine(cluster=resolve_cluster("hgx-h100", 2, None))).tables
    assert found.verdict.state == "unknown", found.verdict
    said = " ".join(render_explained(found).split())
    (told,) = re.findall(r" next (.*?) expected ", said)
    assert words in told
    assert absent not in told
