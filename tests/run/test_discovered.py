"""Other hosts' machines are read there, and one that fails costs itself alone."""

import pytest

from railwright.launch.hosts import Hosts
from railwright.run.discovered import discover
from railwright.topology.devices import Topology


class Shell:
    """Reaches this machine by a shell, as ssh reaches another: a host's name and one line."""

    def __init__(self, script):
        self._script = script

    def agent(self, scratch):
        assert scratch.is_dir()
        return ["/bin/sh", "-c", self._script]


def read(script, *names):
    return discover(Hosts(names, 1, Shell(script)))


@pytest.mark.machine
def test_each_host_is_read_by_its_own_railwright():
    found = read('echo Welcome; test "$0" = gone && echo "no route to host" && exit 255; eval "$1"', "host0", "gone")
    assert list(found) == ["host0", "gone"]
    assert found["gone"] == "no route to host"
    machine = found["host0"]
    assert isinstance(machine, Topology)
    assert machine.name == "host0"
    assert machine.of_kind("cpu")


@pytest.mark.machine
def test_a_host_that_says_something_else_is_not_taken_for_one():
    assert read("echo hello", "host0", "host1") == dict.fromkeys(("host0", "host1"), "it sent no topology")
