"""Environment variables that contradict each other or the machine, or slow a job down."""

import pytest
from tests.checks.machines import tuned, tuned_roce, with_facts

from railwright.checks.check import Facts
from railwright.faults.every_check import EVERY_CHECK


def machine():
    """A machine whose RDMA devices are named `mlx5_N`."""
    host = tuned()
    for number, _ in enumerate(host.of_kind("nic")):
        host = with_facts(host, "nic", number, rdma_device=f"mlx5_{number}", driver="mlx5_core")
    return host


def look(name, **environment):
    (check,) = [check for check in EVERY_CHECK if check.name == name]
    return check.look(Facts(topology=machine(), environment=environment))


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "mlx5"}, "NCCL_IB_DISABLE=1 makes NCCL_IB_HCA ineffective"),
        ({"NCCL_NET": "Socket", "NCCL_IB_TC": "106"}, "NCCL_NET=Socket makes NCCL_IB_TC ineffective"),
        ({"NCCL_MIN_NCHANNELS": "32", "NCCL_MAX_NCHANNELS": "16"}, "NCCL_MIN_NCHANNELS=32 is above"),
        ({"NCCL_IB_GID_INDEX": "3", "NCCL_IB_ADDR_FAMILY": "AF_INET"}, "NCCL_IB_GID_INDEX=3 makes"),
        ({"NCCL_SOCKET_FAMILY": "AF_INET", "NCCL_IB_ADDR_FAMILY": "AF_INET6"}, "NCCL_SOCKET_FAMILY is AF_INET and"),
        ({"NCCL_ALGO": "NVLS,Ring", "NCCL_NVLS_ENABLE": "0"}, "NCCL_ALGO requests NVLS"),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "SYS"}, "NCCL_P2P_DISABLE=1 makes NCCL_P2P_LEVEL ineffective"),
        ({"NCCL_IB_HCA": "mlx5_0,mlx5_9:1"}, "NCCL_IB_HCA names mlx5_9, the machine has mlx5_0, "),
        ({"NCCL_IB_HCA": "=mlx5"}, "NCCL_IB_HCA names mlx5, "),
        ({"UCX_NET_DEVICES": "mlx5_0:1,mlx5_bond_0:1"}, "UCX_NET_DEVICES names mlx5_bond_0, "),
        ({"FI_PROVIDER": "efa"}, "FI_PROVIDER=efa, but no NIC"),
        ({"OMPI_MCA_pml": "ob1", "UCX_TLS": "rc,cuda"}, "pml=ob1 of Open MPI does not use UCX"),
    ],
)
def test_contradictions(environment, says):
    (finding,) = look("environment_contradicts", **environment)
    assert finding.says.startswith(says)
    assert finding.evidence
    assert look("environment_contradicts", **dict([next(iter(environment.items()))]))[1:] == ()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NCCL_IB_HCA": "mlx5"},
        {"NCCL_IB_HCA": "^mlx5_99"},
        {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_7"},
        {"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "32"},
        {"NCCL_MIN_NCHANNELS": "many", "NCCL_MAX_NCHANNELS": "1"},
        {"UCX_NET_DEVICES": "mlx5_[0-9]:1"},
        {"UCX_NET_DEVICES": "eth0"},
        {"NCCL_ALGO": "^NVLS", "NCCL_NVLS_ENABLE": "0"},
        {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "mlx5"},
        {"NCCL_SOCKET_FAMILY": "AF_INET6", "NCCL_IB_ADDR_FAMILY": "AF_INET6"},
    ],
)
def test_what_agrees_is_no_contradiction(environment):
    assert look("environment_contradicts", **environment) == ()
    assert look("environment_slows", **environment) == ()


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"UCX_TLS": "tcp,cuda"}, "UCX_TLS=tcp,cuda leaves out RDMA"),
        ({"UCX_TLS": "rc,sm"}, "UCX_TLS=rc,sm leaves out the transports of GPU memory"),
        ({"FI_PROVIDER": "tcp"}, "FI_PROVIDER=tcp leaves out RDMA"),
        ({"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}, "OMPI_MCA_btl=tcp,self makes Open MPI use TCP"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "CUDA_LAUNCH_BLOCKING=1 makes every kernel launch wait"),
        ({"NCCL_DEBUG": "TRACE"}, "NCCL_DEBUG=TRACE writes"),
    ],
)
def test_what_slows_a_job(environment, says):
    (finding,) = look("environment_slows", **environment)
    assert finding.says.startswith(says)
    assert finding.remedy


