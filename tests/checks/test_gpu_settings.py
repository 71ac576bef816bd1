"""GPU settings that cost performance, as NVML reports them."""

import re

import pytest
from msgspec.structs import replace

from railwright.checks.check import Facts
from railwright.faults.every_check import EVERY_CHECK
from railwright.topology.devices import Unknown
from railwright.topology.expand import expand

HEALTHY = {"power_limit_w": 700.0, "power_default_w": 700.0, "mig": False, "persistence": True, "throttled": "no",
           "peers": "gpu0", "nvlink_fabric": "completed", "nvml_lists": True, "ecc_uncorrected": 0,
           "row_remap_pending": False, "row_remap_failed": False, "compute_mode": "default"}  # fmt: skip


def machine(number=1, **changed):
    """An HGX H100 with one unhealthy GPU."""
    host = replace(expand("hgx-h100", {}), source="live")
    addresses = {gpu.id: f"0000:{index + 1:02x}:00.0" for index, gpu in enumerate(host.of_kind("gpu"))}
    facts = {gpu.id: HEALTHY | (changed if gpu.id == f"gpu{number}" else {}) for gpu in host.of_kind("gpu")}
    return replace(
        host,
        devices=tuple(
            replace(
                one,
                facts={
                    name: value for name, value in {**one.facts, **facts.get(one.id, {})}.items() if name != "shape"
                },
                address=addresses.get(one.id, one.address),
            )
            for one in host.devices
        ),
    )


def look(name, topology):
    (check,) = [check for check in EVERY_CHECK if check.name == name]
    return check.look(Facts(topology=topology))


NAMES = ("power_limited", "mig_enabled", "persistence_off", "gpu_throttled", "p2p_disabled", "gpu_lost",
         "gpu_memory_errors", "compute_mode_prohibited")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_healthy_gpus_show_none_of_them(name):
    assert look(name, machine()) == ()
    assert look(name, expand("hgx-h100", {})) == ()


@pytest.mark.parametrize(
    ("name", "changed", "certainty", "says"),
    [
        ("power_limited", {"power_limit_w": 500.0}, "seen", "the power limit of gpu1 is 500 W, the default is 700 W"),
        ("mig_enabled", {"mig": True}, "seen", "MIG mode is on in gpu1"),
        ("persistence_off", {"persistence": False}, "possible", "persistence mode is off in gpu1"),
        ("gpu_throttled", {"throttled": "hardware slowdown"}, "seen", "gpu1 is throttled: hardware slowdown"),
        ("gpu_throttled", {"throttled": "software power cap"}, "possible", "gpu1 is throttled"),
        (
            "gpu_lost",
            {"nvml_lists": False},
            "seen",
            "gpu1 is on the PCI bus, but NVML does not list it",
        ),
        ("gpu_lost", {"nvml_lists": False, "cuda_visible": True}, "possible", "gpu1 is on the PCI bus"),
        ("gpu_memory_errors", {"ecc_uncorrected": 7}, "seen", "uncorrected memory errors since .*: gpu1 7"),
        ("gpu_memory_errors", {"row_remap_failed": True}, "seen", "bad memory rows of gpu1 could not be remapped"),
        ("gpu_memory_errors", {"row_remap_pending": True}, "possible", "memory rows of gpu1 will be remapped"),
        ("compute_mode_prohibited", {"compute_mode": "prohibited"}, "seen", "the compute mode of gpu1 is prohibited"),
        ("p2p_disabled", {"nvlink_fabric": "in progress"}, "seen", "gpu1 did not join the NVLink fabric: in progress"),
        ("p2p_disabled", {"nvlink_fabric_problem": "Not Supported"}, "seen", "gpu1 did not join the NVLink fabric"),
        (
            "p2p_disabled",
            {"peers_refused": "gpu2 (GPU not supported)"},
            "seen",
            r"gpu1 may not access the memory of gpu2 \(GPU not supported\)$",
        ),
    ],
)
def test_a_setting_that_costs_speed_is_found_where_it_is(name, changed, certainty, says):
    (finding,) = look(name, machine(**changed))
    assert (finding.where, finding.certainty) == (("gpu1",), certainty)
    assert re.match(says, finding.says)
    assert finding.remedy
    assert finding.evidence


@pytest.mark.parametrize("odd", ["700", True, None, -1.0])
def test_limits_that_are_no_numbers_of_watts_say_nothing(odd):
    assert look("power_limited", machine(power_limit_w=odd, power_default_w=odd)) == ()


