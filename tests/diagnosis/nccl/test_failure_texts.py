"""NCCL's warnings in the forms of its versions, decoded."""

from __future__ import annotations

import pytest

from railwright.diagnosis.nccl.failure_texts import explain_failure
from railwright.diagnosis.nccl.warnings import explain_warnings
from railwright.results.readers.nccl_log import log as nccl_log

PEER = "10.0.0.9<40112>"
FORMS = {
    "before 2.12": ("NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129", 12, "", ""),
    "2.18": (f"NET/IB : Got completion from peer {PEER} with error 12, opcode 1, len 0, vendor err 129 (Recv)", 12,
             "10.0.0.9", ""),
    "2.27": (f"NET/IB: Got completion from peer {PEER} with status=12 opcode=129 len=0 vendor err 129 hca mlx5_4", 12,
             "10.0.0.9", "mlx5_4"),
    "2.30": (f"NET/IB: Got completion from peer {PEER} with status=RNR(13) opcode=SEND(0) vendor_err=129  hca mlx5_1",
             13, "10.0.0.9", "mlx5_1"),
    "IPv6": ("NET/IB : Got completion from peer fe80::96:ad%ib0<33397> with error 4, opcode 32, len 3, vendor err 81",
             4, "fe80::96:ad", ""),
}  # fmt: skip


@pytest.mark.parametrize(("text", "status", "peer", "nic"), FORMS.values(), ids=FORMS)
def test_a_completion_is_decoded_in_every_form(text, status, peer, nic):
    found = explain_failure(text)
    assert found.says.startswith(f"status {status} = ")
    assert (found.peer, found.nic) == (peer, nic)
    assert "vendor err" in found.says
    assert (peer or "the peer") in found.says + found.remedy or status == 4


@pytest.mark.parametrize(
    ("text", "fault", "words"),
    [
        ("Failed to open libibverbs.so[.1]", "nccl_no_verbs", "libibverbs"),
        ("Error: network AWS Libfabric not found.", "nccl_plugin_missing", "AWS Libfabric"),
        (
            "Connect to 10.1.1.1<33> failed : Connection refused",
            "nccl_bootstrap",
            "10.1.1.1 failed: Connection refused",
        ),
        ("socketProgress: Connection closed by remote peer n2<41000>", "nccl_peer_closed", "n2 closed"),
        ("Cuda failure 'out of memory'", "nccl_cuda_error", "out of memory"),
        ("Cuda failure 700 'an illegal memory access was encountered'", "nccl_cuda_error", "illegal memory access"),
        ("Call to ibv_reg_mr failed with error Cannot allocate memory", "nccl_verbs_call", "Cannot allocate memory"),
        ("NET/IB : Unable to open device mlx5_bond_0", "nccl_no_device", "could not open a NIC"),
        ("NET/IB : No IP interface found.", "nccl_bootstrap", "no interface"),
    ],
)
def test_other_failures_name_their_kind(text, fault, words):
    found = explain_failure(text)
    assert found.fault == fault
    assert words in found.says


def test_the_cause_comes_before_what_follows_from_it():
    flushed = (
        f"n0:1:2 [0] net.cc:1 NCCL WARN Got completion from peer {PEER} with status=5 opcode=0 len=0 vendor err 249\n"
    )
    gone = (
        f"n0:1:2 [0] net.cc:1 NCCL WARN Got completion from peer {PEER} with status=12 opcode=0 len=0 vendor err 129\n"
    )
    first, second = explain_warnings(nccl_log.read(flushed + flushed + gone))
    assert "status 12" in first.says
    assert "status 5" in second.says


def test_an_unknown_warning_is_quoted_and_no_failure():
    (found,) = explain_warnings(nccl_log.read("n0:1:2 [0] x.cc:1 NCCL WARN Something new happened\n"))
    assert (found.certainty, found.says) == ("possible", "on n0, local GPU 0: NCCL warns: Something new happened")


def test_interfaces_of_a_socket_plugin_have_no_gpudirect_to_miss():
    line = "n0:1:2 [0] NCCL INFO NET/FastSocket : GPU Direct RDMA Disabled for HCA 0 'eth0'\n"
    assert explain_warnings(nccl_log.read(line)) == ()
