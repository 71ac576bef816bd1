"""What has nothing to look at is not fine: a fault was found, is not there, cannot be there, or nobody could look."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.faults.test_gpu_settings import machine as gpu_machine

from railwright.cli.main import status_of
from railwright.faults.check import check
from railwright.faults.fault import Facts
from railwright.faults.registry import FAULTS
from railwright.topology.devices import Unknown
from railwright.topology.expand import expand
from railwright.topology.sources.saved import encode_topology

OF_MACHINES = [fault for fault in FAULTS if not fault.needs_results and fault.needs]
OF_NVML = [fault for fault in FAULTS if fault.asks_nvml]


def machine():
    """A healthy HGX H100, with the module that GPUDirect RDMA needs."""
    host = gpu_machine()
    loaded = {"modules": "nvidia nvidia_peermem"}
    devices = (replace(one, facts={**one.facts, **loaded}) if one.kind == "host" else one for one in host.devices)
    return replace(host, devices=tuple(devices))


def states(topology, faults=OF_MACHINES, **environment):
    return {fault.name: check(fault, Facts(topology=topology, environment=environment)).state for fault in faults}


def without_gpus(topology):
    gpus = {gpu.id for gpu in topology.of_kind("gpu")}
    return replace(
        topology,
        devices=tuple(one for one in topology.devices if one.id not in gpus),
        links=tuple(link for link in topology.links if not gpus & {link.a, link.b}),
    )


def silent(topology):
    """The same machine with an NVML that does not answer: sysfs alone names its GPUs."""
    devices = tuple(
        replace(one, name="", facts={"pci_id": "10de:2330", "driver": "nvidia"}) if one.kind == "gpu" else one
        for one in topology.devices
    )
    told = Unknown(what="NVLink of gpu0", why="NVML did not answer")
    return replace(topology, devices=devices, unknown=(told,))


def test_a_healthy_machine_is_fine_in_all_that_applies():
    assert set(states(machine()).values()) == {"fine"}


def test_a_machine_without_gpus_has_no_fault_of_gpus():
    found = states(without_gpus(machine()))
    assert {name for name, state in found.items() if state == "fine"} == {
        "pcie_below_maximum",
        "mtu_small",
        "acs_redirect",
    }
    assert set(found.values()) == {"fine", "does not apply"}


def test_a_setting_is_found_also_where_nothing_else_applies():
    assert states(without_gpus(machine()), NCCL_P2P_DISABLE="1")["p2p_disabled"] == "found"


@pytest.mark.parametrize("fault", OF_NVML, ids=lambda fault: fault.name)
def test_what_nvml_alone_says_cannot_be_looked_for_where_it_is_silent(fault):
    told = check(fault, Facts(topology=silent(machine())))
    assert told.state == "could not look"
    assert told.because == "NVIDIA's library NVML says nothing of gpu0-7" or "cannot be read" in told.findings[0].says


@pytest.mark.parametrize("fault", OF_NVML, ids=lambda fault: fault.name)
def test_nothing_is_set_in_a_description(fault):
    told = check(fault, Facts(topology=expand("hgx-h100", {})))
    assert (told.state, told.because) == ("does not apply", "hgx-h100 is a description, in which nothing is set")


def audited(topology, tmp_path, capsys, *options):
    file = tmp_path / "machine.json"
    file.write_bytes(encode_topology(topology))
    status = status_of(["audit", "--from", str(file), *options])
    said = capsys.readouterr()
    assert said.err == ""
    return status, said.out


def test_the_status_is_3_where_nothing_applies_or_nobody_could_look_and_0_where_all_that_applies_is_fine(
    tmp_path, capsys
):
    status, text = audited(machine(), tmp_path, capsys)
    assert (status, text.splitlines()[0].partition("faults: ")[2]) == (
        0,
        "0 found, 0 could not be looked for, 15 looked for and fine, 0 do not apply",
    )
    assert audited(silent(machine()), tmp_path, capsys)[0] == 3
    bare = without_gpus(machine())
    bare = replace(bare, links=(), devices=bare.of_kind("host"))
    status, text = audited(bare, tmp_path, capsys)
    assert (status, text.splitlines()[-1]) == (
        3,
        "None of them could be looked for here: this says nothing of the machine.",
    )


def test_each_record_is_of_one_fault_and_says_why(tmp_path, capsys):
    _, text = audited(without_gpus(machine()), tmp_path, capsys, "--json")
    records = [msgspec.json.decode(line) for line in text.splitlines()]
    assert len({record["fault"] for record in records}) == len(records) >= len(OF_MACHINES)
    assert all(record["because"] for record in records if record["state"] == "does not apply")
