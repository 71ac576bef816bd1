"""cuFile's configuration: the right NICs of captured machines, and the errors of an existing file."""

from __future__ import annotations

import json

import pytest
from tests.topology.machines import HOSTS

from railwright.checks import cufile_settings
from railwright.topology.sources.interface_address import ipv4_address

TWO = str(HOSTS / "8xh100-2nic/machine.jsonl")
EIGHT = str(HOSTS / "8xh100-8nic/machine.jsonl")
OF_TWO = ("--address", "nic0=10.0.0.1", "--address", "mlx5_1=10.0.0.2")


def of_eight() -> tuple[str, ...]:
    return tuple(word for number in range(8) for word in ("--address", f"nic{number}=10.0.1.{number}"))


def test_gpus_without_a_near_nic_are_routed_over_nvlink(answer):
    done = answer("storage", "cufile-json", "--from", TWO, *OF_TWO)
    assert done.status == 0
    properties = cufile_settings.decode_properties(done.out.encode())
    assert properties["rdma_dev_addr_list"] == ["10.0.0.1", "10.0.0.2"]
    assert properties["rdma_dynamic_routing"] is True
    assert properties["rdma_dynamic_routing_order"][0] == "GPU_MEM_NVLINKS"
    comments = [line for line in done.out.splitlines() if line.strip().startswith("//")]
    assert len(comments) > len(properties), "each line has its reason"
    assert max(map(len, done.out.splitlines())) <= 120


def test_gpus_with_a_nic_each_need_no_routing_and_slow_nics_are_left_out(answer):
    done = answer("storage", "cufile-json", "--from", EIGHT, *of_eight(), "--json")
    assert done.status == 0
    records = [json.loads(line) for line in done.out.splitlines()]
    by_key = {one["key"]: one for one in records}
    assert by_key["rdma_dynamic_routing"]["value"] is False
    assert len(by_key["rdma_dev_addr_list"]["value"]) == 8
    for number in range(8):
        assert f"near gpu{number}" in by_key["rdma_dev_addr_list"]["why"]


def test_a_shape_is_a_machine_too_and_amd_has_no_cufile(answer):
    done = answer("storage", "cufile-json", "--from", "hgx-h100 nics=2", "--address", "nic0=10.0.0.1")
    assert done.status == 3
    assert "the address of nic1 is unknown" in done.message()
    assert "--address" in done.message()
    assert answer("storage", "cufile-json", "--from", "laptop").status == 2
    amd = answer("storage", "cufile-json", "--from", "mi300x")
    assert (amd.status, "has no NVIDIA GPU" in amd.err) == (2, True)


def test_what_was_written_is_found_right(answer):
    assert answer("storage", "cufile-json", "--from", TWO, *OF_TWO, "made.json").status == 0
    done = answer("storage", "cufile-json", "--from", TWO, *OF_TWO, "--check", "made.json")
    assert done.status == 0, done.out
    assert "bad" not in done.out


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({}, "empty: remote file systems go through host memory"),
        ({"rdma_dev_addr_list": ["10.0.0.1"]}, "nic1 (mlx5_1), near gpu4"),
        ({"rdma_dev_addr_list": ["10.0.0.1", "10.0.0.2", "10.0.0.9"]}, "10.0.0.9 is not the address of any NIC"),
        ({"rdma_dev_addr_list": ["mlx5_0"]}, "not an IPv4 address: 'mlx5_0'"),
        ({"rdma_dev_addr_list": "10.0.0.1"}, "must be a list of addresses"),
        ({"rdma_dev_addr_list": ["10.0.0.1", "10.0.0.2"]}, "off, and gpu1, gpu2, gpu3, gpu5"),
        (
            {"rdma_dev_addr_list": ["10.0.0.1", "10.0.0.2"], "rdma_dynamic_routing": True, "force_compat_mode": True},
            "GPUDirect Storage is never used",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_what_to_do(answer, properties, why):
    (answer.folder / "it.json").write_text("// ours\n" + json.dumps({"properties": properties}))
    done = answer("storage", "cufile-json", "--from", TWO, *OF_TWO, "--check", "it.json")
    assert done.status == 1, done.out
    assert why in " ".join(done.out.split())
    assert "remedy" in done.out


def test_an_address_that_nobody_can_place_is_not_judged(answer):
    file = {"properties": {"rdma_dev_addr_list": ["10.0.0.1", "10.0.0.2"], "rdma_dynamic_routing": True}}
    (answer.folder / "it.json").write_text(json.dumps(file))
    done = answer("storage", "cufile-json", "--from", TWO, "--check", "it.json")
    assert done.status == 3
    assert done.out.count("not looked") == 2


def test_files_and_words_that_cannot_be_used_are_refused(answer):
    for content, why in (
        (b"{", "must be a cufile.json"),
        (b'{"properties": 5}', "must be an object"),
        (b"\xff\xfe", "must be a cufile.json"),
        (b"[" * 100_000, "must be a cufile.json"),
    ):
        (answer.folder / "bad.json").write_bytes(content)
        done = answer("storage", "cufile-json", "--from", TWO, *OF_TWO, "--check", "bad.json")
        assert done.status == 2, content[:20]
        assert why in done.message()
    assert (
        "none.json cannot be read" in answer("storage", "cufile-json", "--from", TWO, "--check", "none.json").message()
    )
    for given, why in (
        ("nic0", "--address must be NIC=ADDRESS"),
        ("nic0=fe80::1", "--address must be NIC=ADDRESS"),
        ("nic77=10.0.0.1", "there is no NIC named 'nic77'"),
    ):
        done = answer("storage", "cufile-json", "--from", TWO, "--address", given)
        assert (done.status, why in done.message()) == (2, True)
    both = answer("storage", "cufile-json", "--from", TWO, "--check", "bad.json", "out.json")
    assert "--check and FILE exclude each other" in both.message()


def test_comments_go_and_addresses_in_strings_stay():
    raw = b'{ // one "two"\n "properties": {"a": "http://x//y", "b": "\\"//"} } // end'
    assert cufile_settings.decode_properties(raw) == {"a": "http://x//y", "b": '"//'}


def test_the_kernel_tells_an_interface_s_address():
    assert ipv4_address("lo") in ("127.0.0.1", None), "a namespace may have it down"
    for name in ("", "no-such-interface", "x" * 40, "nope0"):
        assert ipv4_address(name) is None
