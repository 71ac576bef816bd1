"""Hosts that should be alike are compared with the majority."""

import pytest
from tests.checks.machines import tuned, with_facts, with_links

from railwright.checks.check import Facts
from railwright.checks.outcome import look_for
from railwright.diagnosis.fleet.settings import Difference, Odd, collect_faults, describe_host, differences
from railwright.faults.every_check import EVERY_CHECK

CHECKS = [check for check in EVERY_CHECK if not check.needs_results]


def fleet(**others):
    """Five tuned hosts, and some that differ."""
    return {**{f"host{number}": tuned() for number in range(5)}, **others}


def compared(**others):
    return differences({name: describe_host(machine) for name, machine in fleet(**others).items()})


def test_hosts_that_are_alike_differ_in_nothing():
    assert compared() == ()


@pytest.mark.parametrize(
    ("machine", "what", "value", "usual"),
    [
        (with_facts(tuned(), "nic", 3, firmware="28.36"), "nic firmware", "28.36", None),
        (with_facts(tuned(), "host", kernel="5.15.0"), "host kernel", "5.15.0", "6.8.0-41-generic"),
        (with_facts(tuned(), "gpu", 5, ecc=False), "gpu ecc", "False (gpu5); True (gpu0-4, gpu6, gpu7)", "True"),
        (with_links(tuned(), "gpu2", width=8), "gpu PCIe width", "8 (gpu2); 16 (gpu0, gpu1, gpu3-7)", "16"),
    ],
)
def test_one_that_differs_is_named_with_its_value_and_that_of_most(machine, what, value, usual):
    (one,) = compared(odd=machine)
    assert (one.what, one.odd) == (what, (Odd(value=value, hosts=("odd",)),) if usual else ())
    assert (one.usual, one.usual_on) == ((usual, 5) if usual else ("28.36", 1))
    # A property that no other host reports is not known to differ.
    assert one.unsaid == (() if usual else tuple(fleet()))


def test_what_one_host_does_not_say_is_not_taken_for_alike():
    (one,) = compared(silent=with_facts(tuned(), "host", thp=None))
    assert one == Difference(what="host thp", usual="madvise", usual_on=5, odd=(), unsaid=("silent",))


def test_a_value_without_a_majority_is_the_usual_one_of_nobody():
    others = {f"new{number}": with_facts(tuned(), "host", kernel="6.11.0") for number in range(5)}
    (one,) = compared(**others)
    assert (one.usual, one.usual_on, [len(odd.hosts) for odd in one.odd]) == ("", 0, [5, 5])


def test_a_host_without_a_kind_of_device_lacks_none_of_its_facts():
    bare = tuned()
    gone = {device.id for device in bare.of_kind("drive")}
    bare = type(bare)(
        name=bare.name,
        source=bare.source,
        devices=tuple(one for one in bare.devices if one.id not in gone),
        links=tuple(link for link in bare.links if not gone & {link.a, link.b}),
    )
    found = compared(bare=bare)
    assert [one.what for one in found] == ["number of drive"]
    assert found[0].odd == (Odd(value="0", hosts=("bare",)),)


def test_memory_that_differs_by_what_firmware_keeps_is_alike():
    machine = tuned()
    size = machine.of_kind("memory")[0].facts["size_bytes"]
    assert compared(other=with_facts(machine, "memory", 0, size_bytes=size - 5 * 2**20)) == ()


def test_faults_are_told_with_their_hosts_the_certain_ones_first():
    hosts = fleet(
        low=with_facts(tuned(), "host", memlock_bytes=2**23),
        slow=with_facts(tuned(), "host", thp="never"),
        too=with_facts(with_facts(tuned(), "host", thp="never"), "host", numa_balancing=None),
    )
    checks = {name: [look_for(check, Facts(topology=one)) for check in CHECKS] for name, one in hosts.items()}
    assert [(one.fault, one.certainty, one.hosts) for one in collect_faults(checks)] == [
        ("memlock_low", "seen", ("low",)),
        ("huge_pages_off", "possible", ("slow", "too")),
        ("numa_balancing_on", "could not look", ("too",)),
    ]
