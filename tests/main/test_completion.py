"""`railwright completion` and the words that it completes, and the parts that `--version` lists."""

from __future__ import annotations

import pytest
from click.shell_completion import BashComplete
from tests.conftest import InProcess

from railwright import __version__
from railwright.main import cli


def complete(*words: str) -> list[tuple[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_RAILWRIGHT_COMPLETE", "bash_complete")
        shell = BashComplete(cli, {}, "railwright", "_RAILWRIGHT_COMPLETE")
        return [(item.type, str(item.value)) for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("limi",), "limits"),
        (("limits", "--host", "hgx-b3"), "hgx-b300"),
        (("whatif", "--host", "hgx-b3"), "hgx-b300"),
        (("limits", "--collective", "reduce_s"), "reduce_scatter"),
        (("whatif", "-c", "reduce_s"), "reduce_scatter"),
        (("explain", "--collective", "reduce_s"), "reduce_scatter"),
        (("run", "mpi_lat"), "mpi_latency"),
        (("prove", "--benchmarks", "mpi_latency,mpi_bid"), "mpi_latency,mpi_bidirectional"),
        (("audit", "--fix", "governor"), "governor_saves_power"),
        (("shapes", "mi355x-"), "mi355x-8gpu"),
        (("completion", "fi"), "fish"),
        (("lab", "hea"), "heal"),
        (("prove", "--hosts-f"), "--hosts-file"),
    ],
)
def test_names_are_completed(words: tuple[str, ...], completed: str) -> None:
    assert complete(*words) == [("plain", completed)]


@pytest.mark.parametrize("words", [("explain", "tab"), ("judge", "out"), ("limits", "--cluster", "clu"),
                                   ("limits", "--host", "no-such-shape"), ("prove", "--hosts-file", "h")])  # fmt: skip
def test_files_are_left_to_the_shell(words: tuple[str, ...]) -> None:
    assert complete(*words) == [("file", words[-1])]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_for_completions_of_that_shell(answer: InProcess, shell: str) -> None:
    done = answer("completion", shell)
    assert done.status == 0
    assert f"_RAILWRIGHT_COMPLETE={shell}_complete" in done.out
    assert answer("completion", "csh").status == 2


def test_version_lists_the_parts_found_and_missing(answer: InProcess) -> None:
    lines = answer("--version").out.splitlines()
    assert lines[0] == f"railwright, version {__version__}"
    rows = {line[:18].strip(): line[18:] for line in lines[2:]}
    assert rows["openmpi"][0].isdigit()
    assert {"timed loops", "NVIDIA driver", "ssh", "libcuda"} <= set(rows)
    assert all(rows.values())
