"""`railwright judge FOLDER` judges the hosts of `prove --hosts`, and the paths between them, from the folder alone."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.conftest import InProcess
from tests.report import sample
from tests.report.test_locate_html import located, pair
from tests.schemas import fits

from railwright.diagnosis.fleet.between_hosts import BetweenHosts, RailTried
from railwright.run.host_screen import FOLDER
from railwright.verbs.prove.kept import FILE, KeptBetween, KeptCluster, RdmaPairs, list_rdma_pairs, write_kept

HOSTS = ("node1", "node2", "node3")


@pytest.fixture
def folder(answer: InProcess) -> Path:
    """A proof of three hosts, of which one sent nothing, with a pair of hosts in both directions."""
    proof = answer.folder / "proof"
    for host in HOSTS[:2]:
        records = (sample.run(), *sample.results(), sample.end())
        place = proof / FOLDER / host
        place.mkdir(parents=True)
        (place / "results.jsonl").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in records))
    flows = [
        replace(pair(f"{one}:p", f"{other}:p", 1.0, "switch"), bandwidth_bytes_per_s=rate)
        for one, other, rate in (("node1", "node2", 11e9), ("node2", "node1", 12e9))
    ]
    between = KeptBetween(
        said=BetweenHosts(described="2 hosts", hosts=HOSTS[:2], rounds=3),
        located=located(*flows),
        rails=(RailTried("node1:gpu0", "node2:gpu0", 4e10),),
    )
    write_kept(proof, KeptCluster(hosts={"node1": "", "node2": "", "node3": "no route"}, launches=3, between=between))
    return proof


def test_hosts_and_pairs_are_judged_again(answer: InProcess, folder: Path) -> None:
    done = answer("judge", str(folder))
    assert done.status in (1, 3)
    assert done.out.startswith("3 hosts, 1 without results")
    assert "node3  no route" in done.out
    assert "2 pairs: " in done.out
    page = (folder / "report.html").read_text()
    assert f"{FOLDER}/node1/report.html" in page
    assert "node3" in page
    assert (folder / FOLDER / "node2" / "report.html").exists()


def test_hosts_with_the_same_trouble_are_one_line(answer: InProcess, folder: Path) -> None:
    lost = {f"gone{number:02}": f"ssh: cannot resolve gone{number:02}" for number in range(1, 65)}
    write_kept(folder, KeptCluster(hosts={"node1": ""} | lost, launches=1))
    done = answer("judge", str(folder))
    assert [line for line in done.out.splitlines() if "gone" in line] == ["  gone[01-64]  ssh: cannot resolve HOST"]


def test_the_records_are_those_of_the_proof(answer: InProcess, folder: Path) -> None:
    records = [json.loads(line) for line in answer("judge", str(folder), "--json").out.splitlines()]
    for record in records:
        fits(record, "hosts")
    pairs = {(one["source"], one["destination"]): one["value"] for one in records if one["record"] == "pair"}
    assert pairs == {("node1", "node2"): 11e9, ("node2", "node1"): 12e9}
    assert {one["name"] for one in records if one["record"] == "host"} == set(HOSTS)


def test_a_sheet_decides_on_the_folder_of_a_proof(answer: InProcess, folder: Path) -> None:
    spec = 'title = "Hosts"\nhosts = 2\n[[line]]\npath = "pairs"\nleast = "1 GB/s"\n'
    (answer.folder / "spec.toml").write_text(spec)
    (folder / "between").mkdir()
    (folder / "between" / "pairs.jsonl").write_text("{}\n")
    done = answer("judge", str(folder), "--accept", "spec.toml")
    assert done.out.startswith("Not accepted: of 3 lines 2 met, 1 not judged")
    assert "every host gives results: not judged" in done.out
    assert (folder / "acceptance.html").exists()


def test_without_its_record_the_hosts_with_results_are_judged(answer: InProcess, folder: Path) -> None:
    (folder / FILE).unlink()
    assert answer("judge", str(folder)).out.startswith("2 hosts")
    (folder / FILE).write_text("{}")
    broken = answer("judge", str(folder))
    assert broken.status == 2
    assert "is not the record of railwright prove --hosts" in broken.err
    assert answer("judge", str(folder), "--output", "elsewhere").status == 2


def test_pairs_by_rdma_are_judged_again_and_one_that_failed_is_told(answer: InProcess, folder: Path) -> None:
    ends = (("node1", "node2"), ("node2", "node1"))
    tcp = [replace(pair(f"{one}:p", f"{two}:p", 1.0, "switch"), bandwidth_bytes_per_s=11e9) for one, two in ends]
    rdma = [
        replace(pair(f"{one}:mlx5_0", f"{two}:mlx5_0", ratio, "switch"), bandwidth_bytes_per_s=rate, trouble=why)
        for (one, two), rate, ratio, why in zip(ends, (24e9, None), (1.0, None), ("", "retry exceeded"), strict=True)
    ]
    between = KeptBetween(
        said=BetweenHosts(described="2 hosts", hosts=HOSTS[:2], rounds=3),
        located=located(*tcp),
        by_rdma=RdmaPairs(ports={"node1": "mlx5_0", "node2": "mlx5_0"}, located=located(*rdma)),
    )
    write_kept(folder, KeptCluster(hosts={"node1": "", "node2": ""}, launches=3, between=between))
    told = answer("judge", str(folder))
    assert "node2 to node1" in told.out
    assert "no data arrived by RDMA: retry exceeded; TCP moved 11.0 GB/s" in told.out
    assert "2 pairs by RDMA over all near ports; TCP beside it has a median of 11.0 GB/s" in told.out
    done = answer("judge", str(folder), "--json")
    records = [json.loads(line) for line in done.out.splitlines()]
    for record in records:
        fits(record, "hosts")
    pairs = {one["source"]: one for one in records if one["record"] == "pair"}
    assert [(pairs[name]["by"], pairs[name]["value"], pairs[name]["tcp_value"]) for name, _ in ends] == [
        ("rdma", 24e9, 11e9), ("rdma", None, 11e9)
    ]  # fmt: skip
    assert "by RDMA where both have it" in (folder / "report.html").read_text()
    (folder / "between").mkdir(exist_ok=True)


def test_a_pair_whose_host_left_the_search_by_rdma_has_its_reason() -> None:
    kept = RdmaPairs(ports=dict.fromkeys(HOSTS, "mlx5_0"), located=replace(located(), set_aside={"node3": "it died"}))
    found = {(one.source, one.destination): one.trouble for one in list_rdma_pairs(kept, gone=("node2",))}
    assert found == {("node1", "node3"): "it died", ("node3", "node1"): "it died"}
    none = RdmaPairs(ports={"node1": "mlx5_0", "node2": "mlx5_0"}, trouble="no probe ran")
    assert {one.trouble for one in list_rdma_pairs(none, gone=())} == {"no probe ran"}