def test_gpus_that_may_not_reach_each_other_over_pcie_are_only_possibly_at_fault():
    cards = expand("pcie-8gpu", {})
    devices = tuple(replace(one, facts={**one.facts, "peers_refused": "gpu1 (chipset not supported)"})
                    if one.id == "gpu0" else one for one in cards.devices)  # fmt: skip
    (finding,) = look("p2p_disabled", replace(cards, devices=devices))
    assert finding.certainty == "possible"


def refusing(**refused):
    """An HGX H100 whose GPUs refuse each other's access."""
    host = machine()
    return replace(host, devices=tuple(
        replace(one, facts={**one.facts, "peers_refused": refused[one.id]}) if one.id in refused else one
        for one in host.devices))  # fmt: skip


def test_gpus_that_all_refuse_each_other_are_one_finding():
    names = [f"gpu{number}" for number in range(8)]
    every = {name: f"{','.join(other for other in names if other != name)} (disabled by regkey)" for name in names}
    (finding,) = look("p2p_disabled", refusing(**every))
    assert finding.where == tuple(names)
    assert finding.says == "gpu0-7 may not access each other's memory (disabled by regkey)"


def test_one_gpu_apart_is_told_from_the_others():
    apart = {f"gpu{number}": "gpu7 (GPU not supported)" for number in range(7)}
    (finding,) = look("p2p_disabled", refusing(**apart, gpu7="gpu0,gpu1,gpu2,gpu3,gpu4,gpu5,gpu6 (GPU not supported)"))
    assert finding.says == (
        "gpu0-6 may not access the memory of gpu7 (GPU not supported);"
        " gpu7 may not access the memory of gpu0-6 (GPU not supported)"
    )


@pytest.mark.parametrize("odd", ["gpu1", "; ;", " (", "gpu1 (a (b)); gpu2 ()", ",,"])
def test_words_that_no_driver_says_are_shown_and_break_nothing(odd):
    (finding,) = look("p2p_disabled", refusing(gpu0=odd))
    assert finding.says


@pytest.mark.parametrize("driver", ["vfio-pci", "nouveau"])
def test_a_gpu_that_another_driver_has_is_not_lost(driver):
    assert look("gpu_lost", machine(nvml_lists=False, driver=driver)) == ()


@pytest.mark.parametrize("hidden", [{"cuda_visible": False}, {"mig": True}])
def test_the_compute_mode_of_a_gpu_that_is_not_to_be_used_says_nothing(hidden):
    assert look("compute_mode_prohibited", machine(compute_mode="prohibited", **hidden)) == ()


@pytest.mark.parametrize("odd", ["7", True, None, -1, 7.5])
def test_counts_that_are_no_counts_of_errors_say_nothing(odd):
    assert look("gpu_memory_errors", machine(ecc_uncorrected=odd)) == ()


@pytest.mark.parametrize("name", ["gpu_lost", "gpu_memory_errors"])
def test_gpus_of_which_nvml_said_nothing_could_not_be_looked_at(name):
    host = expand("hgx-h100", {})
    devices = tuple(replace(one, facts={"driver": "nvidia", "pci_id": "10de:2330"}, address=f"0000:{index:02x}:00.0")
                    if one.kind == "gpu" else one for index, one in enumerate(host.devices))  # fmt: skip
    blind = replace(host, devices=devices, unknown=(Unknown(what="NVLink of gpu0 ...", why="timed out"),))
    (finding,) = look(name, blind)
    assert (finding.certainty, len(finding.where)) == ("could not look", 8)
    assert "gpu0-7" in finding.says


def test_peers_that_nobody_could_ask_for_are_said():
    blind = replace(expand("hgx-h100", {}), unknown=(Unknown(what="NVLink of gpu0, gpu1", why="timed out"),))
    assert look("p2p_disabled", blind)[0].certainty == "could not look"


@pytest.mark.parametrize(("shared", "certainty"), [(True, None), (False, "seen")])
def test_whether_dma_buf_stands_in_for_peermem_is_what_the_driver_says(shared, certainty):
    host = machine()
    facts = {"dma_buf": shared}
    devices = tuple(
        replace(one, facts={**one.facts, **(facts if one.kind == "gpu" else {"modules": "nvidia mlx5_core"})})
        if one.kind in ("gpu", "host")
        else one
        for one in host.devices
    )
    found = look("gpudirect_off", replace(host, devices=devices))
    assert [finding.certainty for finding in found] == ([certainty] if certainty else [])
