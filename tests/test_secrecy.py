"""Secrets of every kind that a variable, a command or an error may hold are hidden, and settings are not."""

from __future__ import annotations

import msgspec
import pytest

from railwright.launch.environment import read_environment
from railwright.secrecy import HIDDEN, hide_secrets, hide_value

SECRET = "s3cr3tS3CR3Tvalue42"
PLANTED = {
    "NIXL_ETCD_ENDPOINTS": f"http://root:{SECRET}@10.0.0.1:2379,http://root:{SECRET}@10.0.0.2:2379",
    "NIXL_TCPSTORE_ENDPOINT": f"root:{SECRET}@store.example:29500",
    "NIXL_OBJ_SECRET_KEY": SECRET,
    "UCX_AUTH_TOKEN": SECRET,
    "FI_EFA_PASSWORD": SECRET,
    "NCCL_NET_PLUGIN_URL": f"https://host/plugin?token={SECRET}&v=1",
    "NCCL_OBSERVER": f"Bearer {SECRET}",
    "OMPI_MCA_x": f"password={SECRET},verbose=1",
    "OMPI_MCA_orte_precondition_transports": f"{SECRET}-1234",
    "UCX_LOG_SINK": f"https://eyJhbGciOiJIUzI1NiJ9.{SECRET}.c2ln",
    "CUDA_CACHE_REMOTE": f"s3://bucket?access_key={SECRET}",
    "NCCL_APITOKEN": SECRET,
    "NIXL_S3_ACCESSKEY": SECRET,
    "UCX_PASSWORDS": SECRET,
    "OMPI_MCA_command": f"tool --mode fast --auth-token {SECRET} --password {SECRET}",
    "NCCL_OPTIONS": f'{{"password": "{SECRET}", "api_key": "{SECRET}", "token":"{SECRET}"}}',
    "FI_OPTIONS": f"{{'token':'{SECRET}'}} sslpassword={SECRET};pwd='{SECRET}'",
    "UCX_STORE": f"AccountName=a;AccountKey={SECRET}==;EndpointSuffix=b",
    "CUFILE_URL": f"https://host/container?sp=r&sig={SECRET}%3D&X-Amz-Credential={SECRET}",
    "NCCL_CONF": f"-----BEGIN RSA PRIVATE KEY-----\\n{SECRET}\\n-----END RSA PRIVATE KEY-----",
}
SETTINGS = {
    "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
    "NCCL_IB_PKEY": "3",
    "UCX_IB_PKEY": "0x8001",
    "UCX_NET_DEVICES": "mlx5_0:1",
    "UCX_TLS": "^tcp",
    "NCCL_SOCKET_IFNAME": "^docker,lo",
    "NCCL_TUNER_PLUGIN": "/opt/lib/libnccl-tuner.so",
    "CUDA_VISIBLE_DEVICES": "GPU-8f6d2f3e-1111-2222-3333-444455556666",
    "NIXL_ETCD_ENDPOINTS": "http://10.0.0.1:2379",
    "FI_PROVIDER": "efa;ofi_rxm",
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_secret_is_hidden(name, monkeypatch):
    monkeypatch.setenv(name, PLANTED[name])
    found = read_environment()[name]
    assert SECRET not in found
    assert HIDDEN in found


def test_settings_stay_as_they_are():
    assert {name: hide_value(name, value) for name, value in SETTINGS.items()} == SETTINGS
    for text in (
        '{"key":"cpu.user","unit":"s"}',
        "--path gpu0:gpu0@1",
        "sizes=8,64M",
        "rkey=0x1234567890",
        "key: 0x12",
        "13 tokens: all of them",
    ):
        assert hide_secrets(text) == text


def test_texts_in_records_are_hidden_and_remain_json():
    texts = ["password: 123456", f'{{"secret": "{SECRET}"}}',
             f"cannot reach http://root:{SECRET}@a: refused", f"token={SECRET}", PLANTED["NCCL_CONF"],
             f"Bearer {SECRET}", "AKIAIOSFODNN7EXAMPLE", "ghp_" + "a1" * 18, "hf_" + "b2" * 17]  # fmt: skip
    found = hide_secrets(msgspec.json.encode({"reason": texts, "after": 1}).decode())
    assert msgspec.json.decode(found)["after"] == 1
    assert found.count(HIDDEN) >= len(texts)
    assert SECRET not in found
