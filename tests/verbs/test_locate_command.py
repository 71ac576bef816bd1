"""`locate`, `simulate` and `cabling` from the command line: one record, or one error for wrong usage."""

import json
import shlex
from pathlib import Path

import pytest

from railwright.main import run_command

RECORDED = Path(__file__).parents[2] / "testdata/external/ibnetdiscover"
CLUSTER = """
hosts = 8
host = "hgx-h100 nics=1"
[[fabric.tiers]]
name = "leaf"
hosts = 2
[[fabric.tiers]]
name = "spine"
hosts = 8
switches = 2
"""


@pytest.mark.parametrize(
    "simulated",
    [["fat-tree hosts=8 gpus=8", "rate=0 hosts=1 seed=3"], ["CLUSTER", "rate=0 pairs=1 seed=3"]],
)
def test_a_simulated_search_prints_one_record_with_its_score(
    simulated: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER)
    words = ["simulate", *simulated[0].replace("CLUSTER", str(file)).split(), "--faults", simulated[1], "--json"]
    status = run_command(words + ["--route-cover", "pair"] * (simulated[0] == "CLUSTER"))
    found = json.loads(capfd.readouterr().out)
    assert status == 1
    assert (found["precision"], found["recall"], found["route_recall"]) == (1, 1, 1)
    assert [one["id"] for one in found["suspects"]] == [one["id"] for one in found["truth"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["locate"], "requires either --hosts or --lab"),
        (["locate", "--lab", "a", "--hosts", "b,c"], "requires either --hosts or --lab"),
        (["locate", "--lab", "a", "--cabling", "b"], "--cabling and --forwarding require each other"),
        (["locate", "--lab", "a", "--cabling", "b", "--forwarding", "c"], "--cabling requires --hosts"),
        (["simulate"], "Missing argument 'FABRIC'"),
        (["simulate", "ring"], "FABRIC must be a file or a fat-tree"),
        (["simulate", "fat-tree hosts=8", "--faults", "rate=2"], "rate must be 0 to 1, got 2"),
        (["simulate", "fat-tree", "hosts=1280", "--route-cover", "pair"], "route cover must be at most"),
        (["simulate", "fat-tree hosts=9999999"], "hosts must be 1 to"),
        (["simulate", "fat-tree hosts=8", "--forwarding", "a"], "requires an InfiniBand subnet"),
        (["cabling", "a"], "Missing argument 'SEEN'"),
    ],
)
def test_what_cannot_be_searched_is_refused(words: list[str], says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(words) == 2
    assert says in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("--simulate 'fat-tree hosts=8' --faults 'rate=0'", "simulate 'fat-tree hosts=8' --faults rate=0"),
        ("--faults=f.json --simulate=a.toml --route-cover leaf", "simulate a.toml --faults=f.json --route-cover leaf"),
        ("--lab a --noise 0.1", "simulate FABRIC --noise 0.1"),
        ("--simulate a.txt --baselines --output x.html", "simulate a.txt --baselines"),
        ("--cabling seen.txt --cluster c.toml --json", "cabling c.toml seen.txt --json"),
        ("--cabling=seen", "cabling CLUSTER seen"),
        ("--hosts a,b --cluster c.toml", "cabling c.toml SEEN"),
    ],
)  # fmt: skip
def test_words_of_before_are_answered_with_those_of_now(
    words: str, instead: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["locate", *shlex.split(words)]) == 2
    assert capfd.readouterr().err.splitlines()[1:] == [f"hint: railwright {instead}"]


def test_cables_are_compared_without_a_search(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [[f"host{n}", "1", f"leaf{n // 2}", f"{n % 2 + 1}"] for n in range(8)]
    rows += [[f"leaf{n}", f"{spine + 3}", f"spine{spine}", f"{n + 1}"] for n in range(4) for spine in range(2)]
    file = tmp_path / "cluster.toml"
    file.write_text(f'hosts = 8\nhost = "hgx-h100 nics=1"\n[fabric]\ncables = {json.dumps(rows)}\n')
    for name, status in (("leaf-spine", 0), ("leaf-spine-miscabled", 1)):
        seen = str(RECORDED / f"{name}.txt")
        assert run_command(["cabling", str(file), seen, "--json"]) == status
        found = json.loads(capfd.readouterr().out)
        assert (found["record"], found["planned"], len(found["findings"])) == ("cabling", 16, 3 * status)
    assert run_command(["cabling", str(file), seen]) == 1
    assert "exchange the plugs at spine1 port 2 and spine0 port 2" in capfd.readouterr().out
    assert run_command(["simulate", str(file), "--faults", "rate=0 hosts=1 seed=3", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["recall"] == 1
