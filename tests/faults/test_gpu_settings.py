"""Settings of GPUs that cost speed, as NVIDIA's library shows them."""

import pytest
from msgspec.structs import replace

from railwright.faults.model import Facts
from railwright.faults.registry import FAULTS
from railwright.topology.expand import expand
from railwright.topology.model import Unknown

HEALTHY = {"power_limit_w": 700.0, "power_default_w": 700.0, "mig": False, "persistence": True, "throttled": "no",
           "peers": "gpu0", "nvlink_fabric": "completed"}  # fmt: skip


def machine(number=1, **changed):
    """An HGX H100 whose GPUs are healthy, but for one."""
    host = replace(expand("hgx-h100", {}), source="live")
    facts = {gpu.id: HEALTHY | (changed if gpu.id == f"gpu{number}" else {}) for gpu in host.of_kind("gpu")}
    return replace(
        host, devices=tuple(replace(one, facts={**one.facts, **facts.get(one.id, {})}) for one in host.devices)
    )


def look(name, topology):
    (fault,) = [fault for fault in FAULTS if fault.name == name]
    return fault.look(Facts(topology=topology))


@pytest.mark.parametrize("name", ["power_limited", "mig_enabled", "persistence_off", "gpu_throttled", "p2p_disabled"])
def test_healthy_gpus_show_none_of_them(name):
    assert look(name, machine()) == ()
    assert look(name, expand("hgx-h100", {})) == ()


@pytest.mark.parametrize(
    ("name", "changed", "certainty", "says"),
    [
        ("power_limited", {"power_limit_w": 500.0}, "seen", "the power limit of gpu1 is 500 W, the default is 700 W"),
        ("mig_enabled", {"mig": True}, "seen", "MIG mode is on in gpu1"),
        ("persistence_off", {"persistence": False}, "possible", "persistence mode is off in gpu1"),
        ("gpu_throttled", {"throttled": "hardware slowdown"}, "seen", "gpu1 is slowed down now: hardware slowdown"),
        ("gpu_throttled", {"throttled": "software power cap"}, "possible", "gpu1 is slowed down now"),
        ("p2p_disabled", {"nvlink_fabric": "in progress"}, "seen", "gpu1 did not join the NVLink fabric: in progress"),
        ("p2p_disabled", {"nvlink_fabric_problem": "Not Supported"}, "seen", "gpu1 did not join the NVLink fabric"),
        (
            "p2p_disabled",
            {"peers_refused": "gpu2 (GPU not supported)"},
            "seen",
            "gpu1 may not reach the memory of gpu2",
        ),
    ],
)
def test_a_setting_that_costs_speed_is_found_where_it_is(name, changed, certainty, says):
    (finding,) = look(name, machine(**changed))
    assert (finding.where, finding.certainty) == (("gpu1",), certainty)
    assert finding.says.startswith(says)
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
