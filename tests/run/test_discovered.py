"""Each host reads its own topology, and a failing host affects no other."""

import pytest

from railwright.launch.hosts import Hosts
from railwright.run.discovered import discover
from railwright.topology.devices import Topology


class Shell:
    """A reach that runs a command line on this machine by a shell, with the arguments of ssh."""

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
