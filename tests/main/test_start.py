"""The command starts fast, because it loads the modules of a verb only when the verb is called."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.main.test_help import commands

from railwright.main import cli

pytestmark = pytest.mark.machine

HEAVY = {"numpy", "rich", "jinja2", "mpi4py", "prometheus_client", "msgspec"}


def loaded_by(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, json\n{program}\nprint(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_package_root_loads_nothing_of_weight():
    modules = loaded_by("import railwright")
    assert not HEAVY & modules
    assert [name for name in modules if name.startswith("railwright.")] == []


HELP = """
sys.argv = ["railwright", *{arguments}]
from railwright.main import main
try: main()
except SystemExit as end: assert end.code == 0, end.code
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["topo", "-h"], *([*words, "--help"] for words in commands(cli))]
)
def test_help_loads_nothing_of_weight(arguments):
    modules = loaded_by(HELP.format(arguments=arguments))
    assert not HEAVY & modules
    verbs = {name.split(".")[2] for name in modules if name.startswith("railwright.verbs.")}
    assert verbs <= set(arguments)
    others = ("railwright.verbs", "railwright.options", "railwright.main", "railwright.errors", "railwright.terminal")
    others += ("railwright.installation",) * ("--version" in arguments)
    assert not [name for name in modules if name.startswith("railwright.") and not name.startswith(others)]
    assert "railwright.main" in modules


def test_help_names_every_verb_and_the_exit_status(railwright):
    done = railwright("--help")
    assert done.status == 0
    for word in ("prove", "topo", "limits", "audit", "run", "judge", "compare", "setup", "Exit status"):
        assert word in done.out


def test_the_list_of_benchmarks_names_every_one_with_its_options(railwright):
    from railwright.benchmarks.options import list_options
    from railwright.benchmarks.registry import EVERY

    done = railwright("run")
    assert done.status == 0
    unwrapped = " ".join(done.out.split())
    for benchmark in EVERY:
        assert f"method: {benchmark.method}" in unwrapped
        for name, (_, option) in list_options(benchmark.options).items():
            assert f"-o {benchmark.name}.{name}={benchmark.defaults.get(name, option.default)} " in unwrapped
