"""A check with nothing to inspect is not fine: a fault is found, absent, impossible, or could not be checked for."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.checks.machines import tuned as machine

from railwright.checks import needs
from railwright.checks.check import Facts
from railwright.checks.outcome import look_for
from railwright.checks.registry import CHECKS
from railwright.faults.every_check import EVERY_CHECK
from railwright.main import run_command
from railwright.topology.devices import Unknown
from railwright.topology.expand import expand
from railwright.topology.shapes import SHAPES
from railwright.topology.sources.saved import decode_topology, encode_topology

OF_MACHINES = [check for check in EVERY_CHECK if not check.needs_results and check.needs]
OF_NVML = [check for check in EVERY_CHECK if needs.nvml_reports_gpus in check.asks]


OF_ROCE = (
    "roce_gid_missing",
    "fabric_ipv6_only",
    "addresses_several",
    "roce_ecn_off",
    "roce_pause_unlike",
    "roce_pfc_unlike",
    "roce_dscp_unlike",
    "roce_trust_unlike",
    "roce_cnp_unlike",
)


def states(topology, faults=OF_MACHINES, **environment):
    return {check.name: look_for(check, Facts(topology=topology, environment=environment)).state for check in faults}


def without_gpus(topology):
    gpus = {gpu.id for gpu in topology.of_kind("gpu")}
    return replace(
        topology,
        devices=tuple(one for one in topology.devices if one.id not in gpus),
        links=tuple(link for link in topology.links if not gpus & {link.a, link.b}),
    )


def silent(topology):
    """The same machine if NVML does not answer, so that only sysfs lists its GPUs."""
    devices = tuple(
        replace(one, name="", facts={"pci_id": "10de:2330", "driver": "nvidia"}) if one.kind == "gpu" else one
        for one in topology.devices
    )
    told = Unknown(what="NVLink of gpu0", why="NVML did not answer")
    return replace(topology, devices=devices, unknown=(told,))


def test_a_healthy_machine_is_fine_in_all_that_applies():
    told = states(machine())
    assert {name for name, state in told.items() if state == "does not apply"} == {
        "ats_off",
        "numa_nodes_one",
        "ovs_offload_off",
        "ofi_nccl_missing",
        *OF_ROCE,
    }
    assert set(told.values()) == {"fine", "does not apply"}


def test_a_machine_without_gpus_has_no_fault_of_gpus():
    found = states(without_gpus(machine()))
    assert {name for name, state in found.items() if state == "fine"} == {
        "pcie_below_maximum",
        "mtu_small",
        "acs_redirect",
        "max_payload_small",
        "read_request_small",
        "relaxed_ordering_off",
        "numa_balancing_on",
        "governor_saves_power",
        "idle_states_deep",
        "huge_pages_off",
        "memlock_low",
        "rdma_devices_missing",
        "rdma_limit_set",
        "cpus_withheld",
        "cpus_isolated",
        "iommu_translates",
        "cpu_quota_set",
        "ptrace_refused",
        "io_uring_off",
        "port_errors",
        "nic_rate_differs",
        "ucx_without_rdma",
    }
    assert set(found.values()) == {"fine", "does not apply"}


def test_a_setting_is_found_also_where_nothing_else_applies():
    assert states(without_gpus(machine()), NCCL_P2P_DISABLE="1")["p2p_disabled"] == "found"


@pytest.mark.parametrize("check", OF_NVML, ids=lambda check: check.name)
def test_what_nvml_alone_says_cannot_be_looked_for_where_it_is_silent(check):
    told = look_for(check, Facts(topology=silent(machine())))
    assert told.state == "could not look"
    assert told.because == "NVML does not report gpu0-7" or "cannot be read" in told.findings[0].says


@pytest.mark.parametrize("check", OF_NVML, ids=lambda check: check.name)
def test_nothing_is_set_in_a_description(check):
    told = look_for(check, Facts(topology=expand("hgx-h100", {})))
    assert (told.state, told.because) == ("does not apply", "hgx-h100 is a description and has no settings")


@pytest.mark.parametrize("shape", ["hgx-h100", "gh200", "pcie-8gpu", "laptop"])
def test_a_description_that_was_saved_is_still_one(shape):
    saved = decode_topology(encode_topology(expand(shape, {})), "saved.json")
    told = [look_for(check, Facts(topology=saved)) for check in OF_MACHINES]
    drawn = {"mtu_small", "nvlink_below_maximum", "pcie_below_maximum", "p2p_disabled", "nic_across_sockets"}
    assert {one.fault for one in told if one.state == "fine"} <= drawn | {"gpudirect_off", "nic_unused"}
    assert not [one for one in told if one.state == "could not look" and not one.because and not one.findings]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_has_no_setting_that_a_check_alone_finds(shape):
    """Therefore explain skips these checks if it knows only a shape."""
    facts = Facts(topology=expand(shape, {}))
    assert not [one for check in CHECKS for one in check.look(facts) if one.certainty != "could not look"]


def test_a_description_that_says_it_was_looked_at_has_no_settings_that_are_fine():
    """A topology edited by hand or written by another program: a required fact that was not read is not fine."""
    forged = replace(expand("hgx-h100", {}), source="live")
    asking = [check for check in OF_MACHINES if check.asks]
    states = {look_for(check, Facts(topology=forged)).state for check in asking}
    assert states <= {"could not look", "does not apply"}


def audited(topology, tmp_path, capsys, *options):
    file = tmp_path / "machine.json"
    file.write_bytes(encode_topology(topology))
    status = run_command(["audit", "--from", str(file), *options])
    said = capsys.readouterr()
    assert said.err == ""
    return status, said.out


def test_the_status_is_3_where_nothing_applies_or_nobody_could_look_and_0_where_all_that_applies_is_fine(
    tmp_path, capsys
):
    status, text = audited(machine(), tmp_path, capsys)
    assert (status, text.splitlines()[0].partition(": ")[2]) == (
        0,
        f"all {len(OF_MACHINES) - 13} settings that apply are right, 13 do not apply here",
    )
    assert "  io_uring_off: io_uring is available\n" in text
    assert not [check for check in OF_MACHINES if f"{check.name}: {check.summary}\n" in text]
    assert audited(silent(machine()), tmp_path, capsys)[0] == 3
    bare = without_gpus(machine())
    bare = replace(bare, links=(), devices=tuple(replace(host, facts={}) for host in bare.of_kind("host")))
    status, text = audited(bare, tmp_path, capsys)
    assert status == 3
    assert "nothing could be checked, so this says nothing about the machine" in text.splitlines()[0]


def test_each_record_is_of_one_fault_and_says_why(tmp_path, capsys):
    _, text = audited(without_gpus(machine()), tmp_path, capsys, "--json")
    records = [msgspec.json.decode(line) for line in text.splitlines()]
    assert len({record["fault"] for record in records}) == len(records) >= len(OF_MACHINES)
    assert all(record["because"] for record in records if record["state"] == "does not apply")
