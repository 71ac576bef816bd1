"""The page of many hosts: its first screen names the outliers, names are escaped, and it stays small."""

from __future__ import annotations

from html.parser import HTMLParser
from random import Random

from tests.diagnosis.fleet.test_host_table import host, path

from railwright.diagnosis.fleet.host_table import HostTable, host_table
from railwright.diagnosis.verdicts.judged import Diagnosis
from railwright.report.pages.hosts import render_hosts_html
from railwright.report.text.hosts import lines

_PATHS = 12
PLANTED = {"node0017": 0.8, "node0333": 0.7, "node0500": 0.5, "node0731": 0.3, "node0998": None}
"""The share of its rate that each of five hosts of 1,000 has at a path; None for a host that sent nothing."""


def thousand_hosts() -> HostTable:
    """Make synthetic hosts with values that differ by 1 % and three launches each."""
    random = Random(30)
    fleet: dict[str, Diagnosis | str] = {}
    for number in range(1000):
        name = f"node{number:04}"
        part = PLANTED.get(name, 1.0)
        if part is None:
            fleet[name] = "silent for 60 s"
            continue
        paths = []
        for index in range(_PATHS):
            rate = 1e9 * (index + 1) * random.gauss(1, 0.01) * (part if index == number % _PATHS else 1)
            paths.append(path(f"copy{index}", tuple(rate * random.gauss(1, 0.005) for _ in range(3))))
        fleet[name] = host(*paths)
    return host_table(fleet)


def test_the_first_screen_of_a_thousand_hosts_names_its_outliers():
    table = thousand_hosts()
    assert {host_row.name for host_row in table.hosts if host_row.is_outlier} == set(PLANTED)
    page = render_hosts_html(table, lambda name: f"hosts/{name}/report.html")
    assert len(page.encode()) < 3e6
    first, _, rest = page.partition('<section id="map">')
    assert all(first.count(f">{name}</a>") == 1 for name in PLANTED)
    assert rest.count("<tr>") == 1001
    text = list(lines(table, compared=True))
    assert text[0] == "1000 hosts, 1 without results, 4 behind the others"
    assert [line.split()[0] for line in text[1:6]] == ["node0998", "node0731", "node0500", "node0333", "node0017"]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)


def test_data_from_a_host_never_becomes_markup():
    evil = '<img src=x onerror="alert(1)">\x1b[31m'
    fleet: dict[str, Diagnosis | str] = {name: host(path(evil, (10e9,), pages=evil)) for name in ("a", "b", evil)}
    fleet["c"] = host(path(evil, (1e9,), pages=evil))
    fleet["d"] = evil
    table = host_table(fleet)
    tags = _Tags()
    page = render_hosts_html(table, lambda _name: "")
    tags.feed(page)
    assert not {"img", "script"} & tags.seen
    assert "\x1b" not in page + "".join(lines(table, compared=True))


def test_hosts_that_share_cpus_are_not_compared():
    table = host_table({"a": host(path("copy", (10e9,))), "b": host(path("copy", (1e9,)))}, compare=False)
    assert list(lines(table, compared=False))[:2] == [
        "2 hosts, none behind the others",
        "The hosts share CPUs, so they are not compared with each other.",
    ]