@pytest.mark.parametrize(
    "environment",
    [{"UCX_TLS": "rc,cuda_copy"}, {"UCX_TLS": "all"}, {"UCX_TLS": "^tcp"}, {"UCX_TLS": "\\rc_x,cuda"},
     {"FI_PROVIDER": "verbs"}, {"OMPI_MCA_btl": "tcp,self"}, {"NCCL_DEBUG": "INFO"}],
)  # fmt: skip
def test_what_slows_nothing(environment):
    assert look("environment_slows", **environment) == ()


def far(**environment):
    (check,) = [check for check in EVERY_CHECK if check.name == "nic_choice_far"]
    return check.look(Facts(topology=machine(), environment=environment))


@pytest.mark.parametrize(
    ("environment", "gpus", "way"),
    [
        ({"NCCL_IB_HCA": "mlx5_0"}, "gpu1-3", "PHB instead of PXB"),
        ({"NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"}, "gpu4-7", "SYS instead of PXB"),
        ({"NCCL_IB_HCA": "^mlx5_7"}, "gpu7", "PHB instead of PXB"),
        ({"UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1"}, "gpu4-7", "SYS instead of PXB"),
    ],
)
def test_nics_that_leave_out_the_nearest(environment, gpus, way):
    findings = far(**environment)
    kinds = {"PXB": ("PIX", "PXB"), "PHB": ("PHB",), "SYS": ("SYS",)}
    now, _, near = way.partition(" instead of ")
    assert any(
        f"nearest NIC of {gpus}: {one} instead of {two}" in finding.says
        for finding in findings for one in kinds[now] for two in kinds[near]
    ), [finding.says for finding in findings]  # fmt: skip


@pytest.mark.parametrize(
    "environment",
    [{}, {"NCCL_IB_HCA": "mlx5"}, {"NCCL_IB_HCA": "mlx9"}, {"UCX_NET_DEVICES": "all"},
     {"UCX_NET_DEVICES": "mlx5_[0-3]:1"},
     {"UCX_NET_DEVICES": "eth0"}, {"NCCL_IB_HCA": ""}, {"NCCL_IB_HCA": "^mlx9"}],
)  # fmt: skip
def test_nics_that_leave_out_none(environment):
    assert far(**environment) == ()


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("0", "NCCL_IB_GID_INDEX=0, but that GID of nic0-7 is a RoCE v1 GID"),
        ("1", "NCCL_IB_GID_INDEX=1, but that GID of nic0-7 is link-local, although"),
        ("9", "NCCL_IB_GID_INDEX=9, but that GID of nic0-7 is empty"),
        ("3", ""),
        ("many", ""),
    ],
)
def test_an_index_of_the_wrong_gid(index, says):
    (check,) = [check for check in EVERY_CHECK if check.name == "roce_gid_index_wrong"]
    findings = check.look(Facts(topology=tuned_roce(), environment={"NCCL_IB_GID_INDEX": index}))
    assert [one.says.startswith(says) for one in findings] == ([True] if says else [])


@pytest.mark.parametrize(
    ("given", "facts", "says"),
    [
        ("0", {}, "NCCL_IB_TC=0 is DSCP 0, to which nic0-7 give priority 0, but priority 3 is lossless"),
        ("106", {}, ""),
        ("0", {"trust_mode": "pcp"}, ""),
        ("0", {"lossless_priorities": "none"}, ""),
        ("48", {}, ""),
        ("999", {}, ""),
    ],
)
def test_a_traffic_class_without_pfc(given, facts, says):
    (check,) = [check for check in EVERY_CHECK if check.name == "traffic_class_lossy"]
    machine = with_facts(tuned_roce(), "nic", **{"dscp_priorities": "0:0 26:3"} | facts)
    findings = check.look(Facts(topology=machine, environment={"NCCL_IB_TC": given}))
    assert [one.says for one in findings] == ([says] if says else [])


def test_tools_that_are_told_of_ipv6_find_it():
    (check,) = [check for check in EVERY_CHECK if check.name == "fabric_ipv6_only"]
    six = with_facts(tuned_roce(), "nic", roce_gids="3:v2/IPv6/eth2")
    assert check.look(Facts(topology=six, environment={"NCCL_IB_ADDR_FAMILY": "AF_INET6"})) == ()
    (finding,) = check.look(Facts(topology=six, environment={"NCCL_IB_ADDR_FAMILY": "AF_INET"}))
    assert finding.certainty == "likely"


def test_only_where_there_is_an_efa_the_plugin_is_missed():
    environment = {"NCCL_NET_PLUGIN": "none"}
    assert look("environment_slows", **environment) == ()
    (check,) = [check for check in EVERY_CHECK if check.name == "environment_slows"]
    of_efa = with_facts(tuned(), "nic", driver="efa")
    (finding,) = check.look(Facts(topology=of_efa, environment=environment))
    assert "aws-ofi-nccl" in finding.says
